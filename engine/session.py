"""A model bound to backends: plans by input shapes, their recorded programs, buffers and constants.

`Session` is what a `Worker` owns; `Part` is one recorded stretch of a model, `Run` one schedule on its
way. A run is a list of stages; those that wait for data (a transfer between backends, a size that
depends on data) make it a continuation, which `Run.advance` takes up again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Program, Progress
from engine.checks import INT32_BACKENDS, check_int32
from engine.compiler.lower import Lowered, Place, Planner, Segment
from engine.compiler.plan import Plan
from engine.errors import UnsupportedLayerError
from engine.kernels.value import Value
from engine.model import Model

KEPT_PLANS = 16
"""How many sets of input shapes keep their recorded plans; the least recently used goes first. Those in use
stay, however many they are."""

HOST_INPUT_LIMIT = 4096
"""Largest input, in elements, whose value may shape a plan (axes, sizes, pads: a handful of integers)."""


@dataclass
class Location:
    """Where a tensor of a run lies: a buffer at a place, or elements known ahead of time."""

    value: Value
    place: Place | None = None
    buffer: DeviceBuffer | None = None

    def array(self) -> np.ndarray:
        """A copy of elements that lie in no buffer: known ahead of time, or none at all."""
        value = self.value
        if value.known is None:
            return np.empty(value.shape, value.dtype)
        return value.known.reshape(value.shape).copy()


@dataclass
class Stage:
    """A program to run at a place, after copying `moves` there from the other place."""

    place: Place
    program: Program
    moves: tuple[tuple[str, DeviceBuffer, DeviceBuffer], ...] = ()


@dataclass
class Part:
    """A recorded stretch of a model: its stages, and the buffers that outlive them.

    `users` counts the runs that have it on their way or as their result; without any it may be dropped.
    """

    lowered: Lowered
    stages: list[Stage] = field(default_factory=list)
    buffers: dict[tuple[Place, str], DeviceBuffer] = field(default_factory=dict)
    home: dict[str, Place] = field(default_factory=dict)
    owned: list[DeviceBuffer] = field(default_factory=list)
    inputs: dict[str, list[tuple[Place, DeviceBuffer]]] = field(default_factory=dict)
    later: OrderedDict[object, Part] = field(default_factory=OrderedDict)
    users: int = 0

    def locate(self, name: str) -> Location:
        """Where a tensor of the model lies once this part has run."""
        value = self.lowered.trace.values[name]
        if value.known is not None or value.size == 0:
            return Location(value)
        root = value.root.name
        place = self.home[root]
        return Location(value, place, self.buffers[place, root])

    def release(self) -> None:
        """Free programs and buffers, those of continuations included."""
        for part in self.later.values():
            part.release()
        for stage in self.stages:
            stage.program.release()
        for buffer in self.owned:
            buffer.release()


class Session:
    """Plans and memory of one model on one backend, with the CPU beside it for layers that fall back."""

    def __init__(self, model: Model, native: Backend, cpu: Backend | None, allow_fallback: bool) -> None:
        self.model = model
        self.allow_fallback = allow_fallback
        self.backends: dict[Place, Backend] = {"native": native}
        if cpu is not None:
            self.backends["cpu"] = cpu
        self.planner = Planner(model, native, cpu)
        self.host_inputs = self._host_inputs()
        self.constants: dict[tuple[Place, str], tuple[np.ndarray, DeviceBuffer]] = {}
        self.parts: OrderedDict[object, Part] = OrderedDict()
        self.lowered: Lowered | None = None

    def _host_inputs(self) -> frozenset[str]:
        """Inputs whose values decide a plan.

        Those that a layer reads on the host, and integers from which such an input is computed.
        """
        needed: set[str] = set()
        direct: set[str] = set()
        for layer, operator in zip(
            reversed(self.model.layers), reversed(self.planner.tracer.operators), strict=True
        ):
            host = {layer.inputs[i] for i in operator.host_positions(len(layer.inputs))}
            direct.update(n for n in host if n)
            needed.update(direct)
            if layer.op_type not in ("Shape", "Size") and needed.intersection(layer.outputs):
                needed.update(n for n in layer.inputs if n)
        return frozenset(
            i.name
            for i in self.model.inputs
            if i.name in direct or (i.name in needed and i.dtype.kind in "iub")
        )

    # Making parts

    def prepare(self, progress: Progress | None = None) -> int:
        """Compile every kernel that the model's symbolic shapes can reach; returns how many were compiled."""
        compiled = 0
        for shapes in self.planner.tracer.representatives():
            lowered = self.lower(shapes, {}, 0, None)
            compiled += self.compile(lowered, progress)
            self.lowered = self.lowered or lowered
            if not self.planner.tracer.is_dynamic and lowered.trace.stopped_at is None:
                self.parts[self.key(shapes, {})] = self.record(lowered, None)
        return compiled

    def compile(self, lowered: Lowered, progress: Progress | None = None) -> int:
        """Have the backends compile the kernels of a plan."""
        compiled = 0
        for place, backend in self.backends.items():
            kernels = [step.kernel for s in lowered.segments if s.place == place for step in s.plan.steps]
            if kernels:
                compiled += backend.prepare(kernels, progress)
        return compiled

    def lower(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        known: Mapping[str, np.ndarray],
        start: int,
        values: Mapping[str, Value] | None,
    ) -> Lowered:
        """Plan a stretch of the model; refuses fallbacks where they are not allowed."""
        lowered = self.planner.lower(shapes, known, start, values)
        if lowered.fallbacks and ("cpu" not in self.backends or not self.allow_fallback):
            reasons = "; ".join(f"layer '{f.layer}' ({f.op_type}): {f.reason}" for f in lowered.fallbacks[:8])
            raise UnsupportedLayerError(
                f"{self.backends['native'].name} cannot run {len(lowered.fallbacks)} step(s) of model "
                f"'{self.model.name}': {reasons}. allow_fallback=True runs them on the CPU"
            )
        return lowered

    @staticmethod
    def key(shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, np.ndarray]) -> object:
        """What a plan depends on: shapes, and the elements that decide shapes."""
        return tuple(shapes.items()), tuple((n, a.shape, a.tobytes()) for n, a in known.items())

    def part(self, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, np.ndarray]) -> Part:
        """The recorded plan for these input shapes, made now if it is new."""
        key = self.key(shapes, known)
        if key in self.parts:
            self.parts.move_to_end(key)
            return self.parts[key]
        lowered = self.lower(shapes, known, 0, None)
        self.compile(lowered)
        part = self.record(lowered, None)
        self._keep(self.parts, key, part)
        return part

    def continuation(
        self, part: Part, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, np.ndarray]
    ) -> Part:
        """The part that follows one which stopped for data, now that the data is known."""
        key = self.key({}, known)
        if key in part.later:
            part.later.move_to_end(key)
            return part.later[key]
        trace = part.lowered.trace
        assert trace.stopped_at is not None
        lowered = self.lower(shapes, known, trace.stopped_at, trace.values)
        self.compile(lowered)
        following = self.record(lowered, part)
        self._keep(part.later, key, following)
        return following

    @staticmethod
    def _keep(parts: OrderedDict[object, Part], key: object, part: Part) -> None:
        parts[key] = part
        unused = [k for k, p in parts.items() if not p.users and p is not part]
        for oldest in unused[: max(0, len(parts) - KEPT_PLANS)]:
            parts.pop(oldest).release()

    def record(self, lowered: Lowered, before: Part | None) -> Part:
        """Buffers and programs for a plan; tensors of the part before keep their buffers."""
        part = Part(lowered)
        self.lowered = lowered
        if before is not None:
            part.buffers.update(before.buffers)
            part.home.update(before.home)
            part.inputs.update(before.inputs)
        else:
            self._input_buffers(part, lowered)
        for segment in lowered.segments:
            part.stages.append(self._stage(part, segment))
        return part

    def _input_buffers(self, part: Part, lowered: Lowered) -> None:
        """A buffer for each input at each place that reads it; an input that nothing reads has one too."""
        wanted = {o.name for o in self.model.outputs}
        for item in self.model.inputs:
            value = lowered.trace.values[item.name]
            places: list[Place] = [s.place for s in lowered.segments if item.name in s.imports]
            if (
                not places
                and lowered.trace.stopped_at is None
                and not any(lowered.trace.values[n].root.name == item.name for n in wanted)
            ):
                part.inputs[item.name] = []
                continue
            part.inputs[item.name] = []
            if not places:
                places.append("native")
            for place in dict.fromkeys(places):
                buffer = self._buffer(part, place, value.name, value.size, value.dtype)
                part.inputs[item.name].append((place, buffer))
            part.home[item.name] = part.inputs[item.name][0][0]

    def _buffer(self, part: Part, place: Place, name: str, elements: int, dtype: np.dtype) -> DeviceBuffer:
        buffer = self.backends[place].create(max(elements, 1), dtype)
        part.buffers[place, name] = buffer
        part.owned.append(buffer)
        return buffer

    def _stage(self, part: Part, segment: Segment) -> Stage:
        place, plan = segment.place, segment.plan
        moves = []
        bound: dict[str, DeviceBuffer] = {}
        for name, spec in plan.buffers.items():
            if spec.role == "constant":
                bound[name] = self._constant(place, name, plan, part)
            elif spec.role == "input":
                if (place, name) not in part.buffers:
                    source = part.buffers[part.home[name], name]
                    target = self._buffer(part, place, name, spec.elements, spec.dtype)
                    moves.append((name, source, target))
                bound[name] = part.buffers[place, name]
            elif spec.role == "output":
                bound[name] = self._buffer(part, place, name, spec.elements, spec.dtype)
                part.home[name] = place
        program = self.backends[place].record(plan, bound)
        return Stage(place, program, tuple(moves))

    def _constant(self, place: Place, name: str, plan: Plan, part: Part) -> DeviceBuffer:
        array = plan.constants[name]
        held = self.constants.get((place, name))
        if held is not None and held[0] is array:
            return held[1]
        backend = self.backends[place]
        if backend.name in INT32_BACKENDS:
            check_int32(array, f"the constant '{name}' of model '{self.model.name}'", backend.name)
        buffer = backend.create(max(array.size, 1), array.dtype, array if array.size else None)
        if name in self.model.constants or name in self.planner.packed:
            self.constants[place, name] = (array, buffer)
        else:
            part.owned.append(buffer)
        return buffer

    def release(self) -> None:
        """Free everything."""
        for part in self.parts.values():
            part.release()
        self.parts.clear()
        for _, buffer in self.constants.values():
            buffer.release()
        self.constants.clear()
        for backend in self.backends.values():
            backend.dispose()
