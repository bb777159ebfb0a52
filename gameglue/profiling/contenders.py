"""Contenders of a comparison: one inference on this engine, onnxruntime or OpenVINO."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import BackendType, Tensor, Worker

if TYPE_CHECKING:
    import onnxruntime

Arrays = dict[str, np.ndarray]
Call = Callable[[Mapping[str, np.ndarray]], Arrays]
"""One inference."""


def infer(worker: Worker, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Schedule once and wait for every output, by name."""
    worker.schedule(inputs)
    outputs = worker.model.outputs
    if worker.backend_type is BackendType.CPU:
        # Nothing is on its way there.
        return {item.name: worker.peek_output(item.name).download_to_array() for item in outputs}
    tensors = {item.name: worker.peek_output(item.name) for item in outputs}
    if len(tensors) > 1:
        # All copies are on their way before the first is waited for.
        for tensor in tensors.values():
            tensor.readback_request()
    return {name: tensor.download_to_array() for name, tensor in tensors.items()}


def schedule_cost(
    worker: Worker, inputs: Mapping[str, np.ndarray | Tensor], runs: int, seconds: float = math.inf
) -> float:
    """Seconds of the calling thread's time that `schedule` takes: the median over `runs`, each waited for.

    seconds: after which no other run begins.
    """
    name = worker.model.outputs[0].name
    costs: list[float] = []
    end = time.perf_counter() + seconds
    while not costs or len(costs) < runs and time.perf_counter() < end:
        before = time.perf_counter()
        worker.schedule(inputs)
        costs.append(time.perf_counter() - before)
        worker.peek_output(name).download_to_array()
    return median(costs)


def schedule_bytes(worker: Worker, inputs: Mapping[str, np.ndarray | Tensor], runs: int = 5) -> int:
    """Bytes that Python holds at most for a `schedule` beyond those it held before: the least over `runs`.

    The objects of the run and its outputs, and any array that is made; not what native code may take.
    """
    name = worker.model.outputs[0].name
    least = -1
    tracemalloc.start()
    try:
        for _ in range(runs):
            worker.peek_output(name).download_to_array()
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            worker.schedule(inputs)
            _, peak = tracemalloc.get_traced_memory()
            least = peak - before if least < 0 else min(least, peak - before)
    finally:
        tracemalloc.stop()
    return least


def onnxruntime_options(severity: int = 3) -> onnxruntime.SessionOptions:
    """Options of a session whose sums of integers are exact on every processor, as this engine's are.

    On x86-64 without VNNI, onnxruntime's sums of uint8 times int8 saturate at 16 bits otherwise, which is
    faster.

    severity: the least that it logs: 2 warnings, 3 errors, 4 what is fatal.
    """
    import onnxruntime  # optional

    options = onnxruntime.SessionOptions()
    options.log_severity_level = severity
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def onnxruntime_call(source: str | Path | bytes, threads: int | None = None) -> Call:
    """A session of onnxruntime on the CPU, as a function from inputs to outputs by name.

    threads: how many compute; None lets onnxruntime decide. Raises `ImportError` where it is not installed,
    and exceptions of its own, which have no common class.
    """
    import onnxruntime  # optional

    options = onnxruntime_options()
    if threads is not None:
        options.intra_op_num_threads = threads
    model = source if isinstance(source, bytes) else str(source)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]

    def call(inputs: Mapping[str, np.ndarray]) -> Arrays:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return call


def openvino_call(source: str | Path | bytes, threads: int | None = None, precision: str = "f32") -> Call:
    """OpenVINO on the CPU, tuned for latency, as a function from inputs to outputs by name.

    Inputs are read where they lie; the outputs are OpenVINO's own memory, good until the next call.

    threads: how many compute; None lets OpenVINO decide.
    precision: of the computation; "" lets OpenVINO decide, which is bfloat16 where the processor has it.
    Raises `ImportError` where it is not installed, and exceptions of its own, which have no common class.
    """
    import openvino  # optional

    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if precision:
        settings["INFERENCE_PRECISION_HINT"] = precision
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    core = openvino.Core()
    model = core.read_model(source if isinstance(source, bytes) else str(source))
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    names = [output.get_any_name() for output in model.outputs]

    def call(inputs: Mapping[str, np.ndarray]) -> Arrays:
        values = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return dict(zip(names, values.to_tuple(), strict=True))

    return call
