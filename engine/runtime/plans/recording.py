"""Recording: turns lowered plans into programs and buffers, and holds the buffers that plans share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeAlias

import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.gpu.integers import check_integers
from engine.base.errors import OutOfMemoryError
from engine.base.generators import Offload, SmallSteps
from engine.base.lifetime import free_in_background
from engine.base.memory.out_of_memory import LARGE, MOST_BYTES, naming_out_of_memory, out_of_memory
from engine.base.memory.parallel import prefetched
from engine.base.memory.pool import Pool
from engine.compiler.lower import Place, Segment
from engine.compiler.plan import BufferSpec, Packed, Plan
from engine.graph.model import Model
from engine.kernels.value import Value
from engine.runtime.plans.recorded_plan import RecordedPlan, Submission, Transfers
from engine.runtime.plans.shared_memory import LEAST_TOUCHED, MemoryRequirement, SharedBuffer, allocating

_AT_ONCE = 1 << 20
"""Bytes of constants that are bound in one step."""

_RESERVED = 1 << 22
"""Bytes of inputs, and of outputs, that are allocated for symbolic sizes before the first schedule, at
most."""

DROPPED_AT_ONCE = 1 << 18
"""Elements of constants that are freed at once with a worker; more are freed in the background."""


Places: TypeAlias = "tuple[Place, ...]"
"""The backends that hold an input."""


class Recorder:
    """Records plans of one model: binds constants, allocates buffers, and builds the backends' programs.

    Args:
        model: The model; its name is used in messages.
        backends: The backends by place.
        pool: Memory from which packed weights are made.
        lasting: Returns the names of the model's own constants, which keep one buffer for all plans.
    """

    def __init__(
        self,
        model: Model,
        backends: Mapping[Place, Backend],
        pool: Pool,
        lasting: Callable[[], AbstractSet[str]],
    ) -> None:
        self._model = model
        self._backends = backends
        self._pool = pool
        self._lasting = lasting
        self.allocates_ahead = not all(backend.is_host for backend in backends.values())
        """Whether plans need memory that is worth allocating on another thread."""
        self.near: list[SharedBuffer] = []
        """Memory of inputs on the CPU that is to be allocated ahead, as sizes come near to what there is."""
        self.constants: dict[tuple[Place, str], tuple[np.ndarray | None, DeviceBuffer]] = {}
        # Runs follow each other, so inputs and outputs of plans for other shapes share memory.
        self.shared_buffers: dict[tuple[Place, str, np.dtype], SharedBuffer] = {}

    def recording(
        self,
        recorded: RecordedPlan,
        before: RecordedPlan | None,
        inputs: Sequence[Value],
        kept: AbstractSet[str],
    ) -> SmallSteps[None]:
        """Create a plan's buffers and programs in small steps, between which the caller may do other work.

        Args:
            recorded: The plan, which is released where this fails.
            before: The plan that it continues, whose tensors keep their buffers.
            inputs: The tensors that come in.
            kept: Names of those that are needed later even if no segment reads them.

        Raises:
            OutOfMemoryError: A buffer cannot be allocated.
        """
        segments = recorded.lowered.segments
        try:
            with naming_out_of_memory(f"a plan of model '{self._model.name}'"):
                if before is not None:
                    recorded.buffers.update(before.buffers)
                    recorded.placement.update(before.placement)
                places = self.places_of(inputs, segments, kept)
                needs = self.needs_of_inputs(inputs, places)
                for segment in segments:
                    needs += self.needs_of_outer(segment.place, segment.plan.buffers.values(), before)
                yield from allocating(needs)
                self.input_buffers(recorded, inputs, places)
                yield None
                for segment in segments:
                    recorded.submissions.append((yield from self._submission(recorded, segment)))
                recorded.lowered.trace.settle()
        except BaseException:
            recorded.release()
            recorded.submissions.clear()
            recorded.owned.clear()
            raise

    def input_buffers(
        self, recorded: RecordedPlan, inputs: Sequence[Value], places: Sequence[Places]
    ) -> None:
        """Create a buffer for each input on each backend that holds it."""
        for value, where in zip(inputs, places, strict=True):
            name = value.name
            recorded.inputs[name] = [
                (place, self.buffer_of(recorded, place, name, value.size, value.dtype, is_input=True))
                for place in where
            ]
            if where:
                recorded.placement[name] = where[0]

    def places_of(
        self, inputs: Sequence[Value], segments: Sequence[Segment], kept: AbstractSet[str]
    ) -> list[Places]:
        """The backends that hold each input: those whose segments read it, or keep it for later."""
        return [self._places_of(value, segments, kept) for value in inputs]

    def _places_of(self, value: Value, segments: Sequence[Segment], kept: AbstractSet[str]) -> Places:
        if value.dtype == object:
            return ()
        places: list[Place] = [s.place for s in segments if value.name in s.imports]
        if not places and value.name in kept:
            places.append("native" if self._backends["native"].holds(value.dtype) else "cpu")
        return tuple(dict.fromkeys(places))

    def needs_of_inputs(self, inputs: Sequence[Value], places: Sequence[Places]) -> list[MemoryRequirement]:
        """The shared memory that `input_buffers` takes."""
        return [
            need
            for value, where in zip(inputs, places, strict=True)
            for place in where
            for need in self._needs_of(place, value.name, value.size, value.dtype, is_input=True)
        ]

    def _needs_of(
        self, place: Place, name: str, elements: int, dtype: np.dtype, is_input: bool
    ) -> list[MemoryRequirement]:
        """The shared memory that the buffer of an input or output takes."""
        backend, elements = self._backends[place], max(elements, 1)
        if backend.is_host or not backend.shares:
            return []
        naming = partial(self._allocating, backend, name, elements, dtype)
        return [
            MemoryRequirement(backend, [(self.shared_buffer(place, name, dtype, is_input), elements)], naming)
        ]

    def needs_of_outer(
        self, place: Place, specs: Iterable[BufferSpec], before: RecordedPlan | None
    ) -> list[MemoryRequirement]:
        """The shared memory of a segment's inputs and outputs, except for those in `before`."""
        held = () if before is None else before.buffers
        return [
            need
            for spec in specs
            if spec.role in ("input", "output") and (place, spec.name) not in held
            for need in self._needs_of(place, spec.name, spec.elements, spec.dtype, spec.role == "input")
        ]

    def buffer_of(
        self,
        recorded: RecordedPlan,
        place: Place,
        name: str,
        elements: int,
        dtype: np.dtype,
        *,
        is_input: bool,
    ) -> DeviceBuffer:
        """A buffer for a plan's input or output. Raises `OutOfMemoryError` with the tensor's name."""
        backend = self._backends[place]
        if backend.shares:
            shared = self.shared_buffer(place, name, dtype, is_input)
            return self.share(recorded, place, name, shared, elements)
        elements = max(elements, 1)
        with self._allocating(backend, name, elements, dtype):
            buffer = backend.create(elements, dtype)
        recorded.buffers[place, name] = buffer
        recorded.owned.append(buffer)
        return buffer

    def share(
        self, recorded: RecordedPlan, place: Place, name: str, shared: SharedBuffer, elements: int
    ) -> DeviceBuffer:
        """A buffer for a plan's input or output in memory that plans for other shapes use, too."""
        elements = elements or 1
        if not shared.fits(elements):
            with self._allocating(shared.backend, name, elements, shared.dtype):
                shared.reserve(elements)
        assert shared.memory is not None
        buffer = shared.backend.share(shared.memory, elements)
        assert buffer is not None
        self.shared(recorded, place, name, shared, buffer)
        return buffer

    def shared(
        self, recorded: RecordedPlan, place: Place, name: str, shared: SharedBuffer, buffer: DeviceBuffer
    ) -> None:
        """Assign a plan a buffer in shared memory for an input or output, and record its size."""
        self.note(shared, buffer.elements)
        recorded.buffers[place, name] = buffer
        recorded.owned.append(buffer)

    def note(self, shared: SharedBuffer, elements: int) -> None:
        """Record the size of a plan's buffer in such memory, if nothing else does."""
        if shared.is_noted:
            shared.record_use(elements)
            if shared.needs_growth(elements):
                self.near.append(shared)

    @contextmanager
    def _allocating(self, backend: Backend, name: str, elements: int, dtype: np.dtype) -> Iterator[None]:
        """A block that allocates a tensor. Raises `OutOfMemoryError` with the tensor's name."""
        try:
            if elements * dtype.itemsize > MOST_BYTES:
                raise MemoryError("no computer has as much")
            yield
            if elements * dtype.itemsize >= LARGE:
                backend.check_memory()
        except (MemoryError, OutOfMemoryError) as error:
            raise out_of_memory(name, (elements,), dtype, backend.name, error) from error

    @contextmanager
    def allocating_temporaries(self, backend: Backend, make_plan: Callable[[], Plan]) -> Iterator[None]:
        """Context manager: allocates temporaries. Raises `OutOfMemoryError` with the largest one's name."""
        try:
            yield
        except (MemoryError, OutOfMemoryError) as error:
            spec = _largest_temporary(make_plan())
            raise out_of_memory(spec.name, (spec.elements,), spec.dtype, backend.name, error) from error

    def shared_buffer(self, place: Place, name: str, dtype: np.dtype, is_input: bool) -> SharedBuffer:
        """Memory for an input or output, which plans for other shapes share."""
        key = (place, name, dtype)
        found = self.shared_buffers.get(key)
        if found is None:
            made = SharedBuffer(self._backends[place], dtype, is_input)
            found = self.shared_buffers.setdefault(key, made)
        return found

    def reserve(self, place: Place, specs: Sequence[BufferSpec]) -> None:
        """Allocate CPU memory of inputs and outputs before the first schedule. Callable from any thread."""
        for is_input in (True, False):
            wanted = [spec for spec in specs if spec.role == ("input" if is_input else "output")]
            sizes = {spec: spec.elements * spec.dtype.itemsize for spec in wanted}
            sizes = {spec: size for spec, size in sizes.items() if size >= LEAST_TOUCHED}
            share = min(1.0, _RESERVED / max(1, sum(sizes.values())))
            for spec, size in sizes.items():
                key, elements = (place, spec.name, spec.dtype), int(share * size) // spec.dtype.itemsize
                if key not in self.shared_buffers:
                    made = SharedBuffer(self._backends[place], spec.dtype, is_input)
                    made.expect_varying_sizes()
                    made.adopt(
                        elements, made.allocate_touched(elements) if is_input else made.allocate(elements)
                    )
                    self.shared_buffers.setdefault(key, made)

    def _submission(self, recorded: RecordedPlan, segment: Segment) -> SmallSteps[Submission]:
        place, plan = segment.place, segment.plan
        bound = yield from self.binding(recorded, segment)
        outer, transfers = self.bind(recorded, place, plan.buffers.values())
        bound |= outer
        backend, largest = self._backends[place], _largest_temporary(plan)
        with self._allocating(backend, largest.name, largest.elements, largest.dtype):
            program = yield from backend.recording(plan, bound)
        return Submission(place, program, lambda: plan, transfers)

    def bind(
        self, recorded: RecordedPlan, place: Place, specs: Iterable[BufferSpec]
    ) -> tuple[dict[str, DeviceBuffer], Transfers]:
        """Buffers for a segment's inputs and outputs, and the transfers that it needs first."""
        bound: dict[str, DeviceBuffer] = {}
        transfers = []
        for spec in specs:
            name = spec.name
            if spec.role == "input":
                if (place, name) not in recorded.buffers:
                    source = recorded.buffers[recorded.placement[name], name]
                    target = self.buffer_of(recorded, place, name, spec.elements, spec.dtype, is_input=True)
                    transfers.append((name, source, target))
                bound[name] = recorded.buffers[place, name]
            elif spec.role == "output":
                bound[name] = self.buffer_of(recorded, place, name, spec.elements, spec.dtype, is_input=False)
                recorded.placement[name] = place
        return bound, tuple(transfers)

    def binding(
        self, recorded: RecordedPlan, segment: Segment, later: Collection[str] = ()
    ) -> SmallSteps[dict[str, DeviceBuffer]]:
        """Bind a segment's constants in small steps; constants of no other plan are freed with this one.

        The plan drops its references to elements, so that packed ones exist in buffers only. Packed constants
        that are bound `later` have no buffer yet, unless another plan needs them: see `packed_buffers`.
        """
        place, plan = segment.place, segment.plan
        bound: dict[str, DeviceBuffer] = {}
        missing: list[str] = []
        for name, spec in plan.buffers.items():
            if spec.role != "constant":
                continue
            held = self.constants.get((place, name))
            if held is not None and (name in plan.packed or held[0] is plan.constants[name]):
                bound[name] = held[1]
                self._drop_elements(plan, name)
            elif name in later:
                plan.packed[name].drop()
            else:
                missing.append(name)
        with self._packing(place, plan, missing) as get:
            for names in _in_groups(plan, missing):
                work = Offload(partial(self._constants_of, place, plan, names, get))
                yield work
                for name, buffer in zip(names, work.result(), strict=True):
                    bound[name] = buffer
                    if name in plan.packed or name in self._lasting():
                        # One for all plans, as it is the model's or packed from the model's.
                        self.constants[place, name] = (plan.constants.get(name), buffer)
                    else:
                        recorded.owned.append(buffer)
                    self._drop_elements(plan, name)
        return bound

    def _constants_of(
        self, place: Place, plan: Plan, names: Sequence[str], get: Callable[[str], np.ndarray]
    ) -> list[DeviceBuffer]:
        """New buffers of constants, which are packed now if they are to be."""
        packed = plan.packed
        return [self._filled(place, n, get(n) if n in packed else plan.constants[n]) for n in names]

    @staticmethod
    def _drop_elements(plan: Plan, name: str) -> None:
        packed = plan.packed.pop(name, None)
        if packed is None:
            del plan.constants[name]
        else:
            packed.drop()

    def pack(self, segment: Segment, names: Collection[str]) -> None:
        """Pack a segment's weights before binding, where any thread may create buffers."""
        place, plan = segment.place, segment.plan
        with self._packing(place, plan, names) as get:
            for name in names:
                if (place, name) not in self.constants:
                    self.constants[place, name] = (None, self._filled(place, name, get(name)))

    def packed_buffers(self, segment: Segment, names: Collection[str]) -> dict[str, DeviceBuffer]:
        """The buffers of packed weights, whose elements the plan drops."""
        for name in names:
            self._drop_elements(segment.plan, name)
        return {name: self.constants[segment.place, name][1] for name in names}

    def _packing(
        self, place: Place, plan: Plan, names: Collection[str]
    ) -> AbstractContextManager[Callable[[str], np.ndarray]]:
        """Context manager: packed constants without a buffer are prefetched on other threads."""

        def maker(packed: Packed) -> Callable[[], np.ndarray]:
            def make() -> np.ndarray:
                with self._pool.open():
                    return packed.elements()

            return make

        return prefetched(
            {
                name: (maker(packed), packed.size * packed.dtype.itemsize)
                for name, packed in plan.packed.items()
                if name in plan.buffers and name in names and (place, name) not in self.constants
            }
        )

    def _filled(self, place: Place, name: str, array: np.ndarray) -> DeviceBuffer:
        backend = self._backends[place]
        if not backend.keeps_int64:
            check_integers(array, f"the constant '{name}' of model '{self._model.name}'", backend.name)
        with self._allocating(backend, name, array.size, array.dtype):
            return backend.constant(array) if array.size else backend.create(1, array.dtype)

    def release(self) -> None:
        """Free constants and shared buffers."""
        for place, backend in self._backends.items():
            backend.let_go([buffer for (at, _), (_, buffer) in self.constants.items() if at == place])
        constants = [*self.constants.values()]
        self.constants.clear()
        if sum(buffer.elements for _, buffer in constants) > DROPPED_AT_ONCE:
            free_in_background(constants)
        for buffer in self.shared_buffers.values():
            buffer.drop()
        self.shared_buffers.clear()


def _in_groups(plan: Plan, names: Sequence[str]) -> Iterator[list[str]]:
    """Constants that are bound at once: about `_AT_ONCE` bytes of them."""
    group: list[str] = []
    nbytes = 0
    for name in names:
        group.append(name)
        packed = plan.packed.get(name)
        nbytes += plan.constants[name].nbytes if packed is None else packed.size * packed.dtype.itemsize
        if nbytes >= _AT_ONCE:
            yield group
            group, nbytes = [], 0
    if group:
        yield group


def _largest_temporary(plan: Plan) -> BufferSpec:
    own = [spec for spec in plan.buffers.values() if spec.role == "temporary"]
    none = BufferSpec("", 0, np.dtype(np.float32), "temporary")
    return max(own, key=lambda spec: (spec.elements, spec.name), default=none)
