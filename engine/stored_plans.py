"""Plans on disk: what loading has worked out for a model once is read back the next time.

A file holds the plans of one model on the CPU backend, for so many threads: steps, buffers and constants,
without formulas. Its key is a digest of everything that a plan depends on: the model (structure and
elements), the engine's own sources, this processor, the compilers. Elements of the model's constants are not
stored but referred to; what packs them is stored as the function that it is, with what that has captured.

Models with operators of a game's own are not stored, nor plans that stop for data. Environment:
GAMEGLUE_STORED_PLANS=off for neither reading nor writing any.
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import types
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine import native
from engine.backends.base import Backend
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.cost import step_ns
from engine.backends.cpu.native_kernel import source_of
from engine.backends.cpu.winograd_cut import LARGEST
from engine.cache import cache_dir, read_sealed, write_sealed
from engine.compiler.lower import Lowered, Segment
from engine.compiler.plan import AnyKernel, BufferSpec, Packed, Plan, Step, StoredKernel
from engine.compiler.walk import Trace
from engine.dtypes import as_dtype
from engine.kernels.kernel import Kernel
from engine.kernels.value import Value
from engine.model import Model
from engine.model_digest import digest_of_model, digest_of_sources
from engine.operators import OPERATORS

MOST_FILES = 128
MOST_BYTES = 1 << 28
"""How many files are kept, and of which size in all, the latest used; one has some 50 KiB."""

LARGEST_INLINE = 1 << 23
"""Bytes of arrays that a file may hold: small ones, and weights of recurrent layers in another order."""

_FORM = b"GGPLAN1\n"

_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ImportError, pickle.PickleError)


class NotStorableError(Exception):
    """A plan holds something that a file cannot."""


@dataclass
class StoredModel:
    """What is known of a model before it is planned.

    `kernels` are all that its symbolic shapes can reach; `plans` those for given input shapes, by the key of
    the session. `lasting` are the plans' constants that belong to the model.
    """

    host_inputs: frozenset[str]
    is_random: bool
    kernels: list[tuple[str, str, bool]]
    plans: dict[object, Lowered] = field(default_factory=dict)
    lasting: frozenset[str] = frozenset()


class PlanFile:
    """The file of one model's plans."""

    def __init__(self, path: Path, model: Model) -> None:
        self.path = path
        self.model = model
        self.read: StoredModel | None = None
        body = read_sealed(path, _FORM)
        if body is not None:
            try:
                self.read = _restored(_Reader(io.BytesIO(body), model).load())
                os.utime(path)
            except (OSError, *_UNREADABLE):
                # Damaged in a way that its digest does not tell: as good as none.
                self.read = None

    def write(self, found: StoredModel) -> None:
        """Store; without effect where that cannot be."""
        try:
            body = _Writer.body(found, self.model)
        except (NotStorableError, RecursionError, *_UNREADABLE):
            return
        write_sealed(self.path, _FORM, body)
        _forget_oldest(self.path.parent)


def plan_file(model: Model, backend: Backend) -> PlanFile | None:
    """Where a model's plans are kept; None for models and backends that have none."""
    if not isinstance(backend, CPUBackend) or os.environ.get("GAMEGLUE_STORED_PLANS", "on") == "off":
        return None
    engine = _engine_digest()
    if not engine or not _is_storable(model):
        return None
    key = digest_of_model(model, f"{engine} {backend.planned_threads} {backend.arithmetics} {LARGEST}")
    return PlanFile(_folder() / f"{key}.plan", model)


@functools.cache
def _folder() -> Path:
    return cache_dir("plans")


@functools.cache
def _engine_digest() -> str:
    """A digest of the engine's sources and of what compiled code depends on; '' without sources."""
    return digest_of_sources(Path(__file__).parent, native.machine_identity() + np.__version__)


def _is_storable(model: Model) -> bool:
    """Whether all operators are the engine's own, and inputs are tensors."""
    for layer in model.walk():
        operator = OPERATORS.find(layer.domain, layer.op_type, layer.version)
        if operator is None or not operator.define.__module__.startswith("engine.operators"):
            return False
    return all(item.kind == "tensor" and item.dtype != object for item in model.inputs)


