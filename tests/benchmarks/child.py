"""One network loaded and run in a process of its own; what it cost is printed as JSON. Not called by hand.

    python -m tests.benchmarks.child {load|memory} {BACKEND|onnxruntime} MODEL INPUTS.npz

Nothing is imported before it is needed: what a process imports is part of what is measured here.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]
PEER = "onnxruntime"
MIB = 2**20
_STATUS = Path("/proc/self/status")


def memory_mib() -> tuple[float, float]:
    """What the process occupies now, and its highest so far, in MiB; where only that is told, twice that."""
    if _STATUS.exists():
        text = _STATUS.read_text(encoding="ascii")
        now, peak = (float(re.findall(rf"{name}:\s+(\d+) kB", text)[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak
    import resource  # Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB
    return peak, peak


def forget_peak() -> None:
    """Let the highest so far be what is occupied now, where Linux allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        # Without it the peak of the imports may hide a lower one of the model.
        return


def open_peer(model: str) -> Callable[[Inputs], object]:
    """onnxruntime with two threads."""
    import onnxruntime  # part of what is measured

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def open_ours(model: str, channel: str, times: dict[str, float]) -> tuple[Callable[[Inputs], object], Any]:
    """A worker of ours, as a function, and as itself; `times` takes down what its parts took, in seconds."""
    # Part of what is measured.
    from gameglue import ModelLoader
    from gameglue.profiling.benchmark_cases import infer
    from tests.benchmarks.setting import open_worker

    start = time.perf_counter()
    loaded = ModelLoader.load(model)
    read = time.perf_counter()
    worker = open_worker(loaded, channel)
    times["import model"], times["worker"] = read - start, time.perf_counter() - read
    return lambda inputs: infer(worker, inputs), worker


def load(name: str, model: str, inputs: Inputs) -> dict[str, float]:
    """How long each step to the first answers takes, in seconds."""
    times: dict[str, float] = {}
    start = time.perf_counter()
    if name == PEER:
        import onnxruntime  # noqa: F401 - part of what is measured

        times["import"] = time.perf_counter() - start
        before = time.perf_counter()
        call = open_peer(model)
        times["worker"] = time.perf_counter() - before
    else:
        import gameglue  # noqa: F401 - part of what is measured

        times["import"] = time.perf_counter() - start
        call, _ = open_ours(model, name, times)
    before = time.perf_counter()
    call(inputs)
    times["first run"] = time.perf_counter() - before
    before = time.perf_counter()
    call(inputs)
    times["second run"] = time.perf_counter() - before
    return times


def memory(name: str, model: str, inputs: Inputs, runs: int, warm_up: str) -> dict[str, float]:
    """What the process grows by over loading and running a model, in MiB.

    A small model comes first, so that packages imported late and the device's context count as the base.
    """
    if name == PEER:
        open_peer(warm_up)
    else:
        _, worker = open_ours(warm_up, name, {})
        worker.dispose()
    gc.collect()
    forget_peak()
    base, _ = memory_mib()
    call = open_peer(model) if name == PEER else open_ours(model, name, {})[0]
    gc.collect()
    loaded, _ = memory_mib()
    call(inputs)
    first, _ = memory_mib()
    for _ in range(runs):
        call(inputs)
    gc.collect()
    now, peak = memory_mib()
    return {
        "base": base,
        "loaded": loaded - base,
        "first run": first - base,
        "after": now - base,
        "peak": peak - base,
    }


def read_inputs(path: str) -> Inputs:
    """The arrays of a file, by name."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def main() -> None:
    """Do one task and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.child", description=__doc__)
    parser.add_argument("task", choices=("load", "memory"))
    parser.add_argument("name")
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--warm-up", default="")
    options = parser.parse_args()
    inputs = read_inputs(options.inputs)
    if options.task == "load":
        figures = load(options.name, options.model, inputs)
    else:
        figures = memory(options.name, options.model, inputs, options.runs, options.warm_up)
    print(json.dumps(figures), flush=True)
    # Without the disposal of everything, which is not measured.
    os._exit(0)


if __name__ == "__main__":
    main()
