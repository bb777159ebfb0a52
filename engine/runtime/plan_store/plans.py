"""Stored plans: reads and writes plans on disk.

A file holds the plans of one model on one backend: steps, buffers and constants, and the formulas of kernels
whose compiled code is not found by their keys. Its key is a digest of everything that a plan depends on: the
model (structure and elements), the engine's own sources, this processor, the compilers, and what the backend
adds (`PlanCodec.setting`). Elements of the model's constants are not stored but referred to; what packs them
is stored as a function's name and arguments.

Models with operators of a game's own are not stored, nor plans of which layers fall back, nor plans for fixed
sizes that stop for data. Plans with open sizes are stored with those that continue them behind such a stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from engine.backends.base import Backend, Progress
from engine.backends.plan_codec import PlanCodec
from engine.base import source_files
from engine.compiler.lower import Lowered, Segment
from engine.compiler.plan import (
    AnyKernel,
    BufferSpec,
    Packed,
    Plan,
    RepeatedSteps,
    Role,
    Step,
    StoredKernel,
    Window,
)
from engine.compiler.walk import Trace
from engine.device.native.prebuilt import ABI
from engine.graph.model import Model
from engine.kernels.expr import RunNumber
from engine.kernels.size_recorder import SizeRecorder
from engine.kernels.value import Value
from engine.runtime.plan_store import files, is_storing, open_plans
from engine.runtime.plan_store.cache_keys import digest_of_engine, digest_of_model
from engine.runtime.plan_store.codec import (
    ARRAY,
    CALL,
    DTYPE,
    FLAG,
    INTEGER,
    NAME,
    NUMBER,
    REAL,
    SIZE,
    Many,
    Maybe,
    Rows,
    Tuples,
)
from engine.runtime.plan_store.graphs import is_plain
from engine.runtime.plan_store.kernels import KERNEL, FlatKernel, flat_kernel, restored_kernel
from engine.runtime.plan_store.open_plans import StoredOpenPlan
from engine.runtime.plan_store.stored_model import StoredModel
from engine.runtime.plan_store.streams import UNREADABLE, Column, NotStorableError, Reader, Writer

_FORM = b"GGPLAN6 %d\n" % ABI


class PlanFile:
    """The file of one model's plans."""

    def __init__(self, path: Path | None, model: Model, codec: PlanCodec) -> None:
        self.path = path
        self.model = model
        self.codec = codec
        self.read: StoredModel | None = None
        body = files.read(path, _FORM)
        if body is not None:
            try:
                self.read = _read(body, model, codec)
            except UNREADABLE:
                # Damaged in a way that its digest does not tell: as good as none.
                self.read = None

    def prepare(self, backend: Backend, found: StoredModel, progress: Progress | None) -> int | None:
        """Make the kernels of stored plans ready; how many were compiled, None if one is no longer cached."""
        if any(isinstance(kernel, StoredKernel) for kernel in found.kernels):
            return 0 if backend.prepare_cached(self.words(found)) else None
        return backend.prepare(found.kernels, progress)

    def words(self, found: StoredModel) -> dict[str, int]:
        """By the kernels' keys, with how many words of arguments plans call them at least; 0 if none does."""
        words = {self.codec.key(kernel): 0 for kernel in found.kernels}
        for lowered in found.lowered:
            for segment in lowered.segments:
                for part in chain.from_iterable(step.parts for step in segment.plan.steps):
                    key, count = self.codec.key(part.kernel), self.codec.words(part)
                    words[key] = min(words[key], count) if words[key] else count
        return words

    def taken(
        self, lowered: Lowered, recorder: SizeRecorder, decided: tuple[object, ...], is_start: bool
    ) -> StoredOpenPlan | None:
        """A plan with open sizes as data, as long as it was not used; None where it cannot be stored.

        See `open_plans.taken`. `is_start`: it begins with the model's inputs.
        """
        inputs = [item.name for item in self.model.inputs]
        names = dict.fromkeys([*inputs, *(item.name for item in self.model.outputs)])
        try:
            inputs = inputs if is_start else []
            return open_plans.taken(lowered, recorder, decided, [*names], inputs, self.codec)
        except (NotStorableError, *UNREADABLE):
            return None

    def kernels(self, kernels: Iterable[AnyKernel]) -> list[AnyKernel]:
        """Each kernel once, as it is read back."""
        return [*{self.codec.key(kernel): self.codec.stored(kernel, 0.0) for kernel in kernels}.values()]

    def write(self, found: StoredModel, planned: Model) -> None:
        """Store the plans; does nothing where they cannot be stored, or when the engine's sources changed.

        planned: the model after the backend's passes, whose constants need not be stored where `makers` say
        how they come of the model's.
        """
        if not source_files.are_unchanged():
            return
        given = self.model.constants
        made = {name: planned.constants[name] for name in planned.makers if name in planned.constants}
        owners = {**made, **given}
        makers = [_Maker(name, planned.makers[name]) for name in made if name not in given]
        try:
            body = Writer(owners).body(_FILE, _flat(found, self.model, makers, self.codec))
        except (NotStorableError, *UNREADABLE):
            return
        files.write(self.path, _FORM, body)


