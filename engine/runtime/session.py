"""A model bound to backends: plans by input shapes, their recorded programs, buffers and constants.

`Session` is what a `Worker` owns; `Part` is one recorded stretch of a model, `Run` one schedule on its
way. A run is a list of stages; those that wait for data (a transfer between backends, a size that
depends on data) make it a continuation, which `Run.advance` takes up again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Progress
from engine.base import instrumentation
from engine.base.errors import EngineError, OutOfMemoryError, ShapeError, UnsupportedLayerError
from engine.base.lifetime import drop_aside
from engine.base.memory.out_of_memory import LARGE, MOST_BYTES, naming_shortage, shortage
from engine.base.memory.parallel import made_ahead
from engine.base.memory.pool import Pool
from engine.compiler.guesses import Guesses
from engine.compiler.lower import Lowered, Place, Planner, Segment
from engine.compiler.passes import applied
from engine.compiler.plan import AnyKernel, Packed, Plan, StoredKernel
from engine.compiler.trace import SAMPLES, InputShapes
from engine.compiler.walk import Elements
from engine.graph.model import Layer, Model
from engine.kernels.value import Value, leaves
from engine.runtime.integer_checks import INT32_BACKENDS, check_int32
from engine.runtime.open_plans import MOST_PLANS, OpenSizes, SizedPlan, plan_for_all_sizes
from engine.runtime.plan_store.plans import StoredModel, plan_file, stored_facts
from engine.runtime.segments import Part, Stage

T = TypeVar("T")

KEPT_PLANS = 16
"""How many sets of input shapes keep their recorded plans, whatever they take; the least recently used goes
first. Those in use stay, however many they are."""

KEPT_BYTES = 64 << 20
"""Memory of their own in which plans beyond those are kept: a cache that grows with every schedule has many
lengths, and meets them all again.
"""

KEPT_CONTINUATIONS = 256
"""The same for all that follows stops for data: a plan that stops often, with other data each time, branches
more with every stop.
"""

DROPPED_AT_ONCE = 1 << 18
"""Elements of constants that are dropped at once when a worker goes; more take their time beside the game."""

MOST_DECIDED = 4
"""Plans for all sizes that other elements of inputs decided, from which on there are no more."""

HOST_INPUT_LIMIT = 4096
"""Largest input, in elements, whose value may shape a plan (axes, sizes, pads: a handful of integers)."""


class Session:
    """Plans and memory of one model on one backend, with the CPU beside it for layers that fall back."""

    def __init__(self, model: Model, native: Backend, cpu: Backend | None, allow_fallback: bool) -> None:
        self.source = model
        self.allow_fallback = allow_fallback
        self.backends: dict[Place, Backend] = {"native": native}
        if cpu is not None:
            self.backends["cpu"] = cpu
        self.packed: dict[str, Packed] = {}
        stays = native.name == "cpu"
        self.pool = Pool(sum(array.nbytes for array in model.constants.values()) if stays else 0)
        self.file = plan_file(model, native)
        self.stored = None if self.file is None else self.file.read
        self.host_inputs = self._host_inputs() if self.stored is None else self.stored.host_inputs
        self.is_random = self.planner.tracer.is_random if self.stored is None else self.stored.is_random
        self.constants: dict[tuple[Place, str], tuple[np.ndarray | None, DeviceBuffer]] = {}
        # Inputs and outputs of plans for other shapes lie in the same memory: runs follow each other.
        self.rooms: dict[tuple[Place, str], DeviceBuffer] = {}
        self.parts: OrderedDict[object, Part] = OrderedDict()
        # Every part that follows a stop, the least recently used first, and where it is kept.
        self.later: OrderedDict[Part, tuple[OrderedDict[object, Part], object]] = OrderedDict()
        # Parts whose kernels are being compiled: the part before, and what to call once they are there.
        self._unrecorded: WeakKeyDictionary[Part, tuple[Part | None, Callable[[], None] | None]]
        self._unrecorded = WeakKeyDictionary()
        self._outlook: list[Lowered] = []
        self.open_sizes = OpenSizes(model)
        # Plans for all sizes, the last one used first; and those whose kernels are still being compiled.
        self.sized: list[SizedPlan] = []
        self._waiting: list[SizedPlan] = []
        self.background: Callable[[], object] | None = None
        """Ends what a thread is doing here."""

    @cached_property
    def model(self) -> Model:
        """The model as the backend wants it."""
        model = self.source
        with naming_shortage(f"preparing model '{model.name}'"):
            for step in self.backends["native"].passes:
                model = applied(step, model)
        return model

    @cached_property
    def planner(self) -> Planner:
        """Makes plans; a model whose plans are all read from disk needs none."""
        return Planner(self.model, self.backends["native"], self.backends.get("cpu"), self.packed, self.pool)

    def _host_inputs(self) -> frozenset[str]:
        """Inputs whose values decide a plan.

        Those that a layer reads on the host, and integers from which such an input is computed.
        """
        needed: set[str] = set()
        direct: set[str] = set()
        for layer in reversed(self.model.layers):
            direct.update(self._read_on_host(layer))
            needed.update(direct)
            if layer.op_type not in ("Shape", "Size") and needed.intersection(layer.outputs):
                needed.update(layer.dependencies)
        names = (
            i.name
            for i in self.model.inputs
            if i.dtype == object
            or i.kind == "map"
            or i.name in direct
            or (i.name in needed and i.dtype.kind in "iub")
        )
        return frozenset(names)

    def _read_on_host(self, layer: Layer) -> set[str]:
        """Names whose elements a layer reads on the host, itself or in a subgraph of its own."""
        operator = self.planner.tracer.operator_of(layer)
        found = {layer.inputs[i] for i in operator.host_positions(layer)} - {""}
        for body in layer.subgraphs:
            inside: set[str] = set()
            for inner in reversed(body.layers):
                inside |= self._read_on_host(inner)
                if inside.intersection(inner.outputs):
                    inside.update(inner.dependencies)
            # What the body calls its inputs may be any of the layer's.
            if inside.intersection(item.name for item in body.inputs):
                found.update(n for n in layer.inputs if n)
            found |= inside
        return found

    # Making parts

    def prepare(self, progress: Progress | None = None) -> int:
        """Compile every kernel that the model's symbolic shapes can reach; returns how many were compiled."""
        compiled, plans = self.prepare_plans(progress)
        for key, lowered in plans:
            self.parts[key] = self.record(lowered, None)
        return compiled

    def prepare_plans(self, progress: Progress | None = None) -> tuple[int, list[tuple[object, Lowered]]]:
        """What of `prepare` any thread may do: how many kernels were compiled, and the plans to record."""
        if (plans := self._restored()) is not None:
            if progress is not None and self.stored is not None:
                progress(len(self.stored.kernels), len(self.stored.kernels))
            return 0, plans
        compiled, plans = 0, []
        kernels: list[AnyKernel] = []
        for shapes, lowered in self._likely():
            compiled += self.compile(lowered, progress)
            self._outlook = self._outlook or [lowered]
            compiled += self._prepare_further(lowered, progress)
            kernels += _kernels_of(lowered)
            if not self.planner.tracer.is_dynamic and lowered.trace.stop is None:
                self._store(kernels, self.key(shapes, {}), lowered)
                plans.append((self.key(shapes, {}), lowered))
            elif lowered.trace.stop is not None:
                self.file = None
        if self.planner.tracer.is_dynamic:
            others = self._kernels_of_others()
            compiled += self.backends["native"].prepare(others, progress)
            self._store([*kernels, *others])
        return compiled, plans

    def _kernels_of_others(self) -> list[AnyKernel]:
        """The kernels of plans for other sizes than the likely ones.

        Those of plans for all sizes, if there are such; else, where the backend chooses by size, of some.
        """
        kernels: list[AnyKernel] = []
        tracer, native = self.planner.tracer, self.backends["native"]
        is_open = native.has_templates and not self.host_inputs
        # Plans for the representatives were made before.
        likely, others = tracer.representatives() if is_open else [], tracer.others()
        for shapes in [*likely, *others]:
            # What the model cannot take at such sizes is no reason to refuse it.
            with suppress(EngineError):
                if self._is_open_at(shapes, {}):
                    continue
                if (made := plan_for_all_sizes(self, shapes, {})) is not None:
                    self._add_open(made, {})
                    kernels += _kernels_of(made.lowered)
                elif native.chooses_by_size and shapes in others:
                    kernels += _kernels_of(self.lower(shapes, {}))
        return kernels

    def _is_open_at(self, shapes: InputShapes, known: Elements) -> bool:
        """Whether a plan for all sizes takes these, once its kernels are compiled."""
        sizes, decided = self.open_sizes.of(shapes), self.key({}, known)
        return sizes is not None and any(p.decided == decided and p.takes(sizes) for p in self._waiting)

    def _add_open(self, made: SizedPlan, known: Elements) -> None:
        made.decided = self.key({}, known)
        self._waiting.append(made)

    def _restored(self) -> list[tuple[object, Lowered]] | None:
        """The plans that a file holds of this model, if its kernels are still there."""
        stored, native = self.stored, self.backends["native"]
        if stored is None or not native.prepare_stored(stored.words):
            self.stored = None
            return None
        for lowered in stored.plans.values():
            for segment in lowered.segments:
                self.packed.update(segment.plan.packed)
        return list(stored.plans.items())

    def _store(
        self, kernels: Sequence[AnyKernel], key: object = None, lowered: Lowered | None = None
    ) -> None:
        """Write a file, for the next time that this model is loaded."""
        if self.file is None:
            return
        plans = {} if lowered is None else {key: lowered}
        used = {name for p in plans.values() for s in p.segments for name in s.plan.constants}
        lasting = frozenset(used & self.planner.tracer.constant_names)
        self.stored = StoredModel(self.host_inputs, self.is_random, stored_facts(kernels), plans, lasting)
        self.file.write(self.stored, self.model)

    def _likely(self) -> Iterator[tuple[InputShapes, Lowered]]:
        """Plans for the model's input shapes, or for some that stand for all that it can take.

        Sizes that are only guessed are no reason to refuse a model: those that fail are left out.
        """
        for shapes in self.planner.tracer.representatives():
            try:
                lowered = self.lower(shapes, {})
            except (ShapeError, OutOfMemoryError) as error:
                if not self.planner.tracer.is_dynamic:
                    raise
                self.planner.tracer.refusal = str(error)
            else:
                yield shapes, lowered

    @property
    def outlook(self) -> list[Lowered]:
        """How the model may be planned: up to its end, or stop by stop."""
        if not self._outlook:
            self._outlook = [lowered for _, lowered in islice(self._likely(), 1)]
        return self._outlook

    @property
    def unprepared(self) -> str:
        """Why nothing was prepared when the session was made, '' where something was."""
        return "" if self._outlook or "planner" not in self.__dict__ else self.planner.tracer.refusal

    def _prepare_further(self, lowered: Lowered, progress: Progress | None) -> int:
        """Compile what comes after the plan's stops for data, as far as that can be guessed."""
        compiled = 0
        for condition in (True, False):
            guesses, going = Guesses(SAMPLES[-1], condition), lowered
            try:
                while (stop := going.trace.stop) is not None and (answer := guesses.answer(stop)) is not None:
                    going = self._allowed(self.planner.resume(going.trace, answer, None))
                    compiled += self.compile(going, progress)
                    if condition and self._outlook[0] is lowered:
                        self._outlook.append(going)
            except (ShapeError, OutOfMemoryError):
                pass  # a guess that the model cannot take
            if not guesses.conditions:
                break
        return compiled

    def compile(self, lowered: Lowered, progress: Progress | None = None) -> int:
        """Have the backends compile the kernels of a plan."""
        with instrumentation.spanning("compile", model=self.source) as facts:
            facts["compiled"] = compiled = sum(
                backend.prepare(kernels, progress)
                for place, backend in self.backends.items()
                if (kernels := _kernels_of(lowered, place))
            )
        return compiled

    def lower(
        self,
        shapes: InputShapes,
        known: Elements,
    ) -> Lowered:
        """Plan the model, up to its end or to where it stops for data."""
        with naming_shortage(f"a plan of model '{self.source.name}'"):
            return self._allowed(self.planner.lower(shapes, known))

    def _allowed(self, lowered: Lowered) -> Lowered:
        """Refuse fallbacks where they are not allowed."""
        if lowered.fallbacks and ("cpu" not in self.backends or not self.allow_fallback):
            reasons = "; ".join(f"layer '{f.layer}' ({f.op_type}): {f.reason}" for f in lowered.fallbacks[:8])
            raise UnsupportedLayerError(
                f"{self.backends['native'].name} cannot run {len(lowered.fallbacks)} step(s) of model "
                f"'{self.source.name}': {reasons}. allow_fallback=True runs them on the CPU"
            )
        return lowered

    @staticmethod
    def key(shapes: InputShapes, known: Elements) -> object:
        """What a plan depends on: shapes, and the elements that decide shapes."""
        return tuple(shapes.items()), tuple((n, a.shape, digest(a)) for n, a in known.items())

    def part(self, shapes: InputShapes, known: Elements) -> Part:
        """The recorded plan for these input shapes, made now if it is new."""
        key = self.key(shapes, known)
        if key in self.parts:
            self.parts.move_to_end(key)
            return self.parts[key]
        with instrumentation.spanning("plan", model=self.source):
            part = self._sized_part(shapes, known)
            if part is None:
                return self._new_part(key, shapes, known)
            self.keep(key, part)
            return part

    def _sized_part(self, shapes: InputShapes, known: Elements) -> Part | None:
        """What a plan for all sizes is for these; None where none takes them."""
        sizes = self.open_sizes.of(shapes) if self.sized else None
        if sizes is None:
            return None
        decided = self.key({}, known)
        for position, sized in enumerate(self.sized):
            if sized.decided != decided:
                continue
            try:
                part = sized.part(self, sizes)
            except BaseException:
                # Where constants found no room, some of them are missing from now on.
                self.sized.remove(sized)
                sized.release()
                raise
            if part is not None:
                if position:
                    self.sized.insert(0, self.sized.pop(position))
                return part
        return None

    def _new_part(self, key: object, shapes: InputShapes, known: Elements) -> Part:
        self.finish_background()
        if key in self.parts:
            return self.parts[key]
        # The first plan that is wanted is stored, for which it has to be made for these sizes.
        is_stored = self.file is None or self.stored is None
        if (
            is_stored
            and self._open_plan(shapes, known)
            and (found := self._sized_part(shapes, known)) is not None
        ):
            self.keep(key, found)
            return found
        lowered = self.lower(shapes, known)
        part = self._begun(lowered, None, partial(self._store_plan, key, lowered, known))
        self.keep(key, part)
        return part

    def _open_plan(self, shapes: InputShapes, known: Elements) -> bool:
        """Make a plan for all sizes like these; whether there is one whose kernels are compiled."""
        decided = self.key({}, known)
        others = sum(plan.decided != decided for plan in self.sized)
        # Where other elements come with every schedule, a plan for them is used once.
        if others < MOST_DECIDED and not self._is_open_at(shapes, known):
            made = plan_for_all_sizes(self, shapes, known)
            if made is not None:
                self._add_open(made, known)
        native = self.backends["native"]
        ready = [p for p in self._waiting if native.prepare_beside(_kernels_of(p.lowered)) is None]
        self._waiting = [p for p in self._waiting if p not in ready]
        self.sized = ready + self.sized
        for old in self.sized[MOST_PLANS:]:
            old.release()
        del self.sized[MOST_PLANS:]
        return bool(ready)

    def _begun(
        self, lowered: Lowered, before: Part | None, compiled: Callable[[], None] | None = None
    ) -> Part:
        """A part, recorded if all its kernels are there; else `is_ready` does that, and calls `compiled`."""
        part = Part(lowered)
        loads = (
            backend.prepare_beside(kernels)
            for place, backend in self.backends.items()
            if (kernels := _kernels_of(lowered, place))
        )
        part.compiling = tuple(load for load in loads if load is not None)
        self._unrecorded[part] = before, compiled
        if not part.compiling:
            self.is_ready(part, wait=False)
        return part

    def is_ready(self, part: Part, wait: bool) -> bool:
        """Whether a part is recorded, which is done here once its kernels are compiled; `wait` blocks."""
        if part not in self._unrecorded:
            return True
        if not wait and not all(load.done() for load in part.compiling):
            return False
        before, compiled = self._unrecorded[part]
        for load in part.compiling:
            load.result()
        self.compile(part.lowered)
        if compiled is not None:
            compiled()
        finish(self._recorded(part, before))
        part.compiling = ()
        del self._unrecorded[part]
        return True

    def finish_background(self) -> None:
        """Wait for a thread that is making a plan: two do not at a time."""
        if self.background is not None:
            self.background()

    def planned(self, key: object, shapes: InputShapes, known: Elements) -> Lowered:
        """A plan for these input shapes, its kernels compiled; what of `part` any thread may do."""
        lowered = self.lower(shapes, known)
        self.compile(lowered)
        self._store_plan(key, lowered, known)
        return lowered

    def _store_plan(self, key: object, lowered: Lowered, known: Elements) -> None:
        """Write the first plan that was wanted."""
        if lowered.trace.stop is None and not known and self.stored is not None:
            # The shapes that come first are likely to be those that come first the next time.
            before = [StoredKernel(*kernel, nanoseconds=0.0) for kernel in self.stored.kernels]
            self._store([*before, *_kernels_of(lowered)], key, lowered)
            self.file = None

    def keep(self, key: object, part: Part) -> None:
        """Have a recorded plan serve `part` from now on."""
        self._keep(self.parts, key, part)

    def continuation(self, part: Part, known: Elements, results: Sequence[Any] | None = None) -> Part:
        """The part that follows one which stopped for data, now that the data is known.

        Where it stopped for a NumPy function, `results` are what that has yielded; their shapes decide.
        """
        key: object = self.key({}, known) if results is None else tuple(map(_facts, results))
        if key in part.later:
            part.later.move_to_end(key)
            self.later.move_to_end(part.later[key])
            return part.later[key]
        self.finish_background()
        with naming_shortage(f"a plan of model '{self.source.name}'"):
            lowered = self._allowed(self.planner.resume(part.lowered.trace, known, results))
        following = self._begun(lowered, part)
        self.later[following] = part.later, key
        self._keep(part.later, key, following)
        unused = [p for p in self.later if not p.users and p is not following]
        for oldest in unused[: max(0, len(self.later) - KEPT_CONTINUATIONS)]:
            if oldest in self.later:
                self._drop(*self.later[oldest])
        return following

    def _keep(self, parts: OrderedDict[object, Part], key: object, part: Part) -> None:
        parts[key] = part
        if len(parts) <= KEPT_PLANS:
            return
        total = sum(p.nbytes for p in parts.values())
        unused = [(k, p) for k, p in parts.items() if not p.users and p is not part]
        for oldest, other in unused[: len(parts) - KEPT_PLANS]:
            if total <= KEPT_BYTES:
                break
            total -= other.nbytes
            self._drop(parts, oldest)

    def _drop(self, parts: OrderedDict[object, Part], key: object) -> None:
        """Release a part that no run uses, and what follows it."""
        # With a list of its own: a loop that data ends is a chain of as many parts as it had stops.
        dropped = [parts.pop(key)]
        while dropped:
            part = dropped.pop()
            self._unrecorded.pop(part, None)
            dropped += part.later.values()
            part.later.clear()
            self.later.pop(part, None)
            part.release()

    def record(self, lowered: Lowered, before: Part | None) -> Part:
        """Buffers and programs for a plan; tensors of the part before keep their buffers."""
        return finish(self.recording(lowered, before))

    def recording(self, lowered: Lowered, before: Part | None) -> Generator[None, None, Part]:
        """`record` in small parts, between which the caller may do something else."""
        part = Part(lowered)
        yield from self._recorded(part, before)
        return part

    def _recorded(self, part: Part, before: Part | None) -> Generator[None, None, None]:
        try:
            with naming_shortage(f"a plan of model '{self.source.name}'"):
                yield from self._recording(part, before)
        except BaseException:
            part.release()
            part.stages.clear()
            part.owned.clear()
            raise

    def _recording(self, part: Part, before: Part | None) -> Generator[None, None, None]:
        lowered = part.lowered
        if before is not None:
            part.buffers.update(before.buffers)
            part.home.update(before.home)
            self._input_buffers(part, lowered, lowered.trace.received)
        else:
            trace = lowered.trace
            given = [*(v for item in self.source.inputs for v in leaves(trace.values[item.name]))]
            if self.is_random:
                given.append(self.planner.tracer.count)
            self._input_buffers(part, lowered, given)
        yield
        for segment in lowered.segments:
            part.stages.append((yield from self._stage(part, segment)))
        lowered.trace.settle()

    def _input_buffers(self, part: Part, lowered: Lowered, given: Sequence[Value]) -> None:
        """A buffer for each tensor that comes in, at each place that reads it, or where it is kept for later.

        One that nothing reads has none.
        """
        kept = {v.root.name for v in lowered.trace.kept}
        if lowered.trace.stop is not None:
            kept.add(self.planner.tracer.count.name)
        for value in given:
            places: list[Place] = [s.place for s in lowered.segments if value.name in s.imports]
            part.inputs[value.name] = []
            if value.dtype == object:
                continue
            if not places and value.name in kept:
                places.append("native" if self.backends["native"].holds(value.dtype) else "cpu")
            for place in dict.fromkeys(places):
                buffer = self.buffer_of(part, place, value.name, value.size, value.dtype)
                part.inputs[value.name].append((place, buffer))
            if places:
                part.home[value.name] = part.inputs[value.name][0][0]

    def extra_inputs(self) -> Sequence[Value]:
        """What comes in beside the model's inputs: the number of schedules, for random operators."""
        return [self.planner.tracer.count] if self.is_random else []

    def buffer_of(self, part: Part, place: Place, name: str, elements: int, dtype: np.dtype) -> DeviceBuffer:
        backend, elements = self.backends[place], max(elements, 1)
        room = self.rooms.get((place, name))
        buffer = None if room is None else backend.share(room, elements)
        if buffer is None:
            with self._room_for(backend, name, elements, dtype):
                buffer = self._new_buffer(part, backend, (place, name), elements, dtype)
        part.buffers[place, name] = buffer
        part.owned.append(buffer)
        return buffer

    @contextmanager
    def _room_for(self, backend: Backend, name: str, elements: int, dtype: np.dtype) -> Iterator[None]:
        """A block that makes room for a tensor. Raises `OutOfMemoryError` with its name if there is none."""
        try:
            if elements * dtype.itemsize > MOST_BYTES:
                raise MemoryError("no computer has as much")
            yield
            if elements * dtype.itemsize >= LARGE:
                backend.check_memory()
        except (MemoryError, OutOfMemoryError) as error:
            raise shortage(name, (elements,), dtype, backend.name, error) from error

    def _new_buffer(
        self, part: Part, backend: Backend, key: tuple[Place, str], elements: int, dtype: np.dtype
    ) -> DeviceBuffer:
        """A buffer of a part, in memory that plans for other shapes may share."""
        if backend.shares:
            # What has grown once is likely to grow on.
            room = backend.create(elements + (elements // 2 if key in self.rooms else 0), dtype)
            if key in self.rooms:
                # Plans that use it hold its memory.
                self.rooms[key].release()
            self.rooms[key] = room
            shared = backend.share(room, elements)
            assert shared is not None
            return shared
        part.nbytes += elements * dtype.itemsize
        return backend.create(elements, dtype)

    def _stage(self, part: Part, segment: Segment) -> Generator[None, None, Stage]:
        place, plan = segment.place, segment.plan
        moves = []
        bound: dict[str, DeviceBuffer] = {}
        with self._packing(place, plan) as take:
            for name, spec in plan.buffers.items():
                if spec.role == "constant":
                    bound[name] = self._constant(place, name, plan, part, take)
                    yield
        for name, spec in plan.buffers.items():
            if spec.role == "input":
                if (place, name) not in part.buffers:
                    source = part.buffers[part.home[name], name]
                    target = self.buffer_of(part, place, name, spec.elements, spec.dtype)
                    moves.append((name, source, target))
                bound[name] = part.buffers[place, name]
            elif spec.role == "output":
                bound[name] = self.buffer_of(part, place, name, spec.elements, spec.dtype)
                part.home[name] = place
        own = [(spec.elements, name) for name, spec in plan.buffers.items() if spec.role == "temporary"]
        elements, largest = max(own, default=(0, ""))
        dtype = plan.buffers[largest].dtype if own else np.dtype(np.float32)
        backend = self.backends[place]
        with self._room_for(backend, largest, elements, dtype):
            program = yield from backend.recording(plan, bound)
        return Stage(place, program, lambda: plan, tuple(moves))

    def bound_constants(self, part: Part, segment: Segment) -> dict[str, DeviceBuffer]:
        """The buffers of a segment's constants; those that belong to no other plan are the part's."""
        place, plan = segment.place, segment.plan
        names = [name for name, spec in plan.buffers.items() if spec.role == "constant"]
        with self._packing(place, plan) as take:
            return {name: self._constant(place, name, plan, part, take) for name in names}

    def _packing(self, place: Place, plan: Plan) -> AbstractContextManager[Callable[[str], np.ndarray]]:
        """A block in which the elements of packed constants are made ahead, where they are wanted."""

        def maker(packed: Packed) -> Callable[[], np.ndarray]:
            def make() -> np.ndarray:
                with self.pool.open():
                    return packed.elements()

            return make

        return made_ahead(
            {
                name: (maker(packed), packed.size * packed.dtype.itemsize)
                for name, packed in plan.packed.items()
                if name in plan.buffers and (place, name) not in self.constants
            }
        )

    def _constant(
        self, place: Place, name: str, plan: Plan, part: Part, take: Callable[[str], np.ndarray]
    ) -> DeviceBuffer:
        """The buffer of a constant; what belongs to the model, or is packed of it, has one for all plans.

        The plan lets go of the elements, and nobody else holds what is packed once it lies in a buffer.
        """
        packed = plan.packed.pop(name, None)
        held = self.constants.get((place, name))
        if packed is not None:
            if held is None:
                held = self.constants[place, name] = (None, self._filled(place, name, take(name)))
            packed.drop()
            return held[1]
        array = plan.constants.pop(name)
        if held is not None and held[0] is array:
            return held[1]
        buffer = self._filled(place, name, array)
        if name in self._lasting():
            self.constants[place, name] = (array, buffer)
        else:
            part.owned.append(buffer)
        return buffer

    def _lasting(self) -> AbstractSet[str]:
        """Names of constants that belong to the model, as far as plans were made."""
        if "planner" in self.__dict__ or self.stored is None:
            return self.planner.tracer.constant_names
        return self.stored.lasting

    def _filled(self, place: Place, name: str, array: np.ndarray) -> DeviceBuffer:
        backend = self.backends[place]
        if backend.name in INT32_BACKENDS:
            check_int32(array, f"the constant '{name}' of model '{self.source.name}'", backend.name)
        with self._room_for(backend, name, array.size, array.dtype):
            return backend.constant(array) if array.size else backend.create(1, array.dtype)

    def release(self) -> None:
        """Free everything."""
        self.finish_background()
        for key in [*self.parts]:
            self._drop(self.parts, key)
        for sized in self.sized:
            sized.release()
        self.sized.clear()
        for place, backend in self.backends.items():
            backend.let_go([buffer for (at, _), (_, buffer) in self.constants.items() if at == place])
        constants = [*self.constants.values()]
        self.constants.clear()
        if sum(buffer.elements for _, buffer in constants) > DROPPED_AT_ONCE:
            drop_aside(constants)
        for room in self.rooms.values():
            room.release()
        self.rooms.clear()
        for backend in self.backends.values():
            backend.dispose()


def finish(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end; what it returns."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: T = end.value
        return found


def _kernels_of(lowered: Lowered, place: Place = "native") -> list[AnyKernel]:
    return [step.kernel for s in lowered.segments if s.place == place for step in s.plan.steps]


def digest(array: np.ndarray) -> object:
    """The elements as a part of a key."""
    return tuple(array.reshape(-1)) if array.dtype == object else array.tobytes()


def _facts(result: Any) -> object:
    """What a plan depends on of something that a NumPy function yielded: shapes, and strings themselves."""
    if isinstance(result, list):
        return tuple(map(_facts, result))
    if result is None:
        return None
    array = np.asarray(result)
    return array.shape, array.dtype.name, digest(array) if array.dtype == object else None
