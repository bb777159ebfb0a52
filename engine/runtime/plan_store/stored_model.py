"""Stored plans of a model, before a worker uses them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from engine.compiler.lower import LoweredModel
from engine.compiler.plan import AnyKernel
from engine.kernels.size_recorder import SizeRecorder
from engine.runtime.plan_store.symbolic_plans import StoredSymbolicPlan, restored


@dataclass
class StoredModel:
    """The contents of a model's plan file: kernels, static and symbolic plans, and metadata.

    `kernels` are all that its symbolic shapes can reach, as they are read back; `plans` those for given input
    shapes, by the key of the session. `lasting` are the plans' constants that belong to the model.
    """

    host_inputs: frozenset[str]
    is_random: bool
    kernels: list[AnyKernel]
    plans: dict[object, LoweredModel] = field(default_factory=dict)
    lasting: frozenset[str] = frozenset()
    symbolic_plans: list[StoredSymbolicPlan] = field(default_factory=list)

    @cached_property
    def opened(self) -> list[tuple[LoweredModel, SizeRecorder]]:
        """`symbolic_plans` with their sizes open, for all workers. Raises one of `UNREADABLE`."""
        return [restored(plan) for plan in self.symbolic_plans]

    @property
    def lowered(self) -> list[LoweredModel]:
        """All plans; those with symbolic sizes at their original sizes."""
        return [*self.plans.values(), *(plan.lowered for plan in self.symbolic_plans)]

    @property
    def stops(self) -> bool:
        """Whether plans wait for computed data. Those are stored with symbolic sizes only."""
        return any(plan.stops for plan in self.symbolic_plans)


def copied(lowered: LoweredModel) -> LoweredModel:
    """Return a copy of a plan whose constants and trace can be consumed independently."""
    segments = []
    for segment in lowered.segments:
        plan = segment.plan
        own = replace(plan, constants=dict(plan.constants), packed=dict(plan.packed))
        segments.append(replace(segment, plan=own))
    return LoweredModel(replace(lowered.trace, values=dict(lowered.trace.values)), segments)
