"""Requests for plans: the sizes and elements that a schedule has, and the plans that serve them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from engine.base.errors import EngineError
from engine.base.generators import finish
from engine.compiler.lower import LoweredModel
from engine.compiler.trace import InputShapes
from engine.compiler.walk import Elements
from engine.kernels.size_recorder import SizeRecorder
from engine.runtime.plans.recorded_plan import Filling, RecordedPlan
from engine.runtime.plans.symbolic_plans import MOST_LENGTHS, SymbolicPlan, SymbolicPlans
from engine.runtime.plans.symbolic_values import SymbolicValues, of_elements, opened_elements

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

MOST_DECIDED = 4
"""How many symbolic plans may be decided by other elements of inputs; with more, no further ones are
made.
"""


class PlanRequest(ABC):
    """Sizes and elements for which a plan is needed.

    It is served by a symbolic plan that accepts them, else by a new such plan, else by one for these sizes
    alone. `Session` goes that way at once, and `BackgroundPlans` beside a game's frames.

    Attributes:
        session: The session of the model.
        plans: The symbolic plans among which one may serve it.
        before: The plan that it continues, if any.
    """

    session: Session
    plans: SymbolicPlans
    before: RecordedPlan | None = None

    @property
    @abstractmethod
    def given(self) -> SymbolicValues | None:
        """The values of the symbolic numbers; None if no symbolic plan can accept them."""

    @property
    @abstractmethod
    def may_make(self) -> bool:
        """Whether another symbolic plan may be made."""

    @abstractmethod
    def make_symbolic(self) -> SymbolicPlan | None:
        """A symbolic plan that also serves these sizes; None if impossible. Any thread may call this."""

    @abstractmethod
    def static_plan(self) -> LoweredModel:
        """A static plan for these sizes. Any thread may call this."""

    def cached(self) -> RecordedPlan | None:
        """The plan that another thread has made meanwhile, if any."""
        return None

    def hold(self) -> None:
        """Copy what the user may change before the plan is made."""

    def store_symbolic(self, made: Sequence[SymbolicPlan]) -> None:
        """Store symbolic plans, whose kernels are compiled."""
        self.session.stored_plans.store_symbolic_plans(self.session, {}, made)

    def store_static(self, lowered: LoweredModel) -> None:
        """Store a plan for these sizes alone, if it is to be."""

    def filling(self, *, only_used: bool = False) -> Filling:
        """Fill in the symbolic plan that accepts these; returns None if none does. See `SymbolicPlans`."""
        return self.plans.filling(self, only_used=only_used)

    def make(self) -> SymbolicPlan | None:
        """Create a symbolic plan, usable once its kernels are compiled; None if none may be made."""
        made = self.make_symbolic() if self.may_make and not self.plans.serves_one_set_each else None
        if made is not None:
            self.plans.add(made)
        return made

    def found_or_made(self) -> SymbolicPlan | None:
        """An unused symbolic plan that accepts these sizes, or a new one. Any thread may call this."""
        return self.plans.not_used(self.given) or self.make()

    def compiled(self) -> SymbolicPlan | None:
        """`found_or_made`, then compile the kernels and store the symbolic plans on disk."""
        sized = self.found_or_made()
        if sized is not None:
            self.session.compile(sized.lowered)
            self.store_symbolic([sized, *self.plans.ready])
        return sized

    def filled_now(self) -> RecordedPlan | None:
        """Fill in a symbolic plan, which is made first if necessary; None if a static plan is needed.

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
        """Symbolic sizes and elements; None if equal names have different sizes or nothing is dynamic."""
        sizes, elements = self.session.symbolic_plans.sizes.of(self._shapes), of_elements(self._known)
        if sizes is None:
            return None
        return SymbolicValues((*sizes.numbers, *elements.numbers), (*sizes.decided, *elements.decided))

    @property
    def may_make(self) -> bool:
        """Whether another symbolic plan may be made: not once many exist for other non-symbolic inputs."""
        given = self.given
        if given is None or not self.session.may_plan_for_all:
            return False
        return sum(plan.decided != given.decided for plan in self.plans.ready) < MOST_DECIDED

    def make_symbolic(self) -> SymbolicPlan | None:
        """Create a symbolic plan that covers these sizes; None if the model does not support it."""
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
        return self.session.stops if self.session.outlook else self.static_plan().trace.stop is not None

    def static_plan(self) -> LoweredModel:
        """A static plan for these sizes, up to the model's end or its first stop for data."""
        return self.session.lower(self._shapes, self._known)

    def cached(self) -> RecordedPlan | None:
        """The plan that another thread has made meanwhile, if any."""
        return self.session.cache.get(self._key)

    def store_symbolic(self, made: Sequence[SymbolicPlan]) -> None:
        """Store symbolic plans, unless elements decide them."""
        self.session.stored_plans.store_symbolic_plans(self.session, self._known, made)

    def store_static(self, lowered: LoweredModel) -> None:
        """Store the first plan that is used."""
        self.session.stored_plans.store_first(self.session, self._key, lowered, self._known)

    @property
    def _key(self) -> object:
        return self.session.key(self._shapes, self._known)
