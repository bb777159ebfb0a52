"""Symbolic plans: a model is planned once with symbolic sizes, for all sizes that its guards accept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

from engine.backends.base import DeviceBuffer
from engine.backends.growable_memory import GrowableMemory
from engine.backends.plan_template import NativeSizes
from engine.base.generators import SmallSteps, finish
from engine.compiler.lower import Fallback, LoweredModel, Segment
from engine.compiler.plan import Plan
from engine.compiler.plan_walk import Trace
from engine.graph.model import Model
from engine.kernels.size import Number
from engine.kernels.size_recorder import SizeRecorder
from engine.kernels.size_table import SizeTable
from engine.kernels.value import Value, leaves
from engine.runtime.plan_store.plans import PlanFile
from engine.runtime.plan_store.stored_model import StoredModel, copied
from engine.runtime.plan_store.symbolic_plans import StoredSymbolicPlan
from engine.runtime.plans import size_substitution
from engine.runtime.plans.dynamic_dims import DynamicDims
from engine.runtime.plans.recorded_plan import Filling, RecordedPlan
from engine.runtime.plans.recording import Places
from engine.runtime.plans.shared_memory import allocating
from engine.runtime.plans.specialized_plan import SpecializedPlan
from engine.runtime.plans.symbolic_segments import SymbolicSegment, optional_constants
from engine.runtime.plans.symbolic_values import SymbolicValues

if TYPE_CHECKING:
    from engine.runtime.plans.plan_requests import PlanRequest
    from engine.runtime.plans.session import Session

MOST_PLANS = 16
"""How many symbolic plans a model keeps, each for sizes that others' guards refuse."""

MOST_LENGTHS = 64
"""The same for a model whose plans have more steps at larger sizes, each for one length."""

LARGER = 32
"""How many times the sizes that a plan was made with those are for which it is bound ahead, too."""


class SymbolicPlanState(Enum):
    """The states of a symbolic plan, in the order in which it passes through them."""

    COMPILING = auto()
    """Its kernels are being compiled."""
    COMPILED = auto()
    """It can be used, once its constants are bound, and can still be stored."""
    BINDING = auto()
    """Constants are being bound, in small steps."""
    OPEN = auto()
    """Its steps are recorded: sizes are filled in at once."""
    RELEASED = auto()
    """Other plans have been used instead for long, or binding it failed."""


@dataclass
class _Recorded:
    """Backend objects for filling in sizes; created when the plan is first used."""

    segments: list[SymbolicSegment]
    trace: size_substitution.TraceTemplate
    inputs: Callable[[Trace], Sequence[Value]]
    places: list[Places]
    program: Any
    numbers: list[Number]
    make_table: Callable[[int], SizeTable | None]

    @cached_property
    def native(self) -> NativeSizes | None:
        """The native code that fills in sizes in one call; None if that needs Python."""
        return self.segments[0].native_sizes(self.make_table, self.numbers)


def _inputs_of(session: Session) -> Callable[[Trace], Sequence[Value]]:
    """Return a function that lists the input tensors of a plan that starts at the model's inputs."""
    names, extra = [item.name for item in session.source.inputs], session.extra_inputs()
    return lambda trace: [*leaves(*[trace.values[name] for name in names]), *extra]


def _received(trace: Trace) -> Sequence[Value]:
    """The input tensors of a plan that continues another."""
    return trace.received


