"""Contenders of a comparison: one inference on this engine or on onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from engine import Worker

Arrays = dict[str, np.ndarray]
Call = Callable[[Mapping[str, np.ndarray]], Arrays]
"""One inference."""


def infer(worker: Worker, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Schedule once and wait for every output, by name."""
    worker.schedule(inputs)
    return worker.take_outputs()


def onnxruntime_call(source: str | Path | bytes, threads: int | None = None) -> Call:
    """A session of onnxruntime on the CPU, as a function from inputs to outputs by name.

    threads: how many compute; None lets onnxruntime decide. Raises `ImportError` where it is not installed,
    and exceptions of its own, which have no common class.
    """
    import onnxruntime  # optional

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    model = source if isinstance(source, bytes) else str(source)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]

    def call(inputs: Mapping[str, np.ndarray]) -> Arrays:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return call
