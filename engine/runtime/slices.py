"""`Schedule`: one inference that is enqueued slice by slice, so that it fits between the frames of a game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from engine.backends.partial_dispatch import Cut, PartialDispatch, Taken
from engine.backends.tensor_data import TensorData
from engine.base import instrumentation
from engine.base.errors import CancelledError
from engine.runtime.binding import enqueue
from engine.runtime.cost_model import SELDOM, SURE, Expected, StepCosts
from engine.runtime.execution import Run
from engine.runtime.recorded_plan import RecordedPlan, Submission
from engine.runtime.session import Session

if TYPE_CHECKING:
    from engine.runtime.executor import Executor


@dataclass(slots=True)
class Slicing:
    """The partial dispatches of a program, and the expected costs of its steps."""

    dispatch: PartialDispatch
    steps: list[Expected]


@dataclass(slots=True)
class Allowance:
    """How much may be enqueued now.

    Attributes:
        ms: Milliseconds of the device's time.
        force: Whether to enqueue the smallest part if nothing fits.
        everything: Whether to enqueue everything, regardless of the budget.
        spent: Expected milliseconds enqueued so far.
        parts: Partial dispatches enqueued so far.
        began: When this began, by `perf_counter`.
    """

    ms: float
    force: bool = False
    everything: bool = False
    spent: float = 0.0
    parts: int = 0
    began: float = field(default_factory=perf_counter)

    def take(self, expected: float, is_synchronous: bool) -> None:
        """Count what was enqueued. If the driver computes in the call, elapsed time counts."""
        self.spent += expected
        if is_synchronous:
            self.spent = max(self.spent, 1000.0 * (perf_counter() - self.began))


# Share of a budget to use where the driver computes in the call, as times vary.
_SHARE = 0.8

_NOTHING = Allowance(0.0)


class SlicedRun(Run):
    """A run that enqueues as much as its allowance permits; all of it if a caller blocks for its outputs."""

    def __init__(
        self,
        session: Session,
        recorded: RecordedPlan,
        feeds: Mapping[str, TensorData | np.ndarray],
        costs: StepCosts,
    ) -> None:
        super().__init__(session, recorded, feeds)
        self.costs = costs
        costs.runs += 1
        costs.collect()
        self.allowance = _NOTHING
        self.is_dropped = False
        self._step = 0
        self._unit = 0
        self._furthest = 0.0

    def advance(self, wait: bool = False) -> bool:
        """Enqueue what is allowed; with `wait`, everything."""
        if self.is_dropped and not wait:
            raise CancelledError(
                "the Schedule of this inference was dropped before all of it was enqueued; keep the object "
                "that schedule_iterable returns, and iterate it to its end"
            )
        before = self.allowance
        if wait:
            self.allowance = Allowance(0.0, everything=True)
        try:
            is_over = super().advance(wait)
            if not is_over and self.allowance.parts:
                for backend in self.session.backends.values():
                    backend.flush()
            return is_over
        finally:
            self.allowance = before

    def _enqueue(self, submission: Submission) -> bool:
        allowance = self.allowance
        if allowance is _NOTHING:
            return False
        slicing = self._slicing(submission)
        dispatch, steps = slicing.dispatch, slicing.steps
        if dispatch.is_busy and not (allowance.everything or allowance.parts):
            return False
        timed = dispatch.is_synchronous or self.costs.runs % SELDOM == 0
        while self._step < len(steps):
            cuts: list[Cut] = []
            expected = 0.0
            while self._step < len(steps) and not (cuts and dispatch.is_synchronous):
                count = self._count(slicing, expected)
                if not count:
                    break
                if count > 0:
                    cut = Cut(self._step, self._unit, self._unit + count)
                    cuts.append(cut)
                    expected += self._ms_of(slicing, cut)
                    timed = timed or steps[self._step].measurements < SURE
                    allowance.parts += 1
                self._skip(dispatch, max(count, 0))
            if not cuts:
                return self._step == len(steps) and self._end_submission()
            timing = enqueue(self.session.backends[submission.place], dispatch.enqueue, cuts, timed)
            known = timing.seconds if isinstance(timing, Taken) else None
            allowance.take(expected if known is None else 1000.0 * sum(known), dispatch.is_synchronous)
            if timing is not None:
                self.costs.watch(submission.place, steps, dispatch.units, cuts, timing)
        return self._end_submission()

    def _end_submission(self) -> bool:
        self._step = self._unit = 0
        return True

    def _skip(self, dispatch: PartialDispatch, count: int) -> None:
        self._unit += count
        if self._unit >= dispatch.units[self._step]:
            self._step, self._unit = self._step + 1, 0

    def _count(self, slicing: Slicing, ahead: float) -> int:
        """How many units of the next step may be enqueued; -1 if it has none, 0 if none fits.

        Args:
            slicing: The partial dispatches of the program.
            ahead: Milliseconds of partial dispatches that are chosen and not enqueued yet.
        """
        dispatch, allowance = slicing.dispatch, self.allowance
        units = dispatch.units[self._step]
        if not units:
            return -1
        left = units - self._unit
        count = left
        if not allowance.everything:
            step = slicing.steps[self._step]
            fixed, each = step.fixed_ms, step.caution * step.slope_ms / units
            share = _SHARE if dispatch.is_synchronous else 1.0
            room = share * allowance.ms - allowance.spent - ahead
            if fixed + each * left > room:
                # A dispatch that is mostly fixed time waits for the next allowance.
                count = int((room - fixed) / each) if each > 0.0 and room > 2.0 * fixed else 0
                if count < 1 and not allowance.parts and allowance.force:
                    count = max(1, int(fixed / each)) if each > 0.0 else 1
                if count < 1:
                    return 0
        return dispatch.fitting(self._step, self._unit, min(count, left))

    def _ms_of(self, slicing: Slicing, cut: Cut) -> float:
        return slicing.steps[cut.step].ms((cut.end - cut.first) / slicing.dispatch.units[cut.step])

    def _slicing(self, submission: Submission) -> Slicing:
        if submission.slicing is None:
            backend = self.session.backends[submission.place]
            dispatch = backend.partial_dispatch(submission.program, submission.plan)
            submission.slicing = Slicing(dispatch, self.costs.of_plan(submission.place, submission.plan))
        found: Slicing = submission.slicing
        return found

    # What is left

    @property
    def remaining_ms(self) -> float:
        """Expected milliseconds of what is planned and not yet enqueued."""
        if self.is_over:
            return 0.0
        return sum(
            self._left(self._slicing(submission), k) for k, submission in enumerate(self._submissions_left())
        )

    def _submissions_left(self) -> Sequence[Submission]:
        return self.recorded.submissions[self._position :]

    def _left(self, slicing: Slicing, position: int) -> float:
        """Expected milliseconds left of a submission, by its position among those that are left."""
        units, total = slicing.dispatch.units, 0.0
        for k in range(self._step if position == 0 else 0, len(units)):
            if units[k]:
                first = self._unit if position == 0 and k == self._step else 0
                total += self._ms_of(slicing, Cut(k, first, units[k]))
        return total

    @property
    def next_ms(self) -> float:
        """Expected milliseconds of the smallest partial dispatch that comes next."""
        for position, submission in enumerate(self._submissions_left() if not self.is_over else ()):
            slicing = self._slicing(submission)
            first = self._step if position == 0 else 0
            for k in range(first, len(slicing.steps)):
                if slicing.dispatch.units[k]:
                    unit = self._unit if position == 0 and k == first else 0
                    return self._ms_of(slicing, Cut(k, unit, unit + 1))
        return 0.0

    @property
    def progress(self) -> float:
        """The enqueued share of what is planned. Never decreases, and is 1 only at the end."""
        if self.finished:
            return 1.0
        done = total = 0.0
        for recorded in self.recorded_plans:
            for number, submission in enumerate(recorded.submissions):
                slicing = self._slicing(submission)
                whole = sum(step.estimate for step in slicing.steps)
                total += whole
                if recorded is not self.recorded or number < self._position:
                    done += whole
                elif number == self._position:
                    done += sum(step.estimate for step in slicing.steps[: self._step])
                    if self._unit:
                        part_of = self._unit / slicing.dispatch.units[self._step]
                        done += part_of * slicing.steps[self._step].estimate
        share = done / total if total else 0.0
        self._furthest = max(self._furthest, min(share, 0.999))
        return self._furthest


class Schedule:
    """One inference that is enqueued slice by slice; returned by `Worker.schedule_iterable`.

    Iterating enqueues one slice each time, worth the worker's `slice_ms` of the device's time::

        for _ in worker.schedule_iterable(x):
            yield                                    # a frame goes by

    `advance` enqueues what fits into a budget. While the plan waits for its own data or for an earlier
    schedule of the worker, both do nothing. Otherwise only a blocking read of the outputs enqueues the rest.
    A `Schedule` that is deleted before its end is cancelled.
    """

    def __init__(self, worker: Executor, run: SlicedRun) -> None:
        self._worker = worker
        self._run = run

    def __del__(self) -> None:
        # May be called on any thread: the worker checks the flag at its next call.
        self._run.is_dropped = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> None:
        """Enqueue the next slice. Raises the error of the inference, and `StopIteration` at its end."""
        if self.is_done:
            self._check()
            raise StopIteration
        self.advance(self._worker.slice_ms, force=True)

    def advance(self, budget_ms: float, *, force: bool = False) -> float:
        """Enqueue what is expected to fit into a budget. Never waits.

        A step that does not fit is cut into partial dispatches.

        Args:
            budget_ms: Milliseconds of the device's time.
            force: Whether to enqueue the smallest partial dispatch if nothing fits.

        Returns:
            Expected milliseconds of what was enqueued; measured, if the driver computes in the call.

        Raises:
            DisposedError: The worker was disposed.
            Exception: The error that ended the inference.
        """
        worker, run = self._worker, self._run
        self._check()
        if run.is_over:
            return 0.0
        allowance = run.allowance = Allowance(budget_ms, force)
        try:
            with worker._entered(), instrumentation.working_for(worker):
                run.costs.collect()
                started = perf_counter()
                worker._advance(run)
                if instrumentation.installed and allowance.parts:
                    instrumentation.span("main", "slice", started, worker=worker, budget_ms=budget_ms)
        finally:
            run.allowance = _NOTHING
        self._check()
        return allowance.spent

    def _check(self) -> None:
        if not isinstance(self._run.error, CancelledError):
            self._run.check()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to enqueue: everything was enqueued, failed or was cancelled."""
        return self._run.is_over

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` ended it."""
        return isinstance(self._run.error, CancelledError)

    @property
    def progress(self) -> float:
        """The enqueued share of the work that is planned so far, 0 to 1."""
        return self._run.progress

    @property
    def next_cost_ms(self) -> float:
        """Expected milliseconds of the smallest partial dispatch that comes next: the least useful budget."""
        return self._run.next_ms

    @property
    def remaining_ms(self) -> float:
        """Expected milliseconds of the device's time for what is planned and not yet enqueued."""
        return self._run.remaining_ms

    def output(self, name: str | int | None = None) -> Any:
        """The same as `Worker.peek_output`, for this inference. Stale once a newer one is scheduled."""
        return self._worker._output_of(self._run, name)

    def cancel(self) -> None:
        """Cancel what is not enqueued yet; reading the outputs raises `CancelledError`.

        Has no effect once everything is enqueued.
        """
        if not self._run.is_over:
            self._worker._cancel(
                self._run, CancelledError("this inference was cancelled before all of it was enqueued")
            )


__all__ = ["Schedule"]
