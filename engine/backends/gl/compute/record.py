"""Records a plan as a command list: tensor placement, bindings that change, barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.gl.commands import CallList, Setting
from engine.backends.gl.compute.memory import TEXTURE_BUFFER, GLComputeBuffer, GLMemory, buffer_size
from engine.backends.gl.compute.printer import LOCAL_SIZE, arguments
from engine.backends.gl.compute.programs import ComputePrograms
from engine.backends.gl.compute.shader import ShaderKernel
from engine.backends.gl.glsl import pack_arguments
from engine.backends.gl.record import GLProgram, GLRecorder
from engine.backends.gl.storage import STORAGE_FORMATS, lanes
from engine.backends.gpu.symbolic_arrays import owned
from engine.base.generators import Offload, SmallSteps
from engine.compiler.memory_planner import assign_offsets
from engine.compiler.plan import AnyKernel, Plan, RepeatedSteps, Step
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.device.gl.limits import GLLimits
from engine.kernels.kernel import Kernel
from engine.kernels.size import largest, smallest

# Buffer textures over parts of a buffer start at multiples of this at most (OpenGL's own upper bound).
_TEXTURE_ALIGNMENT = 256
_LARGE_ARENA = 256 << 20


@dataclass(frozen=True, slots=True)
class BufferRange:
    """A tensor's memory: a byte range of a GL buffer."""

    memory: GLMemory
    offset: int
    nbytes: int

    def overlaps(self, other: object) -> bool:
        """Whether two tensors share bytes."""
        return (
            isinstance(other, BufferRange)
            and self.memory is other.memory
            and self.offset < other.offset + other.nbytes
            and other.offset < self.offset + self.nbytes
        )


class Overlapping(Protocol):
    """Protocol of memory that may overlap."""

    def overlaps(self, other: object) -> bool:
        """Whether two ranges overlap."""
        ...


def place_of(buffer: GLComputeBuffer) -> BufferRange:
    """The location of a tensor with a buffer of its own."""
    return BufferRange(buffer.memory, 0, buffer.memory.nbytes)


def arena_alignment(limits: GLLimits) -> int:
    """Alignment of temporaries in an arena, in bytes."""
    return max(limits.storage_buffer_offset_alignment, _TEXTURE_ALIGNMENT)


class GLComputeProgram(GLProgram):
    """A recorded plan, its arena of temporaries, and the buffers it refers to."""

    dispatches = 0
    barriers = 0

    def __init__(
        self,
        commands: CallList,
        arena: GLMemory | None,
        buffers: Sequence[GLComputeBuffer],
        make_places: Callable[[], Mapping[str, BufferRange]],
    ) -> None:
        super().__init__(commands, [] if arena is None else [arena], buffers, make_places)
        self.arena = arena
        """The memory of its temporaries."""

    @property
    def arena_bytes(self) -> int:
        """Memory of the temporaries."""
        return sum(self.temporaries().values())

    def temporaries(self) -> dict[int, int]:
        """The arena."""
        return {} if self.arena is None else {id(self.arena.whole): self.arena.whole.nbytes}


def program_key(kernel: AnyKernel, texels: bool) -> str:
    """The cache key of a kernel's program; generic kernels have one per way of reading inputs."""
    return f"{kernel.key}{'t' if texels else 's'}"


