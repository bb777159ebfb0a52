"""Stored plans: reads and writes plans on disk.

A file holds the plans of one model on one backend: steps, buffers and constants, and the formulas of kernels
whose compiled code is not found by their keys. Its key is a digest of everything that a plan depends on: the
model (structure and elements), the engine's own sources, this processor, the compilers, and what the backend
adds (`PlanCodec.setting`). Elements of the model's constants are not stored but referred to; what packs them
is stored as a function's name and arguments.

Models with operators of a game's own are not stored, nor plans of which layers fall back, nor plans for fixed
sizes that stop for data. Plans with symbolic sizes are stored with those that continue them behind such a
stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from engine.backends.base import Backend, Progress
from engine.backends.plan_codec import PlanCodec
from engine.base import source_files
from engine.compiler.lower import LoweredModel, Segment
from engine.compiler.plan import AnyKernel, BufferSpec, Packed, Plan, RepeatedSteps, Step, StoredKernel
from engine.compiler.plan_walk import Trace
from engine.device.native.prebuilt import ABI
from engine.graph.model import Model
from engine.kernels.size_recorder import SizeRecorder
from engine.kernels.value import Value
from engine.runtime.plan_store import files, is_storing, symbolic_plans
from engine.runtime.plan_store.cache_keys import engine_hash, model_hash
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
    Converted,
    Many,
    Pairs,
    Records,
    Tuples,
)
from engine.runtime.plan_store.graphs import is_plain
from engine.runtime.plan_store.kernels import kernel_column
from engine.runtime.plan_store.stored_model import StoredModel
from engine.runtime.plan_store.streams import UNREADABLE, Column, NotStorableError, StreamReader, StreamWriter
from engine.runtime.plan_store.symbolic_plans import SIZES, StoredSymbolicPlan

_FORM = b"GGPLAN7 %d\n" % ABI


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
        """Load the kernels of stored plans; returns how many were compiled, None if one is missing."""
        if any(isinstance(kernel, StoredKernel) for kernel in found.kernels):
            return 0 if backend.prepare_cached(self.words(found)) else None
        return backend.prepare(found.kernels, progress)

    def words(self, found: StoredModel) -> dict[str, int]:
        """The least number of argument words that plans pass to each kernel, by key; 0 if none calls it."""
        words = {self.codec.key(kernel): 0 for kernel in found.kernels}
        for lowered in found.lowered:
            for segment in lowered.segments:
                for part in chain.from_iterable(step.parts for step in segment.plan.steps):
                    key, count = self.codec.key(part.kernel), self.codec.words(part)
                    words[key] = min(words[key], count) if words[key] else count
        return words

    def serialized(
        self, lowered: LoweredModel, recorder: SizeRecorder, decided: tuple[object, ...], is_start: bool
    ) -> StoredSymbolicPlan | None:
        """Serialize an unused plan with symbolic sizes; None if it cannot be stored.

        See `symbolic_plans.serialized`. `is_start`: it begins with the model's inputs.
        """
        inputs = [item.name for item in self.model.inputs]
        names = dict.fromkeys([*inputs, *(item.name for item in self.model.outputs)])
        try:
            inputs = inputs if is_start else []
            return symbolic_plans.serialized(lowered, recorder, decided, [*names], inputs, self.codec)
        except (NotStorableError, *UNREADABLE):
            return None

    def kernels(self, kernels: Iterable[AnyKernel]) -> list[AnyKernel]:
        """The kernels, each once, as they are read back."""
        return [*{self.codec.key(kernel): self.codec.stored(kernel, 0.0) for kernel in kernels}.values()]

    def write(self, found: StoredModel, planned: Model) -> None:
        """Store the plans; does nothing where they cannot be stored, or when the engine's sources changed.

        planned: the model after the backend's passes, whose constants need not be stored where `makers` say
        how they come of the model's.
        """
        if not source_files.are_unchanged():
            return
        given = self.model.constants
        made = {
            name: planned.constants[name] for name in planned.constant_factories if name in planned.constants
        }
        owners = {**made, **given}
        makers = {name: planned.constant_factories[name] for name in made if name not in given}
        try:
            body = StreamWriter(owners).body(_file_column(self.model, self.codec), _File(makers, found))
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
        found = by_content[key] = StreamReader(body, model.constants).value(_file_column(model, codec)).stored
    return found


def plan_file(model: Model, backend: Backend) -> PlanFile | None:
    """The file of a model's stored plans; None for models and backends that have none."""
    codec = backend.plan_codec()
    if codec is None or not is_storing():
        return None
    engine = engine_hash()
    if not engine or not is_plain(model):
        return None
    key = model_hash(model, f"{engine} {backend.name} {codec.setting}")
    return PlanFile(files.path_of(key, "plan"), model, codec)


