"""Segments of symbolic plans: recorded once, with sizes filled in later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.plan_template import (
    DeferredBindingTemplate,
    NativeSizes,
    NativeTemplate,
    PlanTemplate,
    Template,
)
from engine.base.generators import Offload, SmallSteps
from engine.base.memory.out_of_memory import LARGE, naming_out_of_memory
from engine.compiler.lower import Place, Segment
from engine.compiler.plan import BufferSpec, Plan, RepeatedSteps
from engine.kernels.size import Number, Size, flatten, unflatten
from engine.kernels.size_table import SizeTable
from engine.runtime.plans.recorded_plan import RecordedPlan, Submission
from engine.runtime.plans.shared_memory import MemoryRequirement

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session


def optional_constants(plan: Plan) -> set[str]:
    """The packed constants that are only read by steps without tasks at the current sizes."""
    read: dict[bool, set[str]] = {False: set(), True: set()}
    for step in plan.steps:
        tasks: Number = step.space[0]
        is_idle = isinstance(tasks, Size) and not tasks.hint and not isinstance(step.kernel, RepeatedSteps)
        for part in step.parts:
            read[is_idle].update(part.inputs)
    return (read[True] - read[False]) & plan.packed.keys()


@dataclass
class SymbolicSegment:
    """A recorded segment with symbolic sizes, and the data needed to fill them in.

    Attributes:
        place: Its backend.
        template: The recorded steps.
        numbers: Which of the plan's open numbers the template takes.
        outer: Inputs and outputs, with the position of their size among those numbers.
        tables: The same of tensors that NumPy functions make of sizes: function, form of its arguments.
        unbound: The constants without a buffer, as no sizes so far needed them: of each, the positions of how
            many tasks those steps have that read it.
    """

    place: Place
    template: Template
    numbers: slice
    outer: list[tuple[BufferSpec, int]]
    tables: list[tuple[BufferSpec, Callable[..., np.ndarray], Any, int]]
    segment: Segment
    unbound: dict[str, list[int]]

    @classmethod
    def of(cls, segment: Segment, template: Template, numbers: list[Number]) -> SymbolicSegment:
        """Create the segment from its recorded steps; adds the symbolic numbers that it needs."""
        plan = segment.plan
        own = slice(len(numbers), len(numbers) + len(template.numbers))
        numbers += template.numbers
        outer = []
        for spec in plan.buffers.values():
            if spec.role in ("input", "output"):
                outer.append((spec, len(numbers)))
                numbers.append(spec.elements)
        tables = []
        for name, table in plan.tables.items():
            given: list[Number] = []
            form = flatten(table.args, given)
            tables.append((plan.buffers[name], table.function, form, len(numbers)))
            numbers += given
        unbound: dict[str, list[int]] = {name: [] for name in plan.packed}
        for step in plan.steps if unbound else ():
            for name in unbound.keys() & set(step.inputs):
                unbound[name].append(len(numbers))
                numbers.append(step.space[0])
        return cls(segment.place, template, own, outer, tables, segment, unbound)

    @property
    def zeros(self) -> list[int]:
        """Positions of the numbers that are 0 at sizes that read no unbound constant."""
        return [at for places in self.unbound.values() for at in places]

    def needed(self, numbers: Sequence[Any]) -> list[str]:
        """The constants without a buffer that steps read at these numbers."""
        return [name for name, places in self.unbound.items() if any(numbers[at] for at in places)]

    def native_sizes(
        self, make_table: Callable[[int], SizeTable | None], numbers: Sequence[Number]
    ) -> NativeSizes | None:
        """The native code that fills in sizes, if any; `numbers` are the plan's symbolic numbers."""
        if not isinstance(self.template, NativeTemplate):
            return None
        return self.template.native_sizes(make_table, numbers, [numbers[at] for _, at in self.outer])

    def binding(self, session: Session, numbers: Sequence[Any]) -> SmallSteps[None]:
        """Bind the constants that steps read at these numbers and at none before, packed on any thread."""

        if names := self.needed(numbers):
            work = Offload(partial(session.recorder.pack, self.segment, names))
            yield work
            work.result()
            # Others may have bound some of them meanwhile.
            names = self.needed(numbers)
            assert isinstance(self.template, DeferredBindingTemplate)
            self.template.bind(session.recorder.packed_buffers(self.segment, names))
            for name in names:
                del self.unbound[name]

    def specs(self, numbers: Sequence[Any]) -> list[BufferSpec]:
        """Inputs and outputs with their sizes."""
        return [BufferSpec(spec.name, numbers[at], spec.dtype, spec.role) for spec, at in self.outer]

    def needs(
        self,
        session: Session,
        numbers: Sequence[Any],
        before: RecordedPlan | None,
        make_plan: Callable[[], Plan],
    ) -> list[MemoryRequirement]:
        """The shared memory that `filling` takes for these numbers. May raise `OverflowError`.

        The buffers of the plan `before`, which this one continues, stay as they are.
        """
        recorder, backend = session.recorder, session.backends[self.place]
        needs = recorder.needs_of_outer(self.place, self.specs(numbers), before)
        naming = partial(recorder.allocating_temporaries, backend, make_plan)
        return [
            *needs,
            MemoryRequirement(backend, self.template.shared_memory(numbers[self.numbers]), naming),
        ]

    def bind_tables(
        self, session: Session, recorded: RecordedPlan, numbers: Sequence[Any], bound: dict[str, DeviceBuffer]
    ) -> None:
        """Add the tensors that NumPy functions make of sizes."""
        for spec, function, form, begin in self.tables:
            with naming_out_of_memory(f"the table '{spec.name}' of model '{session.source.name}'"):
                elements = function(*unflatten(form, iter(numbers[begin:])))
                made = session.backends[self.place].constant(elements.astype(spec.dtype).reshape(-1))
            bound[spec.name] = made
            recorded.owned.append(made)

    def filling(
        self, session: Session, recorded: RecordedPlan, numbers: Sequence[Any], make_plan: Callable[[], Plan]
    ) -> SmallSteps[None]:
        """Add buffers and the program for these numbers to a recorded plan, in one step where possible."""
        if isinstance(self.template, PlanTemplate):
            # It takes several steps, and the caller may have time for one.
            yield None
        bound, transfers = session.recorder.bind(recorded, self.place, self.specs(numbers))
        backend = session.backends[self.place]
        self.bind_tables(session, recorded, numbers, bound)
        with session.recorder.allocating_temporaries(backend, make_plan):
            template, own = self.template, numbers[self.numbers]
            if isinstance(template, PlanTemplate):
                program = yield from template.recording(own, bound)
                if sum(program.temporaries().values()) >= LARGE:
                    backend.check_memory()
            else:
                program = template.fill(own, bound)
            recorded.submissions.append(Submission(self.place, program, make_plan, transfers))
