"""What is known of one network after it was loaded, compared and timed beside its peers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from statistics import median
from typing import TypeVar

import numpy as np

from engine import JobSystem, ModelLoader, Tensor, Worker
from engine.errors import EngineError
from gameglue.profiling.compare import Timing, alternate, until_quiet
from gameglue.profiling.contenders import Call, infer, schedule_bytes, schedule_cost
from tests.benchmarks.peers import ALLOWED, PEERS
from tests.benchmarks.setting import open_worker
from tests.benchmarks.subjects import Subject
from tests.networks import Inputs, error, uncertainty

T = TypeVar("T")

BOUNDS = {"cpu": 1e-5, "gl_compute": 1e-4, "opencl": 1e-4, "gl_pixel": 1e-4, "cpu-bf16": 0.1}
"""The least error allowed; where onnxruntime's own is more, four times that."""

TOGETHER = 8
"""Calls that are timed as one where every call has other shapes."""

SCHEDULES = 50
"""Calls of `schedule` that its own cost is the median of."""


@dataclass(frozen=True)
class Pace:
    """How long is measured.

    rounds: turns of each contender. turn: seconds of calls in one. budget: seconds of one contender in all.
    loads: of which the shortest counts, as one is easily disturbed; fewer once `budget` is spent.
    schedule: seconds for the cost of `schedule`.
    """

    rounds: int = 9
    turn: float = 0.05
    budget: float = 5.0
    loads: int = 5
    schedule: float = 0.5


@dataclass
class Loaded:
    """What is known of one contender before its speed, in seconds; or the `problem` that it has.

    new_shapes: the median of the first calls at each of the other shapes, where the subject has several.
    """

    load: float = math.inf
    first: float = math.inf
    new_shapes: float = math.nan
    worst_error: float = 0.0
    schedule_array: float = math.inf
    schedule_tensor: float = math.inf
    schedule_bytes: int = 0
    problem: str = ""


@dataclass
class Result:
    """One network's figures, by contender."""

    times: dict[str, Timing] = field(default_factory=dict)
    loaded: dict[str, Loaded] = field(default_factory=dict)


def measure(item: Subject, peers: Sequence[str], channels: Sequence[str], threads: int, pace: Pace) -> Result:
    """Load one network everywhere, compare its outputs, then take turns."""
    result = Result()
    contenders: dict[str, Callable[[], object]] = {}
    workers: dict[str, Worker] = {}
    expected, own = uncertainty(item.source, item.inputs)
    with ExitStack() as stack:
        for name in peers:
            call, known = _load_peer(item, name, threads, pace)
            result.loaded[name] = known
            known.problem = _disagreement(call(item.inputs), expected, own, ALLOWED[name], known)
            known.new_shapes = _through(call, item.calls)
            contenders[name] = one_or_several(call, item.calls)
        jobs = stack.enter_context(JobSystem(threads))
        for name in channels:
            try:
                worker, known = _load(item, name, jobs, pace)
            except EngineError as problem:
                result.loaded[name] = Loaded(problem=str(problem).splitlines()[0])
                continue
            stack.enter_context(worker)
            result.loaded[name] = known
            values = infer(worker, item.inputs)
            known.problem = _disagreement(values, expected, own, BOUNDS[name], known)
            if not known.problem:
                known.new_shapes = _through(partial(infer, worker), item.calls)
                known.schedule_bytes = schedule_bytes(worker, dict(item.inputs))
                workers[name] = worker
                contenders[name] = one_or_several(partial(infer, worker), item.calls)
        _cost(workers, item.inputs, result, pace)
        times = alternate(contenders, pace.rounds, turn=pace.turn, budget=pace.budget)
        _cost(workers, item.inputs, result, pace)
    several = min(TOGETHER, len(item.calls))
    result.times = {name: timing.share(several) for name, timing in times.items()}
    return result


def one_or_several(call: Callable[[Inputs], object], asked: Sequence[Inputs]) -> Callable[[], object]:
    """The only call there is, or the next `TOGETHER` of a round without end."""
    if len(asked) == 1:
        return partial(call, asked[0])
    rounds = cycle([asked[i : i + TOGETHER] for i in range(0, len(asked), TOGETHER)])

    def run() -> None:
        for inputs in next(rounds):
            call(inputs)

    return run


def _through(call: Callable[[Inputs], object], asked: Sequence[Inputs]) -> float:
    """Make all calls but the first once; their median in seconds."""
    taken = []
    for inputs in asked[1:]:
        before = time.perf_counter()
        call(inputs)
        taken.append(time.perf_counter() - before)
    return median(taken) if taken else math.nan


def _load(item: Subject, channel: str, jobs: JobSystem, pace: Pace) -> tuple[Worker, Loaded]:
    """A worker, and the shortest of several loads and first runs in which no kernel had to be compiled."""
    open_worker(ModelLoader.load(item.source), channel, jobs).dispose()

    def load() -> Worker:
        return open_worker(ModelLoader.load(item.source), channel, jobs)

    return _shortest(load, lambda worker: infer(worker, item.inputs), Worker.dispose, pace)


def _load_peer(item: Subject, name: str, threads: int, pace: Pace) -> tuple[Call, Loaded]:
    return _shortest(
        lambda: PEERS[name](item.source, threads), lambda call: call(item.inputs), lambda call: None, pace
    )


def _shortest(
    load: Callable[[], T], run: Callable[[T], object], drop: Callable[[T], None], pace: Pace
) -> tuple[T, Loaded]:
    """What was loaded last, and the shortest times."""
    known = Loaded()
    end = time.perf_counter() + pace.budget
    left = pace.loads
    while True:
        until_quiet()
        before = time.perf_counter()
        made = load()
        ready = time.perf_counter()
        run(made)
        done = time.perf_counter()
        known.load, known.first = min(known.load, ready - before), min(known.first, done - ready)
        left -= 1
        if left == 0 or done > end:
            return made, known
        drop(made)
        del made


def _cost(workers: Mapping[str, Worker], inputs: Inputs, result: Result, pace: Pace) -> None:
    """What `schedule` takes of the calling thread, given arrays and given tensors: the least so far.

    It is measured at two times, as loads are at several: what others do to the caches of a shared machine
    lasts for seconds, and doubles it.
    """
    tensors: Mapping[str, np.ndarray | Tensor] = {name: Tensor(array) for name, array in inputs.items()}
    for name, worker in workers.items():
        known = result.loaded[name]
        until_quiet()
        taken = schedule_cost(worker, dict(inputs), SCHEDULES, pace.schedule / 4)
        known.schedule_array = min(known.schedule_array, taken)
        taken = schedule_cost(worker, tensors, SCHEDULES, pace.schedule / 4)
        known.schedule_tensor = min(known.schedule_tensor, taken)
    for tensor in tensors.values():
        assert isinstance(tensor, Tensor)
        tensor.dispose()


def _disagreement(
    values: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    own: Mapping[str, float],
    floor: float,
    known: Loaded,
) -> str:
    """Why the outputs are not onnxruntime's, or nothing."""
    for name, wanted in expected.items():
        found, allowed = error(values[name], wanted), max(floor, 4 * own[name])
        known.worst_error = max(known.worst_error, found)
        if not found <= allowed:
            return f"output '{name}' is off by {found:.1e}, {allowed:.1e} are allowed"
    return ""
