"""Compute shader templates: recorded calls whose arguments, grids and ranges are filled in per size.

What a size leaves alone is in the list of calls as it was recorded: programs, bindings, barriers. Temporaries
share slots of one arena, so which of them share memory is the same at all sizes. A step without elements is a
dispatch of no groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.gl.commands import CallList
from engine.backends.gl.compute.memory import (
    TEXTURE_BUFFER,
    GLComputeBuffer,
    SharedMemory,
    buffer_size,
    texture_format,
)
from engine.backends.gl.compute.record import (
    BufferRange,
    ComputeRecorder,
    GLComputeProgram,
    arena_alignment,
    elements_per_group,
    fold_grid,
    grid_of,
    place_of,
)
from engine.backends.gl.template import GLTemplate, SymbolicRecorder
from engine.backends.gpu.division import divisor
from engine.backends.gpu.symbolic_arrays import SymbolicArray, SymbolicSlots, Values, columns, owned
from engine.backends.gpu.template import Needs
from engine.compiler.plan import Plan, Step
from engine.device.gl.functions import GL
from engine.kernels.kernel import Kernel

if TYPE_CHECKING:
    from engine.backends.gl.compute.backend import GLComputeBackend

SMALLEST_ARENA = 1 << 10
"""Bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class _SymbolicRange:
    """A tensor whose size is open, by its number; `slot` tells which of them share memory."""

    number: int
    slot: object

    def overlaps(self, other: object) -> bool:
        return isinstance(other, _SymbolicRange) and other.slot == self.slot


