"""`SpecializedPlan`: a symbolic plan with concrete sizes filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engine.backends.plan_template import LookedUpNumbers
from engine.compiler.lower import Fallback, LoweredModel, Segment
from engine.compiler.plan import Plan
from engine.compiler.plan_walk import Trace
from engine.kernels.value import Entry
from engine.runtime.plans.size_substitution import TraceTemplate

if TYPE_CHECKING:
    from engine.runtime.plans.plan_requests import PlanRequest
    from engine.runtime.plans.symbolic_plans import SymbolicPlan


class SpecializedPlan(LoweredModel):
    """A symbolic plan with concrete sizes; its steps are filled in on access.

    Its sizes may become others if `numbers` follow, and the plan does not stop for data.

    Args:
        template: The tensors of the plan.
        numbers: The values of its numbers.
        sized: The plan.
        sizes: The sizes.
        make_request: Makes what the plan was requested by, if it stops for data.
    """

    def __init__(
        self,
        template: TraceTemplate,
        numbers: Sequence[Any],
        sized: SymbolicPlan,
        sizes: tuple[int, ...],
        make_request: Callable[[], PlanRequest] | None = None,
    ) -> None:
        self._template, self._numbers = template, numbers
        self.sized = sized
        self.sizes = sizes
        self._traced: tuple[tuple[int, ...], Trace] | None = None  # with the sizes that it has
        self._make_request = make_request

    def plan(self, position: int) -> Plan:
        """A segment's steps."""
        return self.sized.plan_of(self.sizes, position)

    @property
    def _request(self) -> PlanRequest:
        assert self._make_request is not None
        return self._make_request()

    @property
    def trace(self) -> Trace:  # type: ignore[override]
        """The tensors, with their sizes."""
        if self._traced is None or self._traced[0] is not self.sizes:
            self._traced = self.sizes, self._template.filled(self._numbers)
        return self._traced[1]

    def entry(self, name: str) -> Entry:
        """An output, without the rest of the trace."""
        return self._template.entries[name](self._numbers)

    def shape(self, name: str) -> Callable[[], tuple[int, ...]]:
        """A function that returns the shape of an output that is a tensor, as it is then."""
        assert isinstance(self._numbers, LookedUpNumbers)
        return self._numbers.part(self._template.shapes[name])

    @property
    def segments(self) -> list[Segment]:  # type: ignore[override]
        """The segments, with their sizes."""
        return self.sized.filled(self.sizes)[0]

    @property
    def fallbacks(self) -> list[Fallback]:  # type: ignore[override]
        """The fallbacks with their sizes filled in."""
        return self.sized.filled(self.sizes)[1] if self.sized.lowered.fallbacks else []

    @cached_property
    def static_plan(self) -> LoweredModel:
        """A static plan for the same sizes, from which planning can continue with static sizes."""
        return self._request.static_plan()

    @cached_property
    def continuable(self) -> SymbolicPlan | None:
        """The symbolic plan to continue from; planned again if this one was read from disk.

        None where that is not possible.
        """
        return self.sized if self.sized.lowered.trace.frames else self._request.make_symbolic()
