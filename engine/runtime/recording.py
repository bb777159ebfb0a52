"""Recording: turns lowered plans into programs and buffers, and holds the buffers that plans share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.base.errors import OutOfMemoryError
from engine.base.lifetime import drop_aside
from engine.base.memory.out_of_memory import LARGE, MOST_BYTES, naming_out_of_memory, out_of_memory
from engine.base.memory.parallel import prefetched
from engine.base.memory.pool import Pool
from engine.compiler.lower import Place, Segment
from engine.compiler.plan import BufferSpec, Packed, Plan
from engine.graph.model import Model
from engine.kernels.value import Value
from engine.runtime.integer_checks import check_int32
from engine.runtime.recorded_plan import RecordedPlan, Submission, Transfers

DROPPED_AT_ONCE = 1 << 18
"""Elements of constants that are freed at once with a worker; more are freed in the background."""


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
        self.constants: dict[tuple[Place, str], tuple[np.ndarray | None, DeviceBuffer]] = {}
        # Runs follow each other, so inputs and outputs of plans for other shapes share memory.
        self.shared_buffers: dict[tuple[Place, str, np.dtype], DeviceBuffer] = {}

    def recording(
        self,
        recorded: RecordedPlan,
        before: RecordedPlan | None,
        inputs: Sequence[Value],
        kept: AbstractSet[str],
    ) -> Generator[None, None, None]:
        """Create a plan's buffers and programs in small steps, between which the caller may do other work.

        Args:
            recorded: The plan, which is released where this fails.
            before: The plan that it continues, whose tensors keep their buffers.
            inputs: The tensors that come in.
            kept: Names of those that are needed later even if no segment reads them.

        Raises:
            OutOfMemoryError: A buffer cannot be allocated.
        """
        try:
            with naming_out_of_memory(f"a plan of model '{self._model.name}'"):
                if before is not None:
                    recorded.buffers.update(before.buffers)
                    recorded.placement.update(before.placement)
                self.input_buffers(recorded, recorded.lowered.segments, inputs, kept)
                yield
                for segment in recorded.lowered.segments:
                    recorded.submissions.append((yield from self._submission(recorded, segment)))
                recorded.lowered.trace.settle()
        except BaseException:
            recorded.release()
            recorded.submissions.clear()
            recorded.owned.clear()
            raise

    def input_buffers(
        self,
        recorded: RecordedPlan,
        segments: Sequence[Segment],
        inputs: Sequence[Value],
        kept: AbstractSet[str],
    ) -> None:
        """A buffer for each input on each backend that reads it, or where it is kept for later."""
        for value in inputs:
            recorded.inputs[value.name] = []
            places = self._places_of(value, segments, kept)
            for place in places:
                buffer = self.buffer_of(recorded, place, value.name, value.size, value.dtype)
                recorded.inputs[value.name].append((place, buffer))
            if places:
                recorded.placement[value.name] = recorded.inputs[value.name][0][0]

    def _places_of(
        self, value: Value, segments: Sequence[Segment], kept: AbstractSet[str]
    ) -> Sequence[Place]:
        """The backends that hold an input."""
        if value.dtype == object:
            return ()
        places: list[Place] = [s.place for s in segments if value.name in s.imports]
        if not places and value.name in kept:
            places.append("native" if self._backends["native"].holds(value.dtype) else "cpu")
        return [*dict.fromkeys(places)]

    def reserving_inputs(
        self, segments: Sequence[Segment], inputs: Sequence[Value], kept: AbstractSet[str]
    ) -> Generator[None, None, None]:
        """Allocate what `input_buffers` lacks, a buffer a step."""
        for value in inputs:
            for place in self._places_of(value, segments, kept):
                yield from self.reserving(place, value.name, value.size, value.dtype)

    def reserving(
        self, place: Place, name: str, elements: int, dtype: np.dtype
    ) -> Generator[None, None, None]:
        """Allocate memory for the buffer of an input or output if that is missing, in one step."""
        backend, elements = self._backends[place], max(elements, 1)
        whole = self.shared_buffers.get((place, name, dtype))
        if not backend.is_host and backend.shares and (whole is None or whole.elements < elements):
            yield
            self._shared_buffer(place, name, elements, dtype)

    def buffer_of(
        self, recorded: RecordedPlan, place: Place, name: str, elements: int, dtype: np.dtype
    ) -> DeviceBuffer:
        """A buffer for a plan's input or output. Raises `OutOfMemoryError` with the tensor's name."""
        backend, elements = self._backends[place], max(elements, 1)
        whole = self.shared_buffers.get((place, name, dtype))
        buffer = None if whole is None else backend.share(whole, elements)
        if buffer is None and backend.shares:
            buffer = backend.share(self._shared_buffer(place, name, elements, dtype), elements)
        elif buffer is None:
            with self._allocating(backend, name, elements, dtype):
                buffer = backend.create(elements, dtype)
        assert buffer is not None
        recorded.buffers[place, name] = buffer
        recorded.owned.append(buffer)
        return buffer

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
        """A block that allocates temporaries. Raises `OutOfMemoryError` with the largest one's name."""
        try:
            yield
        except (MemoryError, OutOfMemoryError) as error:
            spec = _largest_temporary(make_plan())
            raise out_of_memory(spec.name, (spec.elements,), spec.dtype, backend.name, error) from error

    def _shared_buffer(self, place: Place, name: str, elements: int, dtype: np.dtype) -> DeviceBuffer:
        """New memory for an input or output, which plans for other shapes share."""
        backend, before = self._backends[place], self.shared_buffers.pop((place, name, dtype), None)
        with self._allocating(backend, name, elements, dtype):
            # What has grown once is likely to grow on.
            whole = backend.create(elements + (elements // 2 if before is not None else 0), dtype)
        if before is not None:
            # Plans that use it hold its memory.
            before.release()
        self.shared_buffers[place, name, dtype] = whole
        return whole

    def _submission(self, recorded: RecordedPlan, segment: Segment) -> Generator[None, None, Submission]:
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
                    target = self.buffer_of(recorded, place, name, spec.elements, spec.dtype)
                    transfers.append((name, source, target))
                bound[name] = recorded.buffers[place, name]
            elif spec.role == "output":
                bound[name] = self.buffer_of(recorded, place, name, spec.elements, spec.dtype)
                recorded.placement[name] = place
        return bound, tuple(transfers)

    def binding(
        self, recorded: RecordedPlan, segment: Segment
    ) -> Generator[None, None, dict[str, DeviceBuffer]]:
        """The buffers of a segment's constants, in small steps; those of no other plan go with this one."""
        place, plan = segment.place, segment.plan
        bound: dict[str, DeviceBuffer] = {}
        with self._packing(place, plan) as take:
            for name, spec in plan.buffers.items():
                if spec.role == "constant":
                    bound[name] = self._constant(place, name, plan, recorded, take)
                    yield
        return bound

    def pack(self, segment: Segment) -> None:
        """Pack a segment's weights ahead of recording it, where any thread may create buffers."""
        place, plan = segment.place, segment.plan
        with self._packing(place, plan) as take:
            for name in plan.packed:
                if (place, name) not in self.constants:
                    self.constants[place, name] = (None, self._filled(place, name, take(name)))

    def _packing(self, place: Place, plan: Plan) -> AbstractContextManager[Callable[[str], np.ndarray]]:
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
                if name in plan.buffers and (place, name) not in self.constants
            }
        )

    def _constant(
        self, place: Place, name: str, plan: Plan, recorded: RecordedPlan, take: Callable[[str], np.ndarray]
    ) -> DeviceBuffer:
        """The buffer of a constant, one for all plans if it is the model's or packed from the model's.

        The plan drops its reference to the elements, so that packed ones exist in the buffer only.
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
            recorded.owned.append(buffer)
        return buffer

    def _filled(self, place: Place, name: str, array: np.ndarray) -> DeviceBuffer:
        backend = self._backends[place]
        if not backend.keeps_int64:
            check_int32(array, f"the constant '{name}' of model '{self._model.name}'", backend.name)
        with self._allocating(backend, name, array.size, array.dtype):
            return backend.constant(array) if array.size else backend.create(1, array.dtype)

    def release(self) -> None:
        """Free constants and shared buffers."""
        for place, backend in self._backends.items():
            backend.let_go([buffer for (at, _), (_, buffer) in self.constants.items() if at == place])
        constants = [*self.constants.values()]
        self.constants.clear()
        if sum(buffer.elements for _, buffer in constants) > DROPPED_AT_ONCE:
            drop_aside(constants)
        for buffer in self.shared_buffers.values():
            buffer.release()
        self.shared_buffers.clear()


def _largest_temporary(plan: Plan) -> BufferSpec:
    own = [spec for spec in plan.buffers.values() if spec.role == "temporary"]
    none = BufferSpec("", 0, np.dtype(np.float32), "temporary")
    return max(own, key=lambda spec: (spec.elements, spec.name), default=none)
