"""Plans for all sizes: a model planned once with its open dimensions as variables, under guards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.backends.base import DeviceBuffer
from engine.backends.growing import Growing
from engine.base.errors import EngineError
from engine.base.generators import SmallSteps, finish
from engine.compiler.lower import Fallback, Lowered, Segment
from engine.compiler.plan import Plan
from engine.compiler.plan_walk import Trace
from engine.compiler.trace import InputShapes
from engine.compiler.walk import Elements
from engine.graph.model import Model
from engine.kernels.size import Number
from engine.kernels.size_recorder import SizeRecorder
from engine.kernels.value import Value, leaves
from engine.runtime.plan_store.open_plans import StoredOpenPlan
from engine.runtime.plan_store.plans import PlanFile
from engine.runtime.plan_store.stored_model import StoredModel, copied
from engine.runtime.plans import fillers
from engine.runtime.plans.open_numbers import OpenNumbers, of_elements, opened_elements
from engine.runtime.plans.open_segments import OpenSegment, optional_constants
from engine.runtime.plans.open_sizes import OpenSizes
from engine.runtime.plans.recorded_plan import Filling, RecordedPlan
from engine.runtime.plans.recording import Places
from engine.runtime.plans.shared_memory import allocating
from engine.runtime.plans.sized_lowered import Again, SizedLowered

if TYPE_CHECKING:
    from engine.runtime.plans.session import Session

MOST_PLANS = 16
"""How many plans for all sizes a model keeps, each for sizes that others' guards refuse."""

