"""`Schedule`: one inference that is enqueued slice by slice, so that it fits between the frames of a game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

import numpy as np

from engine.backends.partial_dispatch import Cut, Pieces, Taken
from engine.backends.tensor_data import TensorData
from engine.base import instrumentation
from engine.base.errors import CancelledError
from engine.runtime.cost_model import SELDOM, SURE, Expected, StepCosts
from engine.runtime.execution import Run
from engine.runtime.owner import Owner
from engine.runtime.recorded_plan import RecordedPlan, Submission
from engine.runtime.session import Session


@dataclass(slots=True)
class Slicing:
    """A stage in pieces, and what is known of its steps' costs."""

    pieces: Pieces
    steps: list[Expected]


@dataclass(slots=True)
class Allowance:
    """How much may be enqueued now: milliseconds of the device's time, or all there is.

    force: at least a part, where nothing fits. spent: what was enqueued under it. began: when it was given.
    """

    ms: float
    force: bool = False
    everything: bool = False
    spent: float = 0.0
    parts: int = 0
    began: float = field(default_factory=perf_counter)

    def take(self, expected: float, is_synchronous: bool) -> None:
        """So much was enqueued. Where that takes the time itself, all that went by counts."""
        self.spent += expected
        if is_synchronous:
            self.spent = max(self.spent, 1000.0 * (perf_counter() - self.began))


# Of a budget, where the driver computes in the call: no two take the same time.
_SHARE = 0.8

_NOTHING = Allowance(0.0)


class SlicedRun(Run):
    """A run that enqueues what it was allowed to, and all of it only for who blocks for its outputs."""

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
        pieces, steps = slicing.pieces, slicing.steps
        if pieces.is_busy and not (allowance.everything or allowance.parts):
            return False
        timed = pieces.is_synchronous or self.costs.runs % SELDOM == 0
        while self._step < len(steps):
            cuts: list[Cut] = []
            expected = 0.0
            while self._step < len(steps) and not (cuts and pieces.is_synchronous):
                count = self._count(slicing, expected)
                if not count:
                    break
                if count > 0:
                    cut = Cut(self._step, self._unit, self._unit + count)
                    cuts.append(cut)
                    expected += self._ms_of(slicing, cut)
                    timed = timed or steps[self._step].measurements < SURE
                    allowance.parts += 1
                self._move_on(pieces, max(count, 0))
            if not cuts:
                return self._step == len(steps) and self._end_stage()
            if instrumentation.installed:
                with instrumentation.spanning(
                    "enqueue", backend=self.session.backends[submission.place].name
                ):
                    timing = pieces.enqueue(cuts, timed)
            else:
                timing = pieces.enqueue(cuts, timed)
            known = timing.seconds if isinstance(timing, Taken) else None
            allowance.take(expected if known is None else 1000.0 * sum(known), pieces.is_synchronous)
            if timing is not None:
                self.costs.watch(submission.place, steps, pieces.units, cuts, timing)
        return self._end_stage()

    def _end_stage(self) -> bool:
        self._step = self._unit = 0
        return True

    def _move_on(self, pieces: Pieces, count: int) -> None:
        self._unit += count
        if self._unit >= pieces.units[self._step]:
            self._step, self._unit = self._step + 1, 0

    def _count(self, slicing: Slicing, ahead: float) -> int:
        """How many units of the next step may be enqueued; -1 where it has none, 0 where none fits.

        ahead: milliseconds of cuts that were chosen and are not enqueued yet.
        """
        pieces, allowance = slicing.pieces, self.allowance
        units = pieces.units[self._step]
        if not units:
            return -1
        left = units - self._unit
        count = left
        if not allowance.everything:
            step = slicing.steps[self._step]
            fixed, each = step.fixed_ms, step.caution * step.slope_ms / units
            share = _SHARE if pieces.is_synchronous else 1.0
            room = share * allowance.ms - allowance.spent - ahead
            if fixed + each * left > room:
                # Whatever is too small to be worth starting waits for the next time.
                count = int((room - fixed) / each) if each > 0.0 and room > 2.0 * fixed else 0
                if count < 1 and not allowance.parts and allowance.force:
                    count = max(1, int(fixed / each)) if each > 0.0 else 1
                if count < 1:
                    return 0
        return pieces.fitting(self._step, self._unit, min(count, left))

    def _ms_of(self, slicing: Slicing, cut: Cut) -> float:
        return slicing.steps[cut.step].ms((cut.end - cut.first) / slicing.pieces.units[cut.step])

    def _slicing(self, submission: Submission) -> Slicing:
        if submission.slicing is None:
            backend = self.session.backends[submission.place]
            pieces = backend.pieces(submission.program, submission.plan)
            submission.slicing = Slicing(pieces, self.costs.of_plan(submission.place, submission.plan))
        found: Slicing = submission.slicing
        return found

    # What is left

    @property
    def remaining_ms(self) -> float:
        """Expected milliseconds of what is planned and not enqueued."""
        if self.is_over:
            return 0.0
        return sum(
            self._left(self._slicing(submission), k) for k, submission in enumerate(self._submissions_left())
        )

    def _submissions_left(self) -> Sequence[Submission]:
        return self.recorded.submissions[self._stage :]

    def _left(self, slicing: Slicing, position: int) -> float:
        """What is left of the stage that is so many stages ahead."""
        units, total = slicing.pieces.units, 0.0
        for k in range(self._step if position == 0 else 0, len(units)):
            if units[k]:
                first = self._unit if position == 0 and k == self._step else 0
                total += self._ms_of(slicing, Cut(k, first, units[k]))
        return total

    @property
    def next_ms(self) -> float:
        """Expected milliseconds of the smallest part that can be enqueued next."""
        for position, submission in enumerate(self._submissions_left() if not self.is_over else ()):
            slicing = self._slicing(submission)
            first = self._step if position == 0 else 0
            for k in range(first, len(slicing.steps)):
                if slicing.pieces.units[k]:
                    unit = self._unit if position == 0 and k == first else 0
                    return self._ms_of(slicing, Cut(k, unit, unit + 1))
        return 0.0

    @property
    def progress(self) -> float:
        """The share that is enqueued of what is planned; never goes back, 1 only at the end."""
        if self.finished:
            return 1.0
        done = total = 0.0
        for recorded in self.recorded_plans:
            for number, submission in enumerate(recorded.submissions):
                slicing = self._slicing(submission)
                whole = sum(step.estimate for step in slicing.steps)
                total += whole
                if recorded is not self.recorded or number < self._stage:
                    done += whole
                elif number == self._stage:
                    done += sum(step.estimate for step in slicing.steps[: self._step])
                    if self._unit:
                        part_of = self._unit / slicing.pieces.units[self._step]
                        done += part_of * slicing.steps[self._step].estimate
        share = done / total if total else 0.0
        self._furthest = max(self._furthest, min(share, 0.999))
        return self._furthest


