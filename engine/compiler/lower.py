"""Lowers formulas to a plan: fusion, backend per step, tuned kernels, buffers.

A `Planner` belongs to one model on one backend. It yields `Segment`s: runs of steps that one backend
executes without interruption. There is one segment unless layers fall back to the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, Protocol

import numpy as np

from engine.base.memory.pool import Pool
from engine.compiler.byte_tables import tabulate
from engine.compiler.fusion import fuse_elementwise
from engine.compiler.loop_splitting import Temporary
from engine.compiler.operand_fusion import fuse_operands
from engine.compiler.plan import AnyKernel, BufferSpec, Compute, Packed, Plan, Role, Step, Tuner
from engine.compiler.plan_memo import LoweredFormula, PlanMemo
from engine.compiler.plan_walk import Trace
from engine.compiler.repeated_steps import RepeatTarget, lower_repeat, refusal_of
from engine.compiler.size_tensors import sizes_computed
from engine.compiler.trace import InputShapes, ShapeOf, Tracer, live
from engine.compiler.walk import Elements
from engine.graph.model import Model
from engine.kernels.value import Entry, Value, leaves

Place = Literal["native", "cpu"]


class Target(RepeatTarget, Protocol):
    """Properties of a backend that planning depends on."""

    fan_in: int
    whole_layers: frozenset[str]
    has_byte_tables: bool
    tuned_kinds: frozenset[str] | None

    def refusal(self, compute: Compute) -> str | None:
        """Why a step cannot run there, or None."""
        ...

    def tune(self, compute: Compute, tuner: Tuner) -> bool:
        """Replace a step by tuned kernels."""
        ...

    def split(self, compute: Compute, temporary: Temporary) -> Sequence[Compute]:
        """The step as generic kernels: several if one would run too long."""
        ...

    def generic(self, compute: Compute) -> Step:
        """The step of a formula that no rule took."""
        ...


@dataclass(frozen=True, slots=True)
class Fallback:
    """A step that leaves its backend: why, and how many bytes that moves each way per schedule."""

    layer: str
    op_type: str
    reason: str
    bytes_down: int
    bytes_up: int


@dataclass(slots=True)
class Segment:
    """Consecutive steps on one backend. `imports` are tensors that earlier segments made on the other."""

    place: Place
    plan: Plan
    imports: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()


@dataclass(slots=True)
class LoweredModel:
    """A trace divided into segments, with its fallbacks and their reasons."""

    trace: Trace
    segments: list[Segment] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)

    @property
    def static_plan(self) -> LoweredModel:
        """The static plan to continue from after a stop for data: this one."""
        return self

    def entry(self, name: str) -> Entry:
        """An output."""
        return self.trace.values[name]

    def kernels(self, place: Place = "native") -> list[AnyKernel]:
        """The kernels of all steps at a place."""
        return [kernel for s in self.segments if s.place == place for kernel in s.plan.kernels]


class Planner:
    """Plans one model for one backend; remembers packed weights between plans."""

    def __init__(
        self,
        model: Model,
        native: Target,
        cpu: Target | None,
        packed: dict[str, Packed] | None = None,
        pool: Pool | None = None,
    ) -> None:
        """`packed` are weights that were packed before, to which others are added, in memory of `pool`."""
        self.model = model
        self.native = native
        self.cpu = cpu
        self.tracer = Tracer(model, native.fan_in, whole_layers=native.whole_layers)
        self.memo = self.tracer.memo = PlanMemo(len(model.layers)) if self.tracer.is_dynamic else None
        self.packed: dict[str, Packed] = {} if packed is None else packed
        self.pool = Pool(0) if pool is None else pool
        self._own: dict[str, np.ndarray] = {}
        self.weight_bytes = sum(array.nbytes for array in model.constants.values())

    def lower(self, shapes: InputShapes, known: Elements | None = None) -> LoweredModel:
        """Plan from the model's start to its end or to the first layer that needs data not yet known."""
        return self._lowered(self.tracer.trace(shapes, known))

    def lower_symbolic(self, shapes: InputShapes, known: Elements | None = None) -> LoweredModel:
        """Plan with symbolic sizes: for all sizes that a `SizeRecorder`'s guards accept.

        What plans have in common is no use here: it belongs to sizes.
        """
        with self._without_memo():
            return self._lowered(self.tracer.trace(shapes, known))

    def resume(self, trace: Trace, known: Elements, results: Sequence[Any] | None) -> LoweredModel:
        """Continue planning after a stop; see `Tracer.resume`."""
        return self._lowered(self.tracer.resume(trace, known, results))

    def resume_symbolic(
        self, trace: Trace, known: Elements, results: Sequence[Any] | None, sizes: ShapeOf
    ) -> LoweredModel:
        """`resume` for a trace with symbolic sizes."""
        with self._without_memo():
            return self._lowered(self.tracer.resume(trace, known, results, sizes))

    @contextmanager
    def _without_memo(self) -> Iterator[None]:
        memo, self.memo = self.memo, None
        self.tracer.memo = None
        try:
            yield
        finally:
            self.memo = self.tracer.memo = memo

    def _lowered(self, trace: Trace) -> LoweredModel:
        with sizes_computed(trace.computes) as computes:
            return self._segmented(trace, computes)

    def _segmented(self, trace: Trace, computes: Sequence[Compute]) -> LoweredModel:
        wanted = trace.kept
        computes = live(computes, wanted)
        if self.native.has_byte_tables:
            computes = live(tabulate(computes, wanted, self.memo), wanted)
        computes = fuse_elementwise(computes, wanted, self.native.fan_in, self.memo)
        if (tuned := self.native.tuned_kinds) is not None:
            computes = fuse_operands(
                computes, wanted, self.native.fan_in, tuned,
                lambda joined: self.native.refusal(joined) is None, self.memo,
            )  # fmt: skip
        lowered = LoweredModel(trace)
        if trace.stop is not None and (call := trace.stop.call) is not None and self.cpu is not None:
            why = "is a NumPy function, which runs on the CPU"
            down = sum(v.size * v.dtype.itemsize for v in leaves(*call.inputs) if v.known is None)
            lowered.fallbacks.append(Fallback(call.layer.name, call.layer.op_type, why, down, 0))
        runs: list[tuple[Place, list[Compute]]] = []
        reasons: dict[Value, str | None] = {}
        for compute in computes:
            if compute.kind == "loop_output":
                # Another output of the repeat before.
                reason = reasons[compute.operands[0].root]
            else:
                reason = refusal_of(compute, self.native.refusal)
            reasons[compute.output] = reason
            place: Place = "native" if reason is None else "cpu"
            if reason is not None:
                down = sum(v.size * v.dtype.itemsize for v in compute.reads if v.known is None)
                up = compute.output.size * compute.output.dtype.itemsize
                lowered.fallbacks.append(Fallback(compute.layer, compute.op_type, reason, down, up))
            if not runs or runs[-1][0] != place:
                runs.append((place, []))
            runs[-1][1].append(compute)
        kept = {v.root.name for v in wanted}
        for position, (place, steps) in enumerate(runs):
            later = {v.name for _, rest in runs[position + 1 :] for c in rest for v in c.reads}
            lowered.segments.append(self.segment(place, steps, kept | later))
        return lowered

    def segment(self, place: Place, computes: Sequence[Compute], exported: set[str]) -> Segment:
        """Number the formulas of one run and list its buffers."""
        plan = Plan()
        self._own = {}
        loaded = {value.name: value for compute in computes for value in compute.reads}
        made = {c.output.name for c in computes}
        used = set(exported)
        readers = Counter(value for compute in computes for value in compute.reads)
        read_once = {c.output: c for c in computes if readers[c.output] == 1 and c.output.name not in used}
        parts: list[list[Step]] = []
        # From the end: what a tuned kernel does without is not made.
        for compute in reversed(computes):
            output = compute.output
            if output.name not in used:
                continue
            producer = read_once.get(compute.operands[0]) if compute.kind == "pool" else None
            tuned = self._tuned(place, compute, producer)
            # What a repeat makes besides has its role already.
            plan.buffers |= {name: spec for name, spec in tuned.buffers.items() if name not in plan.buffers}
            plan.constants.update(tuned.constants)
            plan.packed.update((name, self.packed[name]) for name in tuned.packed)
            parts.append(tuned.steps)
            used.update(name for step in parts[-1] for name in step.inputs)
            if not tuned.steps:
                used.update(value.name for value in compute.reads)
            role: Role = "output" if output.name in exported else "temporary"
            plan.buffers[output.name] = BufferSpec(output.name, output.size, output.dtype, role)
        plan.steps.extend(step for steps in reversed(parts) for step in steps)
        used = {name for step in plan.steps for name in step.inputs}
        for name in sorted(used - made - set(plan.buffers)):
            value = loaded[name]
            known = value.known
            if known is None and not value.size:
                # No step computes a tensor without elements; its readers need a buffer anyway.
                known = np.empty(value.shape, value.dtype)
            role = "table" if value.table is not None else "input" if known is None else "constant"
            plan.buffers[name] = BufferSpec(name, value.size, value.dtype, role)
            if value.table is not None:
                plan.tables[name] = value.table
            if known is not None:
                plan.constants[name] = known
        imports = tuple(n for n, b in plan.buffers.items() if b.role == "input")
        exports = tuple(n for n, b in plan.buffers.items() if b.role == "output")
        return Segment(place, plan, imports, exports)

    def _tuned(self, place: Place, compute: Compute, producer: Compute | None = None) -> LoweredFormula:
        """The target's own kernels for a formula, and for what it alone reads, or the generic one."""
        found = None if self.memo is None else self.memo.tuned.get((place, compute, producer))
        if found is not None:
            return found
        target = self.native if place == "native" else self.cpu
        assert target is not None
        if compute.kind == "loop":
            return lower_repeat(compute, lambda part: self._tuned(place, part), target)
        made = LoweredFormula([], {}, [], {})
        if compute.kind == "loop_output":
            return made
        tuner = Tuner(
            compute, self._constant(made, compute), self._temporary(made, compute), self.weight_bytes,
            target.generic, producer,
        )  # fmt: skip
        if all(v.size for v in compute.reads) and target.tune(compute, tuner):
            made.steps.extend(tuner.steps)
        else:
            parts = target.split(compute, self._between(made, compute))
            made.steps.extend(map(target.generic, parts))
        if self.memo is not None and not made.constants:
            self.memo.tuned.keep((place, compute, producer), made)
        return made

    def _constant(
        self, made: LoweredFormula, compute: Compute
    ) -> Callable[[str, Callable[[], np.ndarray]], str]:
        operands = compute.hint.operands if compute.hint else ()
        lasting = all(v.root.name in self.tracer.constant_names for v in operands if v.known is not None)

        def constant(name: str, make: Callable[[], np.ndarray]) -> str:
            # What is packed from a tensor that only this plan knows must not be taken for another plan's.
            array: np.ndarray | Packed
            if not lasting:
                name = f"{name}@known"
                if name not in self._own:
                    self._own[name] = make()
                array = made.constants[name] = self._own[name]
            else:
                if name not in self.packed:
                    with self.pool.open():
                        self.packed[name] = Packed(make)
                array = self.packed[name]
                made.packed.append(name)
            made.buffers[name] = BufferSpec(name, array.size, array.dtype, "constant")
            return name

        return constant

    def _between(self, made: LoweredFormula, compute: Compute) -> Temporary:
        named = self._temporary(made, compute)

        def between(shape: tuple[int, ...], dtype: np.dtype) -> Value:
            return Value(named(prod(shape), dtype), shape, dtype)

        return between

    def _temporary(self, made: LoweredFormula, compute: Compute) -> Callable[[int, np.dtype], str]:
        def temporary(elements: int, dtype: np.dtype) -> str:
            name = f"{compute.output.name}~{len(made.buffers)}"
            made.buffers[name] = BufferSpec(name, elements, np.dtype(dtype), "temporary")
            return name

        return temporary
