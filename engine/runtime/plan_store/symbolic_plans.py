"""Serialization of plans with symbolic sizes.

The record of sizes becomes a list of instructions, which a new `SizeRecorder` repeats; each symbolic number
is known by its place among the numbers that the record yields. Functions that are called when sizes change,
and the records that they take, are named: they are those of `engine.kernels.size.DEFERRABLE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from engine.backends.plan_codec import PlanCodec
from engine.compiler.lower import LoweredModel, Segment
from engine.compiler.plan import AnyKernel, Plan, RepeatedSteps, Step
from engine.compiler.plan_walk import Trace
from engine.compiler.walk import Stop
from engine.kernels.evaluate_sizes import holds_sizes
from engine.kernels.size import DEFERRABLE, Size, hint_of, is_record, parts_of
from engine.kernels.size_recorder import Record, SizeRecorder
from engine.kernels.value import Bound, HostTable, Value
from engine.runtime.plan_store.codec import BYTES, NAME, SIZE, Many, Records, Trees
from engine.runtime.plan_store.streams import NotStorableError

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


class StoredSymbolicPlan(NamedTuple):
    """A stored plan with symbolic sizes: from the model's inputs on, or after a stop for data.

    shapes: Input shapes that it was made for, if it begins with inputs.
    lowered: The plan for the numbers that it was made for.
    sizes: The record of sizes, the numbers that it was made for, the plan's numbers, inputs and outputs, the
        tables, and the stop: numbers and texts in tuples, with `_SymbolicNumber` and `_StoredRecord` for
        symbolic numbers and records.
    decided: What else it depends on, see `SymbolicPlan`.
    before: The place of the plan that it continues among all that are stored; -1 if it begins with inputs.
    """

    shapes: dict[str, tuple[int, ...]]
    lowered: LoweredModel
    sizes: tuple[Any, ...]
    decided: tuple[Any, ...] = ()
    before: int = -1

    @property
    def stops(self) -> bool:
        """Whether it ends with a stop for data."""
        return bool(self.sizes[-1])


@dataclass(frozen=True, slots=True)
class _SymbolicNumber:
    """A symbolic number, by its place in the record."""

    number: int


@dataclass(frozen=True, slots=True)
class _StoredRecord:
    """A deferrable record."""

    type: str
    fields: tuple[Any, ...]


class _Sizes(Trees):
    """The column of `StoredSymbolicPlan.sizes` and `decided`."""

    def __init__(self) -> None:
        super().__init__(
            (_SymbolicNumber, Records(_SymbolicNumber, number=SIZE)),
            (_StoredRecord, Records(_StoredRecord, type=NAME, fields=Many(self))),
            (bytes, BYTES),
        )


SIZES = _Sizes()


def _serializer(record: Record) -> Callable[[Any], Any]:
    """A function that turns what holds symbolic numbers of a record into data.

    It takes numbers, texts, tuples and records, and raises `NotStorableError` for others.
    """
    places = {size.name: place for place, size in enumerate(record.sizes)}

    def data(x: Any) -> Any:
        if type(x) is Size:
            return _SymbolicNumber(places[x.name])
        if type(x) is tuple:
            return tuple([data(item) for item in x])
        if x is None or isinstance(x, bool | str | bytes):
            return x
        if isinstance(x, int | float):
            return x.item() if isinstance(x, np.generic) else x
        if callable(x):
            return _name_of(x)
        if is_record(x):
            return _StoredRecord(_name_of(type(x)), tuple([data(part) for part in parts_of(x)]))
        raise NotStorableError(f"{type(x).__name__} is no number")

    return data


def _name_of(made: Any) -> str:
    name = DEFERRABLE.name_of(made)
    if name is None:
        raise NotStorableError(f"{made} is not deferrable")
    return name


def _live(x: Any, sizes: Sequence[Size]) -> Any:
    """Replace the symbolic numbers in stored data by those of another record."""
    if type(x) is tuple:
        return tuple([_live(item, sizes) for item in x])
    if type(x) is _SymbolicNumber:
        return sizes[x.number]
    if type(x) is _StoredRecord:
        return DEFERRABLE[x.type](*(_live(item, sizes) for item in x.fields))
    return x


def stored_step(step: Step, codec: PlanCodec) -> Step:
    """A step as it is read back."""
    kernel: AnyKernel = step.kernel
    if isinstance(kernel, RepeatedSteps):
        body, last = (tuple([stored_step(s, codec) for s in steps]) for steps in (kernel.body, kernel.last))
        kernel = RepeatedSteps(body, last, kernel.swapped)
    else:
        kernel = codec.stored(kernel, codec.nanoseconds(step))
    return replace(step, kernel=kernel)


def serialized(
    lowered: LoweredModel,
    recorder: SizeRecorder,
    decided: tuple[object, ...],
    names: Sequence[str],
    inputs: Sequence[str],
    codec: PlanCodec,
) -> StoredSymbolicPlan:
    """Serialize an unused plan with symbolic sizes. Raises `NotStorableError`.

    Args:
        lowered: The plan.
        recorder: Its sizes, with the numbers that it was made for as hints; the record continues with what
            steps are estimated to take.
        decided: What else it depends on.
        names: The model's inputs and outputs.
        inputs: The inputs alone; none for a plan that continues another.
        codec: Describes the kernels.
    """
    trace, segments, record = lowered.trace, lowered.segments, recorder.record
    if lowered.fallbacks or len(segments) > 1 or any(segment.place != "native" for segment in segments):
        raise NotStorableError("the plan is more than one program")
    segment = segments[0] if segments else Segment("native", Plan())
    plan = segment.plan
    steps = [stored_step(step, codec) for step in plan.steps]
    symbolic_plan = Plan(steps, plan.buffers, plan.constants, plan.packed)
    numbers = tuple(symbolic_plan.numbers())
    available_data = symbolic_plan.filled(map(hint_of, numbers))
    available_data.constants, available_data.packed = dict(plan.constants), dict(plan.packed)
    values: dict[str, Value] = {}
    for name in names:
        # What only a plan behind the stop makes is not there.
        if trace.stop is not None and name not in trace.values:
            continue
        value = trace.values[name]
        if not isinstance(value, Value) or value.dtype == object:
            raise NotStorableError(f"'{name}' is no tensor")
        values[name] = value
    data = _serializer(record)
    sizes = (
        data(tuple(record.instructions)),
        data(tuple([size.hint for size in record.inputs])),
        data(numbers),
        data(tuple([(name, *_described(value)) for name, value in values.items()])),
        data(tuple([(name, table.function, table.args) for name, table in plan.tables.items()])),
        data(_stop_of(trace)),
    )
    made: dict[str, Any] = {name: _at_hints(value) for name, value in values.items()}
    whole = LoweredModel(
        Trace(made, [], {}), [Segment("native", available_data, segment.imports, segment.exports)]
    )
    return StoredSymbolicPlan({name: made[name].shape for name in inputs}, whole, sizes, data(decided))


def _described(value: Value) -> tuple[Any, ...]:
    """What of a tensor may be open: shape, elements that sizes decide, and the count that bounds it."""
    bound, elements = value.bound, None
    if value.known is not None and holds_sizes(value):
        elements = tuple(value.known.reshape(-1).tolist())
    if bound is None:
        return tuple(value.shape), elements, ()
    if bound.count.known is not None or bound.count.bound is not None:
        raise NotStorableError(f"what bounds '{value.name}' is more than a tensor")
    return tuple(value.shape), elements, (bound.axis, *_tensor(bound.count))


def _tensor(value: Value) -> tuple[Any, ...]:
    return value.root.name, tuple(value.shape), value.dtype.name


def _stop_of(trace: Trace) -> tuple[Any, ...]:
    """The stop of a plan; nothing if it has none."""
    stop = trace.stop
    if stop is None:
        return ()
    if stop.call is not None or any(v.known is not None or v.bound is not None for v in stop.needs):
        raise NotStorableError("it stops for more than elements of tensors")
    kept = tuple(dict.fromkeys(value.root.name for value in trace.kept))
    return tuple(map(_tensor, stop.needs)), stop.repeats, *trace.layer, kept


def _at_hints(value: Value) -> Value:
    """The static form of a symbolic tensor, with the sizes for which the plan was made."""
    known = None if value.known is None or holds_sizes(value) else value.known
    return Value(value.root.name, tuple(map(hint_of, value.shape)), value.dtype, None, known)


def restored(stored: StoredSymbolicPlan) -> tuple[LoweredModel, SizeRecorder]:
    """Deserialize a plan with symbolic sizes and its record. Raises one of `UNREADABLE` for damaged data."""
    instructions, made_for, numbers, tensors, tables, stop = stored.sizes
    recorder = SizeRecorder()
    sizes = recorder.record.sizes
    for instruction, *args in instructions:
        operands = tuple([_live(arg, sizes) for arg in args])
        if instruction == "call":
            function, *given = operands
            recorder.call(DEFERRABLE[function], tuple(given))
        elif instruction == "input":
            # The first hint of a number decides its bounds, a later one the guards.
            size = recorder.input(*operands)
            size.hint = made_for[len(recorder.inputs) - 1]
        elif instruction in _COMPARISONS:
            recorder.answer(instruction, *operands)
        else:
            recorder.node(instruction, *operands)
    if len(recorder.inputs) != len(made_for):
        raise ValueError("a plan has another number of sizes")
    (segment,) = stored.lowered.segments
    own = segment.plan
    symbolic_values = [_live(number, sizes) for number in numbers]
    if len(symbolic_values) != len(own.numbers()):
        raise ValueError("a plan has another number of sizes")
    plan = own.filled(symbolic_values)
    plan.constants, plan.packed = dict(own.constants), dict(own.packed)
    for name, function, args in tables:
        plan.tables[name] = HostTable(DEFERRABLE[function], _live(args, sizes))
    if plan.tables.keys() != {name for name, spec in plan.buffers.items() if spec.role == "table"}:
        raise ValueError("a table has no buffer")
    values: dict[str, Any] = {}
    for name, shape, elements, bound in tensors:
        value = stored.lowered.trace.tensor(name)
        values[name] = _opened(value, _live(shape, sizes), _live(elements, sizes), _live(bound, sizes))
    outputs = [value for name, value in values.items() if name not in stored.shapes]
    trace = Trace(values, [], {}, kept=outputs + [v.bound.count for v in outputs if v.bound is not None])
    if stop:
        needs, repeats, *layer, kept = _live(stop, sizes)
        trace.stop = Stop(tuple([_value(*need) for need in needs]), repeats=repeats)
        name, op_type = layer
        trace.layer = name, op_type
        # Their names tell which inputs are kept; planning does not continue from them.
        trace.kept = [Value(name, (), np.dtype(np.float32)) for name in kept]
    steps = [Segment("native", plan, segment.imports, segment.exports)] if plan.steps or plan.buffers else []
    return LoweredModel(trace, steps), recorder


def _opened(value: Value, shape: tuple[Any, ...], elements: Any, bound: tuple[Any, ...]) -> Value:
    known = value.known
    if elements is not None:
        known = np.array(elements, object).reshape(tuple(map(hint_of, shape)))
    found = Value(value.root.name, shape, value.dtype, None, known)
    if bound:
        axis, *count = bound
        found.bound = Bound(axis, _value(*count))
    return found


def _value(name: str, shape: tuple[Any, ...], dtype: str) -> Value:
    return Value(name, shape, np.dtype(dtype))
