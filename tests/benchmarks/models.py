"""Whole networks, side by side: this engine's backends and onnxruntime take turns on the same inputs.

    python -m tests.benchmarks.models --models squeezenet1.1_fp32 mnist-12 --backends cpu

A time is that of one inference from arrays to arrays (schedule, compute, read back). Outputs are compared
before anything is timed. Three tables: times with ratios to the first column, what `schedule` costs the
calling thread, and loading with all kernels compiled.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.progress import track

from engine import JobSystem, ModelLoader, Worker
from engine.errors import EngineError
from gameglue.cli.console import errors
from gameglue.profiling.compare import PAUSE, Timing, alternate, geometric_mean
from gameglue.profiling.contenders import infer, onnxruntime_call, schedule_cost
from tests.benchmarks.setting import (
    add_backend_option,
    chosen_backends,
    console,
    load_average,
    open_worker,
    positive,
    print_setting,
    print_table,
)
from tests.benchmarks.subjects import NAMES, Subject, add_model_option, present, subject
from tests.networks import bounds, error

BOUNDS = {"cpu": 1e-5, "gl_compute": 1e-4, "opencl": 1e-4, "gl_pixel": 1e-4}
"""The least error allowed; where onnxruntime's own is more, four times that."""

LOADS = 3
"""Loads that are timed; the shortest counts, as one is easily disturbed."""


@dataclass
class Loaded:
    """What is known of one backend's worker before its speed, in seconds; or the `problem` that it has."""

    load: float = 0.0
    first: float = 0.0
    schedule: float = 0.0
    worst_error: float = 0.0
    problem: str = ""


@dataclass
class Result:
    """One network's figures, by contender."""

    times: dict[str, Timing]
    loaded: dict[str, Loaded] = field(default_factory=dict)
    peer_load: float = math.inf


def peer_name(threads: int) -> str:
    """How the table calls onnxruntime."""
    return f"onnxruntime {threads}t"


def measure(
    item: Subject, channels: Sequence[str], threads: Sequence[int], options: argparse.Namespace
) -> Result:
    """Load one network everywhere, compare its outputs, then take turns."""
    result = Result({})
    contenders: dict[str, Callable[[], object]] = {}
    with ExitStack() as stack:
        for count in threads:
            before = time.perf_counter()
            call = onnxruntime_call(item.source, count)
            result.peer_load = min(result.peer_load, time.perf_counter() - before)
            contenders[peer_name(count)] = partial(call, item.inputs)
        jobs = stack.enter_context(JobSystem(threads[0]))
        workers: dict[str, Worker] = {}
        for channel in channels:
            try:
                worker, result.loaded[channel] = _load(item, channel, jobs)
            except EngineError as problem:
                result.loaded[channel] = Loaded(problem=str(problem).splitlines()[0])
                continue
            workers[channel] = stack.enter_context(worker)
        for channel, worker in workers.items():
            known = result.loaded[channel]
            known.problem = _disagreement(item, channel, worker, known)
            if not known.problem:
                known.schedule = schedule_cost(worker, item.inputs, options.runs)
                contenders[channel] = partial(infer, worker, item.inputs)
        result.times = alternate(
            contenders, options.runs, turn=options.turn, budget=options.seconds, pause=PAUSE
        )
    return result


def _load(item: Subject, channel: str, jobs: JobSystem) -> tuple[Worker, Loaded]:
    """A worker, and the shortest of several loads and first runs in which no kernel had to be compiled."""
    open_worker(ModelLoader.load(item.source), channel, jobs).dispose()
    known = Loaded(load=math.inf, first=math.inf)
    for left in reversed(range(LOADS)):
        before = time.perf_counter()
        worker = open_worker(ModelLoader.load(item.source), channel, jobs)
        ready = time.perf_counter()
        infer(worker, item.inputs)
        known.load = min(known.load, ready - before)
        known.first = min(known.first, time.perf_counter() - ready)
        if left:
            worker.dispose()
    return worker, known