class _TemplateRecorder(SymbolicRecorder, ComputeRecorder):
    """Records dispatches. Textures are numbered views of tensors."""

    def __init__(self, backend: GLComputeBackend) -> None:
        super().__init__(backend.device, backend.programs, backend.texels)
        # Rows of calls, of bindings each with the number of the tensor.
        self.range_rows: list[tuple[int, int]] = []
        self.dispatches = 0
        # Views as textures: the number of the tensor, and the format.
        self.views: dict[tuple[int, int], int] = {}

    def add(self, step: Step, places: Mapping[str, Any]) -> None:
        """Record a step."""
        hinted = self.begin(step)
        if hinted is None:
            return
        inputs = [places[name] for name in step.inputs]
        self._order(inputs, places[step.output])
        self.bind(hinted, places[step.output], inputs)
        begin = self.word_rows[-1][1]
        assert hasattr(step.kernel, "params")
        self.words.fill_in(begin, step.kernel.params, step.values)
        if isinstance(step.kernel, Kernel):
            at = begin + len(step.values) + 1
            total: Any = prod(step.space)
            self.words.fill_in(at, ("index",), (total,))
            for axis, number in enumerate(step.space[1:]):
                divided = (number, *divisor(number))
                self.words.fill_in(at + 1 + 3 * axis, ("index",) * 3, divided)
            grid = fold_grid(-(-total // elements_per_group(step.kernel)), self.device.limits)
        else:
            grid = grid_of(step)
        self.filled_rows.append((len(self.commands), 1, grid))
        self.dispatches += 1
        self.call("glDispatchCompute", 0, 0, 0)

    def _bind_texels(self, unit: int, place_: Any, memory: str, width: int) -> None:
        if isinstance(place_, BufferRange):
            super()._bind_texels(unit, place_, memory, width)
            return
        key = (place_.number, texture_format(memory, width))
        self.bind_numbered_texture(unit, TEXTURE_BUFFER, self.views.setdefault(key, len(self.views)))

    def _bind_storage(self, binding: int, place_: Any) -> None:
        if isinstance(place_, BufferRange):
            super()._bind_storage(binding, place_)
        elif self._storage.get(binding) is not place_:
            self._storage[binding] = place_
            self.range_rows.append((len(self.commands), place_.number))
            self.call("glBindBufferRange", GL.SHADER_STORAGE_BUFFER, binding, 0, 0, 0)


class GLComputeTemplate(GLTemplate):
    """A compute shader plan with symbolic sizes."""

    def __init__(self, backend: GLComputeBackend, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> None:
        super().__init__(backend, plan, constants, GLComputeBuffer)
        self._backend = backend
        self._constants = owned(constants, constants, GLComputeBuffer)
        places: dict[str, Any] = {name: place_of(buffer) for name, buffer in self._constants.items()}
        recorder = _TemplateRecorder(backend)
        specs = [plan.buffers[name] for name in self._temporaries]
        sizes = {spec.name: buffer_size(spec.elements, spec.dtype) for spec in specs}
        slots = SymbolicSlots(sizes, self._lifetimes, arena_alignment(backend.device.limits))
        for number, (name, slot) in enumerate(zip(self._temporaries, slots.of, strict=True)):
            places[name] = _SymbolicRange(number, slot)
        for number, name in enumerate(self._outer, len(specs)):
            places[name] = _SymbolicRange(number, name)
        # What the arena needs; of each tensor the name of its GL buffer, where it starts, and its bytes.
        ranges, (starts, total) = SymbolicArray(recorder.numbers, are_bytes=True), slots.places()
        ranges.add(total)
        for start, size in zip(starts, sizes.values(), strict=True):
            for number in (0, start, size):
                ranges.add(number)
        for _ in range(3 * len(self._outer)):
            ranges.add(0)
        recorder.barrier()
        for step in plan.steps:
            recorder.add(step, places)
        self._close(recorder)
        self._counts = (recorder.dispatches, recorder.barriers)
        self._range_rows, self._range_numbers = columns(recorder.range_rows)
        self._viewed, formats = columns(list(recorder.views))
        self._making = self._make_views(formats)
        self._ranges = ranges.close()

    def _make_views(self, formats: np.ndarray) -> np.ndarray:
        """The calls that make the buffer textures of a size, without what is filled in."""
        address, count = self._backend.device.gl.address, len(formats)
        if not count:
            return np.zeros((0, 6), np.int64)
        table = np.zeros((2 * count + 1, 6), np.int64)
        table[::2, 0] = address("glBindTexture")
        table[1::2, 0] = address("glTexBufferRange")
        table[:, 1] = TEXTURE_BUFFER
        table[1::2, 2] = formats
        return table

    def place_temporaries(self, given: Values) -> np.ndarray:
        """What the arena needs, and where temporaries are in it: see `_ranges`."""
        return self._ranges(given)

    def needs(self, placed: np.ndarray) -> Needs:
        """The arena, and its size."""
        return [(self._backend.arena, max(int(placed[0]), SMALLEST_ARENA))]

    def program(
        self, given: Values, placed: np.ndarray, outer: Sequence[GLComputeBuffer]
    ) -> GLComputeProgram:
        """The program for one set of sizes."""
        total = int(placed[0])
        arena = SharedMemory(self._backend.arena.reserve(max(total, SMALLEST_ARENA)), total)
        held = [*self._constants.values(), *outer]
        commands, make_places = self._commands_in(arena, given, placed, outer)
        program = GLComputeProgram(commands, arena, held, make_places)
        program.dispatches, program.barriers = self._counts
        return program

    def refill(
        self, program: GLComputeProgram, given: Values, placed: np.ndarray, outer: Sequence[GLComputeBuffer]
    ) -> None:
        """Turn a program into that of other sizes, in the same memory."""
        arena = program.arena
        assert isinstance(arena, SharedMemory)
        commands, make_places = self._commands_in(arena, given, placed, outer)
        arena.nbytes = int(placed[0])
        program.become(commands, make_places)

    def _commands_in(
        self, arena: SharedMemory, given: Values, placed: np.ndarray, outer: Sequence[GLComputeBuffer]
    ) -> tuple[CallList, Callable[[], Mapping[str, BufferRange]]]:
        """The calls for one set of sizes, and what tells where tensors are."""
        words = self._words(given)
        table = self._filled_table(given, words)
        ranges, count = placed[1:].reshape(-1, 3), len(self._temporaries)
        ranges[:count, 0] = arena.name
        ranges[count:] = [(memory.name, 0, memory.nbytes) for memory in [buffer.memory for buffer in outer]]
        table[self._range_rows, 3:6] = ranges[self._range_numbers]
        if len(self._making):
            names = arena.lend_textures(len(self._viewed))
            making = self._making.copy()
            making[:-1:2, 2] = names
            making[1::2, 3:6] = ranges[self._viewed]
            self._backend.replayer.run(self._commands.filled(making, ()))
            table[self._texture_rows, 2] = names[self._texture_numbers]

        def make_places() -> dict[str, BufferRange]:
            offsets = zip(self._temporaries, ranges.tolist(), strict=False)
            found = {name: BufferRange(arena, start, size) for name, (_, start, size) in offsets}
            bound = zip(self._outer, outer, strict=True)
            return found | {n: place_of(b) for n, b in (*self._constants.items(), *bound)}

        return self._commands.filled(table, (words,)), make_places
