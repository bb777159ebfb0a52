"""An inference in slices beside one at once: what slicing costs, and how long each call keeps the caller.

    python -m tests.benchmarks.slices --models squeezenet1.1_fp32 --slice-ms 0.5

"at once" and "in slices" are from the call to the result, the slices one right after the other. Calls of the
schedule are timed with a pause between them, as frames are. The heaviest step is what one slice would take
if slices were whole steps. With OpenGL, a game's context is current meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import moderngl
import numpy as np

from engine import ModelLoader, SystemInfo, Worker
from gameglue.profiling.benchmark_cases import infer
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_end,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import add_model_option, present, subject
from tests.networks import Inputs

PAUSE = 0.002
"""Seconds between two slices whose calls are timed."""

LEARNING = 8
"""Runs that are not timed: steps are measured in them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.slices", __doc__)
    add_model_option(parser, ["squeezenet1.1_fp32"])
    parser.add_backends()
    parser.add_count("--runs", 9, "inferences of each kind")
    parser.add_number("--slice-ms", 0.5, "", "MS")
    options = parser.parse_args(argv)
    out = console()
    print_setting(
        out,
        "inference in slices",
        {"times": f"ms, medians of {options.runs} inferences", "slices": f"{options.slice_ms} ms"},
    )
    rows = []
    with ExitStack() as stack:
        if SystemInfo.query().gl is not None:
            create: Any = moderngl.create_standalone_context
            game = create(**({"backend": "egl"} if sys.platform.startswith("linux") else {}))
            stack.callback(game.release)
        for name in present(options.models):
            item = subject(name)
            model = ModelLoader.load(item.source)
            for channel in chosen_backends(options.backends):
                with open_worker(model, channel) as worker:
                    worker.slice_ms = options.slice_ms
                    rows.append([name, channel, *_measure(worker, item.inputs, options.runs)])
    columns = [
        "", "backend", "at once", "in slices", "slices", "call: median", "p99", "longest", "heaviest step",
    ]  # fmt: skip
    print_table(out, columns, rows)
    print_end(out)
    return 0


def _measure(worker: Worker, inputs: Inputs, runs: int) -> list[str]:
    calls: list[float] = []
    counts: list[int] = []
    whole: list[float] = []
    sliced: list[float] = []
    for _ in range(LEARNING):
        infer(worker, inputs)
        _in_slices(worker, inputs, 0.0)
    for _ in range(runs):
        started = time.perf_counter()
        infer(worker, inputs)
        whole.append(time.perf_counter() - started)
        started = time.perf_counter()
        counts.append(len(_in_slices(worker, inputs, 0.0)))
        sliced.append(time.perf_counter() - started)
        calls += _in_slices(worker, inputs, PAUSE)
    heaviest = max(step.ms for step in worker.costs)
    return [
        *(f"{1000 * float(np.median(times)):.2f}" for times in (whole, sliced)),
        str(int(np.median(counts))),
        *(f"{1000 * float(np.percentile(calls, q)):.2f}" for q in (50, 99, 100)),
        f"{heaviest:.2f}",
    ]


def _in_slices(worker: Worker, inputs: Inputs, pause: float) -> list[float]:
    """One inference; seconds of each call that enqueued something."""
    schedule = worker.schedule_iterable(inputs)
    times = []
    while not schedule.is_done:
        started = time.perf_counter()
        if schedule.advance(worker.slice_ms, force=True) > 0.0:
            times.append(time.perf_counter() - started)
        if pause:
            time.sleep(pause)
    for output in worker.model.outputs:
        schedule.output(output.name).download_to_array()
    return times


if __name__ == "__main__":
    raise SystemExit(main())
