"""Symbolic plans after a stop for data, with the data as symbolic values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.base.errors import EngineError
from engine.base.generators import finish
from engine.compiler.data_speculation import DataGuesses
from engine.compiler.lower import LoweredModel
from engine.compiler.trace import EQUAL, InputShapes, leaf_shapes
from engine.compiler.walk import Elements, Stop
from engine.kernels.value import Value
from engine.runtime.plans.plan_requests import PlanRequest
from engine.runtime.plans.recorded_plan import RecordedPlan
from engine.runtime.plans.specialized_plan import SpecializedPlan
from engine.runtime.plans.symbolic_plans import SymbolicPlan, SymbolicPlans
from engine.runtime.plans.symbolic_values import (
    SymbolicValues,
    of_data,
    of_elements,
    opened_elements,
    opened_shape,
)

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

MOST_FORESEEN = 4
"""How many stops for data in a row are planned past while a model loads."""


class ContinuationRequest(PlanRequest):
    """A request for the plan that continues another after its stop for data.

    Args:
        session: The session of the model.
        before: The plan that stopped.
        known: The elements for which it stopped.
        results: What a NumPy function returned, if it stopped for that.
    """

    before: RecordedPlan

    def __init__(
        self, session: Session, before: RecordedPlan, known: Elements, results: Sequence[Any] | None
    ) -> None:
        self.session, self.before = session, before
        self._known, self._results = known, results
        lowered = before.lowered
        self._sized = lowered if isinstance(lowered, SpecializedPlan) else None
        self.plans = SymbolicPlans() if self._sized is None else self._sized.sized.following

    @cached_property
    def given(self) -> SymbolicValues | None:
        """The symbolic numbers of the plan before, and the data."""
        if self._sized is None:
            return None
        data = of_data(self._known, self._results)
        return SymbolicValues((*self._sized.sizes, *data.numbers), data.decided)

    @property
    def may_make(self) -> bool:
        """Whether the previous plan is symbolic."""
        return self._sized is not None

    def make_symbolic(self) -> SymbolicPlan | None:
        """A symbolic plan that continues the other for data like this."""
        sized = self._sized
        from_here = None if sized is None else sized.continuable
        if sized is None or from_here is None:
            return None
        return plan_on(self.session, from_here, sized.sizes, self._known, self._results)

    def static_plan(self) -> LoweredModel:
        """Continue planning from the stop of the static plan for these sizes."""
        if not self._stops_alike:
            raise _StopMismatchError(
                f"model '{self.session.source.name}' cannot be continued at these sizes: planned alone, they "
                "do not stop here"
            )
        before = self.before.lowered if self._sized is None else self._sized.static_plan
        return self.session.resumed(before, self._known, self._results)

    def filled_now(self) -> RecordedPlan | None:
        """As in the base class, but wait for kernels if the static plan cannot be continued."""
        found = super().filled_now()
        if found is not None or self._stops_alike:
            return found
        if (waiting := self.plans.waiting_for(self.given)) is not None:
            self.session.compile(waiting.lowered)
            self.plans.activate_compiled(self.session)
            found = finish(self.filling())
        return found

    @property
    def _stops_alike(self) -> bool:
        """Whether the static plan for these sizes stops for the same data as the symbolic one."""
        if self._sized is None:
            return True
        try:
            static = self._sized.static_plan.trace.stop
        except _StopMismatchError:
            return False
        stop = self._sized.sized.lowered.trace.stop
        assert stop is not None
        return static is not None and [v.name for v in static.needs] == [v.name for v in stop.needs]


class _StopMismatchError(EngineError):
    """The static plan for these sizes does not stop where the symbolic plan stopped."""


def plan_on(
    session: Session,
    sized: SymbolicPlan,
    sizes: Sequence[int],
    known: Elements,
    results: Sequence[Any] | None,
) -> SymbolicPlan | None:
    """Return a symbolic plan that continues another after such data; None if impossible.

    `sizes` are what the other's symbolic numbers are now: guards hold for them, not for those it was made
    with.
    """
    recorder, trace = sized.recorder, sized.lowered.trace
    data = of_data(known, results)
    with recorder.at(sized.record.copy()):
        recorder.suppose(sizes)
        elements, shape_of = opened_elements(known, recorder), partial(opened_shape, recorder)
        try:
            lowered = session.allowed(session.planner.resume_symbolic(trace, elements, results, shape_of))
        except EngineError:
            return None
        return SymbolicPlan(lowered, recorder, data.decided, is_start=False)


def likely_continuations(session: Session, sized: SymbolicPlan) -> Iterator[SymbolicPlan]:
    """Plans that continue another past its stops for data, with guesses at that data."""
    for condition in (True, False):
        guesses, going = DataGuesses(EQUAL[-1], condition), sized
        while (stop := going.lowered.trace.stop) is not None and guesses.stops < MOST_FORESEEN:
            with sized.recorder.at(going.record.copy()):
                answer = None if stop.repeats else guesses.answer(stop)
            if answer is None:
                break
            data = of_elements(answer)
            sizes = tuple(size.hint for size in going.record.inputs)
            known = going.following.waiting_for(SymbolicValues((*sizes, *data.numbers), data.decided))
            following = known or plan_on(session, going, sizes, answer, None)
            if following is None:
                break
            if known is None:
                going.following.add(following)
                yield following
            going = following
        if not guesses.conditions:
            break


def likely_elements(
    session: Session, shapes: InputShapes, sizes: Sequence[int] = EQUAL[-1]
) -> Elements | None:
    """Guesses at the elements of inputs on which plans depend; None if there is no guess at one of them."""
    types = {item.name: item.dtype for item in session.source.inputs}
    given = {name: shapes[name] for name in session.host_inputs}
    values = tuple(Value(name, shape, types[name]) for name, shape in leaf_shapes(given).items())
    found = DataGuesses(sizes, True).answer(Stop(values))
    if found is None:
        return None
    return {value.name: np.asarray(found[value.name]).reshape(value.shape) for value in values}
