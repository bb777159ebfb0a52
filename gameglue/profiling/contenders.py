"""What is compared: one inference from arrays to arrays, here and on onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from engine import Worker

Arrays = dict[str, np.ndarray]


def infer(worker: Worker, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Schedule once and wait for every output, by name."""
    worker.schedule(inputs)
    tensors = {item.name: worker.peek_output(item.name) for item in worker.model.outputs}
    if len(tensors) > 1:
        # All copies are on their way before the first is waited for.
        for tensor in tensors.values():
            tensor.readback_request()
    return {name: tensor.download_to_array() for name, tensor in tensors.items()}


def schedule_cost(worker: Worker, inputs: Mapping[str, np.ndarray], runs: int) -> float:
    """Seconds of the calling thread's time that `schedule` takes: the median over `runs`, each waited for."""
    name = worker.model.outputs[0].name
    costs = []
    for _ in range(runs):
        before = time.perf_counter()
        worker.schedule(inputs)
        costs.append(time.perf_counter() - before)
        worker.peek_output(name).download_to_array()
    return median(costs)


def onnxruntime_call(
    source: str | Path | bytes, threads: int | None = None
) -> Callable[[Mapping[str, np.ndarray]], Arrays]:
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