def _disagreement(item: Subject, channel: str, worker: Worker, known: Loaded) -> str:
    """Why the outputs are not onnxruntime's, or nothing."""
    expected, allowed = bounds(item.source, item.inputs, BOUNDS[channel])
    values = infer(worker, item.inputs)
    for name, wanted in expected.items():
        found = error(values[name], wanted)
        known.worst_error = max(known.worst_error, found)
        if not found <= allowed[name]:
            return f"output '{name}' is off by {found:.1e}, {allowed[name]:.1e} are allowed"
    return ""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_option(parser, present(NAMES))
    add_backend_option(parser)
    parser.add_argument(
        "--runs", type=positive, default=9, metavar="N", help="turns of each contender. Default: 9"
    )
    parser.add_argument(
        "--threads",
        type=positive,
        nargs="+",
        default=[2, 1],
        metavar="N",
        help="onnxruntime's threads, a column each; the first is also that of the cpu backend. Default: 2 1",
    )
    parser.add_argument(
        "--turn", type=float, default=0.05, metavar="S", help="seconds of calls in one turn. Default: 0.05"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="a contender's time in all; then it sits out. Default: 5",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if some output is wrong or some network does not run."""
    options = parse(argv)
    channels = chosen_backends(options.backends)
    out = console()
    print_setting(
        out,
        "networks: one inference from arrays to arrays",
        {
            "threads": f"{options.threads[0]} for the cpu backend; OpenGL and OpenCL as their drivers like",
            "times": f"medians over {options.runs} turns of {options.turn} s, or {options.seconds} s in all",
            "loads": f"the shortest of {LOADS}",
        },
    )
    # The first session takes longer than any other.
    onnxruntime_call(subject("policy").source)
    results = {}
    for name in track(present(options.models), description="networks", console=errors(), transient=True):
        results[name] = measure(subject(name), channels, options.threads, options)
    peers = [peer_name(count) for count in options.threads]
    _print_times(out, results, peers, channels)
    _print_costs(out, results, channels)
    problems = [
        (name, channel, known.problem)
        for name, result in results.items()
        for channel, known in result.loaded.items()
        if known.problem
    ]
    for name, channel, problem in problems:
        out.print(f"{name} on {channel}: {problem}", markup=False)
    out.print(f"load average at the end: {load_average()}")
    return 1 if problems else 0


def _print_times(
    out: Console, results: dict[str, Result], peers: Sequence[str], channels: Sequence[str]
) -> None:
    first = peers[0]
    columns = ["median ms (x: ratio to the first)", *peers]
    for channel in channels:
        columns += [channel, "x"]
    rows = []
    ratios: dict[str, list[float]] = {name: [] for name in (*peers, *channels)}
    for name, result in results.items():
        row = [name, *(f"{result.times[peer].median * 1e3:.3f}" for peer in peers)]
        for contender, timing in result.times.items():
            ratios[contender].append(timing.ratio(result.times[first]))
        for channel in channels:
            if channel in result.times:
                row += [f"{result.times[channel].median * 1e3:.3f}", f"{ratios[channel][-1]:.2f}"]
            else:
                row += ["-", "-"]
        rows.append(row)
    last = ["geometric mean of ratios", *(f"{geometric_mean(ratios[peer]):.2f} x" for peer in peers)]
    for channel in channels:
        last += ["", f"{geometric_mean(ratios[channel]):.2f}"]
    print_table(out, columns, [*rows, last])
    out.print()


def _print_costs(out: Console, results: dict[str, Result], channels: Sequence[str]) -> None:
    columns = ["schedule() on the calling thread, µs", *channels]
    rows = [
        (name, *(f"{known.schedule * 1e6:.1f}" for known in result.loaded.values()))
        for name, result in results.items()
    ]
    print_table(out, columns, rows)
    out.print()
    columns = ["load ms + first run ms, kernels compiled", "onnxruntime load", *channels]
    rows = [
        (
            name,
            f"{result.peer_load * 1e3:.1f}",
            *(f"{known.load * 1e3:.1f} + {known.first * 1e3:.1f}" for known in result.loaded.values()),
        )
        for name, result in results.items()
    ]
    print_table(out, columns, rows)
    out.print()
    columns = ["error against onnxruntime", *channels]
    print_table(
        out,
        columns,
        [(n, *(f"{k.worst_error:.1e}" for k in r.loaded.values())) for n, r in results.items()],
    )
    out.print()


if __name__ == "__main__":
    raise SystemExit(main())
