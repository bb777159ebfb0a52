"""The plan cache: recorded plans by input shapes, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from engine.runtime.plans.recorded_plan import PLAN_BYTES, RecordedPlan

KEPT_PLANS = 16
"""How many sets of input shapes keep their recorded plans, however large. Plans in use are never dropped."""

KEPT_BYTES = 64 << 20
"""Memory up to which more plans than that are kept, beside what the newest one uses: a cache of keys and
values that grows with every schedule has many lengths, all of which come again.
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
        self._fast_paths: dict[object, tuple[object, Any]] = {}
        self._memory = _Memory()

    @property
    def nbytes(self) -> int:
        """Estimated memory of all plans; blocks that several of them use count once."""
        return self._memory.nbytes

    @property
    def shapes(self) -> Collection[Any]:
        """The input shapes for which `fast_path` finds one."""
        return self._fast_paths.keys()

    def get(self, key: object) -> RecordedPlan | None:
        """The plan of a key, now the most recently used one; None if there is none."""
        found = self.plans.get(key)
        if found is not None:
            self.plans.move_to_end(key)
        return found

    def fast_path(self, shapes: object) -> Any:
        """The `FastPath` for input shapes, its plan now the most recently used; None if there is none."""
        found = self._fast_paths.get(shapes)
        if found is None:
            return None
        key, fast_path = found
        self.plans.move_to_end(key)
        return fast_path

    def keep_fast_path(self, key: object, recorded: RecordedPlan) -> None:
        """Let `fast_path` return this plan's fast path, if it has one, until the plan is dropped."""
        fast_path = recorded.fast_path
        if fast_path is not None and self.plans.get(key) is recorded:
            self._fast_paths[fast_path.shapes] = key, fast_path

    def forget_fast_path(self, fast_path: Any) -> None:
        """Remove a fast path, so that `fast_path` no longer returns it."""
        found = self._fast_paths.get(fast_path.shapes)
        if found is not None and found[1] is fast_path:
            del self._fast_paths[fast_path.shapes]

    def rename(self, key: object, other: object) -> None:
        """Give a plan another key, unless another plan has that."""
        if other in self.plans:
            return
        recorded = self.plans[other] = self.plans.pop(key)
        self.keep_fast_path(other, recorded)

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
        self._memory.add(recorded)
        while len(plans) > KEPT_PLANS and self._memory.beside(recorded) > KEPT_BYTES:
            unused = (k for k, plan in plans.items() if not plan.users and plan is not recorded)
            if (oldest := next(unused, None)) is None:
                break
            self.drop(plans, oldest)

    def measure(self, recorded: RecordedPlan) -> None:
        """Count the memory of a plan that was recorded after it was added."""
        self._memory.measure(recorded)

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
            self._memory.remove(recorded)
            if recorded.fast_path is not None:
                self.forget_fast_path(recorded.fast_path)
            recorded.release()

    def release(self) -> None:
        """Release every plan."""
        for key in [*self.plans]:
            self.drop(self.plans, key)


class _Memory:
    """The memory of plans, counted as they come and go."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._blocks: dict[RecordedPlan, Mapping[int, int]] = {}
        # Of each block: how many plans use it.
        self._users: dict[int, int] = {}

    def add(self, recorded: RecordedPlan) -> None:
        """Count a plan."""
        self.remove(recorded)
        self.nbytes += PLAN_BYTES
        blocks, users = recorded.memory(), self._users
        self._blocks[recorded] = blocks
        for block, nbytes in blocks.items():
            if block in users:
                users[block] += 1
            else:
                users[block] = 1
                self.nbytes += nbytes

    def beside(self, recorded: RecordedPlan) -> int:
        """Memory that dropping all other plans would free."""
        return self.nbytes - PLAN_BYTES - sum(self._blocks[recorded].values())

    def measure(self, recorded: RecordedPlan) -> None:
        """Count a plan again, if it is counted at all."""
        if recorded in self._blocks:
            self.add(recorded)

    def remove(self, recorded: RecordedPlan) -> None:
        """Count a plan no longer."""
        blocks = self._blocks.pop(recorded, None)
        if blocks is None:
            return
        self.nbytes -= PLAN_BYTES
        for block, nbytes in blocks.items():
            self._users[block] -= 1
            if not self._users[block]:
                self.nbytes -= nbytes
                del self._users[block]
