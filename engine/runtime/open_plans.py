"""Plans for all sizes: a model planned once with its open dimensions as variables, under guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import DeviceBuffer, Template
from engine.base.errors import EngineError
from engine.base.memory.out_of_memory import LARGE, naming_shortage
from engine.compiler.lower import Lowered, Segment
from engine.compiler.plan import BufferSpec, Plan
from engine.compiler.trace import InputShapes, SequenceShape
from engine.compiler.walk import Elements, Trace
from engine.graph.model import Model
from engine.kernels.evaluate_sizes import holds_sizes
from engine.kernels.size import Number, SizeRecorder, put_together, taken_apart
from engine.kernels.value import Entry, Value, leaves
from engine.runtime.recorded_plan import RecordedPlan, Submission

if TYPE_CHECKING:
    from engine.runtime.session import Session

MOST_PLANS = 16
"""How many plans for all sizes a model keeps, each for sizes that others' guards refuse."""

MOST_DECIDED = 4
"""How many of them may be decided by other elements of inputs; with more, no further ones are made."""


class OpenSizes:
    """Which dimensions of a model's inputs are open, and what they are for some shapes."""

    def __init__(self, model: Model) -> None:
        self._names: dict[tuple[str, int], object] = {}
        self._first: dict[object, tuple[str, int]] = {}
        self.is_possible = True
        for item in model.inputs:
            if item.shape is None or item.kind != "tensor":
                self.is_possible = False
                return
            for axis, dim in enumerate(item.shape):
                if not isinstance(dim, int):
                    name: object = (item.name, axis) if dim is None else dim
                    self._names[item.name, axis] = name
                    self._first.setdefault(name, (item.name, axis))
        self.is_possible = bool(self._first)

    def of(self, shapes: InputShapes) -> tuple[int, ...] | None:
        """The open sizes in their order; None where equal names have other sizes, or nothing can be open."""
        if not self.is_possible:
            return None
        found = {name: shapes[at[0]][at[1]] for name, at in self._first.items()}  # type: ignore[index]
        if any(shapes[at[0]][at[1]] != found[name] for at, name in self._names.items()):  # type: ignore[index]
            return None
        return tuple(found.values())  # type: ignore[arg-type]

    def opened(self, shapes: InputShapes, recorder: SizeRecorder) -> dict[str, Any] | None:
        """The shapes with open sizes in them; None where equal names have other sizes."""
        if not self.is_possible or any(isinstance(s, SequenceShape) or s is None for s in shapes.values()):
            return None
        sizes = self.of(shapes)
        if sizes is None:
            return None
        opened = dict(zip(self._first, map(recorder.input, sizes), strict=True))
        return {
            name: tuple(
                opened[self._names[name, axis]] if (name, axis) in self._names else size
                for axis, size in enumerate(shape or ())
            )
            for name, shape in shapes.items()
        }


@dataclass
class _Recorded:
    """What is needed to fill in sizes; created when the plan is first used."""

    template: Template
    constants: Mapping[str, DeviceBuffer]
    program: Any
    ends: list[int]
    tables: list[tuple[BufferSpec, Callable[..., np.ndarray], Any, int]]


