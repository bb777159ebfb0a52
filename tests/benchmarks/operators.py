"""Single operators at the sizes that networks use, beside onnxruntime on the CPU.

    python -m tests.benchmarks.operators --only Conv TopK
    python -m tests.benchmarks.operators --only 'Resize linear*' --backends cpu gl_compute

A time is that of one inference from arrays to arrays; both take turns in one process with the same number of
threads. "x" is onnxruntime's time / this engine's: above 1, this engine is faster. Operators that take more
than 1.2 times onnxruntime's time and 0.2 ms are marked with an exclamation mark, and listed below the table.

On other backends an operator is compared with the device itself: the time of copying as many bytes as the
operator reads and writes, and of a plain matrix product with as many multiplications. Inputs are on the
device. The cases are in `operator_cases.py` and `operator_variants.py` in `tests/benchmarks`. They run in a
child process, so that an operator that hangs or takes too long costs one row; with `--json` the file is
written after every operator.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from rich.progress import track

from engine import JobSystem, ModelLoader
from engine.base.errors import EngineError
from gameglue.cli.console import errors
from gameglue.profiling.benchmark_cases import infer, onnxruntime_call
from gameglue.profiling.compare import CallTimes, alternate, geometric_mean
from tests.benchmarks.device_cost import DeviceCost, resident_call
from tests.benchmarks.limited import Limited, LimitReached
from tests.benchmarks.operator_case import Case
from tests.benchmarks.operator_cases import OPERATORS
from tests.benchmarks.operator_variants import VARIANTS
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_end,
    print_setting,
    print_table,
)
from tests.field.agreement import difference
from tests.networks import reference

PEER = "onnxruntime"
FACTOR, ALLOWANCE = 1.2, 2e-4
"""An operator may take this many times onnxruntime's time, and this many seconds more."""

DEVICE_FACTOR = 5.0
"""How many times as long as a plain copy and a plain product an operator may take on other backends."""

LOW = 0.1
"""The quantile that is hardly disturbed by other processes."""

HALF_ERROR, STEP = 2e-3, 1.0

CASES = [*OPERATORS, *VARIANTS]
"""The lines of the table."""


@dataclass
class Figures:
    """One operator's times in seconds, by contender, and what is wrong with it."""

    times: dict[str, CallTimes] = field(default_factory=dict)
    device: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def low(self, contender: str) -> float:
        """A low quantile of all calls; NaN if it did not run."""
        timing = self.times.get(contender)
        return math.nan if timing is None else float(np.quantile(timing.calls, LOW))

    def is_slow(self, channel: str) -> bool:
        """Whether the operator takes longer than it may."""
        if channel == "cpu":
            return self.low("cpu") > FACTOR * self.low(PEER) + ALLOWANCE
        return self.low(channel) > DEVICE_FACTOR * self.device.get(channel, math.inf)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = BenchmarkParser("benchmarks.operators", __doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        default=["*"],
        metavar="PATTERN",
        help='operators whose name, type and size contain it, as "conv", "float16", "conv*3-D"',
    )
    parser.add_backends("cpu")
    parser.add_count("--threads", 2, "of both on the CPU")
    parser.add_count("--runs", 5, "turns of each")
    parser.add_number("--turn", 0.02, "seconds of one turn", "S")
    parser.add_number("--limit", 120.0, "seconds after which an operator is given up", "S")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args(argv)


def chosen_cases(patterns: Sequence[str]) -> list[Case]:
    """The cases that any pattern fits, without regard to upper and lower case."""
    wanted = [f"*{pattern.lower()}*" for pattern in patterns]
    return [c for c in CASES if any(fnmatch.fnmatchcase(label(c).lower(), p) for p in wanted)]


def label(case: Case) -> str:
    """A case's operator, type and size."""
    return f"{case.op} {case.dtype}, {case.detail}"


def measure(
    case: Case, channels: Sequence[str], costs: dict[str, DeviceCost], options: argparse.Namespace
) -> Figures:
    """Compare the outputs of all contenders with onnxruntime's, then let them take turns."""
    figures = Figures()
    source, inputs = case.source(), case.inputs
    try:
        peer = onnxruntime_call(source, options.threads)
        expected = reference(source, inputs, threads=1)
    except Exception as raised:  # noqa: BLE001 - onnxruntime's exceptions have no common class
        figures.problems[PEER] = str(raised).splitlines()[0]
        return figures
    calls: dict[str, Callable[[], object]] = {PEER: partial(peer, inputs)} if "cpu" in channels else {}
    several: dict[str, int] = {}
    with ExitStack() as stack:
        for channel in channels:
            jobs = stack.enter_context(JobSystem(options.threads)) if channel.startswith("cpu") else None
            try:
                worker = stack.enter_context(open_worker(ModelLoader.load(source), channel, jobs))
                problem = _disagreement(case, infer(worker, inputs), expected)
            except EngineError as raised:
                problem = str(raised).splitlines()[0]
            if problem:
                figures.problems[channel] = problem
                continue
            if channel == "cpu":
                calls[channel] = partial(infer, worker, inputs)
                continue
            calls[channel], several[channel] = resident_call(stack, worker, inputs)
            outputs = [np.asarray(a) for a in expected.values()]
            moved = sum(a.nbytes for a in case.arrays.values()) + sum(a.nbytes for a in outputs)
            figures.device[channel] = costs[channel].seconds(moved, case.multiplications(outputs))
        times = alternate(calls, options.runs, turn=options.turn)
    figures.times = {name: timing.share(several.get(name, 1)) for name, timing in times.items()}
    return figures


