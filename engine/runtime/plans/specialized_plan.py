"""`SpecializedPlan`: a plan for all sizes with given sizes filled in."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from engine.compiler.lower import Fallback, Lowered, Segment
from engine.compiler.plan_walk import Trace

if TYPE_CHECKING:
    from engine.runtime.plans.plan_requests import PlanRequest
    from engine.runtime.plans.symbolic_plans import SymbolicPlan


class SpecializedPlan(Lowered):
    """A plan for all sizes with given sizes filled in; its steps are filled in on first use."""

    def __init__(
        self,
        make_trace: Callable[[], Trace],
        sized: SymbolicPlan,
        sizes: tuple[int, ...],
        request: PlanRequest,
    ) -> None:
        self._make_trace = make_trace
        self.sized = sized
        self.sizes = sizes
        self._request = request

    @cached_property
    def trace(self) -> Trace:  # type: ignore[override]
        """The tensors, with their sizes."""
        return self._make_trace()

    @property
    def segments(self) -> list[Segment]:  # type: ignore[override]
        """The segments, with their sizes."""
        return self.sized.filled(self.sizes)[0]

    @property
    def fallbacks(self) -> list[Fallback]:  # type: ignore[override]
        """The fallbacks with their sizes filled in."""
        return self.sized.filled(self.sizes)[1] if self.sized.lowered.fallbacks else []

    @cached_property
    def apart(self) -> Lowered:
        """The plan made for these sizes alone, whose continuation needs no symbolic sizes."""
        return self._request.apart()

    @cached_property
    def continuable(self) -> SymbolicPlan | None:
        """The plan for all sizes to continue from; made again if this one was read from disk.

        None where that is not possible.
        """
        return self.sized if self.sized.lowered.trace.frames else self._request.openly()