class SizedPlan:
    """One plan for all sizes that its guards accept."""

    decided: object = None
    """Key of the input elements on which the plan depends."""

    def __init__(self, lowered: Lowered, recorder: SizeRecorder) -> None:
        self.lowered = lowered
        self.recorder = recorder
        self.owner = RecordedPlan(lowered)
        (self.segment,) = lowered.segments
        plan = self.segment.plan
        self._tables = [(plan.buffers[name], table) for name, table in plan.tables.items()]
        self._outer = [spec for spec in plan.buffers.values() if spec.role in ("input", "output")]
        self._values = {
            name: entry for name, entry in lowered.trace.values.items() if isinstance(entry, Value)
        }
        self._recorded: _Recorded | None = None
        self._programs: dict[bool, Any] = {}

    @property
    def is_recorded(self) -> bool:
        """Whether its constants are bound, so that sizes can be filled in."""
        return self._recorded is not None

    def takes(self, sizes: Sequence[int]) -> bool:
        """Whether the guards accept these sizes."""
        return self._all_numbers(())(*sizes) is not None

    def _record(self, session: Session) -> _Recorded:
        """Bind constants, and turn the record of sizes into a program."""
        backend = session.backends["native"]
        constants = session.recorder.bound_constants(self.owner, self.segment)
        template = backend.template(self.segment.plan, constants)
        assert template is not None
        wanted = outer_names(session.source)
        self._values = {n: v for n, v in self._values.items() if n in wanted}
        self.lowered.trace.values = {}
        numbers: list[Number] = [*template.numbers, *(spec.elements for spec in self._outer)]
        ends = [len(template.numbers), len(numbers)]
        for value in self._values.values():
            numbers += value.shape
            ends.append(len(numbers))
        forms = []
        for spec, table in self._tables:
            given: list[Number] = []
            forms.append((spec, table.function, taken_apart(table.args, given), len(numbers)))
            numbers += given
        self.lowered.trace.settle()
        return _Recorded(template, constants, self.recorder.program(numbers), ends, forms)

    def recorded_plan(self, session: Session, sizes: Sequence[int]) -> RecordedPlan | None:
        """The recorded plan for some sizes; None if the guards refuse them, or they overflow arguments.

        Raises `OutOfMemoryError` for a tensor that cannot be allocated; other sizes may be tried then.
        """
        made = self._recorded
        if made is None:
            if not self.takes(sizes):
                return None
            made = self._recorded = self._record(session)
        numbers = made.program(*sizes)
        if numbers is None:
            return None
        ends = made.ends
        shapes = [numbers[begin:end] for begin, end in pairwise(ends[1:])]
        values: dict[str, Entry] = {
            name: Value(value.root.name, shape, value.dtype, None, value.known)
            for (name, value), shape in zip(self._values.items(), shapes, strict=True)
        }
        trace = Trace(values, [], {})
        recorded = RecordedPlan(SizedLowered(trace, self, tuple(sizes)))
        try:
            self._fill(session, made, recorded, sizes, numbers)
        except OverflowError:
            # What is wrong with such sizes, if anything, is reported when they are planned for themselves.
            recorded.release()
            return None
        except BaseException:
            recorded.release()
            raise
        return recorded

    def _fill(
        self,
        session: Session,
        made: _Recorded,
        recorded: RecordedPlan,
        sizes: Sequence[int],
        numbers: Sequence[Any],
    ) -> None:
        """Add buffers and the program for some sizes."""
        ends, backend = made.ends, session.backends["native"]
        make_plan = partial(self.plan, tuple(sizes))
        for spec, elements in zip(self._outer, numbers[ends[0] : ends[1]], strict=True):
            buffer = session.recorder.buffer_of(recorded, "native", spec.name, elements, spec.dtype)
            if spec.role == "input":
                recorded.inputs[spec.name] = [("native", buffer)]
            recorded.placement[spec.name] = "native"
        for item in session.source.inputs:
            recorded.inputs.setdefault(item.name, [])
        for value in session.extra_inputs():
            recorded.inputs.setdefault(value.name, [])
        bound = {name: buffer for (_, name), buffer in recorded.buffers.items()}
        for spec, function, form, begin in made.tables:
            with naming_shortage(f"the table '{spec.name}' of model '{session.source.name}'"):
                elements = function(*put_together(form, iter(numbers[begin:])))
                bound[spec.name] = backend.constant(elements.astype(spec.dtype).reshape(-1))
            recorded.owned.append(bound[spec.name])
        with session.recorder.allocating_temporaries(backend, make_plan):
            program = made.template.fill(numbers[: ends[0]], bound)
            recorded.submissions.append(Submission("native", program, make_plan, ()))
            if sum(program.temporaries().values()) >= LARGE:
                backend.check_memory()

    def plan(self, sizes: Sequence[int]) -> Plan:
        """The plan with its sizes filled in."""
        plan = self.segment.plan
        found = self._all_numbers(tuple(plan.numbers()))(*sizes)
        assert found is not None
        return plan.filled(found)

    def _all_numbers(self, numbers: tuple[Number, ...]) -> Any:
        program = self._programs.get(bool(numbers))
        if program is None:
            program = self._programs[bool(numbers)] = self.recorder.program(numbers)
        return program

    def release(self) -> None:
        """Free what only this plan has."""
        self.owner.release()


class SizedLowered(Lowered):
    """The lowered plan of some sizes, whose steps are filled in when they are first needed."""

    def __init__(self, trace: Trace, sized: SizedPlan, sizes: tuple[int, ...]) -> None:
        self.trace = trace
        self.fallbacks = []
        self._sized = sized
        self._sizes = sizes

    @property
    def segments(self) -> list[Segment]:  # type: ignore[override]
        """The one segment, with its sizes."""
        segment = self._sized.segment
        return [Segment(segment.place, self._sized.plan(self._sizes), segment.imports, segment.exports)]


