"""`Budget`: how much of a run may be enqueued now, from the expected time of each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from engine.backends.base import Backend
from engine.backends.partial_dispatch import KnownTiming, PartialDispatch, StepRange
from engine.base.errors import CancelledError
from engine.compiler.lower import Place
from engine.runtime.binding import enqueue
from engine.runtime.cost_model import SELDOM, SURE, ExpectedCost, StepCosts
from engine.runtime.plans.recorded_plan import Submission

# Share of a budget to use where the driver computes in the call, as times vary.
_SHARE = 0.8


@dataclass(slots=True)
class Slicing:
    """The partial dispatches of a program, and the expected costs of its steps."""

    dispatch: PartialDispatch
    steps: list[ExpectedCost]

    def ms(self, part: StepRange) -> float:
        """Expected milliseconds of a part."""
        return self.steps[part.step].ms((part.end - part.first) / self.dispatch.units[part.step])

    def parts(self, step: int, unit: int) -> Iterator[StepRange]:
        """A step from a unit on, and all later steps, each as one part."""
        for k in range(step, len(self.steps)):
            if self.dispatch.units[k]:
                yield StepRange(k, unit if k == step else 0, self.dispatch.units[k])


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

    def charge(self, expected: float, is_synchronous: bool) -> None:
        """Count what was enqueued. If the driver computes in the call, elapsed time counts."""
        self.spent += expected
        if is_synchronous:
            self.spent = max(self.spent, 1000.0 * (perf_counter() - self.began))


class Budget:
    """Enqueues a run's submissions in parts, each within the current allowance.

    A caller that blocks for the outputs enqueues everything.

    Attributes:
        costs: The expected costs of the steps.
        allowance: What may be enqueued now; None for nothing.
        is_dropped: Whether nobody can allow more; may be set on any thread.
    """

    def __init__(self, costs: StepCosts, backends: Mapping[Place, Backend]) -> None:
        self.costs = costs
        self._backends = backends
        costs.runs += 1
        costs.collect()
        self.is_dropped = False
        self.allowance: Allowance | None = None
        # The first unit of the present submission that is not enqueued.
        self._step = 0
        self._unit = 0

    def enqueue(self, submission: Submission, wait: bool) -> bool:
        """Enqueue what is allowed of a submission; with `wait`, all of it. Returns True at its end.

        Raises:
            CancelledError: Nobody can allow more.
        """
        if self.is_dropped and not wait:
            raise CancelledError(
                "the Schedule of this inference was dropped before all of it was enqueued; keep the object "
                "that schedule_iterable returns, and iterate it to its end"
            )
        allowance = Allowance(0.0, everything=True) if wait else self.allowance
        if allowance is None:
            return False
        if not self._enqueue(submission, allowance):
            if allowance.parts:
                for backend in self._backends.values():
                    backend.flush()
            return False
        self._step = self._unit = 0
        return True

    def _enqueue(self, submission: Submission, allowance: Allowance) -> bool:
        slicing = self.slicing(submission)
        dispatch, steps = slicing.dispatch, slicing.steps
        if dispatch.is_busy and not (allowance.everything or allowance.parts):
            return False
        timed = dispatch.is_synchronous or self.costs.runs % SELDOM == 0
        while self._step < len(steps):
            parts: list[StepRange] = []
            expected = 0.0
            while self._step < len(steps) and not (parts and dispatch.is_synchronous):
                count = self._count(slicing, allowance, expected)
                if not count:
                    break
                if count > 0:
                    part = StepRange(self._step, self._unit, self._unit + count)
                    parts.append(part)
                    expected += slicing.ms(part)
                    timed = timed or steps[self._step].measurements < SURE
                    allowance.parts += 1
                self._unit += max(count, 0)
                if self._unit >= dispatch.units[self._step]:
                    self._step, self._unit = self._step + 1, 0
            if not parts:
                break
            timing = enqueue(self._backends[submission.place], dispatch.enqueue, parts, timed)
            known = timing.seconds if isinstance(timing, KnownTiming) else None
            allowance.charge(expected if known is None else 1000.0 * sum(known), dispatch.is_synchronous)
            if timing is not None:
                self.costs.watch(submission.place, steps, dispatch.units, parts, timing)
        return self._step == len(steps)

    def _count(self, slicing: Slicing, allowance: Allowance, ahead: float) -> int:
        """How many units of the next step may be enqueued; -1 if it has none, 0 if none fits.

        Args:
            slicing: The partial dispatches of the program.
            allowance: How much may be enqueued.
            ahead: Milliseconds of partial dispatches that are chosen and not enqueued yet.
        """
        dispatch = slicing.dispatch
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

    def slicing(self, submission: Submission) -> Slicing:
        """The partial dispatches of a submission, created when it is first sliced."""
        if submission.slicing is None:
            backend = self._backends[submission.place]
            dispatch = backend.partial_dispatch(submission.program, submission.plan)
            submission.slicing = Slicing(dispatch, self.costs.of_plan(submission.place, submission.plan))
        found: Slicing = submission.slicing
        return found

    def left(self, submissions: Iterable[Submission]) -> Iterator[tuple[Slicing, StepRange]]:
        """The remaining parts of this submission and the following ones, one per step."""
        step, unit = self._step, self._unit
        for submission in submissions:
            slicing = self.slicing(submission)
            for part in slicing.parts(step, unit):
                yield slicing, part
            step = unit = 0

    def ms(self, submissions: Iterable[Submission]) -> float:
        """Expected milliseconds of whole submissions."""
        return sum(
            slicing.ms(part) for slicing in map(self.slicing, submissions) for part in slicing.parts(0, 0)
        )