_in_use: WeakKeyDictionary[Model, WeakValueDictionary[bytes, StoredModel]] = WeakKeyDictionary()
"""What workers have read from files, by the content of those."""


def _read(body: bytes, model: Model, codec: PlanCodec) -> StoredModel:
    """What a file holds; workers of one model share it. Raises one of `UNREADABLE`."""
    key = hashlib.sha256(body).digest()
    by_content = _in_use.setdefault(model, WeakValueDictionary())
    found = by_content.get(key)
    if found is None:
        found = by_content[key] = _restored(Reader(body, model.constants).value(_FILE), codec)
    return found


def plan_file(model: Model, backend: Backend) -> PlanFile | None:
    """The file of a model's stored plans; None for models and backends that have none."""
    codec = backend.plan_codec()
    if codec is None or not is_storing():
        return None
    engine = digest_of_engine()
    if not engine or not is_plain(model):
        return None
    key = digest_of_model(model, f"{engine} {backend.name} {codec.setting}")
    return PlanFile(files.path_of(key, "plan"), model, codec)


# What is written


class _Step(NamedTuple):
    """A `Step`; its kernel by its place in the list of kernels.

    `runs` are the places of the values that are numbers of a run; `window` is empty where it has none.
    """

    layer: str
    op_type: str
    kernel: int
    nanoseconds: float
    space: tuple[int, ...]
    values: tuple[int | float, ...]
    runs: tuple[int, ...]
    window: tuple[int, ...]
    inputs: tuple[str, ...]
    output: str


class _Repeat(NamedTuple):
    """A `RepeatedSteps`: that of which step or part, and how many of the segment's parts it takes, in order.

    `swapped` are the tensors before and after a run in turn.
    """

    step: int
    body: int
    last: int
    swapped: tuple[str, ...]


class _Constant(NamedTuple):
    name: str
    array: np.ndarray


class _Packing(NamedTuple):
    name: str
    make: Callable[[], np.ndarray]
    size: int
    dtype: np.dtype


class _Segment(NamedTuple):
    """A `Segment`; `parts` are the steps that its steps repeat."""

    steps: Sequence[_Step]
    parts: Sequence[_Step]
    repeats: Sequence[_Repeat]
    buffers: Sequence[BufferSpec]
    constants: Sequence[_Constant]
    packed: Sequence[_Packing]
    imports: tuple[str, ...]
    exports: tuple[str, ...]


class _Tensor(NamedTuple):
    """A `Value` of a model's tensor; `root` is the name of its buffer."""

    name: str
    root: str
    shape: tuple[int, ...]
    dtype: np.dtype
    known: np.ndarray | None


class _Input(NamedTuple):
    name: str
    shape: tuple[int, ...]


class _Plan(NamedTuple):
    inputs: Sequence[_Input]
    tensors: Sequence[_Tensor]
    outputs: Sequence[str]
    segments: Sequence[_Segment]


class _OpenPlan(NamedTuple):
    """A `StoredOpenPlan`."""

    plan: _Plan
    sizes: tuple[Any, ...]
    decided: tuple[Any, ...]
    before: int


class _Maker(NamedTuple):
    """A constant that a pass has made of the model's."""

    name: str
    make: Callable[[], np.ndarray]


class _Makers:
    """Makers of constants, which later columns may refer to."""

    _COLUMN: Column[Any] = Many(Tuples(_Maker, name=NAME, make=CALL))

    def write(self, values: Sequence[Sequence[_Maker]], file: Writer) -> None:
        """See `Column`."""
        self._COLUMN.write(values, file)

    def read(self, count: int, file: Reader) -> list[tuple[_Maker, ...]]:
        """See `Column`."""
        found: list[tuple[_Maker, ...]] = self._COLUMN.read(count, file)
        for makers in found:
            file.take_makers(dict(makers))
        return found


class _File(NamedTuple):
    makers: Sequence[_Maker]
    host_inputs: Sequence[str]
    is_random: bool
    kernels: Sequence[FlatKernel]
    plans: Sequence[_Plan]
    lasting: Sequence[str]
    open_plans: Sequence[_OpenPlan]