OPEN_FAILURES = (
    EngineError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What code that knows nothing of open sizes may raise: then the given sizes are planned on their own."""

MOST_LENGTHS = 64
"""The same for a model whose plans have more steps at larger sizes, each for one length."""

LARGER = 32
"""How many times the sizes that a plan was made with those are for which it is bound ahead, too."""

MOST_DECIDED = 4
"""How many of them may be decided by other elements of inputs; with more, no further ones are made."""


@dataclass
class _Recorded:
    """Backend objects for filling in sizes; created when the plan is first used."""

    segments: list[OpenSegment]
    trace: Callable[[Sequence[Any]], Trace]
    inputs: Callable[[Trace], Sequence[Value]]
    places: list[Places]
    program: Any


def _inputs_of(session: Session) -> Callable[[Trace], Sequence[Value]]:
    """What comes into a plan that begins with the model's inputs."""
    names, extra = [item.name for item in session.source.inputs], session.extra_inputs()
    return lambda trace: [*leaves(*[trace.values[name] for name in names]), *extra]


def _received(trace: Trace) -> Sequence[Value]:
    """What comes into a plan that continues another."""
    return trace.received


class SizedPlan:
    """One plan for all sizes that its guards accept: of a model up to its end, or to a stop for data.

    Args:
        lowered: The plan with open sizes.
        recorder: Where the arithmetic on them is recorded.
        decided: Key of what else the plan depends on.
        is_start: Whether the plan begins with the model's inputs, not behind a stop for data.
    """

    def __init__(
        self, lowered: Lowered, recorder: SizeRecorder, decided: tuple[object, ...], is_start: bool
    ) -> None:
        self.lowered = lowered
        self.recorder = recorder
        self.decided = decided
        self.record = recorder.record
        self.owner = RecordedPlan(lowered)
        self.following = SizedPlans()
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
        """Whether it has served any sizes: its constants are bound, so that sizes can be filled in."""
        return self._recorded is not None

    @property
    def is_storable(self) -> bool:
        """Whether it has its constants, none of which is bound yet."""
        return self._binding is None

    def taken(self, file: PlanFile) -> StoredOpenPlan | None:
        """This plan as data, as long as it `is_storable`; None where it cannot be stored."""
        with self.recorder.at(self.record):
            if any(
                size.hint != number for size, number in zip(self.record.inputs, self.made_for, strict=True)
            ):
                self.recorder.suppose(self.made_for)
            return file.taken(self.lowered, self.recorder, self.decided, self._is_start)

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
            self._binding = self._bound(session)
        return self._binding

    def takes(self, sizes: Sequence[int]) -> bool:
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
        """The rest of `bind`: record the steps, and make the program of sizes. Any thread may call this."""
        if self._recorded is not None:
            return  # a schedule outside of a frame has used it between two steps of the background
        trace, numbers = self.lowered.trace, list[Number]()
        # Workers of one model share what is read from disk, and others may be created right now.
        with self.recorder.lock, self.recorder.at(self.record):
            segments = []
            for segment, constants in zip(self.lowered.segments, self._constants, strict=True):
                template = session.backends[segment.place].template(segment.plan, constants)
                segments.append(OpenSegment.of(segment, template, numbers))
            kept = {value.root.name for value in trace.kept}
            inputs = _inputs_of(session) if self._is_start else _received
            if self._is_start and trace.stop is not None:
                kept.update(value.name for value in session.extra_inputs())
            places = session.recorder.places_of(inputs(trace), self.lowered.segments, kept)
            filled = fillers.of_trace(trace, fillers.outer_names(session.source), numbers)
            program = self.recorder.program(numbers)
        if trace.stop is None:
            self.shown = fillers.shown_in(trace, session.source)
            trace.values = {}
            trace.settle()
        self._recorded = _Recorded(segments, filled, inputs, places, program)

    def filling(
        self,
        session: Session,
        sizes: Sequence[int],
        again: Again,
        before: RecordedPlan | None = None,
    ) -> Filling:
        """Make the recorded plan for some sizes: a step for each buffer that is missing, one for the rest.

        Returns None if the guards refuse the sizes, or they overflow arguments. Raises `OutOfMemoryError`
        for a tensor that cannot be allocated; other sizes may be tried then.

        Args:
            session: The session of the model.
            sizes: The open numbers.
            again: How to plan the same once more, see `SizedLowered`.
            before: The plan that it continues.
        """
        made = self._recorded
        if made is None:
            if not self.takes(sizes):
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
        trace, recorder = made.trace(numbers), session.recorder
        recorded = RecordedPlan(SizedLowered(lambda: trace, self, tuple(sizes), again))
        inputs = made.inputs(trace)
        try:
            make_plans = [partial(self.plan_of, tuple(sizes), k) for k in range(len(made.segments))]
            near: Sequence[Growing[Any, Any]] = ()
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
        """The plan of a segment with its sizes filled in."""
        return self.filled(sizes)[0][position].plan

    def _all_numbers(self, numbers: tuple[Number, ...]) -> Any:
        program = self._programs.get(bool(numbers))
        if program is None:
            program = self._programs[bool(numbers)] = self.recorder.program(numbers, self.record)
        return program

    def release(self) -> None:
        """Free what only this plan and those that follow it have."""
        self._recorded = None
        self.following.release()
        self.owner.release()


class SizedPlans:
    """Plans for all sizes of one part of a model, the most recently used first."""

    most = MOST_PLANS
    """How many are kept."""

    def __init__(self) -> None:
        self.ready: list[SizedPlan] = []
        # Those whose kernels are being compiled.
        self.waiting: list[SizedPlan] = []
        # How many were made in a row without one that served other sizes than its first ones.
        self._alone = 0

    @property
    def serves_one_set_each(self) -> bool:
        """Whether plans bind themselves to the sizes that they are made for, so that none should be made."""
        return self._alone >= MOST_PLANS

    def was_served(self) -> None:
        """Note that a plan has served other sizes than its first ones."""
        self._alone = 0

    def waiting_for(self, given: OpenNumbers) -> SizedPlan | None:
        """The plan that takes these numbers once its kernels are compiled, if any."""
        fitting = (p for p in self.waiting if p.decided == given.decided and p.takes(given.numbers))
        return next(fitting, None)

    def add(self, made: SizedPlan) -> None:
        """Add a plan, to be used once its kernels are compiled."""
        self.waiting.append(made)
        self._alone += 1

    def take_compiled(self, session: Session) -> bool:
        """Take the plans whose kernels are compiled into use; whether there were any.

        Kernels of the others are compiled in the background.
        """
        compiled = [plan for plan in self.waiting if not session.compiling(plan.lowered)]
        self._take(compiled)
        return bool(compiled)

    def _take(self, compiled: list[SizedPlan]) -> None:
        self.waiting = [p for p in self.waiting if p not in compiled]
        self.ready = compiled + [p for p in self.ready if p not in compiled]
        for old in self.ready[self.most :]:
            old.release()
        del self.ready[self.most :]

    def not_used(self, given: OpenNumbers) -> SizedPlan | None:
        """A plan that takes these numbers and that has served none, if any. Any thread may call this."""
        found = (p for p in (*self.ready, *self.waiting) if not p.is_used and p.decided == given.decided)
        return next((p for p in found if p.takes(given.numbers)), None)

    def use(self, sized: SizedPlan, is_bound: bool) -> None:
        """Take a plan into use that was made in the background, or drop it where binding it failed."""
        if is_bound:
            self._take([sized])
            return
        self.waiting = [p for p in self.waiting if p is not sized]
        self.ready = [p for p in self.ready if p is not sized]
        sized.release()

    def filling(
        self,
        session: Session,
        given: OpenNumbers,
        again: Again,
        before: RecordedPlan | None = None,
        *,
        only_used: bool = False,
    ) -> Filling:
        """Fill in the plan that takes some numbers; returns None if none does. See `SizedPlan.filling`.

        With `only_used`, plans are left out whose constants are not bound yet, which takes a while.
        """
        for sized in tuple(self.ready):
            is_used = sized.is_used
            if sized.decided != given.decided or (only_used and not is_used):
                continue
            try:
                recorded = yield from sized.filling(session, given.numbers, again, before)
            except BaseException:
                if not sized.is_used:
                    # If memory for constants ran out, some of them are missing.
                    self.ready.remove(sized)
                    sized.release()
                raise
            if recorded is not None:
                if is_used:
                    self.was_served()
                if self.ready[0] is not sized:
                    self.ready.remove(sized)
                    self.ready.insert(0, sized)
                return recorded
        return None

    def everything(
        self, before: SizedPlan | None = None
    ) -> Iterator[tuple[SizedPlans, SizedPlan | None, SizedPlan]]:
        """These plans and those that continue them, each with its place and the one that it continues."""
        for plan in (*self.waiting, *self.ready):
            yield self, before, plan
            yield from plan.following.everything(plan)

    @property
    def unbound(self) -> list[tuple[SizedPlans, SizedPlan]]:
        """Plans that can be used once they are bound, and where they are."""
        found = [(home, plan) for home, _, plan in self.everything() if plan in home.ready]
        return [(home, plan) for home, plan in found if not plan.is_used]

    def release(self) -> None:
        """Release the resources of these plans."""
        for sized in self.ready:
            sized.release()
        self.ready.clear()


class OpenPlans(SizedPlans):
    """The plans for all sizes of one model, from its inputs on."""

    def __init__(self, session: Session, model: Model) -> None:
        super().__init__()
        self._session = session
        self.sizes = OpenSizes(model)

    def numbers(self, shapes: InputShapes, known: Elements) -> OpenNumbers | None:
        """Open sizes and elements; None where equal names have other sizes, or nothing can be open."""
        sizes, elements = self.sizes.of(shapes), of_elements(known)
        if sizes is None:
            return None
        return OpenNumbers((*sizes.numbers, *elements.numbers), (*sizes.decided, *elements.decided))

    def is_made_for(self, shapes: InputShapes, known: Elements) -> bool:
        """Whether a plan for all sizes takes these once its kernels are compiled."""
        given = self.numbers(shapes, known)
        return given is not None and self.waiting_for(given) is not None

    def make(self, shapes: InputShapes, known: Elements) -> SizedPlan | None:
        """A new plan for all sizes like these; None for a model that cannot be planned so."""
        if self._session.planner.tracer.grows_with_sizes:
            self.most = MOST_LENGTHS
        made = None if self.serves_one_set_each else plan_for_all_sizes(self._session, shapes, known)
        if made is not None:
            self.add(made)
        return made

    def restore(self, stored: StoredModel) -> list[SizedPlan]:
        """Take plans into use that were read from disk, and return them. Any thread may call this.

        Their constants are bound where any thread may do that, otherwise those that are `unbound` have to be.
        """
        made: list[SizedPlan] = []
        for data, (lowered, recorder) in zip(stored.open_plans, stored.opened, strict=True):
            is_start = data.before == -1
            if not -1 <= data.before < len(made):
                raise ValueError("a plan continues none")
            plan = SizedPlan(copied(lowered), recorder, data.decided, is_start)
            (self if is_start else made[data.before].following).ready.append(plan)
            made.append(plan)
            if self._session.backends["native"].is_host:
                plan.bind(self._session)
        # Those for sizes of 1 come last, as most schedules have others.
        self.ready.sort(key=lambda plan: -max(plan.made_for, default=0))
        return made

    def _may_make(self, given: OpenNumbers | None) -> bool:
        """Whether to make a plan. If other elements come with every schedule, each plan is used once."""
        return given is None or sum(plan.decided != given.decided for plan in self.ready) < MOST_DECIDED

    def make_ready(self, shapes: InputShapes, known: Elements) -> bool:
        """`make`, and take those whose kernels are compiled into use; whether there was one."""
        if self._may_make(self.numbers(shapes, known)) and not self.is_made_for(shapes, known):
            self.make(shapes, known)
        return self.take_compiled(self._session)

    def made(self, shapes: InputShapes, known: Elements) -> SizedPlan | None:
        """A plan that may serve some shapes and that has served none, made now if there is none.

        Any thread may call this.
        """
        given = self.numbers(shapes, known)
        found = None if given is None else self.not_used(given)
        return found or (self.make(shapes, known) if self._may_make(given) else None)

    def filling_for(self, shapes: InputShapes, known: Elements, *, only_used: bool = False) -> Filling:
        """Fill in the plan for some shapes; returns None where no plan for all sizes takes them."""
        given = self.numbers(shapes, known) if self.ready else None
        if given is None:
            return None
        again = self.again(shapes, known)
        return (yield from self.filling(self._session, given, again, only_used=only_used))

    def again(self, shapes: InputShapes, known: Elements) -> Again:
        """How to plan some shapes once more."""
        session = self._session
        return Again(
            partial(session.lower, shapes, known), partial(plan_for_all_sizes, session, shapes, known)
        )


def plan_for_all_sizes(session: Session, shapes: InputShapes, known: Elements) -> SizedPlan | None:
    """A plan for all sizes like those of some shapes; None for a model that cannot be planned so."""
    sizes, given = session.open_plans.sizes, session.open_plans.numbers(shapes, known)
    if given is None or not session.backends["native"].plans_for_all_sizes:
        return None
    if not sizes.has_any and not known and not session.stops:
        return None
    recorder = SizeRecorder()
    opened = sizes.opened(shapes, recorder)
    try:
        lowered = session.allowed(session.planner.lower_open(opened, opened_elements(known, recorder)))
    except OPEN_FAILURES:
        return None
    if lowered.trace.stop is not None and not _stops(session, shapes, known):
        # It would wait for what a plan of fixed sizes knows.
        sizes.is_possible = False
        return None
    return SizedPlan(lowered, recorder, given.decided, is_start=True)


def _stops(session: Session, shapes: InputShapes, known: Elements) -> bool:
    """Whether plans of fixed sizes stop for data."""
    return session.stops if session.outlook else session.lower(shapes, known).trace.stop is not None
