"""Plans for all sizes after a stop for data, with the data as variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.base.errors import EngineError
from engine.base.generators import finish
from engine.compiler.guesses import Guesses
from engine.compiler.lower import Lowered
from engine.compiler.trace import EQUAL, InputShapes, leaf_shapes
from engine.compiler.walk import Elements, Stop
from engine.kernels.value import Value
from engine.runtime.plans.open_numbers import (
    OpenNumbers,
    of_elements,
    of_results,
    opened_elements,
    opened_shape,
)
from engine.runtime.plans.open_plans import SizedPlan
from engine.runtime.plans.recorded_plan import Filling, Planning, RecordedPlan
from engine.runtime.plans.sized_lowered import Again, SizedLowered

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

MOST_FORESEEN = 4
"""How many stops for data in a row are planned past while a model loads."""


def continued(
    session: Session, before: RecordedPlan, known: Elements, results: Sequence[Any] | None
) -> RecordedPlan | None:
    """What follows a plan for all sizes that stopped for data, filled in; None if it is to be planned apart.

    Args:
        session: The session of the model.
        before: The plan that stopped.
        known: The elements for which it stopped.
        results: What a NumPy function returned, if it stopped for that.
    """
    lowered = before.lowered
    if not isinstance(lowered, SizedLowered):
        return None
    plans, given = lowered.sized.following, _numbers(lowered, known, results)
    if (found := finish(filling(session, before, known, results))) is not None:
        return found
    if not plans.serves_one_set_each and plans.waiting_for(given) is None:
        _make(session, lowered, known, results)
    if plans.take_compiled(session):
        session.store_open_plans({}, plans.ready)
        if (found := finish(filling(session, before, known, results))) is not None:
            return found
    if _stops_alike(lowered):
        return None
    if (waiting := plans.waiting_for(given)) is not None:
        # Nothing but this plan continues what has run, so its kernels are compiled now.
        session.compile(waiting.lowered)
        plans.take_compiled(session)
        found = finish(filling(session, before, known, results))
    if found is None:
        raise _not_alike(session)
    return found


def _numbers(lowered: SizedLowered, known: Elements, results: Sequence[Any] | None) -> OpenNumbers:
    data = of_elements(known) if results is None else of_results(results)
    return OpenNumbers((*lowered.sizes, *data.numbers), data.decided)


def _make(
    session: Session, lowered: SizedLowered, known: Elements, results: Sequence[Any] | None
) -> SizedPlan | None:
    """A new plan that continues another, added to those that do."""
    made = _plan_openly(session, lowered, known, results)
    if made is not None:
        lowered.sized.following.add(made)
    return made


def filling(
    session: Session,
    before: RecordedPlan,
    known: Elements,
    results: Sequence[Any] | None,
    *,
    only_used: bool = False,
) -> Filling:
    """Fill in what follows a plan, by the plans for all sizes that there are; returns None if none serves.

    Arguments as of `continued`; `only_used` as of `SizedPlans.filling`.
    """
    lowered = before.lowered
    if not isinstance(lowered, SizedLowered):
        return None
    arguments = (session, lowered, known, results)
    again = partial(Again, partial(_planned_apart, *arguments), partial(_plan_openly, *arguments))
    given = _numbers(lowered, known, results)
    plans = lowered.sized.following
    return (yield from plans.filling(session, given, again, before, only_used=only_used))


def planned_continuation(
    session: Session, before: RecordedPlan, known: Elements, results: Sequence[Any] | None
) -> Planning:
    """How to plan in the background what follows a plan that stopped. Arguments as of `continued`."""
    lowered = before.lowered

    def make() -> SizedPlan | None:
        if not isinstance(lowered, SizedLowered):
            return None
        plans = lowered.sized.following
        sized = plans.not_used(_numbers(lowered, known, results))
        if sized is None and not plans.serves_one_set_each:
            sized = _make(session, lowered, known, results)
        if sized is not None:
            session.compile(sized.lowered)
            session.store_open_plans({}, [sized])
        return sized

    def use(sized: SizedPlan, is_bound: bool) -> None:
        assert isinstance(lowered, SizedLowered)
        lowered.sized.following.use(sized, is_bound)

    def plan() -> Lowered:
        if isinstance(lowered, SizedLowered) and not _stops_alike(lowered):
            raise _not_alike(session)
        found = session.resumed(lowered.apart, known, results)
        session.compile(found)
        return found

    fill = partial(filling, session, before, known, results, only_used=True)
    return Planning(fill, make, use, plan, before)


def _stops_alike(lowered: SizedLowered) -> bool:
    """Whether the plan for these sizes alone stops for the same data as the one for all sizes."""
    try:
        apart = lowered.apart.trace.stop
    except _NotAlikeError:
        return False
    stop = lowered.sized.lowered.trace.stop
    assert stop is not None
    return apart is not None and [v.name for v in apart.needs] == [v.name for v in stop.needs]


class _NotAlikeError(EngineError):
    """A plan for some sizes alone does not stop where the one for all sizes did."""


def _not_alike(session: Session) -> _NotAlikeError:
    return _NotAlikeError(f"model '{session.source.name}' cannot be continued at these sizes")


def plan_on(
    session: Session,
    sized: SizedPlan,
    sizes: Sequence[int],
    known: Elements,
    results: Sequence[Any] | None,
) -> SizedPlan | None:
    """A plan for all sizes that continues another for data like this; None where that is not possible.

    `sizes` are what the other's open numbers are now: guards hold for them, not for those it was made with.
    """
    recorder, trace = sized.recorder, sized.lowered.trace
    data = of_elements(known) if results is None else of_results(results)
    with recorder.at(sized.record.copy()):
        recorder.suppose(sizes)
        elements, shape_of = opened_elements(known, recorder), partial(opened_shape, recorder)
        try:
            lowered = session.allowed(session.planner.resume_open(trace, elements, results, shape_of))
        except EngineError:
            return None
        return SizedPlan(lowered, recorder, data.decided, is_start=False)


def _plan_openly(
    session: Session, before: SizedLowered, known: Elements, results: Sequence[Any] | None
) -> SizedPlan | None:
    """A plan for all sizes that continues another, added to none."""
    from_here = before.continuable
    return None if from_here is None else plan_on(session, from_here, before.sizes, known, results)


def likely_continuations(session: Session, sized: SizedPlan) -> Iterator[SizedPlan]:
    """Plans that continue another past its stops for data, with guesses at that data."""
    for condition in (True, False):
        guesses, going = Guesses(EQUAL[-1], condition), sized
        while (stop := going.lowered.trace.stop) is not None and guesses.stops < MOST_FORESEEN:
            with sized.recorder.at(going.record.copy()):
                answer = None if stop.repeats else guesses.answer(stop)
            if answer is None:
                break
            data = of_elements(answer)
            sizes = tuple(size.hint for size in going.record.inputs)
            known = going.following.waiting_for(OpenNumbers((*sizes, *data.numbers), data.decided))
            following = known or plan_on(session, going, sizes, answer, None)
            if following is None:
                break
            if known is None:
                going.following.add(following)
                yield following
            going = following
        if not guesses.conditions:
            break


def _planned_apart(
    session: Session, before: SizedLowered, known: Elements, results: Sequence[Any] | None
) -> Lowered:
    if not _stops_alike(before):
        raise _NotAlikeError("planned alone, these sizes do not stop here")
    return session.resumed(before.apart, known, results)


def likely_elements(session: Session, shapes: InputShapes) -> Elements | None:
    """Guesses at the elements of inputs on which plans depend; None if there is no guess at one of them."""
    types = {item.name: item.dtype for item in session.source.inputs}
    given = {name: shapes[name] for name in session.host_inputs}
    values = tuple(Value(name, shape, types[name]) for name, shape in leaf_shapes(given).items())
    found = Guesses(EQUAL[-1], True).answer(Stop(values))
    if found is None:
        return None
    return {value.name: np.asarray(found[value.name]).reshape(value.shape) for value in values}