def _forget_oldest(folder: Path) -> None:
    try:
        files = [(path.stat(), path) for path in folder.glob("*.plan")]
        size = 0
        for number, (status, path) in enumerate(sorted(files, key=lambda f: -f[0].st_mtime_ns), 1):
            size += status.st_size
            if number > MOST_FILES or size > MOST_BYTES:
                path.unlink(missing_ok=True)
    except OSError:
        return  # another process is at it too


# What is written: tuples of plain values, which pickle reads many times faster than objects


def _flat(found: StoredModel, model: Model) -> tuple[Any, ...]:
    numbers = {key: position for position, (key, _, _) in enumerate(found.kernels)}
    plans = [(key, _flat_plan(lowered, model, numbers)) for key, lowered in found.plans.items()]
    return tuple(found.host_inputs), found.is_random, found.kernels, plans, tuple(found.lasting)


def _flat_plan(lowered: Lowered, model: Model, numbers: Mapping[str, int]) -> tuple[Any, ...]:
    if lowered.trace.stop is not None or lowered.fallbacks:
        raise NotStorableError("the plan goes on when data has arrived")
    outputs = [output.name for output in model.outputs]
    values = []
    for name, value in lowered.trace.values.items():
        if name in model.constants and name not in outputs:
            continue
        if not isinstance(value, Value) or value.bound is not None or value.dtype == object:
            raise NotStorableError(f"'{name}' is more than a tensor")
        values.append((name, value.root.name, value.shape, value.dtype.name, value.known))
    return values, outputs, [_flat_segment(s, numbers) for s in lowered.segments]


def _flat_segment(segment: Segment, numbers: Mapping[str, int]) -> tuple[Any, ...]:
    plan = segment.plan
    if segment.place != "native":
        raise NotStorableError("a step runs elsewhere")
    steps = []
    for s in plan.steps:
        number = numbers[stored_key(s.kernel)]
        steps.append((s.layer, s.op_type, number, step_ns(s), s.space, s.values, s.inputs, s.output))
    buffers = [(b.name, b.elements, b.dtype.name, b.role) for b in plan.buffers.values()]
    packed = [(name, p.make, p.size, p.dtype.name) for name, p in plan.packed.items()]
    return steps, buffers, list(plan.constants.items()), packed, segment.imports, segment.exports


def stored_key(kernel: AnyKernel) -> str:
    """The key of a kernel's compiled code."""
    return kernel.key if isinstance(kernel, StoredKernel) else source_of(kernel).key


def stored_facts(kernels: Iterable[AnyKernel]) -> list[tuple[str, str, bool]]:
    """Key, name and whether it is tuned, of each kernel once."""
    found = {}
    for kernel in kernels:
        key = stored_key(kernel)
        is_tuned = kernel.is_tuned if isinstance(kernel, StoredKernel) else not isinstance(kernel, Kernel)
        found[key] = (key, str(getattr(kernel, "name", "generic")), is_tuned)
    return list(found.values())


def _restored(flat: tuple[Any, ...]) -> StoredModel:
    host_inputs, is_random, kernels, plans, lasting = flat
    return StoredModel(
        frozenset(host_inputs),
        is_random,
        kernels,
        {key: _restored_plan(plan, kernels) for key, plan in plans},
        frozenset(lasting),
    )


def _restored_plan(flat: tuple[Any, ...], kernels: Sequence[tuple[str, str, bool]]) -> Lowered:
    listed, outputs, segments = flat
    values: dict[str, Any] = {}
    roots: dict[str, Value] = {}
    for name, root, shape, dtype, known in listed:
        value = values[name] = Value(root, shape, as_dtype(dtype), None, known)
        value.root = roots.setdefault(root, value)
    trace = Trace(values, [], {}, kept=[values[name] for name in outputs])
    return Lowered(trace, [_restored_segment(s, kernels) for s in segments])


