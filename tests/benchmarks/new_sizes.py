"""What a size that a worker has not met costs the thread that schedules it, beside onnxruntime's whole run.

    python -m tests.benchmarks.new_sizes --models assets/swarm/swarm.onnx chatter.onnx

Each round has sizes of its own for the model's dynamic dimensions, from the first schedule on of a worker
whose plans and kernels are cached on disk, as in a game's second start. `schedule` is what the call takes at
sizes never seen, `first ten` the longest of the first ten; `again` at the same ones a second time; `whole`
with the outputs read, beside onnxruntime's first run at that size (a ratio above 1: this engine is faster).
Both get the same arrays, a few sizes a turn, before which the threads of the other sleep. `plans` is how many
serve all sizes.

`call` is the longest engine call of a frame from schedule to answer at a size never seen, the median over the
sizes, and `longest` the longest of all: CPU time of the frame's thread, without what OpenGL drivers take for
commands. They are measured in frames of another worker, whose first sizes these are. As in `App.run`, the
garbage collector leaves alone what is loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, thread_time_ns
from typing import Any, TypeVar

import numpy as np

from engine import Model, ModelLoader, Worker, background_planning
from engine.backends.gl.commands import Replayer
from gameglue.host.garbage_collection import freeze_garbage_collector
from gameglue.profiling.benchmark_cases import onnxruntime_call
from gameglue.profiling.compare import until_quiet
from tests.benchmarks.setting import (
    BenchmarkParser,
    chosen_backends,
    console,
    open_worker,
    print_setting,
    print_table,
)

ASSETS = Path(__file__).resolve().parents[2] / "assets"
T = TypeVar("T")

_PAUSE = 0.002
"""Seconds between two polls."""

_TURN = 8
"""Sizes of a turn."""

_TRIES = 100
"""How often sizes are drawn before those that were drawn already are taken."""

MODELS = [ASSETS / name / f"{name}.onnx" for name in ("swarm", "digits", "gesture", "chatter", "othello")]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = BenchmarkParser("benchmarks.new_sizes", __doc__)
    parser.add_backends("cpu")
    parser.add_argument(
        "--models", type=Path, nargs="+", default=MODELS, metavar="FILE", help="Default: some of the demos'"
    )
    parser.add_count("--rounds", 24, "sizes")
    parser.add_count("--least", 2, "least size")
    parser.add_count("--most", 64, "largest size")
    options = parser.parse_args(argv)
    out = console()
    print_setting(out, "sizes never seen", {"times": f"ms over {options.rounds} sets of sizes"})
    rows = []
    for path in options.models:
        model = ModelLoader.load(path)
        for name in chosen_backends(options.backends or ["cpu"]):
            open_worker(model, name).dispose()  # fills the cache
            with open_worker(model, name) as worker, freeze_garbage_collector():
                figures = _measured(worker, path, options)
            with open_worker(model, name) as worker, freeze_garbage_collector():
                rows.append([path.stem, name, *figures, *_in_frames(worker, options)])
    columns = (
        "model",
        "backend",
        "schedule",
        "first ten",
        "worst",
        "again",
        "whole",
        "onnxruntime",
        "ratio",
        "plans",
        "call",
        "longest",
    )
    print_table(out, columns, rows)
    return 0


def _measured(worker: Worker, path: Path, options: argparse.Namespace) -> list[str]:
    """The figures of one model on one backend, as text."""
    peer = onnxruntime_call(path, 2)
    new: list[float] = []
    again: list[float] = []
    whole: list[float] = []
    theirs: list[float] = []
    different = [*_different(worker.model, options)]
    for first in range(0, len(different), _TURN):
        turn = different[first : first + _TURN]
        until_quiet()
        for inputs in turn:
            times = []
            for _ in range(2):
                begin = perf_counter()
                worker.schedule(inputs)
                scheduled = perf_counter()
                for item in worker.model.outputs:
                    worker.peek_output(item.name).download_to_array()
                times.append((scheduled - begin, perf_counter() - begin))
            new.append(times[0][0])
            again.append(times[1][0])
            whole.append(times[0][1])
        until_quiet()
        for inputs in turn:
            begin = perf_counter()
            peer(inputs)
            theirs.append(perf_counter() - begin)
    ratio = median(theirs) / median(whole)
    shown = [median(new), max(new[:10]), max(new), median(again), median(whole), median(theirs)]
    sized = len(worker._session.symbolic_plans.ready)
    return [*(f"{1e3 * seconds:.2f}" for seconds in shown), f"{ratio:.2f}", str(sized)]


class _CallClock:
    """CPU time of this thread in the longest of some calls, in ms, without what OpenGL takes for commands."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._commands = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which the time of OpenGL's commands is known."""
        original = Replayer.run

        def run(*arguments: Any) -> None:
            begin = thread_time_ns()
            original(*arguments)
            self._commands += thread_time_ns() - begin

        Replayer.run = run  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            Replayer.run = original  # type: ignore[method-assign]

    def call(self, function: Callable[[], T]) -> T:
        """Make a call and take its time."""
        commands, begin = self._commands, thread_time_ns()
        result = function()
        spent = thread_time_ns() - begin - (self._commands - commands)
        self.longest = max(self.longest, 1e-6 * spent)
        return result


def _in_frames(worker: Worker, options: argparse.Namespace) -> list[str]:
    """The median and the maximum of the longest call at each size, as text."""
    longest = []
    for inputs in _different(worker.model, options):
        clock = _CallClock()
        with background_planning(), clock.watching():
            clock.call(partial(worker.schedule, inputs))
            tensor = worker.peek_output()
            clock.call(tensor.readback_request)
            while not clock.call(tensor.is_readback_request_done):
                sleep(_PAUSE)
        longest.append(clock.longest)
    return [f"{median(longest):.2f}", f"{max(longest):.2f}"]


def _different(model: Model, options: argparse.Namespace) -> Iterator[dict[str, np.ndarray]]:
    """Inputs of different sizes; of equal ones only where there are few others."""
    rng, seen = np.random.default_rng(4), set[object]()
    for _ in range(options.rounds):
        for _ in range(_TRIES):
            inputs = _inputs(model, rng, options.least, options.most)
            sizes = tuple(array.shape for array in inputs.values())
            if sizes not in seen:
                break
        seen.add(sizes)
        yield inputs


def _inputs(model: Model, rng: np.random.Generator, least: int, most: int) -> dict[str, np.ndarray]:
    """Random elements, in sizes of their own for what the model leaves open."""
    sizes: dict[object, int] = {}
    found = {}
    for item in model.inputs:
        shape = []
        for axis, dim in enumerate(item.shape or ()):
            drawn = int(rng.integers(least, most + 1))
            name = (item.name, axis) if dim is None else dim
            shape.append(dim if isinstance(dim, int) else sizes.setdefault(name, drawn))
        is_whole = item.dtype.kind in "iub"
        elements = rng.integers(0, 2, shape) if is_whole else rng.normal(size=shape)
        found[item.name] = elements.astype(item.dtype)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
