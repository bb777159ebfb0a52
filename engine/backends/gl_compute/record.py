"""A plan as a command list: where its tensors lie, which bindings change, where a barrier is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.backends.base import DeviceBuffer, Program
from engine.backends.gl_compute.commands import CommandList
from engine.backends.gl_compute.memory import TEXTURE_BUFFER, GLComputeBuffer, GLMemory, buffer_size
from engine.backends.gl_compute.printer import ARGUMENTS_LOCATION, LOCAL_SIZE, arguments
from engine.backends.gl_compute.programs import ProgramStore
from engine.backends.gl_compute.shader import ShaderKernel
from engine.backends.glsl import WORDS, pack_arguments
from engine.compiler.memory import place
from engine.compiler.plan import AnyKernel, Plan, Step
from engine.devices import GL, GLDevice
from engine.errors import DisposedError
from engine.kernels.kernel import Kernel

# Buffer textures over parts of a buffer start at multiples of this at most (OpenGL's own upper bound).
_TEXTURE_ALIGNMENT = 256
_LARGE_ARENA = 256 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: a range of a GL buffer, in bytes."""

    memory: GLMemory
    offset: int
    nbytes: int

    def overlaps(self, other: Place) -> bool:
        """Whether two tensors share bytes."""
        return (
            self.memory is other.memory
            and self.offset < other.offset + other.nbytes
            and other.offset < self.offset + self.nbytes
        )


class GLComputeProgram(Program):
    """A recorded plan, its arena of temporaries, and the buffers it refers to."""

    def __init__(
        self, commands: CommandList, arena: GLMemory | None, buffers: Sequence[GLComputeBuffer]
    ) -> None:
        self.commands = commands
        self.dispatches = 0
        self.barriers = 0
        self._arena = arena
        self._buffers = tuple(buffers)
        self._is_released = False

    @property
    def arena_bytes(self) -> int:
        """Memory of the temporaries."""
        return self._arena.nbytes if self._arena is not None else 0

    def check(self) -> None:
        """Raise `DisposedError` if this program or a buffer that it uses was released."""
        if self._is_released or any(b.memory.is_released for b in self._buffers):
            raise DisposedError("a recorded plan was run after its buffers were released")

    def release(self) -> None:
        """Free the temporaries."""
        self._is_released = True
        if self._arena is not None:
            self._arena.release()


def program_key(kernel: AnyKernel, texels: bool) -> str:
    """Under which key a kernel's program is kept: a generic one has a text for each way of reading."""
    return f"{kernel.key}{'t' if texels else 's'}"


