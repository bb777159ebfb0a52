"""`Run`: one schedule, from its inputs to its last enqueued program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from engine.backends.base import DeviceBuffer, Readback
from engine.base.errors import StaleTensorError
from engine.compiler.value_conversion import arrays_in
from engine.kernels.value import Value
from engine.runtime.binding import NO_INPUTS, Feed, UnboundInputs, bind, enqueue
from engine.runtime.budget import Budget
from engine.runtime.plans.recorded_plan import Location, Planning, RecordedPlan, Submission
from engine.runtime.plans.session import Session


class Run:
    """One schedule: enqueues what it can, and continues when the data that it waits for has arrived.

    With a budget, it enqueues programs in parts, as far as that allows. An error is kept in `error`, and
    `check` raises it when the outputs are read. `turn` distinguishes the schedules of a run that stands for
    several; taking the outputs ends a turn, too, and makes it the `taken_turn`.
    """

    error: Exception | None = None
    reported = False
    turn = 0
    taken_turn = -1
    started = False
    finished = False
    _position = 0
    _has_transferred = False
    # Results of a NumPy function, for the plan that follows it.
    _results: tuple[np.ndarray, ...] = ()

    def __init__(
        self,
        session: Session,
        recorded: RecordedPlan,
        feeds: Mapping[str, Feed],
        budget: Budget | None = None,
    ) -> None:
        self.session = session
        self.recorded = recorded
        self.on_finished: list[Callable[[], None]] = []
        self.unbound = UnboundInputs(feeds) if feeds else NO_INPUTS
        self._budget = budget
        self._reads: dict[str, Readback] = {}
        self._held: list[RecordedPlan] = []

    def hold(self) -> None:
        """Retain the plan until `let_go`, so that the cache does not drop it."""
        self.recorded.users += 1
        self._held.append(self.recorded)

    def advance(self, wait: bool = False) -> bool:
        """Enqueue up to the end, or up to data that has not arrived. Returns True at the end."""
        if self.finished:
            return True
        backends = self.session.backends
        while True:
            if not self.session.is_ready(self.recorded, wait):
                return False
            self.started = self.started or self.unbound.bind(self.recorded.inputs, backends, wait)
            if not self.started:
                return False
            for value, array in zip(self.recorded.lowered.trace.received, self._results, strict=False):
                for place, buffer in self.recorded.inputs[value.name]:
                    bind(array, backends[place], buffer)
            self._results = ()
            while self._position < len(self.recorded.submissions):
                submission = self.recorded.submissions[self._position]
                transfers = submission.transfers if not self._has_transferred else ()
                if transfers and not self._transfer({n: s for n, s, _ in transfers}, wait):
                    return False
                for name, _, target in transfers:
                    backends[submission.place].upload(target, self._reads[name].array())
                self._reads.clear()
                self._has_transferred = True
                if not self._enqueue(submission, wait):
                    return False
                self._position += 1
                self._has_transferred = False
            stop = self.recorded.lowered.trace.stop
            if stop is None:
                break
            fetched = self._fetch(stop.needs, wait)
            if fetched is None:
                return False
            if stop.call is None:
                self._continue_with(self.session.continuation(self.recorded, fetched))
            else:
                results = stop.call.run(partial(self._elements, fetched))
                self._continue_with(self.session.continuation(self.recorded, {}, results))
                self._results = tuple(arrays_in(results))
        self.finished = True
        for backend in backends.values():
            backend.flush()
        for callback in self.on_finished:
            callback()
        self.on_finished.clear()
        return True

    def plan_now(self) -> None:
        """Wait for a plan that is made in the background."""
        if isinstance(self.recorded.state, Planning):
            with self.session.backends["native"].entered():
                self.session.is_ready(self.recorded, wait=True)

    def _enqueue(self, submission: Submission, wait: bool) -> bool:
        """Enqueue a program whose inputs are there. Returns True once all of it is enqueued."""
        if self._budget is not None:
            return self._budget.enqueue(submission, wait)
        backend = self.session.backends[submission.place]
        enqueue(backend, backend.run, submission.program)
        return True

    def _continue_with(self, recorded: RecordedPlan) -> None:
        self.recorded = recorded
        self.hold()
        self._position = 0

    @property
    def recorded_plans(self) -> tuple[RecordedPlan, ...]:
        """The plans of this run, one more after each stop for data, while it holds them."""
        return tuple(self._held)

    @property
    def submissions_left(self) -> Sequence[Submission]:
        """The submissions of the latest plan that are not enqueued to their end."""
        return self.recorded.submissions[self._position :]

    def fail(self, error: Exception) -> None:
        """End this run with an error, which a waiting readback raises."""
        self.error = error
        self.reported = bool(self.on_finished)
        self.unbound.drop()
        self._reads.clear()
        self.on_finished.clear()

    def check(self) -> None:
        """Raise the error that ended this run, if any."""
        if self.error is not None:
            self.reported = True
            raise self.error

    def note_taken(self) -> None:
        """Record that the caller has taken the outputs of this turn."""
        self.turn += 1
        self.taken_turn = self.turn

    def check_untaken(self) -> None:
        """Raise `StaleTensorError` if the caller has taken the outputs."""
        if self.taken_turn == self.turn:
            raise StaleTensorError(
                f"the outputs of model '{self.session.source.name}' were taken with take_outputs; use the "
                "arrays that it returned, or schedule again"
            )

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to enqueue."""
        return self.finished or self.error is not None

    def let_go(self) -> None:
        """Release this run's plans: its outputs are no longer used."""
        for recorded in self._held:
            recorded.users -= 1
        self._held.clear()

    def _transfer(self, sources: Mapping[str, DeviceBuffer], wait: bool) -> bool:
        """Read buffers back to the CPU. Returns True once all have arrived in `_reads`."""
        for name, buffer in sources.items():
            if name not in self._reads:
                backend = self.session.backends[self.recorded.placement[name]]
                self._reads[name] = backend.readback(buffer)
                backend.flush()
        for name in sources:
            if wait:
                self._reads[name].wait()
            if not self._reads[name].done():
                return False
        return True

    def _fetch(self, values: tuple[Value, ...], wait: bool) -> dict[str, np.ndarray] | None:
        """The tensors that the plan waits for, by name; None while they have not arrived."""
        located = [self.locate(value) for value in values]
        buffers = {x.value.root.name: x.buffer for x in located if x.buffer is not None}
        if not self._transfer(buffers, wait):
            return None
        arrays = {name: self._reads[name].array() for name in buffers}
        self._reads.clear()
        return arrays

    def _elements(self, fetched: Mapping[str, np.ndarray], value: Value) -> np.ndarray:
        """A tensor's elements: fetched, or known while planning."""
        location = self.locate(value)
        flat = fetched.get(value.root.name)
        return location.array() if flat is None else location.seen_in(flat)

    def locate(self, value: Value) -> Location:
        """The location of a tensor of the latest plan."""
        return self.recorded.locate(value, self.session.backends)