def _restored_segment(flat: tuple[Any, ...], kernels: Sequence[tuple[str, str, bool]]) -> Segment:
    steps, buffers, constants, packed, imports, exports = flat
    plan = Plan()
    for layer, op_type, number, nanoseconds, space, values, inputs, output in steps:
        key, title, is_tuned = kernels[number]
        kernel = StoredKernel(key, title, is_tuned, nanoseconds)
        plan.steps.append(Step(layer, op_type, kernel, space, values, inputs, output))
    for name, elements, dtype, role in buffers:
        plan.buffers[name] = BufferSpec(name, elements, as_dtype(dtype), role)
    plan.constants.update(constants)
    plan.packed.update((name, Packed(make, size, as_dtype(dtype))) for name, make, size, dtype in packed)
    return Segment("native", plan, imports, exports)


class _Writer(pickle.Pickler):
    """Writes arrays of the model as references, and functions with what they captured."""

    def __init__(self, file: io.BytesIO, model: Model) -> None:
        super().__init__(file, protocol=5)
        self._inline = 0
        spans = [(*_span(array), name) for name, array in model.constants.items() if array.dtype != object]
        self._spans = sorted(spans)
        self._starts = [start for start, _, _ in self._spans]

    @classmethod
    def body(cls, found: StoredModel, model: Model) -> bytes:
        """The bytes of a file."""
        file = io.BytesIO()
        cls(file, model).dump(_flat(found, model))
        return file.getvalue()

    def persistent_id(self, thing: Any) -> Any:
        """A reference for what the model holds."""
        if not isinstance(thing, np.ndarray) or not thing.size:
            return None
        start, end = _span(thing)
        position = bisect_right(self._starts, start) - 1
        if position >= 0 and thing.dtype != object:
            first, last, name = self._spans[position]
            if end <= last and min(thing.strides, default=0) >= 0:
                return name, start - first, thing.shape, thing.strides, thing.dtype.name
        self._inline += thing.nbytes
        if self._inline > LARGEST_INLINE:
            raise NotStorableError("the plan holds weights that the model does not")
        return None

    def reducer_override(self, thing: Any) -> Any:
        """Functions made by functions, which pickle itself does not take."""
        if isinstance(thing, types.FunctionType) and "<locals>" in thing.__qualname__:
            cells = tuple(cell.cell_contents for cell in thing.__closure__ or ())
            return _function, (thing.__module__, thing.__qualname__, thing.__defaults__, cells)
        if isinstance(thing, Model) or type(thing).__name__ in ("Compute", "Expr", "Planner", "Tuner"):
            raise NotStorableError(f"what packs weights holds a {type(thing).__name__}")
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Reads what `_Writer` wrote, for the same model."""

    def __init__(self, file: io.BytesIO, model: Model) -> None:
        super().__init__(file)
        self._constants = model.constants

    def persistent_load(self, reference: Any) -> np.ndarray:
        """The array that a reference means."""
        name, offset, shape, strides, dtype = reference
        constant = self._constants[name]
        if not offset and constant.shape == shape and constant.strides == strides:
            return constant
        flat = np.ndarray((constant.nbytes,), np.uint8, constant.reshape(-1).view(np.uint8))
        view: np.ndarray = np.ndarray(shape, as_dtype(dtype), flat, offset, strides)
        view.flags.writeable = False
        return view


def _span(array: np.ndarray) -> tuple[int, int]:
    """The addresses between which an array's elements lie."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def _function(module: str, name: str, defaults: Any, cells: tuple[Any, ...]) -> types.FunctionType:
    """A function defined in another, by its qualified name; the sources are the same, as the key says."""
    names = name.split(".")
    found: Any = __import__(module, fromlist=[names[0]])
    scope = found.__dict__
    found = getattr(found, names[0])
    code: types.CodeType | None = None
    for inner in names[1:]:
        if inner == "<locals>":
            code = found.__code__ if code is None else code
        elif code is None:
            found = getattr(found, inner)
        else:
            code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == inner)
    assert code is not None
    return types.FunctionType(code, scope, names[-1], defaults, tuple(map(types.CellType, cells)))