class Recorder:
    """Turns the steps of one plan into calls; see `record`."""

    def __init__(self, device: GLDevice, programs: ProgramStore, texels: bool) -> None:
        self._device = device
        self._programs = programs
        self._texels = texels
        self._commands = CommandList()
        self._program = 0
        self._unit = -1
        self._storage: dict[int, Place] = {}
        self._textures: dict[int, int] = {}
        self._written: list[Place] = []
        self._read: list[Place] = []
        self._dispatches = self._barriers = 0

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> GLComputeProgram:
        """The plan as a program; `buffers` holds every tensor that is no temporary."""
        bound: dict[str, GLComputeBuffer] = {}
        for name, buffer in buffers.items():
            assert isinstance(buffer, GLComputeBuffer), f"{name} is no buffer of this backend"
            bound[name] = buffer
        places = {name: Place(b.memory, 0, b.memory.nbytes) for name, b in bound.items()}
        arena = self._place_temporaries(plan, places)
        # What an earlier run or another plan wrote has to be seen.
        self._barrier()
        for step in plan.steps:
            self._step(step, plan, places)
        self._commands.finish()
        # Asking for errors may wait for the driver: only where running out of memory is likely.
        if arena is not None and arena.nbytes > _LARGE_ARENA:
            self._device.check_errors(f"reserving {arena.nbytes >> 20} MiB for a plan's temporaries")
        program = GLComputeProgram(self._commands, arena, list(bound.values()))
        program.dispatches, program.barriers = self._dispatches, self._barriers
        return program

    def _place_temporaries(self, plan: Plan, places: dict[str, Place]) -> GLMemory | None:
        lifetimes = plan.lifetimes()
        if not lifetimes:
            return None
        sizes = {name: buffer_size(plan.buffers[name].elements) for name in lifetimes}
        alignment = max(self._device.limits.storage_buffer_offset_alignment, _TEXTURE_ALIGNMENT)
        offsets, total = place(sizes, lifetimes, alignment)
        arena = GLMemory(self._device, total)
        places |= {name: Place(arena, offsets[name], sizes[name]) for name in sizes}
        return arena

    def _step(self, step: Step, plan: Plan, places: Mapping[str, Place]) -> None:
        kernel = step.kernel
        count = prod(step.space)
        if not count:
            return
        output = places[step.output]
        inputs = [places[name] for name in step.inputs]
        self._order(inputs, output)
        if isinstance(kernel, Kernel):
            words = arguments(kernel, step.values, step.space, 0, count)
            storages, widths = kernel.buffers, (1,) * len(inputs)
            grid = self._fold(-(-count // LOCAL_SIZE))
        else:
            assert isinstance(kernel, ShaderKernel)
            words = pack_arguments(kernel.params, step.values)
            storages, widths = kernel.buffers, kernel.widths
            x, y, z = (*step.space, 1, 1)[:3]
            grid = (x, y, z)
        self._use(program_key(kernel, self._texels), words)
        self._bind_storage(0, output)
        for k, (place_, storage, width) in enumerate(zip(inputs, storages, widths, strict=True)):
            if self._texels:
                texture = place_.memory.texture(WORDS[storage], width, place_.offset, place_.nbytes)
                self._bind_texture(k, texture)
            else:
                self._bind_storage(1 + k, place_)
        self._call("glDispatchCompute", *grid)
        self._dispatches += 1

    def _fold(self, groups: int) -> tuple[int, int, int]:
        """A row of groups as a grid within the device's limits."""
        width = min(groups, self._device.limits.max_compute_group_count[0])
        return width, -(-groups // width), 1

    def _order(self, inputs: Sequence[Place], output: Place) -> None:
        """A barrier if the step touches what was written since the last one, or overwrites what was read."""
        conflict = any(output.overlaps(other) for other in (*self._written, *self._read)) or any(
            place_.overlaps(other) for place_ in inputs for other in self._written
        )
        if conflict:
            self._barrier()
        self._written.append(output)
        self._read.extend(inputs)

    def _barrier(self) -> None:
        bits = GL.SHADER_STORAGE_BARRIER_BIT | (GL.TEXTURE_FETCH_BARRIER_BIT if self._texels else 0)
        self._call("glMemoryBarrier", bits)
        self._barriers += 1
        self._written.clear()
        self._read.clear()

    def _use(self, key: str, words: np.ndarray) -> None:
        program = self._programs[key]
        if program != self._program:
            self._call("glUseProgram", program)
            self._program = program
        pointer = self._commands.pointer(words)
        self._call("glUniform4iv", ARGUMENTS_LOCATION, len(words) // 4, pointer)

    def _bind_storage(self, binding: int, place_: Place) -> None:
        if self._storage.get(binding) == place_:
            return
        self._storage[binding] = place_
        name = place_.memory.name
        self._call("glBindBufferRange", GL.SHADER_STORAGE_BUFFER, binding, name, place_.offset, place_.nbytes)

    def _bind_texture(self, unit: int, texture: int) -> None:
        if self._textures.get(unit) == texture:
            return
        self._textures[unit] = texture
        if self._unit != unit:
            self._call("glActiveTexture", GL.TEXTURE0 + unit)
            self._unit = unit
        self._call("glBindTexture", TEXTURE_BUFFER, texture)

    def _call(self, function: str, *arguments_: int) -> None:
        self._commands.call(self._device.address(function), *arguments_)
