"""Plans with open sizes as data: a plan for given sizes, and what of it is open.

The record of sizes becomes a list of instructions, which a new `SizeRecorder` repeats; each open number is
known by its place among the numbers that the record yields. Functions that are called when sizes change, and
the records that they take, are named: they come from the closed tables below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from engine.backends.plan_codec import PlanCodec
from engine.compiler.lower import Lowered, Segment
from engine.compiler.plan import AnyKernel, Plan, RepeatedSteps, Step
from engine.compiler.walk import Trace
from engine.kernels.evaluate_sizes import holds_sizes
from engine.kernels.size import Size, hint_of
from engine.kernels.size_recorder import Record, SizeRecorder
from engine.kernels.value import HostTable, Value
from engine.runtime.plan_store.codec import NAME, SIZE, Many, Rows, Trees
from engine.runtime.plan_store.streams import NotStorableError

FUNCTIONS = frozenset({
    "engine.backends.cpu.address_table.cut_tasks",
    "engine.backends.cpu.first_layer_conv.schedule_bands",
    "engine.backends.cpu.low_precision_conv.cut_bands",
    "engine.backends.cpu.low_precision_matmul.cut_product",
    "engine.backends.cpu.matmul.cut_product",
    "engine.backends.cpu.matmul.reading_ns",
    "engine.backends.cpu.pixels.schedule_pixels",
    "engine.backends.cpu.plane_windows.cut_planes",
    "engine.backends.cpu.recurrence.parts_of_step",
    "engine.backends.cpu.reduce._parts",
    "engine.backends.cpu.transpose._slim_sizes",
    "engine.backends.cpu.transpose._tile_sizes",
    "engine.backends.cpu.winograd_partition.choose_cut",
    "engine.backends.cpu.winograd_partition.count_row_tiles",
    "engine.backends.cpu.winograd_partition.cut_ns",
    "engine.backends.cpu.word_conv.cut_gathered",
    "engine.backends.gl.compute.printer._divisor",
    "engine.backends.opencl.functions._divider",
    "engine.backends.packed_products._divided",
    "engine.backends.sorts._span",
    "engine.backends.suppressions._bits",
    "engine.backends.suppressions._span",
    "engine.compiler.loop_spreading._lanes_for",
    "engine.kernels.size._bit_length",
    "engine.operators.resize.joined_indices",
    "engine.operators.resize.joined_weights",
    "engine.operators.resize.scaled_size",
})  # fmt: skip
"""What stored plans may call with sizes."""

RECORDS = frozenset({
    "engine.backends.cpu.low_precision_conv.Cells",
    "engine.backends.cpu.tiles.Tile",
    "engine.backends.windows.Windows",
    "engine.backends.cpu.winograd_partition.Cut",
    "engine.operators.resize.Axis",
    "engine.operators.resize.Sampling",
})  # fmt: skip
"""The records among their arguments."""


_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


class StoredOpenPlan(NamedTuple):
    """A plan with open sizes, before it is used.

    shapes: Input shapes that it was made for.
    lowered: The plan for these.
    sizes: The record of sizes, the plan's numbers, the shapes of inputs and outputs, and the tables: numbers
        and texts in tuples, with `_Open` for an open number and `_Made` for a record.
    """

    shapes: dict[str, tuple[int, ...]]
    lowered: Lowered
    sizes: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Open:
    """An open number, by its place in the record."""

    number: int


@dataclass(frozen=True, slots=True)
class _Made:
    """A record of a type in `RECORDS`."""

    type: str
    fields: tuple[Any, ...]


class _Sizes(Trees):
    """The column of `StoredOpenPlan.sizes`."""

    def __init__(self) -> None:
        super().__init__(
            (_Open, Rows(_Open, number=SIZE)), (_Made, Rows(_Made, type=NAME, fields=Many(self)))
        )


SIZES = _Sizes()


class _Taking:
    """Turns what holds open numbers into data."""

    def __init__(self, record: Record) -> None:
        self._places = {size.name: place for place, size in enumerate(record.sizes)}

    def data(self, x: Any) -> Any:
        """Numbers, texts, tuples and records as data. Raises `NotStorableError` for others."""
        if type(x) is Size:
            return _Open(self._places[x.name])
        if type(x) is tuple:
            return tuple([self.data(item) for item in x])
        if x is None or isinstance(x, bool | str):
            return x
        if isinstance(x, int | float):
            return x.item() if isinstance(x, np.generic) else x
        if callable(x):
            return _name_in(FUNCTIONS, x)
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            values = tuple([self.data(getattr(x, item.name)) for item in dataclasses.fields(x)])
            return _Made(_name_in(RECORDS, type(x)), values)
        raise NotStorableError(f"{type(x).__name__} is no number")


def _name_in(names: frozenset[str], made: Any) -> str:
    name = f"{made.__module__}.{made.__qualname__}"
    if name not in names:
        raise NotStorableError(f"{name} is not among what stored plans may use")
    return name


def _named(names: frozenset[str], name: str) -> Callable[..., Any]:
    if name not in names:
        raise LookupError(f"{name} is not among what stored plans may use")
    module, _, attribute = name.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def _live(x: Any, sizes: Sequence[Size]) -> Any:
    """What `_Taking.data` was given, with open numbers of another record."""
    if type(x) is tuple:
        return tuple([_live(item, sizes) for item in x])
    if type(x) is _Open:
        return sizes[x.number]
    if type(x) is _Made:
        return _named(RECORDS, x.type)(*(_live(item, sizes) for item in x.fields))
    return x


def _stored(step: Step, codec: PlanCodec) -> Step:
    """A step as it is read back."""
    kernel: AnyKernel = step.kernel
    if isinstance(kernel, RepeatedSteps):
        body, last = (tuple([_stored(s, codec) for s in steps]) for steps in (kernel.body, kernel.last))
        kernel = RepeatedSteps(body, last, kernel.swapped)
    else:
        kernel = codec.stored(kernel, codec.nanoseconds(step))
    return replace(step, kernel=kernel)


def taken(
    lowered: Lowered, recorder: SizeRecorder, names: Sequence[str], inputs: Sequence[str], codec: PlanCodec
) -> StoredOpenPlan:
    """A plan with open sizes as data, as long as it was not used. Raises `NotStorableError`.

    Args:
        lowered: The plan.
        recorder: Its sizes; the record continues with what steps are estimated to take.
        names: The model's inputs and outputs.
        inputs: The inputs alone.
        codec: Describes the kernels.
    """
    trace, segments = lowered.trace, lowered.segments
    if trace.stop is not None or lowered.fallbacks or len(segments) != 1:
        raise NotStorableError("the plan is more than one program")
    values: dict[str, Value] = {}
    for name in names:
        value = trace.values[name]
        if not isinstance(value, Value) or value.bound is not None or holds_sizes(value):
            raise NotStorableError(f"'{name}' is more than a tensor")
        values[name] = value
    (segment,), record = segments, recorder.record
    plan = segment.plan
    with recorder.at(record):
        steps = [_stored(step, codec) for step in plan.steps]
    open_plan = Plan(steps, plan.buffers, plan.constants, plan.packed)
    numbers = tuple(open_plan.numbers())
    available_data = open_plan.filled(map(hint_of, numbers))
    available_data.constants, available_data.packed = dict(plan.constants), dict(plan.packed)
    data = _Taking(record).data
    sizes = (
        data(tuple(record.instructions)),
        data(numbers),
        data(tuple((name, tuple(value.shape)) for name, value in values.items())),
        data(tuple((name, table.function, table.args) for name, table in plan.tables.items())),
    )
    made: dict[str, Any] = {}
    for name, value in values.items():
        shape = tuple(hint_of(n) for n in value.shape)
        made[name] = Value(value.root.name, shape, value.dtype, None, value.known)
    kept = [made[name] for name in names if name not in inputs]
    whole = Lowered(
        Trace(made, [], {}, kept=kept), [Segment("native", available_data, segment.imports, segment.exports)]
    )
    return StoredOpenPlan({name: made[name].shape for name in inputs}, whole, sizes)


def restored(stored: StoredOpenPlan) -> tuple[Lowered, SizeRecorder]:
    """The plan with open sizes, and their record. Raises one of `UNREADABLE` for data that is damaged."""
    instructions, numbers, shapes, tables = stored.sizes
    recorder = SizeRecorder()
    sizes = recorder.record.sizes
    for instruction, *args in instructions:
        operands = tuple([_live(arg, sizes) for arg in args])
        if instruction == "call":
            function, *given = operands
            recorder.call(_named(FUNCTIONS, function), tuple(given))
        elif instruction == "input":
            recorder.input(*operands)
        elif instruction in _COMPARISONS:
            recorder.answer(instruction, *operands)
        else:
            recorder.node(instruction, *operands)
    (segment,) = stored.lowered.segments
    own = segment.plan
    open_numbers = [_live(number, sizes) for number in numbers]
    if len(open_numbers) != len(own.numbers()):
        raise ValueError("a plan has another number of sizes")
    plan = own.filled(open_numbers)
    plan.constants, plan.packed = dict(own.constants), dict(own.packed)
    for name, function, args in tables:
        plan.tables[name] = HostTable(_named(FUNCTIONS, function), _live(args, sizes))
    if plan.tables.keys() != {name for name, spec in plan.buffers.items() if spec.role == "table"}:
        raise ValueError("a table has no buffer")
    values: dict[str, Any] = {}
    for name, shape in shapes:
        value = stored.lowered.trace.tensor(name)
        values[name] = Value(value.root.name, _live(shape, sizes), value.dtype, None, value.known)
    kept = [values[name] for name in values if name not in stored.shapes]
    trace = Trace(values, [], {}, kept=kept)
    return Lowered(trace, [Segment("native", plan, segment.imports, segment.exports)]), recorder
