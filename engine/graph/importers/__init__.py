"""One reader per file format; each turns a file into a `Model`. A new format is one entry in `READERS`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from engine.graph.importers.support import Supported
from engine.graph.model import Model

Reader = Callable[[bytes, Path | None, str, Supported | None], Model]
"""The file's bytes, the folder of its weight files, its name for messages, what the engine supports."""


def read_onnx(
    source: bytes | str | os.PathLike[str],
    folder: Path | None = None,
    name: str = "<bytes>",
    supported: Supported | None = None,
) -> Model:
    """The model in an ONNX file; see `engine.graph.importers.onnx_importer.read_onnx`."""
    # The `onnx` package takes as long to import as all of the engine, and stored graphs do without it.
    from engine.graph.importers import onnx_importer

    return onnx_importer.read_onnx(source, folder, name, supported)


READERS: Mapping[str, Reader] = {".onnx": read_onnx}
"""File name suffix, in lower case -> reader."""

__all__ = ["READERS", "Reader", "Supported", "read_onnx"]