class ComputeRecorder(GLRecorder):
    """Records the steps of one plan as GL calls; see `record`."""

    def __init__(self, device: GLDevice, programs: ComputePrograms, texels: bool) -> None:
        super().__init__(device, programs)
        self._texels = texels
        self._storage: dict[int, object] = {}
        self._written: list[Overlapping] = []
        self._read: list[Overlapping] = []
        self._dispatches = self.barriers = 0

    def recording(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> SmallSteps[GLComputeProgram]:
        """Record the plan, one step at a time; `buffers` holds every tensor that is not temporary."""
        bound = owned(buffers, buffers, GLComputeBuffer)
        places = {name: place_of(b) for name, b in bound.items()}
        arena = yield from self._placing_temporaries(plan, places)
        # What an earlier run or another plan wrote has to be seen.
        self.barrier()
        for step in plan.steps:
            yield None
            self.commands.begin_step()
            self._step(step, places)
        yield None
        self.commands.finish()
        program = GLComputeProgram(self.commands, arena, list(bound.values()), lambda: places)
        program.dispatches, program.barriers = self._dispatches, self.barriers
        return program

    def _placing_temporaries(self, plan: Plan, places: dict[str, BufferRange]) -> SmallSteps[GLMemory | None]:
        lifetimes = plan.lifetimes()
        if not lifetimes:
            return None
        specs = {name: plan.buffers[name] for name in lifetimes}
        sizes = {name: buffer_size(spec.elements, spec.dtype) for name, spec in specs.items()}
        offsets, total = assign_offsets(sizes, lifetimes, arena_alignment(self.device.limits))
        made = Offload(lambda: self._new_arena(total))
        yield made
        arena = made.result()
        places |= {name: BufferRange(arena, offsets[name], sizes[name]) for name in sizes}
        return arena

    def _new_arena(self, nbytes: int) -> GLMemory:
        """Memory for temporaries. Raises `OutOfMemoryError`."""
        context = self.programs.context
        arena = GLMemory(self.device, nbytes, context=context)
        # Asking for errors may wait for the driver: only where running out of memory is likely.
        if nbytes > _LARGE_ARENA:
            context.check_errors(f"reserving {nbytes >> 20} MiB for a plan's temporaries")
        return arena

    def _step(self, step: Step, places: Mapping[str, BufferRange]) -> None:
        kernel = step.kernel
        if not prod(step.space):
            return
        if isinstance(kernel, RepeatedSteps):
            self.repeat(step, lambda inner: self.add_repeated(inner, places))
            return
        output = places[step.output]
        inputs = [places[name] for name in step.inputs]
        if isinstance(kernel, ShaderKernel) and kernel.is_alone:
            for group in range(step.space[0]):
                self.barrier()
                self.bind(step, output, inputs)[kernel.first_group] = group
                self.call("glDispatchCompute", 1, 1, 1)
                self._dispatches += 1
            self._written.extend((*inputs, output))
            return
        self._order(inputs, output)
        self.bind(step, output, inputs)
        if isinstance(kernel, Kernel):
            grid = fold_grid(groups_of(step), self.device.limits)
        else:
            grid = grid_of(step)
        self.call("glDispatchCompute", *grid)
        self._dispatches += 1

    def forget(self) -> None:
        super().forget()
        self._storage.clear()
        self.barrier()

    def add_repeated(self, step: Step, places: Mapping[str, BufferRange]) -> list[Setting]:
        """Add a step that is repeated; returns what sets its arguments for a run."""
        if not prod(step.space):
            return []
        if step.window is None:
            self._step(step, places)
            return self.run_numbers(step)
        assert isinstance(step.kernel, Kernel)
        start, stride, count = step.window
        output, inputs = places[step.output], [places[name] for name in step.inputs]
        self._order(inputs, output)
        words = self.bind(step, output, inputs)
        self.call(
            "glDispatchCompute", *fold_grid(-(-count // elements_per_group(step.kernel)), self.device.limits)
        )
        begin = len(step.values)

        def setting(table: np.ndarray, first: int, run: int) -> None:
            words[begin] = start + run * stride
            words[begin + 1] = start + run * stride + count

        return [*self.run_numbers(step), setting]

    def bind(self, step: Step, output: Any, inputs: Sequence[Any]) -> np.ndarray:
        """Bind the step's program and tensors; returns its arguments, which may change per dispatch."""
        kernel = step.kernel
        if isinstance(kernel, Kernel):
            words = arguments(kernel, step.values, step.space, 0, prod(step.space))
            storages, widths = kernel.buffers, (1,) * len(inputs)
        else:
            assert isinstance(kernel, ShaderKernel)
            words = pack_arguments(kernel.params, step.values)
            storages, widths = kernel.buffers, kernel.widths
        self.use(program_key(kernel, self._texels), words)
        self._bind_storage(0, output)
        for k, (place_, storage, width) in enumerate(zip(inputs, storages, widths, strict=True)):
            if self._texels:
                self._bind_texels(k, place_, STORAGE_FORMATS[storage].memory, width)
            else:
                self._bind_storage(1 + k, place_)
        return words

    def _order(self, inputs: Sequence[Overlapping], output: Overlapping) -> None:
        """Add a barrier if the step depends on accesses since the last one."""
        conflict = any(output.overlaps(other) for other in (*self._written, *self._read)) or any(
            place_.overlaps(other) for place_ in inputs for other in self._written
        )
        if conflict:
            self.barrier()
        self._written.append(output)
        self._read.extend(inputs)

    def barrier(self) -> None:
        """Add a memory barrier: later commands see earlier writes."""
        bits = GL.SHADER_STORAGE_BARRIER_BIT | (GL.TEXTURE_FETCH_BARRIER_BIT if self._texels else 0)
        self.call("glMemoryBarrier", bits)
        self.barriers += 1
        self._written.clear()
        self._read.clear()

    def _bind_texels(self, unit: int, place_: Any, memory: str, width: int) -> None:
        context = self.programs.context
        texture = place_.memory.texture(memory, width, place_.offset, place_.nbytes, context)
        self.bind_texture(unit, TEXTURE_BUFFER, texture)

    def _bind_storage(self, binding: int, place_: Any) -> None:
        if self._storage.get(binding) == place_:
            return
        self._storage[binding] = place_
        name = place_.memory.name
        self.call("glBindBufferRange", GL.SHADER_STORAGE_BUFFER, binding, name, place_.offset, place_.nbytes)


def elements_per_group(kernel: Kernel) -> int:
    """How many elements a group of a generic kernel computes."""
    return lanes(kernel.dtype) * LOCAL_SIZE


def groups_of(step: Step) -> int:
    """How many groups a step has."""
    if isinstance(step.kernel, Kernel):
        return -(-prod(step.space) // elements_per_group(step.kernel))
    return prod(step.space)


def grid_of(step: Step) -> tuple[int, int, int]:
    """The groups of a tuned kernel's step along each axis."""
    x, y, z = (*step.space, 1, 1)[:3]
    return x, y, z


def fold_grid(groups: int, limits: GLLimits) -> tuple[int, int, int]:
    """A row of groups as a grid within the device's limits."""
    width = smallest(groups, limits.max_compute_group_count[0])
    return width, -(-groups // largest(width, 1)), 1