_STEP = Tuples(
    _Step, layer=NAME, op_type=NAME, kernel=SIZE, nanoseconds=REAL, space=Many(SIZE), values=Many(NUMBER),
    runs=Many(SIZE), window=Many(SIZE), inputs=Many(NAME), output=NAME,
)  # fmt: skip
_SEGMENT = Rows(
    _Segment,
    steps=Many(_STEP),
    parts=Many(_STEP),
    repeats=Many(Tuples(_Repeat, step=SIZE, body=SIZE, last=SIZE, swapped=Many(NAME))),
    buffers=Many(Rows(BufferSpec, name=NAME, elements=SIZE, dtype=DTYPE, role=NAME)),
    constants=Many(Tuples(_Constant, name=NAME, array=ARRAY)),
    packed=Many(Tuples(_Packing, name=NAME, make=CALL, size=SIZE, dtype=DTYPE)),
    imports=Many(NAME),
    exports=Many(NAME),
)
_PLAN = Rows(
    _Plan,
    inputs=Many(Tuples(_Input, name=NAME, shape=Many(SIZE))),
    tensors=Many(Tuples(_Tensor, name=NAME, root=NAME, shape=Many(SIZE), dtype=DTYPE, known=Maybe(ARRAY))),
    outputs=Many(NAME),
    segments=Many(_SEGMENT),
)
_FILE = Rows(
    _File,
    makers=_Makers(),
    host_inputs=Many(NAME),
    is_random=FLAG,
    kernels=Many(KERNEL),
    plans=Many(_PLAN),
    lasting=Many(NAME),
    open_plans=Many(
        Rows(_OpenPlan, plan=_PLAN, sizes=open_plans.SIZES, decided=open_plans.SIZES, before=INTEGER)
    ),
)


def _flat(found: StoredModel, model: Model, makers: Sequence[_Maker], codec: PlanCodec) -> _File:
    kernels = [flat_kernel(kernel, codec) for kernel in found.kernels]
    numbers = {kernel.key: position for position, kernel in enumerate(kernels)}
    plans = [_flat_plan(key, lowered, model, numbers, codec) for key, lowered in found.plans.items()]
    opened = [
        _OpenPlan(
            _flat_plan((tuple(x.shapes.items()), ()), x.lowered, model, numbers, codec),
            x.sizes,
            x.decided,
            x.before,
        )
        for x in found.open_plans
    ]
    host_inputs, lasting = sorted(found.host_inputs), sorted(found.lasting)
    return _File(makers, host_inputs, found.is_random, kernels, plans, lasting, opened)


def _flat_plan(
    key: object, lowered: Lowered, model: Model, numbers: Mapping[str, int], codec: PlanCodec
) -> _Plan:
    if lowered.trace.stop is not None or lowered.fallbacks:
        raise NotStorableError("the plan continues when data has arrived")
    shapes, known = cast(tuple[Any, Any], key)
    inputs = [_Input(name, shape) for name, shape in shapes if type(shape) is tuple]
    if known or len(inputs) < len(shapes):
        raise NotStorableError("the plan depends on more than shapes")
    # A plan that ends with a stop has not made all outputs.
    outputs = [output.name for output in model.outputs if output.name in lowered.trace.values]
    tensors = []
    for name, value in lowered.trace.values.items():
        if name in model.constants and name not in outputs:
            continue
        if not isinstance(value, Value) or value.bound is not None or value.dtype == object:
            raise NotStorableError(f"'{name}' is more than a tensor")
        tensors.append(_Tensor(name, value.root.name, value.shape, value.dtype, value.known))
    segments = [_flat_segment(segment, numbers, codec) for segment in lowered.segments]
    return _Plan(inputs, tensors, outputs, segments)


def _flat_segment(segment: Segment, numbers: Mapping[str, int], codec: PlanCodec) -> _Segment:
    plan = segment.plan
    if segment.place != "native":
        raise NotStorableError("a step runs elsewhere")
    listed = [*plan.steps]
    repeats = []
    for place, step in enumerate(listed):  # it grows: a part may repeat others
        kernel = step.kernel
        if isinstance(kernel, RepeatedSteps):
            pairs = tuple([name for pair in kernel.swapped.items() for name in pair])
            repeats.append(_Repeat(place, len(kernel.body), len(kernel.last), pairs))
            listed += kernel.steps
    flat = [_flat_step(step, numbers, codec) for step in listed]
    steps, parts = flat[: len(plan.steps)], flat[len(plan.steps) :]
    constants = [_Constant(*item) for item in plan.constants.items()]
    packed = [_Packing(name, p.make, p.size, p.dtype) for name, p in plan.packed.items()]
    buffers = [*plan.buffers.values()]
    return _Segment(steps, parts, repeats, buffers, constants, packed, segment.imports, segment.exports)


