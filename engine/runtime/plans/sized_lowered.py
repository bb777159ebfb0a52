"""`SizedLowered`: the lowered plan of some sizes, filled in from a plan for all sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from engine.compiler.lower import Fallback, Lowered, Segment
from engine.compiler.plan_walk import Trace

if TYPE_CHECKING:
    from engine.runtime.plans.open_plans import SizedPlan
    from engine.runtime.plans.plan_requests import PlanRequest


class SizedLowered(Lowered):
    """The lowered plan of some sizes, whose steps are filled in when they are first needed."""

    def __init__(
        self,
        make_trace: Callable[[], Trace],
        sized: SizedPlan,
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
        """What leaves the backend, with its sizes."""
        return self.sized.filled(self.sizes)[1] if self.sized.lowered.fallbacks else []

    @cached_property
    def apart(self) -> Lowered:
        """The same, planned for these sizes alone: what follows its stop needs no open sizes."""
        return self._request.apart()

    @cached_property
    def continuable(self) -> SizedPlan | None:
        """The plan for all sizes from whose stop planning goes on: made again if this one was read from disk.

        None where that is not possible.
        """
        return self.sized if self.sized.lowered.trace.frames else self._request.openly()
