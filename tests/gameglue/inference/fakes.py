"""Workers and a clock of the test's own: what a slice costs and when a result comes is the test's to say."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from engine import BackendType
from gameglue import InferenceQueue


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_ms(self, ms: float) -> None:
        self.now += ms / 1e3


class Output:
    """A tensor that is here `delay` looks after it was asked for, and at once for whoever waits."""

    def __init__(self, worker: Worker, value: np.ndarray, delay: int) -> None:
        self.worker = worker
        self.value = value
        self.looks_left = delay
        self.requests = 0

    def readback_request(self) -> None:
        self.requests += 1

    def is_readback_request_done(self) -> bool:
        if self.worker.read_error is not None:
            raise self.worker.read_error
        self.looks_left -= 1
        return self.looks_left < 0

    def download_to_array(self) -> np.ndarray:
        return self.value


class Slicing:
    """An inference in slices of given costs; it doubles its input."""

    def __init__(self, worker: Worker, value: Any) -> None:
        self.worker = worker
        self.value = np.asarray(value, np.float32)
        self.left = list(worker.costs)
        self.cancelled = False

    @property
    def is_done(self) -> bool:
        return not self.left or self.cancelled

    @property
    def progress(self) -> float:
        return 1.0 - len(self.left) / len(self.worker.costs)

    @property
    def next_cost_ms(self) -> float:
        return self.left[0] if self.left else 0.0

    @property
    def remaining_ms(self) -> float:
        return sum(self.left)

    def advance(self, budget_ms: float, *, force: bool = False) -> float:
        worker = self.worker
        if worker.run_error is not None:
            raise worker.run_error
        if worker.stalled:
            return 0.0
        spent = 0.0
        while self.left and (spent + self.left[0] <= budget_ms or (force and not spent)):
            cost = self.left.pop(0)
            spent += cost
            worker.clock.pass_ms(worker.submission_ms if worker.submission_ms is not None else cost)
            worker.log.append((worker.name, cost))
        worker.spent += spent
        return spent

    def cancel(self) -> None:
        self.cancelled = True

    def output(self, name: str | None = None) -> Output:
        factor = {"double": 2.0, "triple": 3.0}[name or "double"]
        return Output(self.worker, self.value * np.float32(factor), self.worker.delay)


class Worker:
    """A worker whose slices cost what they are told to; on a device that computes in the call.

    With `submission_ms` a slice takes this much of the calling thread, whatever its cost on the device.
    """

    def __init__(
        self,
        clock: Clock,
        costs: Sequence[float] = (1.0,),
        *,
        name: str = "net",
        delay: int = 0,
        outputs: Sequence[str] = ("double",),
        submission_ms: float | None = None,
        backend_type: BackendType = BackendType.GPU_COMPUTE,
        log: list[tuple[str, float]] | None = None,
    ) -> None:
        self.clock = clock
        self.costs = list(costs)
        self.name = name
        self.delay = delay
        self.submission_ms = submission_ms
        self.backend_type = backend_type
        self.model = SimpleNamespace(name=name, outputs=[SimpleNamespace(name=n) for n in outputs])
        self.log = [] if log is None else log
        self.spent = 0.0
        self.begun: list[float] = []
        self.latest: Slicing | None = None
        self.wholes = 0
        self.is_disposed = False
        self.stalled = False
        self.run_error: Exception | None = None
        self.read_error: Exception | None = None

    def schedule_iterable(self, *inputs: Any, **named: Any) -> Slicing:
        value = inputs[0] if inputs else named["x"]
        if isinstance(value, str):
            raise ValueError(f"input 'x' is no number: {value}")
        self.begun.append(float(np.asarray(value).reshape(-1)[0]))
        return Slicing(self, value)

    def schedule(self, *inputs: Any, **named: Any) -> None:
        self.latest = self.schedule_iterable(*inputs, **named)
        self.latest.advance(1e9)
        self.wholes += 1

    def peek_output(self, name: str | None = None) -> Output:
        assert self.latest is not None
        return self.latest.output(name)


def make_queue(clock: Clock, **options: Any) -> InferenceQueue:
    """A queue that looks at no other worker of the process."""
    return InferenceQueue(time_source=clock, pending_work=tuple, **options)


def frame(queue: InferenceQueue, clock: Clock, budget_ms: float = 2.0, length_ms: float = 16.0) -> float:
    """One frame of a loop; what the pump took of it, by the clock, in ms."""
    start = clock.now
    queue.poll()
    before = clock.now
    queue.pump(budget_ms)
    taken = 1e3 * (clock.now - before)
    clock.now = max(start + length_ms / 1e3, clock.now)
    return taken