def _flat_step(s: Step, numbers: Mapping[str, int], codec: PlanCodec) -> _Step:
    number = 0 if isinstance(s.kernel, RepeatedSteps) else numbers[codec.key(s.kernel)]
    runs = tuple([place for place, value in enumerate(s.values) if isinstance(value, RunNumber)])
    window, cost = tuple(s.window or ()), codec.nanoseconds(s)
    return _Step(s.layer, s.op_type, number, cost, s.space, s.values, runs, window, s.inputs, s.output)


def _restored(flat: _File, codec: PlanCodec) -> StoredModel:
    kernels = [restored_kernel(FlatKernel(*fields), codec) for fields in flat.kernels]
    return StoredModel(
        frozenset(flat.host_inputs),
        flat.is_random,
        kernels,
        {(tuple(plan.inputs), ()): _restored_plan(plan, kernels) for plan in flat.plans},
        frozenset(flat.lasting),
        [
            StoredOpenPlan(dict(plan.inputs), _restored_plan(plan, kernels), sizes, decided, before)
            for plan, sizes, decided, before in flat.open_plans
        ],
    )


def _restored_plan(flat: _Plan, kernels: Sequence[AnyKernel]) -> Lowered:
    values: dict[str, Any] = {}
    roots: dict[str, Value] = {}
    for name, root, shape, dtype, known in flat.tensors:
        if known is not None and (known.shape, known.dtype) != (shape, dtype):
            raise ValueError(f"{name} has other elements than its shape says")
        value = values[name] = Value(root, shape, dtype, None, known, roots.get(root))
        roots.setdefault(root, value)
    trace = Trace(values, [], {}, kept=[values[name] for name in flat.outputs])
    return Lowered(trace, [_restored_segment(s, kernels, roots) for s in flat.segments])


def _restored_segment(flat: _Segment, kernels: Sequence[AnyKernel], roots: Mapping[str, Value]) -> Segment:
    plan = Plan()
    for spec in flat.buffers:
        if spec.role not in get_args(Role):
            raise ValueError(f"there are no buffers that are {spec.role}")
        if spec.name in roots and spec.elements != roots[spec.name].size:
            raise ValueError(f"the buffer of {spec.name} has another size")
        plan.buffers[spec.name] = spec
    listed = [_restored_step(step, kernels) for step in (*flat.steps, *flat.parts)]
    used: set[str] = set()
    end = len(listed)
    for place, body, last, pairs in reversed(flat.repeats):
        begin, middle = end - body - last, end - last
        if not place < begin < middle or len(listed[place].space) != 1:
            raise ValueError("a step repeats others than there are")
        swapped = dict(zip(pairs[::2], pairs[1::2], strict=True))
        repeated = RepeatedSteps(tuple(listed[begin:middle]), tuple(listed[middle:end]), swapped)
        listed[place] = replace(listed[place], kernel=repeated)
        used.update(pairs)
        end = begin
    if end != len(flat.steps):
        raise ValueError("there are parts of no step")
    plan.steps += listed[:end]
    used.update(n for step in plan.steps for s in (step, *step.parts) for n in (*s.inputs, s.output))
    if not used.union(flat.imports, flat.exports) <= plan.buffers.keys():
        raise ValueError("a step has no buffer")
    plan.constants.update(flat.constants)
    plan.packed.update((name, Packed(make, size, dtype)) for name, make, size, dtype in flat.packed)
    held: dict[str, np.ndarray | Packed] = {**plan.constants, **plan.packed}
    for name, array in held.items():
        if (array.size, array.dtype) != (plan.buffers[name].elements, plan.buffers[name].dtype):
            raise ValueError(f"the constant {name} has another size")
    return Segment("native", plan, flat.imports, flat.exports)


def _restored_step(flat: _Step, kernels: Sequence[AnyKernel]) -> Step:
    layer, op_type, number, nanoseconds, space, given, runs, bounds, inputs, output = flat
    values = list(given)
    for place in runs:
        values[place] = RunNumber()
    window = Window(*bounds) if bounds else None
    kernel = kernels[number]
    if isinstance(kernel, StoredKernel):
        kernel = kernel._replace(nanoseconds=nanoseconds)
    return Step(layer, op_type, kernel, space, tuple(values), inputs, output, window)