class SymbolicPlan:
    """A plan with symbolic sizes, valid while its guards hold, up to the model's end or a stop for data.

    Args:
        lowered: The plan with symbolic sizes.
        recorder: Where the arithmetic on them is recorded.
        decided: Key of what else the plan depends on.
        is_start: Whether the plan begins with the model's inputs, not behind a stop for data.
    """

    def __init__(
        self, lowered: LoweredModel, recorder: SizeRecorder, decided: tuple[object, ...], is_start: bool
    ) -> None:
        self.lowered = lowered
        self.recorder = recorder
        self.decided = decided
        self.record = recorder.record
        self.owner = RecordedPlan(lowered)
        self.state = SymbolicPlanState.COMPILING
        self.following = SymbolicPlans()
        """The plans of what follows the stop, if this plan ends with one."""
        self.shown: set[str] = set()
        """The names of the buffers in which the model's outputs are, once its steps are recorded."""
        self._is_start = is_start
        self.made_for = tuple([size.hint for size in self.record.inputs])
        """The numbers with which it was made: the guards accept them, without a program to ask."""
        self._recorded: _Recorded | None = None
        self._constants: list[dict[str, DeviceBuffer]] = []
        self._binding: SmallSteps[None] | None = None
        self._programs: dict[bool, Any] = {}

    @property
    def is_used(self) -> bool:
        """Whether the plan has been used for any sizes: its constants are then bound."""
        return self.state is SymbolicPlanState.OPEN

    @property
    def is_storable(self) -> bool:
        """Whether it has its constants, none of which is bound yet."""
        return self.state in (SymbolicPlanState.COMPILING, SymbolicPlanState.COMPILED)

    @property
    def is_usable(self) -> bool:
        """Whether its kernels are compiled."""
        return self.state in (SymbolicPlanState.COMPILED, SymbolicPlanState.BINDING, SymbolicPlanState.OPEN)

    def serialized(self, file: PlanFile) -> StoredSymbolicPlan | None:
        """Serialize this plan if it `is_storable`; else return None."""
        with self.recorder.at(self.record):
            if any(
                size.hint != number for size, number in zip(self.record.inputs, self.made_for, strict=True)
            ):
                self.recorder.suppose(self.made_for)
            return file.serialized(self.lowered, self.recorder, self.decided, self._is_start)

    def bind(self, session: Session) -> None:
        """Bind constants and record the steps now, not for the first sizes."""
        finish(self.binding(session))
        self.record_steps(session)
        assert self._recorded is not None
        numbers = self._recorded.program(*(LARGER * number for number in self.made_for))
        if numbers is not None:
            for segment in self._recorded.segments:
                finish(segment.binding(session, numbers))
                if self._is_start and session.backends[segment.place].is_host:
                    session.recorder.reserve(segment.place, segment.specs(numbers))

    def binding(self, session: Session) -> SmallSteps[None]:
        """The first part of `bind`, in small steps: constants. `record_steps` follows."""
        if self._binding is None:
            self.state, self._binding = SymbolicPlanState.BINDING, self._bound(session)
        return self._binding

    def accepts(self, sizes: Sequence[int]) -> bool:
        """Whether the guards accept these sizes."""
        if self._recorded is None and tuple(sizes) == self.made_for:
            return True
        program = self._all_numbers(()) if self._recorded is None else self._recorded.program
        return program(*sizes) is not None

    def _bound(self, session: Session) -> SmallSteps[None]:
        for segment in self.lowered.segments:
            is_host = session.backends[segment.place].is_host
            later = optional_constants(segment.plan) if is_host else ()
            self._constants.append((yield from session.recorder.binding(self.owner, segment, later)))

    def record_steps(self, session: Session) -> None:
        """The second part of `bind`: record steps and compile the size program. Callable from any thread."""
        if self.is_used:
            return  # a schedule outside of a frame has used it between two steps of the background
        trace, numbers = self.lowered.trace, list[Number]()
        # Workers of one model share what is read from disk, and others may be created right now.
        with self.recorder.lock, self.recorder.at(self.record):
            segments = []
            for segment, constants in zip(self.lowered.segments, self._constants, strict=True):
                template = session.backends[segment.place].template(segment.plan, constants)
                segments.append(SymbolicSegment.of(segment, template, numbers))
            kept = {value.root.name for value in trace.kept}
            inputs = _inputs_of(session) if self._is_start else _received
            if self._is_start and trace.stop is not None:
                kept.update(value.name for value in session.extra_inputs())
            places = session.recorder.places_of(inputs(trace), self.lowered.segments, kept)
            names = size_substitution.outer_names(session.source)
            filled = size_substitution.TraceTemplate(trace, names, numbers)
            program = self.recorder.program(numbers)
        make_table = partial(self.recorder.table, numbers, self.record)
        if trace.stop is None:
            self.shown = size_substitution.shown_in(trace, session.source)
            trace.values = {}
            trace.settle()
        self._recorded = _Recorded(segments, filled, inputs, places, program, numbers, make_table)
        self.state = SymbolicPlanState.OPEN

    def filling(self, request: PlanRequest) -> Filling:
        """Fill in the recorded plan for some sizes: one step per missing buffer, and one for the rest.

        Returns None if the guards refuse the sizes, or they overflow arguments. Raises `OutOfMemoryError`
        for a tensor that cannot be allocated; other sizes may be tried then.
        """
        session, before, given = request.session, request.before, request.given
        assert given is not None
        sizes, made = given.numbers, self._recorded
        if made is None:
            if not self.accepts(sizes):
                return None
            self.bind(session)
            made = self._recorded
            assert made is not None
        numbers = made.program(*sizes)
        if numbers is None:
            return None
        for segment in made.segments:
            yield from segment.binding(session, numbers)
        if self._recorded is not made:
            return None  # released meanwhile
        recorder, lowered = (
            session.recorder,
            SpecializedPlan(made.trace, numbers, self, sizes, lambda: request),
        )
        recorded = RecordedPlan(lowered)
        inputs = made.inputs(lowered.trace)
        try:
            make_plans = [cache(partial(self.plan_of, sizes, k)) for k in range(len(made.segments))]
            near: Sequence[GrowableMemory[Any, Any]] = ()
            if recorder.allocates_ahead:
                needs = recorder.needs_of_inputs(inputs, made.places)
                for segment, make_plan in zip(made.segments, make_plans, strict=True):
                    needs += segment.needs(session, numbers, before, make_plan)
                near = yield from allocating(needs)
                if self._recorded is not made:
                    return None  # released meanwhile
            if before is not None:
                recorded.buffers.update(before.buffers)
                recorded.placement.update(before.placement)
            recorder.input_buffers(recorded, inputs, made.places)
            for segment, make_plan in zip(made.segments, make_plans, strict=True):
                yield from segment.filling(session, recorded, numbers, make_plan)
        except OverflowError:
            # What is wrong with such sizes, if anything, is reported when they are planned for themselves.
            recorded.release()
            return None
        except BaseException:
            recorded.release()
            raise
        session.background_plans.allocate_ahead(near)
        return recorded

    def filled(self, sizes: Sequence[int]) -> tuple[list[Segment], list[Fallback]]:
        """The segments and fallbacks with their sizes filled in."""
        segments, fallbacks = self.lowered.segments, self.lowered.fallbacks
        numbers = [number for segment in segments for number in segment.plan.numbers()]
        numbers += [number for fallback in fallbacks for number in (fallback.bytes_down, fallback.bytes_up)]
        supply = iter(self._all_numbers(tuple(numbers))(*sizes))
        return (
            [Segment(s.place, s.plan.filled(supply), s.imports, s.exports) for s in segments],
            [replace(f, bytes_down=next(supply), bytes_up=next(supply)) for f in fallbacks],
        )

    def plan_of(self, sizes: Sequence[int], position: int) -> Plan:
        """Return a segment's plan with its sizes filled in."""
        return self.filled(sizes)[0][position].plan

    def _all_numbers(self, numbers: tuple[Number, ...]) -> Any:
        program = self._programs.get(bool(numbers))
        if program is None:
            program = self._programs[bool(numbers)] = self.recorder.program(numbers, self.record)
        return program

    def release(self) -> None:
        """Free what only this plan and its continuations use."""
        self.state, self._recorded = SymbolicPlanState.RELEASED, None
        self.following.release()
        self.owner.release()


