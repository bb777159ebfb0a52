"""One reader per file format; each turns a file into a `Model`. A new format is one entry in `READERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engine.graph.importers.support import Supported
from engine.graph.model import Model

Reader = Callable[[bytes, Path | None, str, Supported | None], Model]
"""The file's bytes, the folder of its weight files, its name for messages, what the engine supports."""


def _onnx(data: bytes, folder: Path | None, name: str, supported: Supported | None) -> Model:
    # The `onnx` package takes as long to import as all of the engine, and stored graphs do without it.
    from engine.graph.importers.onnx_importer import read_onnx

    return read_onnx(data, folder, name, supported)


READERS: Mapping[str, Reader] = {".onnx": _onnx}
"""File name suffix, in lower case -> reader."""

__all__ = ["READERS", "Reader", "Supported"]
