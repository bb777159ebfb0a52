"""`WorkerQueue`: per-worker request queue, with measured step costs."""

from __future__ import annotations

import math
import time
import weakref
from bisect import insort
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine import BackendType, DisposedError
from gameglue.inference.budget import BudgetClient, StepTime
from gameglue.inference.readback import OutputReadback, Result, SlicedSchedule, SlicedWorker, UnslicedSchedule
from gameglue.inference.request import InferenceRequest

_FIRST_GUESS_MS = 0.05
_CALL_MS = 0.4
"""How long one call of the engine may hold this thread."""
_LEAST_SHARE = 0.02
_SHORT_MS = 0.5
_SELDOM = 64
_EVERYTHING_MS = 1e9
_NAP_SECONDS = 0.0002


class CostEstimate:
    """The measured cost of a step, as an exponential moving average.

    One that took more than four times the usual counts as four times: it was the first, or the computer did
    something else.
    """

    def __init__(self) -> None:
        self.ms = _FIRST_GUESS_MS

    def learn(self, measured: float) -> None:
        """Add a measurement, in ms."""
        self.ms += 0.25 * (min(measured, 4.0 * self.ms) - self.ms)


class JobBacklog:
    """Limits the work that is enqueued ahead on job threads.

    They are to have enough until the frame after the next, so that they never idle, and no more: what is
    given to them runs in order, and the next urgent request would have to wait for all of it.
    """

    least_ms = 10.0

    def __init__(self) -> None:
        self.left = self.least_ms
        self._ahead = 0.0
        self._interval = 0.0
        self._last: float | None = None

    def begin_frame(self, now_ms: float, is_idle: bool) -> None:
        """Subtract the work that fits into the time since the last frame. is_idle: nothing is pending."""
        passed = 0.0 if self._last is None else now_ms - self._last
        self._last = now_ms
        self._interval += 0.1 * (min(passed, 100.0) - self._interval)
        self._ahead = 0.0 if is_idle else max(self._ahead - passed, 0.0)
        self.left = max(2.0 * self._interval, self.least_ms) - self._ahead

    def give(self, ms: float) -> None:
        """Add enqueued work."""
        self._ahead += ms
        self.left -= ms


@dataclass(eq=False)
class Task:
    """The work of a request. It is separate from the request, as a deterministic queue always runs it."""

    request: InferenceRequest
    worker: SlicedWorker | None = None
    inputs: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """The outputs that are wanted."""
    alone: bool = True
    """Whether the result is the one output itself."""
    order: tuple[int, ...] = ()
    """Where it stands in its worker's queue; a request that replaces another takes its place."""
    key: Hashable = False
    """Which requests make way for a newer one of the same worker: False for none."""
    hides_progress: bool = False
    """Whether the request hides how far the work is, which depends on the computer's speed."""
    is_accepted: bool = False
    """Whether no newer one may take its place any more."""
    schedule: SlicedSchedule | None = None
    reading: OutputReadback | None = None
    error: Exception | None = None

    def accept(self) -> None:
        """Mark as accepted: no newer request may replace it."""
        self.is_accepted = True
        if not self.request.is_done():
            self.request.state = "running"

    def begin(self, whole: bool) -> None:
        """Create the schedule, or enqueue all of it. Raises what the worker raises."""
        assert self.worker is not None
        self.accept()
        if getattr(self.worker, "is_disposed", False):
            raise DisposedError("the worker was disposed while a request waited for it")
        if whole:
            self.schedule = UnslicedSchedule(self.worker, self.inputs, self.named)
        else:
            self.schedule = self.worker.schedule_iterable(*self.inputs, **self.named)
        self.inputs, self.named = (), {}

    def read(self) -> bool:
        """Request readbacks of the outputs; returns False while their number is unknown."""
        assert self.schedule is not None
        self.reading = OutputReadback.of(self.schedule, self.names, self.alone)
        if self.reading is None:
            return False
        if not (self.hides_progress or self.request.is_done()):
            self.request.state = "reading"
        return True

    def fail(self, error: Exception) -> None:
        """End the work: `error` is its result."""
        self.error = error
        self.stop()

    def stop(self) -> None:
        """Cancel the remaining work, and ignore its results."""
        if self.schedule is not None and not self.schedule.is_done:
            self.schedule.cancel()
        self.schedule = self.reading = None

    def has_arrived(self) -> bool:
        """Whether the outputs or an error have arrived. Never raises."""
        if self.error is None and self.reading is not None:
            try:
                return self.reading.is_done()
            except Exception as error:  # noqa: BLE001 - it is the request's result
                self.fail(error)
        return self.error is not None

    def result(self) -> Result:
        """The arrays; blocks until they have arrived. Raises the task's error."""
        if self.error is not None:
            raise self.error
        assert self.reading is not None
        return self.reading.result()


