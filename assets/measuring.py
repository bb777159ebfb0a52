"""What model cards tell of an ONNX file, and how they run it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Self

import onnx
import onnxruntime


@dataclass(frozen=True)
class FileFacts:
    """Of an ONNX file: numbers in its weights, its size, and the operator set that it is written in."""

    weights: int
    kilobytes: float
    opset: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read them from the file."""
        model = onnx.load_model(path)
        weights = sum(prod(weight.dims) for weight in model.graph.initializer)
        return cls(weights, path.stat().st_size / 1e3, model.opset_import[0].version)


def open_session(path: Path, threads: int = 0) -> onnxruntime.InferenceSession:
    """The model in onnxruntime, on so many threads of the CPU; 0: on as many as suit it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
