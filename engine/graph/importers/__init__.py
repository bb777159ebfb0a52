"""One reader per file format; each turns a file into a `Model`. A new format is one entry in `READERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from engine.graph.importers.onnx_importer import read_onnx
from engine.graph.importers.support import Supported
from engine.graph.model import Model

Reader = Callable[[bytes, Path | None, str, Supported | None], Model]
"""The file's bytes, the folder of its weight files, its name for messages, what the engine supports."""

READERS: Mapping[str, Reader] = {".onnx": read_onnx}
"""File name suffix, in lower case -> reader."""

__all__ = ["READERS", "Reader", "Supported", "read_onnx"]