class SymbolicPlans:
    """Symbolic plans with the same starting point in a model, most recently used first."""

    most = MOST_PLANS
    """How many are kept."""

    def __init__(self) -> None:
        self._plans: list[SymbolicPlan] = []
        # How many were made in a row without one that served other sizes than its first ones.
        self._alone = 0

    @property
    def ready(self) -> list[SymbolicPlan]:
        """Those that can be used, the most recently used first."""
        return [plan for plan in self._plans if plan.is_usable]

    @property
    def first(self) -> SymbolicPlan | None:
        """The most recently used one of `ready`; None if there is none."""
        for plan in self._plans:
            if plan.is_usable:
                return plan
        return None

    def is_first(self, plan: SymbolicPlan) -> bool:
        """Whether a plan, one that can be used, is the most recently used one."""
        plans = self._plans
        return (bool(plans) and plans[0] is plan) or self.first is plan

    @property
    def waiting(self) -> list[SymbolicPlan]:
        """Those whose kernels are being compiled."""
        return [plan for plan in self._plans if plan.state is SymbolicPlanState.COMPILING]

    @property
    def serves_one_set_each(self) -> bool:
        """Whether plans only serve the sizes that they were made for, so that no more should be made."""
        return self._alone >= MOST_PLANS

    def mark_served(self) -> None:
        """Note that a plan was used for other sizes than its first ones."""
        self._alone = 0

    def waiting_for(self, given: SymbolicValues | None) -> SymbolicPlan | None:
        """The plan that takes these numbers once its kernels are compiled, if any."""
        return _taking(self.waiting, given)

    def not_used(self, given: SymbolicValues | None) -> SymbolicPlan | None:
        """An unused plan that accepts these numbers, or None. Callable from any thread."""
        return _taking([plan for plan in self._plans if not plan.is_used], given)

    def add(self, made: SymbolicPlan) -> None:
        """Add a plan, to be used once its kernels are compiled."""
        self._plans.append(made)
        self._alone += 1

    def activate_compiled(self, session: Session) -> bool:
        """Activate the plans whose kernels are compiled; returns whether there were any.

        Kernels of the others are compiled in the background.
        """
        compiled = [plan for plan in self.waiting if not session.compiling(plan.lowered)]
        for plan in compiled:
            plan.state = SymbolicPlanState.COMPILED
        self._to_front(compiled)
        return bool(compiled)

    def _to_front(self, plans: list[SymbolicPlan]) -> None:
        """Make plans the most recently used ones, and release those that were used long ago."""
        self._plans = plans + [plan for plan in self._plans if plan not in plans]
        for old in self.ready[self.most :]:
            self._drop(old)

    def _drop(self, sized: SymbolicPlan) -> None:
        self._plans = [plan for plan in self._plans if plan is not sized]
        sized.release()

    def use(self, sized: SymbolicPlan, is_bound: bool) -> None:
        """Activate a plan that was made in the background, or drop it if binding failed."""
        if is_bound:
            self._to_front([sized])
        else:
            self._drop(sized)

    def filling(self, request: PlanRequest, *, only_used: bool = False) -> Filling:
        """Fill in the plan that takes some numbers; returns None if none does. See `SymbolicPlan.filling`.

        With `only_used`, plans are left out whose constants are not bound yet, which takes a while.
        """
        given = request.given if self._plans else None
        for sized in self.ready if given is not None else ():
            is_used = sized.is_used
            if sized.decided != given.decided or (only_used and not is_used):  # type: ignore[union-attr]
                continue
            try:
                recorded = yield from sized.filling(request)
            except BaseException:
                if not sized.is_used:
                    # If memory for constants ran out, some of them are missing.
                    self._drop(sized)
                raise
            if recorded is not None:
                if is_used:
                    self.mark_served()
                if self._plans[0] is not sized:
                    self._to_front([sized])
                return recorded
        return None

    def everything(
        self, before: SymbolicPlan | None = None
    ) -> Iterator[tuple[SymbolicPlans, SymbolicPlan | None, SymbolicPlan]]:
        """All plans and their continuations, each with its location and its predecessor."""
        for plan in (*self.waiting, *self.ready):
            yield self, before, plan
            yield from plan.following.everything(plan)

    @property
    def unbound(self) -> list[tuple[SymbolicPlans, SymbolicPlan]]:
        """Plans that have to be bound before use, and their locations."""
        return [(home, p) for home, _, p in self.everything() if p.is_usable and not p.is_used]

    def release(self) -> None:
        """Release the resources of these plans."""
        for sized in self._plans:
            sized.release()
        self._plans.clear()


