"""The plan cache: recorded plans by input shapes, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict

from engine.runtime.recorded_plan import RecordedPlan

KEPT_PLANS = 16
"""How many sets of input shapes keep their recorded plans, however large. Plans in use are never dropped."""

KEPT_BYTES = 64 << 20
"""Memory of their own in which more plans than that are kept: a cache of keys and values that grows with
every schedule has many lengths, all of which come again.
"""

KEPT_CONTINUATIONS = 256
"""How many plans that follow stops for data are kept in all: each stop branches by the data that it got."""

Plans = OrderedDict[object, RecordedPlan]


class PlanCache:
    """Recorded plans by their keys, and those that continue them after stops for data."""

    def __init__(self) -> None:
        self.plans: Plans = OrderedDict()
        # Every continuation, the least recently used first, with the mapping and the key that hold it.
        self.continuations: OrderedDict[RecordedPlan, tuple[Plans, object]] = OrderedDict()

    def get(self, key: object) -> RecordedPlan | None:
        """The plan of a key, now the most recently used one; None if there is none."""
        found = self.plans.get(key)
        if found is not None:
            self.plans.move_to_end(key)
        return found

    def keep(self, key: object, recorded: RecordedPlan) -> None:
        """Add a plan; older ones may be dropped."""
        self._keep(self.plans, key, recorded)

    def continuation(self, before: RecordedPlan, key: object) -> RecordedPlan | None:
        """The plan that continues another for some data; None if there is none."""
        found = before.continuations.get(key)
        if found is not None:
            before.continuations.move_to_end(key)
            self.continuations.move_to_end(found)
        return found

    def keep_continuation(self, before: RecordedPlan, key: object, following: RecordedPlan) -> None:
        """Add a plan that continues another; older ones may be dropped."""
        self.continuations[following] = before.continuations, key
        self._keep(before.continuations, key, following)
        unused = [p for p in self.continuations if not p.users and p is not following]
        for oldest in unused[: max(0, len(self.continuations) - KEPT_CONTINUATIONS)]:
            if oldest in self.continuations:
                self.drop(*self.continuations[oldest])

    def _keep(self, plans: Plans, key: object, recorded: RecordedPlan) -> None:
        plans[key] = recorded
        if len(plans) <= KEPT_PLANS:
            return
        total = sum(p.nbytes for p in plans.values())
        unused = [(k, p) for k, p in plans.items() if not p.users and p is not recorded]
        for oldest, other in unused[: len(plans) - KEPT_PLANS]:
            if total <= KEPT_BYTES:
                break
            total -= other.nbytes
            self.drop(plans, oldest)

    def forget(self, recorded: RecordedPlan) -> None:
        """Drop a plan that cannot be run, so that the next schedule makes another."""
        plans, key = self.continuations.get(recorded, (self.plans, None))
        if plans is self.plans:
            key = next((key for key, plan in plans.items() if plan is recorded), None)
        if key in plans:
            self.drop(plans, key)

    def drop(self, plans: Plans, key: object) -> None:
        """Release a plan that no run uses, and its continuations."""
        # A loop that data ends is a chain of as many plans as it had stops: too deep for recursion.
        dropped = [plans.pop(key)]
        while dropped:
            recorded = dropped.pop()
            dropped += recorded.continuations.values()
            recorded.continuations.clear()
            self.continuations.pop(recorded, None)
            recorded.release()

    def release(self) -> None:
        """Release every plan."""
        for key in [*self.plans]:
            self.drop(self.plans, key)