class Measurer:
    """Measures cases by their place in the table; what devices cost is measured once."""

    def __init__(self, channels: Sequence[str], options: argparse.Namespace) -> None:
        self._channels = channels
        self._options = options
        self._stack = ExitStack()
        self._costs = {channel: DeviceCost(self._stack, channel) for channel in channels if channel != "cpu"}

    def __call__(self, number: int) -> Figures:
        """The figures of one case."""
        return measure(CASES[number], self._channels, self._costs, self._options)


def _disagreement(case: Case, found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> str:
    """Why the outputs are not onnxruntime's, or nothing."""
    if case.is_random:
        return ""
    for name, wanted in expected.items():
        try:
            apart = difference(found[name], wanted)
        except ValueError as problem:
            return str(problem)
        if apart > _allowed(case, np.asarray(wanted)):
            return f"output '{name}' is off by {apart:.1e}"
    return ""


def _allowed(case: Case, wanted: np.ndarray) -> float:
    if wanted.dtype.kind in "iu" and wanted.dtype.itemsize == 1:
        # A sum beside the edge of a step may round to either side.
        return STEP / max(1.0, float(np.abs(wanted.astype(int)).max(initial=0)))
    is_half = any(a.dtype == np.float16 for a in (wanted, *case.arrays.values()))
    return HALF_ERROR if is_half or case.op.startswith("Dynamic") else 1e-4


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if some output is wrong or some operator does not run."""
    options = parse(argv)
    cases = chosen_cases(options.only)
    out = console()
    if options.list:
        for case in cases:
            out.print(label(case), markup=False)
        return 0
    channels = chosen_backends(options.backends or ["cpu"])
    print_setting(
        out,
        f"{len(cases)} operators",
        {
            "threads": f"{options.threads} for the cpu backend and onnxruntime",
            "times": f"the quantile {LOW} of all calls in {options.runs} turns of {options.turn} s",
            "x": "their time / ours; above 1, this engine is faster. x median: of the turns' medians",
            "!": f"beyond {FACTOR} x theirs + {ALLOWANCE * 1e3} ms, on other backends {DEVICE_FACTOR:.0f} x",
        },
    )
    results: dict[str, Figures] = {}
    with Limited[Figures](options.limit, Measurer, channels, options) as measured:
        for case in track(cases, description="operators", console=errors(), transient=True):
            try:
                results[label(case)] = measured(CASES.index(case))
            except LimitReached as reached:
                results[label(case)] = Figures(problems=dict.fromkeys(channels, str(reached)))
            if options.json is not None:
                options.json.write_text(json.dumps(_plain(results), indent=1), encoding="utf-8")
    show(out, results, channels)
    print_end(out)
    return (
        1 if any(channel in figures.problems for figures in results.values() for channel in channels) else 0
    )


def show(out: object, results: dict[str, Figures], channels: Sequence[str]) -> None:
    """The table, what is slow, and what is wrong."""
    columns = ["operator"]
    if "cpu" in channels:
        columns += [f"{PEER} ms", "cpu ms", "x", "x median"]
    for channel in channels:
        if channel != "cpu":
            columns += [f"{channel} ms", "device ms", "x"]
    rows: list[list[str]] = []
    ratios: list[float] = []
    slow: list[str] = []
    for name, figures in results.items():
        row = [name]
        for channel in channels:
            mark = " !" if figures.is_slow(channel) else ""
            slow += [f"{name} on {channel}"] if mark else []
            if channel not in figures.times:
                row += ["-"] * (4 if channel == "cpu" else 3)
                continue
            ours = figures.low(channel)
            theirs = figures.low(PEER) if channel == "cpu" else figures.device[channel]
            ratio = theirs / ours
            cells = (theirs, ours) if channel == "cpu" else (ours, theirs)
            row += [*(f"{s * 1e3:.3f}" for s in cells), f"{ratio:.2f}{mark}"]
            if channel == "cpu":
                ratios.append(ratio)
                row.append(f"{figures.times[PEER].ratio(figures.times[channel]):.2f}")
        rows.append(row)
    print_table(out, columns, rows)  # type: ignore[arg-type]
    say: Callable[[str], object] = partial(out.print, markup=False)  # type: ignore[attr-defined]
    if ratios:
        say(f"geometric mean of x on the CPU: {geometric_mean(ratios):.2f} over {len(ratios)} operators")
    say(f"beyond what is allowed: {len(slow)} of {len(results) * len(channels)}")
    for line in slow:
        say(f"  {line}")
    for name, figures in results.items():
        for contender, problem in figures.problems.items():
            say(f"{name} on {contender}: {problem}")


def _plain(results: dict[str, Figures]) -> dict[str, dict[str, object]]:
    return {
        name: {
            **{c: {"low": figures.low(c), "median": t.median} for c, t in figures.times.items()},
            "device": figures.device,
            "problems": figures.problems,
        }
        for name, figures in results.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
