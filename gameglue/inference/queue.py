"""`InferenceQueue`: runs inference requests within the budget of each frame.

A loop calls `poll()` at the start of its frame, which delivers results, and `pump(budget_ms)` where the frame
has time left, which begins and continues work. Neither ever waits, but for a deterministic queue, whose
results are due in a certain frame.
"""

from __future__ import annotations

import inspect
import math
import time as clock
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from engine import DisposedError, InputError, background_planning, pending_work
from engine.base.spelling import suggestion
from gameglue.errors import RequestCancelledError, RequestExpiredError, RequestReplacedError
from gameglue.inference.budget import BudgetClient, FrameBudget, join
from gameglue.inference.continuations import Continuation
from gameglue.inference.failures import Failures, described, line_of_caller
from gameglue.inference.readback import (
    OutputReadback,
    Pumpable,
    Readable,
    Selection,
    SlicedWorker,
    kept,
    select_outputs,
)
from gameglue.inference.request import Callback, InferenceRequest, RequestState
from gameglue.inference.stats import QueueStats, WorkerStats
from gameglue.inference.worker_queue import QueueSettings, Task, WorkerQueue
from gameglue.scripting.coroutines import ErrorHandler

_MEMORY = 0.97
"""How much of a worker's spent time still counts a frame later, where statistics tell its share."""


