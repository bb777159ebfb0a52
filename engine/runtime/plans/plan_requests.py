"""Requests for plans: the sizes and elements that a schedule has, and the plans that serve them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from engine.base.errors import EngineError
from engine.base.generators import finish
from engine.compiler.lower import Lowered
from engine.compiler.trace import InputShapes
from engine.compiler.walk import Elements
from engine.kernels.size_recorder import SizeRecorder
from engine.runtime.plans.recorded_plan import Filling, RecordedPlan
from engine.runtime.plans.symbolic_plans import MOST_LENGTHS, SymbolicPlan, SymbolicPlans
from engine.runtime.plans.symbolic_values import SymbolicValues, of_elements, opened_elements

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

MOST_DECIDED = 4
"""How many plans for all sizes may be decided by other elements of inputs; with more, no further ones are
made.
"""


class PlanRequest(ABC):
    """Sizes and elements for which a plan is needed.

    It is served by a plan for all sizes that takes them, else by a new such plan, else by one for these sizes
    alone. `Session` goes that way at once, and `BackgroundPlans` beside a game's frames.

    Attributes:
        session: The session of the model.
        plans: The plans for all sizes among which one may serve it.
        before: The plan that it continues, if any.
    """

    session: Session
    plans: SymbolicPlans
    before: RecordedPlan | None = None

    @property
    @abstractmethod
    def given(self) -> SymbolicValues | None:
        """The symbolic numbers; None where no plan for all sizes takes them."""

    @property
    @abstractmethod
    def may_make(self) -> bool:
        """Whether another plan for all sizes may be made."""

    @abstractmethod
    def make_symbolic(self) -> SymbolicPlan | None:
        """A symbolic plan that also serves these sizes; None if impossible. Any thread may call this."""

    @abstractmethod
    def apart(self) -> Lowered:
        """A static plan for these sizes. Any thread may call this."""

    def cached(self) -> RecordedPlan | None:
        """The plan that another thread has made meanwhile, if any."""
        return None

    def hold(self) -> None:
        """Copy what the user may change before the plan is made."""

    def store_symbolic(self, made: Sequence[SymbolicPlan]) -> None:
        """Store plans for all sizes, whose kernels are compiled."""
        self.session.stored_plans.store_symbolic_plans(self.session, {}, made)

    def store_static(self, lowered: Lowered) -> None:
        """Store a plan for these sizes alone, if it is to be."""

    def filling(self, *, only_used: bool = False) -> Filling:
        """Fill in the plan for all sizes that takes these; returns None if none does. See `SymbolicPlans`."""
        return self.plans.filling(self, only_used=only_used)

    def make(self) -> SymbolicPlan | None:
        """A new plan for all sizes, to be used once its kernels are compiled; None where none is made."""
        made = self.make_symbolic() if self.may_make and not self.plans.serves_one_set_each else None
        if made is not None:
            self.plans.add(made)
        return made

    def found_or_made(self) -> SymbolicPlan | None:
        """A plan for all sizes that takes these and has served none, or a new one. On any thread."""
        return self.plans.not_used(self.given) or self.make()

    def compiled(self) -> SymbolicPlan | None:
        """The same with its kernels compiled, and stored."""
        sized = self.found_or_made()
        if sized is not None:
            self.session.compile(sized.lowered)
            self.store_symbolic([sized, *self.plans.ready])
        return sized

    def filled_now(self) -> RecordedPlan | None:
        """A plan for all sizes, filled in, which may have to be made; None if these are to be planned apart.

        Kernels that are yet to be compiled are not waited for.
        """
        if (found := finish(self.filling())) is not None:
            return found
        if self.plans.waiting_for(self.given) is None:
            self.make()
        if not self.plans.activate_compiled(self.session):
            return None
        self.store_symbolic(self.plans.ready)
        return finish(self.filling())


class InputsRequest(PlanRequest):
    """A plan for input shapes, and for the elements of inputs on which plans depend."""

    def __init__(self, session: Session, shapes: InputShapes, known: Elements) -> None:
        self.session = session
        self.plans = session.symbolic_plans
        self._shapes, self._known = shapes, known

    def hold(self) -> None:
        """Copy the elements."""
        self._known = {name: array.copy() for name, array in self._known.items()}

    @cached_property
    def given(self) -> SymbolicValues | None:
        """Symbolic sizes and elements; None where equal names have other sizes, or nothing can be open."""
        sizes, elements = self.session.symbolic_plans.sizes.of(self._shapes), of_elements(self._known)
        if sizes is None:
            return None
        return SymbolicValues((*sizes.numbers, *elements.numbers), (*sizes.decided, *elements.decided))

    @property
    def may_make(self) -> bool:
        """Not if other elements come with every schedule, as each plan is used once then."""
        given = self.given
        if given is None or not self.session.may_plan_for_all:
            return False
        return sum(plan.decided != given.decided for plan in self.plans.ready) < MOST_DECIDED

    def make_symbolic(self) -> SymbolicPlan | None:
        """A plan for all sizes like these; None for a model that cannot be planned so."""
        session, given, sizes = self.session, self.given, self.session.symbolic_plans.sizes
        if session.planner.tracer.grows_with_sizes:
            self.plans.most = MOST_LENGTHS
        if given is None or not session.backends["native"].plans_for_all_sizes:
            return None
        if not sizes.has_any and not self._known and not session.stops:
            return None
        recorder = SizeRecorder()
        opened = sizes.opened(self._shapes, recorder)
        try:
            elements = opened_elements(self._known, recorder)
            lowered = session.allowed(session.planner.lower_symbolic(opened, elements))
        except EngineError:
            return None  # an operator takes no symbolic sizes
        if lowered.trace.stop is not None and not self._stops:
            # It would wait for what a plan of fixed sizes knows.
            sizes.is_possible = False
            return None
        return SymbolicPlan(lowered, recorder, given.decided, is_start=True)

    @property
    def _stops(self) -> bool:
        """Whether plans of fixed sizes stop for data."""
        return self.session.stops if self.session.outlook else self.apart().trace.stop is not None

    def apart(self) -> Lowered:
        """A plan for these sizes alone, up to the model's end or its first stop for data."""
        return self.session.lower(self._shapes, self._known)

    def cached(self) -> RecordedPlan | None:
        """The plan that another thread has made meanwhile, if any."""
        return self.session.cache.get(self._key)

    def store_symbolic(self, made: Sequence[SymbolicPlan]) -> None:
        """Store plans for all sizes, unless elements decide them."""
        self.session.stored_plans.store_symbolic_plans(self.session, self._known, made)

    def store_static(self, lowered: Lowered) -> None:
        """Store the first plan that is used."""
        self.session.stored_plans.store_first(self.session, self._key, lowered, self._known)

    @property
    def _key(self) -> object:
        return self.session.key(self._shapes, self._known)
