"""What is known of one network after it was loaded, compared and timed beside its peers."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np
import onnx

from engine import JobSystem, ModelLoader, Tensor, Worker
from engine.base.errors import EngineError
from gameglue.profiling.benchmark_cases import infer
from gameglue.profiling.compare import CallTimes, alternate, until_quiet
from tests.benchmarks.peers import ALLOWED, PEERS
from tests.benchmarks.setting import open_worker
from tests.benchmarks.subjects import Subject
from tests.field.agreement import NUDGES, nudged, rounds_to_steps
from tests.networks import Inputs, error, reference, uncertainty

BOUNDS = {"cpu": 1e-5, "gl_compute": 1e-4, "opencl": 1e-4, "gl_pixel": 1e-4, "cpu-bf16": 0.1}
"""The least error allowed; where onnxruntime's own is more, four times that."""

HALF_ERROR = 2e-3
"""The bound of float16 outputs on any of them."""

TOGETHER = 8
"""Calls that are timed as one where every call has other shapes."""

LOOP, FRAMES = "in a loop", "once a frame"
FRAME = 0.016
"""Seconds from one frame's inference to the next one's."""

BY_DICT, BY_SET_INPUT = "schedule(dict)", "set_input"

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

    times: dict[str, CallTimes] = field(default_factory=dict)
    loaded: dict[str, Loaded] = field(default_factory=dict)
    rhythms: dict[str, dict[str, CallTimes]] = field(default_factory=dict)
    """Of the cpu backend by how inputs are given, and of onnxruntime; each in a loop and once a frame."""


def measure(item: Subject, peers: Sequence[str], channels: Sequence[str], threads: int, pace: Pace) -> Result:
    """Load one network everywhere, compare its outputs, then take turns."""
    result = Result()
    contenders: dict[str, Callable[[], object]] = {}
    workers: dict[str, Worker] = {}
    expected, own = _uncertainty(item)
    with ExitStack() as stack:
        jobs = stack.enter_context(JobSystem(threads))
        makers = {name: _peer(item, name, threads) for name in peers}
        makers |= {name: _worker(item, name, jobs) for name in channels}
        made = _load(makers, result.loaded, pace)
        for name in peers:
            call, known = made[name], result.loaded[name]
            known.problem = _disagreement(call(item.inputs), expected, own, ALLOWED[name], known)
            known.new_shapes = _through(call, item.calls)
            contenders[name] = one_or_several(call, item.calls)
        for name in channels:
            if name not in made:
                continue
            worker, known = stack.enter_context(made[name]), result.loaded[name]
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
        if "cpu" in workers:
            peer = {"onnxruntime": partial(made["onnxruntime"], item.inputs)} if "onnxruntime" in made else {}
            result.rhythms = _rhythms(peer, workers["cpu"], item.inputs, pace)
    several = min(TOGETHER, len(item.calls))
    result.times = {name: timing.share(several) for name, timing in times.items()}
    return result


def _uncertainty(item: Subject) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """onnxruntime's outputs, and how far its own runs are apart: see `tests.field.agreement`."""
    expected, own = uncertainty(item.source, item.inputs)
    model = onnx.load(item.source) if isinstance(item.source, str) else onnx.load_from_string(item.source)
    for seed in range(NUDGES if rounds_to_steps(model) else 0):
        found = reference(item.source, nudged(item.inputs, seed))
        own = {name: max(known, error(found[name], expected[name])) for name, known in own.items()}
    return expected, own


def _rhythms(
    peer: Mapping[str, Callable[[], object]], worker: Worker, inputs: Inputs, pace: Pace
) -> dict[str, dict[str, CallTimes]]:
    """One inference to arrays, with inputs as tensors given in two ways; in a loop, and once a frame."""
    tensors = {name: Tensor(array) for name, array in inputs.items()}

    def read() -> None:
        for item in worker.model.outputs:
            worker.peek_output(item.name).download_to_array()

    def by_dict() -> None:
        worker.schedule(tensors)
        read()

    def by_set_input() -> None:
        for name, tensor in tensors.items():
            worker.set_input(name, tensor)
        worker.schedule()
        read()

    contenders = {**peer, BY_DICT: by_dict, BY_SET_INPUT: by_set_input}
    rounds = max(pace.rounds // 2, 1)
    found = {
        LOOP: alternate(contenders, rounds, turn=pace.turn, budget=pace.budget),
        FRAMES: alternate(contenders, rounds, turn=4 * pace.turn, gap=FRAME, budget=pace.budget),
    }
    for tensor in tensors.values():
        tensor.dispose()
    return found


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


@dataclass(frozen=True)
class _Maker:
    """How a contender loads a network, runs what it has loaded, and lets go of it."""

    load: Callable[[], Any]
    run: Callable[[Any], object]
    drop: Callable[[Any], object]


def _peer(item: Subject, name: str, threads: int) -> _Maker:
    return _Maker(
        lambda: PEERS[name](item.source, threads), lambda call: call(item.inputs), lambda call: None
    )


def _worker(item: Subject, channel: str, jobs: JobSystem) -> _Maker:
    return _Maker(
        lambda: open_worker(ModelLoader.load(item.source), channel, jobs),
        lambda worker: infer(worker, item.inputs),
        Worker.dispose,
    )


def _load(makers: Mapping[str, _Maker], loaded: dict[str, Loaded], pace: Pace) -> dict[str, Any]:
    """Fill in the shortest of several loads and first runs, and return what was loaded last.

    Contenders take turns. The first load of each does not count: kernels may have to be compiled. One that
    cannot run the network is left out, with the reason.
    """
    made: dict[str, Any] = {}
    spent = dict.fromkeys(makers, 0.0)
    for turn in range(pace.loads + 1):
        for name, maker in makers.items():
            known = loaded.setdefault(name, Loaded())
            if known.problem or (turn > 1 and spent[name] > pace.budget):
                continue
            if name in made:
                maker.drop(made.pop(name))
            until_quiet()
            before = time.perf_counter()
            try:
                made[name] = maker.load()
                ready = time.perf_counter()
                maker.run(made[name])
            except EngineError as problem:
                known.problem = str(problem).splitlines()[0]
                if name in made:
                    maker.drop(made.pop(name))
                continue
            done = time.perf_counter()
            spent[name] += done - before
            if turn > 0:
                known.load, known.first = min(known.load, ready - before), min(known.first, done - ready)
    return made


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
        least = max(floor, HALF_ERROR) if getattr(wanted, "dtype", None) == np.float16 else floor
        found, allowed = error(values[name], wanted), max(least, 4 * own[name])
        known.worst_error = max(known.worst_error, found)
        if not found <= allowed:
            return f"output '{name}' is off by {found:.1e}, {allowed:.1e} are allowed"
    return ""


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
    worker.schedule(inputs)
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