class InferenceQueue:
    """Runs inference within each frame's budget and delivers the results.

        queue = InferenceQueue()
        request = queue.submit(worker, image, latest_only=True, callback=show)
        while playing:
            queue.poll()                    # delivers what has come
            ...                             # update and draw
            queue.pump(budget_ms=2.0)       # continues work in progress

    In an `App` it is `app.inference`, and the frame does that. A queue is used on one thread.

    Whose turn it is: the highest priority; among equals the earliest deadline; among those the worker on
    which the least time was spent, so that each has an equal part (`set_weight` gives one more). A worker
    that got no turn in 60 frames has the next one. A request that waits behind another of its worker lends
    it its urgency. `pump` says what the budget means.

    Attributes:
        deterministic: Whether results arrive `latency_frames` after the request.
        latency_frames: Frames from a request to its result, if `deterministic`.
        slices_per_frame: Slices that are enqueued each frame, if `deterministic`.
    """

    def __init__(
        self,
        *,
        frame: Callable[[], int] | None = None,
        pending_work: Callable[[], Iterable[Pumpable]] = pending_work,
        in_flight: int = 2,
        deterministic: bool = False,
        latency_frames: int = 2,
        slices_per_frame: int = 4,
        frame_ms: float = 1000.0 / 60.0,
        time_source: Callable[[], float] = clock.perf_counter,
        on_error: ErrorHandler | None = None,
    ) -> None:
        """Make a queue without requests.

        frame: the current frame's number; by default the calls of `poll` are counted.
        pending_work: work that continues without being registered: workers whose plan waits for data.
        in_flight: how many requests of one worker may be read back at a time before the next begins.
        deterministic: deliver every result `latency_frames` after its request, in the frame's `poll`, and
            wait for it there if need be. Then each frame enqueues `slices_per_frame` slices of about 0.5 ms,
            regardless of their time, ages and deadlines are counted in frames of `frame_ms`, and a newer
            request replaces only one of the same frame: a replay of the same inputs sees the same results in
            the same frames.
        time_source: seconds.
        on_error: called with component, place and exception for a request that failed and that nobody awaits,
            and for a callback that raised; by default they are logged. Each worker's failure comes once.
        """
        if latency_frames < 1 or in_flight < 1 or slices_per_frame < 1:
            raise InputError(
                "latency_frames, in_flight and slices_per_frame must be at least 1, got "
                f"{latency_frames}, {in_flight} and {slices_per_frame}"
            )
        self.deterministic = deterministic
        self.latency_frames = latency_frames
        self.slices_per_frame = slices_per_frame
        self._frame = frame
        self._polls = 0
        self._frame_ms = frame_ms
        self._time_source = time_source
        self._pending_work = pending_work
        self._count = 0
        self._terms = QueueSettings(self._clock_ms, in_flight)
        self._budget = FrameBudget(self._clock_ms, counts_slices=deterministic)
        self._known: weakref.WeakKeyDictionary[SlicedWorker, WorkerQueue] = weakref.WeakKeyDictionary()
        self._worker_queues: list[WorkerQueue] = []
        self._registered: list[Continuation] = []
        self._tensors: list[Task] = []
        self._open: dict[InferenceRequest, tuple[WorkerQueue | None, Task]] = {}
        self._ended: Counter[RequestState] = Counter()
        self._failures = Failures(on_error)

    def __len__(self) -> int:
        return sum(pumped.work is not None for pumped in self._registered)

    @property
    def paused(self) -> bool:
        """While true, no new request starts, to compare frames with and without inference.

        Work in flight continues and requests wait; code that calls `schedule` itself should check this.
        """
        return self._terms.paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._terms.paused = paused

    # Asking

    def submit(
        self,
        worker: SlicedWorker,
        *inputs: Any,
        priority: int = 0,
        deadline_ms: float | None = None,
        latest_only: Hashable = False,
        cancel_running: bool = False,
        outputs: Selection = None,
        payload: object = None,
        callback: Callback | None = None,
        **named: Any,
    ) -> InferenceRequest:
        """Request one inference. It begins in a later `pump`, and its result arrives in a later `poll`.

        Args:
            worker: the `Worker`. Its requests run in the order asked, those of a higher priority first.
            inputs: as for `Worker.schedule`; a dict for names that are taken here. Arrays are copied;
                tensors are read when the request begins, so an output of a worker needs `copy_output`.
            named: inputs by their names.
            priority: the higher the sooner. A lower one gets what the higher ones leave.
            deadline_ms: from now. A request without a result by then expires.
            latest_only: a newer request takes the place of one of the same worker that has not begun, which
                is cancelled. True, or a key: then only one of the same key makes way.
            cancel_running: with `latest_only`, also of those that have begun.
            outputs: by name or number; by default the result is the one output, or a dict of all.
            payload: comes back as `request.payload`.
            callback: called with the request at the start of the frame that has its result, also if it
                failed or expired, but not if it was cancelled or replaced.
        """
        known = [output.name for output in worker.model.outputs]
        names, alone = select_outputs(known, outputs)
        _check_names(worker, named)
        queue = self._worker_queue(worker)
        request = self._request(priority, deadline_ms, payload, callback)
        place = request.number
        if latest_only is not False:
            place = self._replace(queue, latest_only, cancel_running, place)
        frame = request.frame if self.deterministic else 0
        task = Task(
            request, worker, kept(inputs), kept(named), names, alone,
            (frame, -priority, place), latest_only, hides_progress=self.deterministic,
        )  # fmt: skip
        if queue not in self._worker_queues:  # it may be there empty, where the only request made way
            join(queue, self._clients)
            # Its only task may just have made way: then it stands in the list already.
            if queue not in self._worker_queues:
                self._worker_queues.append(queue)
        queue.join(task)
        self._open[request] = (queue, task)
        return request

    def result(
        self, tensor: Readable, callback: Callback | None = None, *, payload: object = None
    ) -> InferenceRequest:
        """Request the value of a tensor that was scheduled without the queue: `await queue.result(t)`.

        Args:
            tensor: The tensor.
            callback: Called with the request when it is done.
            payload: Any object, kept as `request.payload`.

        Returns:
            The request, whose result is the array.
        """
        request = self._request(0, None, payload, callback)
        task = Task(request, is_accepted=True)
        task.reading = OutputReadback({"": tensor}, alone=True)
        request.state = "reading"
        self._tensors.append(task)
        self._open[request] = (None, task)
        return request

    def cancel(self, request: InferenceRequest) -> None:
        """Cancel a request, as `request.cancel()` does."""
        self._close(request, "cancelled", RequestCancelledError(f"request {request.number} was cancelled"))

    def cancel_all(self, worker: SlicedWorker | None = None) -> None:
        """Cancel all requests, or those of one worker."""
        for request, (_, task) in tuple(self._open.items()):
            if worker is None or task.worker is worker:
                self.cancel(request)

    def set_weight(self, worker: SlicedWorker, weight: float) -> None:
        """Set a worker's weight among workers of equal urgency."""
        if not weight > 0.0:
            raise InputError(f"a worker's weight must be above 0, got {weight}")
        self._worker_queue(worker).weight = weight

    # Work that continues by itself

    def register(self, work: Pumpable) -> None:
        """Pump `work` every frame. If it also has `poll()`, that is called when the frame begins."""
        if not isinstance(work, Pumpable):
            raise TypeError(f"cannot register {type(work).__name__}: it has no method pump(budget_ms)")
        if all(known.work is not work for known in self._registered):
            pumped = Continuation(work, self._failures)
            join(pumped, self._clients)
            self._registered.append(pumped)

    def unregister(self, work: Pumpable) -> None:
        """Stop pumping `work`."""
        self._registered = [known for known in self._registered if known.work is not work]

    # The frame

    @property
    def frame(self) -> int:
        """The current frame's number."""
        return self._polls if self._frame is None else self._frame()

    def milliseconds(self) -> float:
        """The queue's clock in milliseconds; if deterministic, frames of equal length."""
        return self.frame * self._frame_ms if self.deterministic else self._clock_ms()

    @background_planning()
    def poll(self) -> None:
        """Begin a frame: deliver the results that have arrived, in order of request, higher priorities first.

        What a callback raises, or a request that nobody awaits, counts as an error of the component that
        asked: it is logged, and `app.errors` lists it.
        """
        self._polls += 1
        for pumped in self._registered:
            pumped.poll()
        for work in self._pending_work():
            try:
                work.pump(None)
            except Exception as error:  # noqa: BLE001 - the other workers continue
                self._failures.report(work, None, f"{work!r}, while it went on,", error)
        self._expire()
        arrived = self._arrived()
        arrived.sort(key=lambda task: (-task.request.priority, task.request.number))
        for task in arrived:
            self._deliver(task)
        self._forget_idle()
        self._failures.raise_first()

    @background_planning()
    def pump(self, budget_ms: float) -> float:
        """Start and continue work that is expected to fit into `budget_ms`; return the ms that were spent.

        What counts is what the frame loses: this thread's time, and of work on a GPU its time there, as
        far as it was learned. Work of the CPU backend runs on job threads, so it counts with what
        submitting it takes; job threads are given enough to do until the frame after the next.

        A step dearer than the whole budget has its turn once enough is saved for it: the mean is kept, and no
        frame spends more than one such step beyond its budget. A deterministic queue spends
        `slices_per_frame` slices instead.
        """
        self._expire()
        queues = self._worker_queues
        self._terms.jobs.begin_frame(
            self._clock_ms(), not any(queue.is_on_jobs and queue.is_busy for queue in queues)
        )
        if self.deterministic:
            for queue in queues:
                for task in queue.waiting:
                    task.accept()
        spent = self._budget.spend(self._clients, self.slices_per_frame if self.deterministic else budget_ms)
        for client in self._clients:
            client.recent = _MEMORY * client.recent + client.spent
        self._registered = [pumped for pumped in self._registered if pumped.work is not None]
        return spent

    @property
    def _wants_turn(self) -> bool:
        """Whether a `pump` would find something to do."""
        return any(client.wants_turn() for client in self._clients)

    @property
    def _wants_gpu(self) -> bool:
        """Whether what a `pump` would do may run on the GPU."""
        return any(not client.is_on_jobs and client.wants_turn() for client in self._clients)

    @property
    def pending(self) -> int:
        """The number of requests that are not done."""
        return len(self._open)

    @property
    def stats(self) -> QueueStats:
        """Requests in progress, and how the latest `pump` spent its budget."""
        queues, budget = self._worker_queues, self._budget
        total = sum(client.recent for client in self._clients)
        return QueueStats(
            frame=self.frame,
            waiting=sum(len(queue.waiting) for queue in queues),
            running=sum(queue.running is not None for queue in queues),
            reading=sum(len(queue.reading) for queue in queues) + len(self._tensors),
            budget_ms=budget.given,
            spent_ms=budget.spent,
            saved_ms=sum(queue.saved for queue in queues),
            debt_ms=budget.debt,
            done=self._ended["done"],
            cancelled=self._ended["cancelled"],
            expired=self._ended["expired"],
            failed=self._ended["failed"],
            workers=tuple(
                WorkerStats(
                    queue.name,
                    len(queue.waiting),
                    int(queue.running is not None),
                    len(queue.reading),
                    queue.spent,
                    queue.recent / total if total else 0.0,
                    queue.weight,
                )
                for queue in queues
            ),
        )

    # Within

    @property
    def _clients(self) -> list[BudgetClient]:
        return [*self._registered, *self._worker_queues]

    def _clock_ms(self) -> float:
        return 1e3 * self._time_source()

    def _worker_queue(self, worker: SlicedWorker) -> WorkerQueue:
        queue = self._known.get(worker)
        if queue is None:
            queue = self._known[worker] = WorkerQueue(worker, self._terms)
        return queue

    def _request(
        self, priority: int, deadline_ms: float | None, payload: object, callback: Callback | None
    ) -> InferenceRequest:
        self._count += 1
        expires = math.inf if deadline_ms is None else self.milliseconds() + deadline_ms
        return InferenceRequest(self, self._count, priority, expires, payload, callback, line_of_caller())

    def _replace(self, queue: WorkerQueue, key: Hashable, cancel_running: bool, place: int) -> int:
        """Cancel the requests that a newer one of `key` replaces; returns the place that it takes."""
        for task in queue.tasks:
            if task.key != key or task.request not in self._open:
                continue
            waits = task in queue.waiting and not task.is_accepted
            if self.deterministic:
                waits = waits and task.request.frame == self.frame
            if waits:
                place = min(place, task.order[-1])
            if waits or cancel_running:
                number = task.request.number
                message = f"request {number} made way for a newer one of the same worker (latest_only)"
                self._close(task.request, "cancelled", RequestReplacedError(message))
        return place

    def _expire(self) -> None:
        now = self.milliseconds()
        overdue = [request for request in self._open if request._expires < now]
        for request in overdue:
            message = f"request {request.number} of frame {request.frame} had no result before its deadline"
            self._close(request, "expired", RequestExpiredError(message))
            self._call_back(request)

    def _close(self, request: InferenceRequest, state: RequestState, error: Exception) -> None:
        """End a request without a result; drop its task, unless a deterministic queue has accepted it."""
        found = self._open.pop(request, None)
        if found is None:
            return
        queue, task = found
        if not (self.deterministic and task.is_accepted):
            if queue is not None:
                queue.drop(task)
            else:
                self._tensors.remove(task)
        self._ended[state] += 1
        request._end(state, error=error)

    def _arrived(self) -> list[Task]:
        """Take out the tasks whose results are to be delivered now."""
        found: list[Task] = []
        if self.deterministic:
            due = self.frame - self.latency_frames
            for queue in self._worker_queues:
                found += queue.take_due(lambda task: task.request.frame <= due)
            found += [task for task in self._tensors if task.request.frame <= due]
        else:
            for queue in self._worker_queues:
                found += queue.take_arrived()
                if getattr(queue.worker(), "is_disposed", False):
                    found += queue.fail_all(DisposedError(f"the worker of {queue.name!r} was disposed"))
            found += [task for task in self._tensors if task.has_arrived()]
        self._tensors = [task for task in self._tensors if task not in found]
        return found

    def _deliver(self, task: Task) -> None:
        """End a request, call back, and report what went wrong."""
        request = task.request
        if self._open.pop(request, None) is None:
            return
        callback = request._callback
        try:
            result = task.result()
        except Exception as error:  # noqa: BLE001 - it is raised where the result is read
            self._ended["failed"] += 1
            request._end("failed", error=error)
            self._call_back(request)
            # The game itself disposed the worker, which ends its requests.
            if not request._is_awaited and not isinstance(error, DisposedError):
                component = described(callback)[0] if callback is not None else None
                self._failures.report(
                    task.worker or self, component, f"the request of {request._asked_at}", error
                )
        else:
            self._ended["done"] += 1
            request._end("done", result)
            self._call_back(request)

    def _call_back(self, request: InferenceRequest) -> None:
        callback = request._callback
        try:
            request._call_back()
        except Exception as error:  # noqa: BLE001 - the other results still have to be delivered
            assert callback is not None
            component, name = described(callback)
            self._failures.report(self, component, f"the callback {name}", error)

    def _forget_idle(self) -> None:
        for queue in self._worker_queues:
            if queue.is_empty:
                queue.saved = 0.0
        self._worker_queues = [queue for queue in self._worker_queues if not queue.is_empty]


_OPTIONS = tuple(
    name for name, parameter in inspect.signature(InferenceQueue.submit).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)  # fmt: skip


def _check_names(worker: SlicedWorker, named: Iterable[str]) -> None:
    """Raise `InputError` for what is neither an option nor an input of the model."""
    inputs = [item.name for item in getattr(worker.model, "inputs", ())]
    for name in named:
        if inputs and name not in inputs:
            near = suggestion(name, (*_OPTIONS, *inputs)) or ";"
            raise InputError(
                f"{name!r} is neither an option of submit nor an input of the model{near} the options: "
                f"{', '.join(_OPTIONS)}; the inputs: {', '.join(inputs)}"
            )