# What is written


class _Tensor(NamedTuple):
    """A `Value` of a model's tensor; `root` is the name of its buffer."""

    name: str
    root: str
    shape: tuple[int, ...]
    dtype: np.dtype
    known: np.ndarray | None


class _Plan(NamedTuple):
    """A `LoweredModel` that runs in one place."""

    tensors: Sequence[_Tensor]
    outputs: Sequence[str]
    segments: Sequence[Segment]


class _File(NamedTuple):
    makers: Mapping[str, Callable[[], np.ndarray]]
    """How constants are made that a pass has made of the model's."""
    stored: StoredModel


class _Makers(Pairs):
    """Makers of constants, which later columns may refer to."""

    def read(self, count: int, file: StreamReader) -> list[Mapping[Any, Any]]:
        found = super().read(count, file)
        for makers in found:
            file.add_makers(makers)
        return found


class _Kernels(Column[AnyKernel]):
    """Kernels of steps: each by its number among all of the file, and steps that are repeated."""

    def __init__(self, codec: PlanCodec) -> None:
        self._codec = codec
        self._all: Sequence[AnyKernel] = ()
        self._numbers: dict[str, int] = {}
        self.steps = Many(Records(Step, kernel=self, space=Many(SIZE), values=Many(NUMBER)))
        self._repeated = Records(_repeated, body=self.steps, last=self.steps, swapped=Pairs(NAME, NAME))
        self.all: Column[Any] = Converted(Many(kernel_column(codec)), self._known, self._known)

    def _known(self, kernels: Sequence[AnyKernel]) -> list[AnyKernel]:
        self._all = kernels
        self._numbers = {self._codec.key(kernel): number for number, kernel in enumerate(kernels)}
        return [*kernels]

    def write(self, values: Sequence[AnyKernel], file: StreamWriter) -> None:
        flags = [isinstance(kernel, RepeatedSteps) for kernel in values]
        plain = [kernel for kernel, flag in zip(values, flags, strict=True) if not flag]
        FLAG.write(flags, file)
        SIZE.write([self._numbers[self._codec.key(kernel)] for kernel in plain], file)
        REAL.write([k.nanoseconds if isinstance(k, StoredKernel) else 0.0 for k in plain], file)
        self._repeated.write([kernel for kernel in values if isinstance(kernel, RepeatedSteps)], file)

    def read(self, count: int, file: StreamReader) -> list[AnyKernel]:
        flags = FLAG.read(count, file)
        kernels = [self._all[number] for number in SIZE.read(flags.count(False), file)]
        costs = REAL.read(len(kernels), file)
        plain = iter(
            [
                kernel._replace(nanoseconds=cost) if isinstance(kernel, StoredKernel) else kernel
                for kernel, cost in zip(kernels, costs, strict=True)
            ]
        )
        repeated = iter(self._repeated.read(flags.count(True), file))
        return [next(repeated) if flag else next(plain) for flag in flags]


def _plan(
    steps: Sequence[Step],
    buffers: dict[str, BufferSpec],
    constants: dict[str, np.ndarray],
    packed: dict[str, Packed],
) -> Plan:
    """A plan of what was read, if that fits together."""
    if not {*_touched(steps)} <= buffers.keys() or any(n != spec.name for n, spec in buffers.items()):
        raise ValueError("a step has no buffer")
    held: dict[str, np.ndarray | Packed] = {**constants, **packed}
    for name, array in held.items():
        if (array.size, array.dtype) != (buffers[name].elements, buffers[name].dtype):
            raise ValueError(f"the constant {name} has another size")
    return Plan([*steps], buffers, constants, packed)


def _touched(steps: Sequence[Step]) -> Iterator[str]:
    """The names of all buffers that steps, and those that they repeat, use."""
    for step in steps:
        yield from (*step.inputs, step.output)
        if isinstance(step.kernel, RepeatedSteps):
            if len(step.space) != 1:
                raise ValueError("a step repeats others by more than a number")
            yield from chain.from_iterable(step.kernel.swapped.items())
            yield from _touched(step.kernel.steps)