def _taking(plans: Sequence[SymbolicPlan], given: SymbolicValues | None) -> SymbolicPlan | None:
    """The first plan that takes these numbers."""
    if given is None:
        return None
    return next((p for p in plans if p.decided == given.decided and p.accepts(given.numbers)), None)


class ModelPlans(SymbolicPlans):
    """The symbolic plans of one model that start at its inputs."""

    def __init__(self, session: Session, model: Model) -> None:
        super().__init__()
        self._session = session
        self.sizes = DynamicDims(model)

    def restore(self, stored: StoredModel) -> list[SymbolicPlan]:
        """Activate plans that were read from disk, and return them. Callable from any thread.

        Their constants are bound where any thread may do that, otherwise those that are `unbound` have to be.
        """
        made: list[SymbolicPlan] = []
        for data, (lowered, recorder) in zip(stored.symbolic_plans, stored.opened, strict=True):
            is_start = data.before == -1
            if not -1 <= data.before < len(made):
                raise ValueError("a plan continues none")
            plan = SymbolicPlan(copied(lowered), recorder, data.decided, is_start)
            plan.state = SymbolicPlanState.COMPILED
            (self if is_start else made[data.before].following)._plans.append(plan)
            made.append(plan)
            if self._session.backends["native"].is_host:
                plan.bind(self._session)
        # Those for sizes of 1 come last, as most schedules have others.
        self._plans.sort(key=lambda plan: -max(plan.made_for, default=0))
        return made
