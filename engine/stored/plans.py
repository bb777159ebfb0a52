"""Plans on disk: what loading has worked out for a model once is read back the next time.

A file holds the plans of one model on the CPU backend, for so many threads: steps, buffers and constants,
without formulas. Its key is a digest of everything that a plan depends on: the model (structure and
elements), the engine's own sources, this processor, the compilers. Elements of the model's constants are not
stored but referred to; what packs them is stored as the function that it is, with what that has captured.

Models with operators of a game's own are not stored, nor plans that stop for data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.backends.base import Backend
from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.cost import step_ns
from engine.backends.cpu.native_kernel import source_of
from engine.backends.cpu.winograd_cut import LARGEST
from engine.compiler.lower import Lowered, Segment
from engine.compiler.plan import AnyKernel, BufferSpec, Packed, Plan, Step, StoredKernel
from engine.compiler.walk import Trace
from engine.dtypes import as_dtype
from engine.kernels.kernel import Kernel
from engine.kernels.value import Value
from engine.model import Model
from engine.stored import files, is_storing
from engine.stored.digests import digest_of_engine, digest_of_model
from engine.stored.graphs import is_plain
from engine.stored.references import UNREADABLE, NotStorableError, Reader, Writer

_FORM = b"GGPLAN1\n"


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
        body = files.read(path, _FORM)
        if body is not None:
            try:
                self.read = _restored(Reader(body, model.constants).load())
            except UNREADABLE:
                # Damaged in a way that its digest does not tell: as good as none.
                self.read = None

    def write(self, found: StoredModel) -> None:
        """Store; without effect where that cannot be."""
        try:
            body = Writer(self.model.constants).body(_flat(found, self.model))
        except (NotStorableError, *UNREADABLE):
            return
        files.write(self.path, _FORM, body)


def plan_file(model: Model, backend: Backend) -> PlanFile | None:
    """Where a model's plans are kept; None for models and backends that have none."""
    if not isinstance(backend, CPUBackend) or not is_storing():
        return None
    engine = digest_of_engine()
    if not engine or not is_plain(model):
        return None
    setting = f"{engine} {backend.planned_threads} {backend.arithmetics} {LARGEST}"
    return PlanFile(files.path_of(digest_of_model(model, setting), "plan"), model)


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
        value = values[name] = Value(root, shape, as_dtype(dtype), None, known, roots.get(root))
        roots.setdefault(root, value)
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
