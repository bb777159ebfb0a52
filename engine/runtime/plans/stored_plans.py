"""A session's plans on disk: loaded when it starts, and stored as others are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from engine.backends.base import Progress
from engine.compiler.lower import LoweredModel
from engine.compiler.plan import AnyKernel
from engine.compiler.walk import Elements
from engine.runtime.plan_store.plans import PlanFile
from engine.runtime.plan_store.stored_model import StoredModel, copied
from engine.runtime.plan_store.streams import UNREADABLE
from engine.runtime.plan_store.symbolic_plans import StoredSymbolicPlan
from engine.runtime.plans.symbolic_plans import SymbolicPlan
from engine.runtime.plans.symbolic_values import of_elements

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

MOST_OPEN_PLANS = 6
"""How many plans with symbolic sizes are stored: loading each takes some milliseconds."""

MOST_CONTINUATIONS = 16
"""How many are stored that continue others behind stops for data."""


class StoredPlans:
    """The plans of a session on disk."""

    def __init__(self) -> None:
        # The places of plans with symbolic sizes among those that are stored; None for those that cannot be.
        self._places: WeakKeyDictionary[SymbolicPlan, int | None] = WeakKeyDictionary()
        self._is_whole = True

    def restored(
        self, session: Session, progress: Progress | None
    ) -> tuple[int, list[tuple[object, LoweredModel]]] | None:
        """The result of `Session.prepare_plans` from stored plans, if there are any."""
        stored, file, compiled = session.stored, session.file, None
        session.stored = None
        if stored is None or file is None:
            return None
        try:
            compiled = file.prepare(session.backends["native"], stored, progress)
            if compiled is None:
                return None
            for lowered in stored.lowered:
                for segment in lowered.segments:
                    session.packed.update(segment.plan.packed)
            session.stored = stored
            made = session.symbolic_plans.restore(stored)
        except UNREADABLE:
            # Damaged in a way that the file's digest does not tell: as good as none.
            session.symbolic_plans.release()
            session.stored = None
            return None
        self._places.update({plan: place for place, plan in enumerate(made)})
        if progress is not None:
            progress(len(stored.kernels), len(stored.kernels))
        # Recording uses up constants, and the plans may have to be written again with another.
        return compiled, [(key, copied(lowered)) for key, lowered in stored.plans.items()]

    def store(
        self,
        session: Session,
        kernels: Sequence[AnyKernel],
        key: object = None,
        lowered: LoweredModel | None = None,
    ) -> None:
        """Store plans and kernels for the next load of a model, in addition to the plans stored before."""
        file, stored = session.file, session.stored
        if file is None:
            return
        plans, opened = ({}, []) if stored is None else (stored.plans, stored.symbolic_plans)
        if lowered is not None:
            plans = {key: lowered}
        opened = self._opened(session, file, opened)
        found = StoredModel(
            session.host_inputs, session.is_random, file.kernels(kernels), plans, symbolic_plans=opened
        )
        if session.is_stopping and not (found.stops and self._is_whole):
            # Its plans of fixed sizes are not stored, so what is missing would be planned in a frame.
            session.file = None
            return
        used = {name for p in found.lowered for s in p.segments for name in s.plan.constants}
        found.lasting = frozenset(used & session.planner.tracer.constant_names)
        session.stored = found
        file.write(found, session.model)

    def _opened(
        self, session: Session, file: PlanFile, stored: Sequence[StoredSymbolicPlan]
    ) -> list[StoredSymbolicPlan]:
        """The plans with symbolic sizes that are stored, and those that were made since and not used yet."""
        found = [*stored]
        for _, before, plan in session.symbolic_plans.everything():
            if plan in self._places or not plan.is_storable:
                continue
            self._places[plan] = None
            place = -1 if before is None else self._places.get(before)
            if place is None or (before is None and plan.decided != of_elements({}).decided):
                continue
            most = MOST_OPEN_PLANS if before is None else MOST_CONTINUATIONS
            if sum((data.before == -1) is (before is None) for data in found) >= most:
                continue
            data = plan.serialized(file)
            if data is None:
                self._is_whole = False
            else:
                self._places[plan] = len(found)
                found.append(data._replace(before=place))
        return found

    def store_symbolic_plans(
        self, session: Session, known: Elements, compiled: Sequence[SymbolicPlan]
    ) -> None:
        """Store the symbolic plans that were made, for which these kernels are compiled."""
        if session.stored is not None and not known:
            new = [k for plan in compiled for k in plan.lowered.kernels()]
            self.store(session, [*session.stored.kernels, *new])

    def store_first(self, session: Session, key: object, lowered: LoweredModel, known: Elements) -> None:
        """Store the first plan that was used."""
        if lowered.trace.stop is None and not known and session.stored is not None:
            # The first shapes of a run are likely to be the first ones of the next.
            self.store(session, [*session.stored.kernels, *lowered.kernels()], key, lowered)
            session.file = None
            session.stored = replace(session.stored, plans={}, symbolic_plans=[])