def _repeated(body: tuple[Step, ...], last: tuple[Step, ...], swapped: Mapping[str, str]) -> RepeatedSteps:
    if not body:
        raise ValueError("a step repeats none")
    return RepeatedSteps(body, last, swapped)


def _file_column(model: Model, codec: PlanCodec) -> Column[_File]:
    """The column of a model's plans."""
    kernels = _Kernels(codec)
    shapes = Pairs(NAME, Many(SIZE))
    plan = Records(
        _plan,
        steps=kernels.steps,
        buffers=Pairs(NAME, Records(BufferSpec, elements=SIZE)),
        constants=Pairs(NAME, ARRAY),
        packed=Pairs(NAME, Records(Packed, make=CALL, size=SIZE, dtype=DTYPE)),
    )
    segments = Many(Records(partial(Segment, "native"), plan=plan, imports=Many(NAME), exports=Many(NAME)))
    tensors = Many(Tuples(_Tensor, shape=Many(SIZE)))
    plans: Column[LoweredModel] = Converted(
        Records(_Plan, tensors=tensors, segments=segments), partial(_flat, model, codec), _restored
    )
    names = Converted(Many(NAME), sorted, frozenset)
    opened = Records(
        StoredSymbolicPlan, shapes=shapes, lowered=plans, sizes=SIZES, decided=SIZES, before=INTEGER
    )
    stored = Records(
        StoredModel,
        host_inputs=names,
        is_random=FLAG,
        kernels=kernels.all,
        plans=Pairs(Converted(shapes, _shapes_of, _key_of), plans),
        lasting=names,
        symbolic_plans=Converted(Many(opened), tuple, list),
    )
    return Records(_File, makers=_Makers(NAME, CALL), stored=stored)


def _shapes_of(key: object) -> dict[str, tuple[int, ...]]:
    """The input shapes that the key of a session stands for."""
    shapes, known = cast(tuple[Any, Any], key)
    if known or any(type(shape) is not tuple for _, shape in shapes):
        raise NotStorableError("the plan depends on more than shapes")
    return dict(shapes)


def _key_of(shapes: Mapping[str, tuple[int, ...]]) -> object:
    return tuple(shapes.items()), ()


def _flat(model: Model, codec: PlanCodec, lowered: LoweredModel) -> _Plan:
    if lowered.trace.stop is not None or lowered.fallbacks:
        raise NotStorableError("the plan continues when data has arrived")
    # A plan that ends with a stop has not made all outputs.
    outputs = [output.name for output in model.outputs if output.name in lowered.trace.values]
    tensors = []
    for name, value in lowered.trace.values.items():
        if name in model.constants and name not in outputs:
            continue
        if not isinstance(value, Value) or value.bound is not None or value.dtype == object:
            raise NotStorableError(f"'{name}' is more than a tensor")
        tensors.append(_Tensor(name, value.root.name, value.shape, value.dtype, value.known))
    segments = []
    for segment in lowered.segments:
        if segment.place != "native":
            raise NotStorableError("a step runs elsewhere")
        steps = [symbolic_plans.stored_step(step, codec) for step in segment.plan.steps]
        segments.append(replace(segment, plan=replace(segment.plan, steps=steps)))
    return _Plan(tensors, outputs, segments)


def _restored(flat: _Plan) -> LoweredModel:
    values: dict[str, Any] = {}
    roots: dict[str, Value] = {}
    for name, root, shape, dtype, known in flat.tensors:
        if known is not None and (known.shape, known.dtype) != (shape, dtype):
            raise ValueError(f"{name} has other elements than its shape says")
        value = values[name] = Value(root, shape, dtype, None, known, roots.get(root))
        roots.setdefault(root, value)
    for segment in flat.segments:
        if not {*segment.imports, *segment.exports} <= segment.plan.buffers.keys():
            raise ValueError("a tensor of a segment has no buffer")
        for name, spec in segment.plan.buffers.items():
            if name in roots and spec.elements != roots[name].size:
                raise ValueError(f"the buffer of {name} has another size")
    trace = Trace(values, [], {}, kept=[values[name] for name in flat.outputs])
    return LoweredModel(trace, [*flat.segments])