class OpenPlans:
    """The plans for all sizes of one model, the most recently used first."""

    def __init__(self, session: Session, model: Model) -> None:
        self._session = session
        self.sizes = OpenSizes(model)
        self.ready: list[SizedPlan] = []
        # Those whose kernels are being compiled.
        self.waiting: list[SizedPlan] = []

    def is_made_for(self, shapes: InputShapes, known: Elements) -> bool:
        """Whether a plan for all sizes takes these once its kernels are compiled."""
        sizes, decided = self.sizes.of(shapes), self._session.key({}, known)
        return sizes is not None and any(p.decided == decided and p.takes(sizes) for p in self.waiting)

    def make(self, shapes: InputShapes, known: Elements) -> SizedPlan | None:
        """A new plan for all sizes like these; None for a model that cannot be planned so."""
        made = plan_for_all_sizes(self._session, shapes, known)
        if made is not None:
            made.decided = self._session.key({}, known)
            self.waiting.append(made)
        return made

    def make_ready(self, shapes: InputShapes, known: Elements) -> bool:
        """`make`, and take those whose kernels are compiled into use; whether there was one."""
        decided = self._session.key({}, known)
        # If other elements come with every schedule, each plan is used once.
        others = sum(plan.decided != decided for plan in self.ready)
        if others < MOST_DECIDED and not self.is_made_for(shapes, known):
            self.make(shapes, known)
        native = self._session.backends["native"]
        compiled = [p for p in self.waiting if native.prepare_beside(p.lowered.kernels()) is None]
        self.waiting = [p for p in self.waiting if p not in compiled]
        self.ready = compiled + self.ready
        for old in self.ready[MOST_PLANS:]:
            old.release()
        del self.ready[MOST_PLANS:]
        return bool(compiled)

    def recorded_plan(self, shapes: InputShapes, known: Elements) -> RecordedPlan | None:
        """The plan for some shapes, filled in; None where no plan for all sizes takes them."""
        sizes = self.sizes.of(shapes) if self.ready else None
        if sizes is None:
            return None
        decided = self._session.key({}, known)
        for position, sized in enumerate(self.ready):
            if sized.decided != decided:
                continue
            try:
                recorded = sized.recorded_plan(self._session, sizes)
            except BaseException:
                if not sized.is_recorded:
                    # If memory for constants ran out, some of them are missing.
                    self.ready.remove(sized)
                    sized.release()
                raise
            if recorded is not None:
                if position:
                    self.ready.insert(0, self.ready.pop(position))
                return recorded
        return None

    def release(self) -> None:
        """Free what only these plans have."""
        for sized in self.ready:
            sized.release()
        self.ready.clear()


def plan_for_all_sizes(session: Session, shapes: InputShapes, known: Elements) -> SizedPlan | None:
    """A plan for all sizes like those of some shapes; None for a model that cannot be planned so."""
    recorder = SizeRecorder()
    opened = session.open_plans.sizes.opened(shapes, recorder)
    if opened is None or not session.backends["native"].plans_for_all_sizes:
        return None
    if session.planner.tracer.grows_with_sizes:
        # The number of steps depends on a size, so each plan serves that size only.
        session.open_plans.sizes.is_possible = False
        return None
    try:
        lowered = session.planner.lower_open(opened, known)
    except (EngineError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    trace, segments = lowered.trace, lowered.segments
    if trace.stop is None and len(segments) == 1 and segments[0].place == "native" and not lowered.fallbacks:
        entries = [trace.values[name] for name in outer_names(session.source)]
        unread = {item.name for item in session.source.inputs} - segments[0].plan.buffers.keys()
        outputs = leaves(*(trace.values[item.name] for item in session.source.outputs))
        # An input that no kernel reads has no buffer from which it could be an output.
        is_passed_on = any(v.known is None and v.root.name in unread for v in outputs)
        if all(map(_is_plain, entries)) and not is_passed_on:
            return SizedPlan(lowered, recorder)
    # Not for other sizes either.
    session.open_plans.sizes.is_possible = False
    return None


def outer_names(model: Model) -> set[str]:
    """The names of a model's inputs and outputs."""
    return {item.name for item in model.inputs} | {item.name for item in model.outputs}


def _is_plain(entry: Entry) -> bool:
    return isinstance(entry, Value) and entry.bound is None and not holds_sizes(entry)