@dataclass
class QueueSettings:
    """Settings shared by all worker queues of an inference queue."""

    clock_ms: Callable[[], float]
    in_flight: int
    """How many tasks of one worker queue may be read back at a time before the next begins."""
    jobs: JobBacklog = field(default_factory=JobBacklog)
    paused: bool = False
    """Whether nothing begins that has not begun."""


class WorkerQueue(BudgetClient):
    """One worker's tasks: waiting, being enqueued, and being read back.

    The first one that waits has the urgency of the most urgent one behind it, as that has to wait for it.
    """

    def __init__(self, worker: SlicedWorker, terms: QueueSettings) -> None:
        model = getattr(worker, "model", None)
        super().__init__(getattr(model, "name", "") or type(worker).__name__)
        self.worker = weakref.ref(worker)
        self.is_on_jobs = getattr(worker, "backend_type", None) is BackendType.CPU
        """Whether job threads do the work, so that the frame loses only what submitting it takes."""
        self.waiting: list[Task] = []
        self.running: Task | None = None
        self.reading: list[Task] = []
        self._terms = terms
        self._begin_cost = CostEstimate()
        self._submit_cost = CostEstimate()
        self._caller_share = 1.0
        """What a millisecond on the GPU takes of this thread: 1 where the driver computes in the call."""
        self._whole_ms = math.inf
        self._sliced_ms = 0.0
        self._count = 0
        self._urgency: tuple[int, float] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no task is pending and no result is undelivered."""
        return not (self.waiting or self.running or self.reading)

    @property
    def is_busy(self) -> bool:
        """Whether work of it is pending."""
        return self.running is not None or bool(self.reading)

    @property
    def tasks(self) -> list[Task]:
        """All unfinished tasks, in order."""
        return [*self.reading, *([self.running] if self.running else []), *self.waiting]

    def join(self, task: Task) -> None:
        """Insert a task at its place in the order."""
        insort(self.waiting, task, key=lambda waiting: waiting.order)
        self._urgency = None

    def drop(self, task: Task) -> None:
        """Remove a task and stop it."""
        if task is self.running:
            self.running = None
            self.saved = 0.0
        elif task in self.reading:
            self.reading.remove(task)
        elif task in self.waiting:
            self.waiting.remove(task)
        task.stop()
        self._urgency = None

    # Sharing the budget

    @property
    def urgency(self) -> tuple[int, float]:
        if self._urgency is None:
            tasks = [*self.waiting, *([self.running] if self.running else [])]
            self._urgency = min(((-t.request.priority, t.request._expires) for t in tasks), default=(0, 0.0))
        return self._urgency

    @property
    def expected_ms(self) -> float:
        task = self.running
        if task is None or task.schedule is None:
            return self._begin_cost.ms
        return self._submit_cost.ms if self.is_on_jobs else task.schedule.next_cost_ms

    def wants_turn(self) -> bool:
        terms = self._terms
        if self.running is None and (
            terms.paused or not self.waiting or len(self.reading) >= terms.in_flight
        ):
            return False
        return not self.is_on_jobs or terms.jobs.left > 0.0

    def take(self, grant_ms: float) -> StepTime:
        before = self._terms.clock_ms()
        try:
            if self.running is None:
                step = self._begin()
                self._begin_cost.learn(self._terms.clock_ms() - before)
                return step
            step = self._advance(grant_ms)
            self._learn(self._terms.clock_ms() - before, step)
            return step
        except Exception as error:  # noqa: BLE001 - it is that request's result; the others continue
            self._fail_running(error)
            return StepTime(0.0, 0.0)

    def _begin(self) -> StepTime:
        task = self.running = self.waiting.pop(0)
        self._urgency = None
        self._count += 1
        # Slices go slower than a whole, and tell what a whole takes.
        whole = self.is_on_jobs and self._whole_ms < _SHORT_MS and self._count % _SELDOM != 0
        task.begin(whole)
        if not whole:
            self._sliced_ms = 0.0
            return StepTime(0.0, 0.0)
        self._terms.jobs.give(self._whole_ms)
        return StepTime(0.0, self._whole_ms, self._read(task))

    def _advance(self, grant_ms: float) -> StepTime:
        """Enqueue slices, and ask for the outputs where nothing is left."""
        task = self.running
        assert task is not None
        assert task.schedule is not None
        spent = 0.0
        if not task.schedule.is_done:
            # Where there is time for longer calls, fewer of them take less.
            most = max(_CALL_MS, 0.5 * grant_ms)
            room = max(self._terms.jobs.left, 0.0) if self.is_on_jobs else most / self._caller_share
            spent = task.schedule.advance(room if self.is_on_jobs else min(grant_ms, room), force=True)
            self._sliced_ms += spent
        is_done = task.schedule.is_done
        if is_done:
            self._whole_ms = self._sliced_ms
        has_ended = is_done and self._read(task)
        progressed = has_ended or (spent > 0.0 and not is_done)
        if self.is_on_jobs:
            self._terms.jobs.give(spent)
            return StepTime(0.0, spent, progressed)
        return StepTime(spent, 0.0, progressed)

    def _learn(self, elapsed_ms: float, step: StepTime) -> None:
        self._submit_cost.learn(elapsed_ms)
        if step.frame_ms > 0.0:
            share = min(max(elapsed_ms / step.frame_ms, _LEAST_SHARE), 1.0)
            self._caller_share += 0.25 * (share - self._caller_share)

    def _fail_running(self, error: Exception) -> None:
        """Fail the running task; its request receives the error when results are delivered."""
        task, self.running = self.running, None
        if task is not None:
            task.fail(error)
            self.reading.append(task)
        self._urgency = None

    # Results

    def take_arrived(self) -> list[Task]:
        """Remove and return the tasks whose outputs have arrived, in the order in which they ran."""
        self._ask_again()
        found: list[Task] = []
        while self.reading and self.reading[0].has_arrived():
            found.append(self.reading.pop(0))
        return found

    def _ask_again(self) -> None:
        """Retry the readback of a schedule whose number of outputs was still unknown."""
        task = self.running
        if task is not None and task.schedule is not None and task.schedule.is_done:
            self.take(0.0)

    def take_due(self, is_due: Callable[[Task], bool]) -> list[Task]:
        """Remove and return the tasks that are due, fully enqueued; their results block."""
        found: list[Task] = []
        for task in self.tasks:
            if not is_due(task):
                break
            self._finish(task)
            self.reading.remove(task)
            found.append(task)
        return found

    def _finish(self, task: Task) -> None:
        """Enqueue all of `task` and request its readbacks; blocks while the number of outputs is unknown."""
        try:
            if task in self.waiting:
                self._begin()
            while task is self.running and not self._ask(task):
                time.sleep(_NAP_SECONDS)
        except Exception as error:  # noqa: BLE001 - it is that request's result
            self._fail_running(error)

    def _ask(self, task: Task) -> bool:
        assert task.schedule is not None
        if not task.schedule.is_done:
            task.schedule.advance(_EVERYTHING_MS, force=True)
        # Where data of its own is missing, the read that follows brings the schedule to its end.
        return self._read(task)

    def _read(self, task: Task) -> bool:
        if not task.read():
            return False
        self.reading.append(task)
        self.running = None
        self._urgency = None
        return True

    def fail_all(self, error: Exception) -> list[Task]:
        """Remove all tasks, with `error` as their result."""
        found = self.tasks
        for task in found:
            task.fail(error)
        self.waiting, self.running, self.reading = [], None, []
        self._urgency = None
        return found