class Schedule:
    """One inference that is enqueued slice by slice; what `Worker.schedule_iterable` returns.

    Iterating enqueues one slice each time, worth the worker's `slice_ms` of the device's time::

        for _ in worker.schedule_iterable(x):
            yield                                    # a frame goes by

    `advance` enqueues what fits into a budget. Where the plan has to wait for data of its own, or for an
    earlier schedule of the worker, both do nothing until that is there. Nothing else takes an inference
    further: only a blocking read of its outputs drives it to its end. A `Schedule` that is dropped before
    its end is cancelled.
    """

    def __init__(self, worker: Owner, run: SlicedRun) -> None:
        self._worker = worker
        self._run = run

    def __del__(self) -> None:
        # May be called on any thread: the worker looks when it is next asked for anything.
        self._run.is_dropped = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> None:
        """Enqueue the next slice. Raises what went wrong, and `StopIteration` when nothing is left."""
        if self.is_done:
            self._check()
            raise StopIteration
        self.advance(self._worker.slice_ms, force=True)

    def advance(self, budget_ms: float, *, force: bool = False) -> float:
        """Enqueue what is expected to fit into a budget, in milliseconds of the device's time.

        A step that does not fit is cut; where not even a part of it does, nothing is enqueued, or with
        `force` the smallest part. Returns the milliseconds expected to be spent (those that were, where the
        driver computes in the call). Never waits. Raises what ended the inference, and `DisposedError`.
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
        """Whether nothing is left to enqueue: all of it was, or it failed or was cancelled."""
        return self._run.is_over

    @property
    def is_cancelled(self) -> bool:
        """Whether it ended by `cancel`."""
        return isinstance(self._run.error, CancelledError)

    @property
    def progress(self) -> float:
        """The share of the work that is enqueued, 0 to 1, as far as the plan is known."""
        return self._run.progress

    @property
    def next_cost_ms(self) -> float:
        """Expected milliseconds of the smallest part that can be enqueued next: what a budget has to have."""
        return self._run.next_ms

    @property
    def remaining_ms(self) -> float:
        """Expected milliseconds of the device's time for what is left, as far as the plan is known."""
        return self._run.remaining_ms

    def output(self, name: str | int | None = None) -> Any:
        """As `Worker.peek_output`, of this inference: stale once a newer one was scheduled."""
        return self._worker._output_of(self._run, name)

    def cancel(self) -> None:
        """Enqueue no more; reading its outputs raises `CancelledError`. Too late once all was enqueued."""
        if not self._run.is_over:
            self._worker._cancel(
                self._run, CancelledError("this inference was cancelled before all of it was enqueued")
            )


__all__ = ["Schedule"]
