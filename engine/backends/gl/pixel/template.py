"""Fragment shader templates: recorded calls whose arguments and areas are filled in per size.

What a size leaves alone is in the list of calls as it was recorded. Temporaries are in textures that all
sizes share and that grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.gl.commands import CallList
from engine.backends.gl.pixel.growable_texture import Extent, GrowableTexture, TextureKey
from engine.backends.gl.pixel.layout import ROWS_TOGETHER, TexelLayout, texels_of
from engine.backends.gl.pixel.memory import GLPixelBuffer, TensorTexture, TextureRange, target_of
from engine.backends.gl.pixel.printer import StageArguments, arguments
from engine.backends.gl.pixel.record import (
    GLPixelProgram,
    PixelRecorder,
    drawn_texels,
    rows_of_draws,
    temporary_kinds,
    texel_nanoseconds,
)
from engine.backends.gl.template import GLTemplate, SymbolicRecorder
from engine.backends.gpu.size_functions import texel_layout
from engine.backends.gpu.symbolic_arrays import SymbolicArray, Values, Variables, columns, owned
from engine.compiler.memory_planner import assign_slots
from engine.compiler.plan import Plan, Step
from engine.device.gl.functions import GL
from engine.kernels.size import deferred, hint_of, largest, smallest

if TYPE_CHECKING:
    from engine.backends.gl.pixel.backend import GLPixelBackend


class GLPixelTemplateProgram(GLPixelProgram):
    """A program of a template: one size of a plan. Its textures belong to all sizes."""

    textures: Sequence[TensorTexture] = ()

    def temporaries(self) -> dict[int, int]:
        """The textures that programs share."""
        return {id(texture): texture.nbytes for texture in self.textures}

    def clear(self) -> None:
        """Fill these with zeros."""
        for texture in self.textures:
            texture.clear()


class _TemplateRecorder(SymbolicRecorder, PixelRecorder):
    """Records draws. Open tensors are numbers."""

    def __init__(self, backend: GLPixelBackend, layers: Sequence[int]) -> None:
        super().__init__(backend.device, backend.programs, backend.shader)
        self._layers = layers
        # Rows of calls, of bindings each with the number of the tensor.
        self.framebuffer_rows: list[tuple[int, int]] = []
        self.viewport_rows: list[int] = []
        # Words that are shifts of tensors.
        self.shift_words: list[tuple[int, int]] = []
        # How many texels each step draws.
        self.drawn = SymbolicArray(self.numbers)
        self.texel_ns = SymbolicArray(self.numbers, is_float=True)

    def add(self, step: Step, output: int, inputs: Sequence[TextureRange | int]) -> None:
        """Record a step."""
        hinted = self.begin(step)
        if hinted is None:
            return
        shader = self._shader_of(step.kernel)
        shifts = [0, *(t.layout.shift if isinstance(t, TextureRange) else 0 for t in inputs)]
        texels = drawn_texels(shader, hinted.space)
        self.use(step.kernel.key, arguments(shader, hinted.values, hinted.space, shifts, texels))
        begin = self.word_rows[-1][1]
        self.words.fill_in(begin, shader.params, step.values)
        places = StageArguments(begin + len(shader.params), len(inputs))
        for place, tensor in zip(places.shifts, (output, *inputs), strict=True):
            if isinstance(tensor, int):
                self.shift_words.append((place, tensor))
        count, drawn = prod(step.space), drawn_texels(shader, step.space)
        self.words.fill_in(places.texels, ("index",), (drawn - 1,))
        if shader.rank is not None:
            self.words.fill_in(places.elements, ("index",), (largest(count - 1, 0),))
            for axis, size in enumerate(step.space[1:]):
                divided = (size, 1.0 / largest(size, 1))
                self.words.fill_in(places.tail + 2 * axis, ("index", "float32"), divided)
        self.drawn.add(drawn)
        self.texel_ns.add(texel_nanoseconds(step.kernel, shader, step.values))
        for unit, tensor in enumerate(inputs):
            self._bind_input(unit, tensor)
        self.framebuffer_rows.append((len(self.commands), output))
        self.call("glBindFramebuffer", GL.FRAMEBUFFER, 0)
        self.viewport_rows.append(len(self.commands))
        self.call("glViewport", 0, 0, 0, 0)
        # No vertices where there are no elements.
        self.filled_rows.append((len(self.commands), 3, [3 * smallest(count, 1)]))
        self.call("glDrawArrays", GL.TRIANGLES, 0, 3)

    def _bind_input(self, unit: int, tensor: TextureRange | int) -> None:
        self.unbind_sampler(unit)
        if isinstance(tensor, TextureRange):
            self.bind_texture(unit, tensor.texture.target, tensor.texture.name)
        else:
            self.bind_numbered_texture(unit, target_of(self._layers[tensor]), tensor)


class GLPixelTemplate(GLTemplate):
    """A fragment shader plan with symbolic sizes."""

    def __init__(self, backend: GLPixelBackend, plan: Plan, constants: Mapping[str, DeviceBuffer]) -> None:
        super().__init__(backend, plan, constants, GLPixelBuffer)
        self._backend = backend
        self._constants = owned(constants, constants, GLPixelBuffer)
        tensors = {name: number for number, name in enumerate((*self._temporaries, *self._outer))}
        kinds = temporary_kinds(plan, backend.shader)
        self._layers = [*(kinds[name][1] for name in self._temporaries), *[0] * len(self._outer)]
        recorder = _TemplateRecorder(backend, self._layers)
        self._place_temporaries(plan, kinds, recorder.numbers)
        places: dict[str, Any] = {n: b.place for n, b in self._constants.items()} | tensors
        outputs = []
        for step in plan.steps:
            before = len(recorder.viewport_rows)
            recorder.add(step, tensors[step.output], [places[name] for name in step.inputs])
            if len(recorder.viewport_rows) > before:
                outputs.append(tensors[step.output])
        self._close(recorder)
        self._outputs = np.array(outputs, np.int64)
        self._rows_together = np.array([ROWS_TOGETHER if self._layers[n] else 1 for n in outputs], np.int64)
        # Bindings by textures: those of slots, then those of other tensors.
        texture_of = np.array(
            [*self._slot_of, *range(len(self._keys), len(self._keys) + len(self._outer))], np.int64
        )
        self._texture_numbers = texture_of[self._texture_numbers]
        self._framebuffer_rows, numbers = columns(recorder.framebuffer_rows)
        drawn, self._framebuffer_numbers = np.unique(texture_of[numbers], return_inverse=True)
        self._drawn_textures: list[int] = drawn.tolist()
        self._viewport_rows = np.array(recorder.viewport_rows, np.int64)
        self._shift_words, self._shift_numbers = columns(recorder.shift_words)
        self._drawn, self._texel_ns = recorder.drawn.close(), recorder.texel_ns.close()

    def _place_temporaries(
        self, plan: Plan, kinds: Mapping[str, tuple[str, int]], numbers: Variables
    ) -> None:
        """Choose which temporaries share a texture, by what they take while planning."""
        keys: dict[TextureKey, int] = {}
        slots: dict[str, int] = {}
        for kind in dict.fromkeys(kinds.values()):
            names = [name for name in self._temporaries if kinds[name] == kind]
            hints = {name: int(hint_of(plan.buffers[name].elements)) for name in names}
            own, _ = assign_slots(hints, {name: self._lifetimes[name] for name in names})
            slots |= {name: keys.setdefault((*kind, slot), len(keys)) for name, slot in own.items()}
        self._keys = list(keys)
        self._slot_of = [slots[name] for name in self._temporaries]
        self._limit = self._backend.device.limits.max_texture_size
        shifts, heights, extents = [SymbolicArray(numbers) for _ in range(3)]
        inside: list[list[Any]] = [[] for _ in keys]
        for name, slot in zip(self._temporaries, self._slot_of, strict=True):
            layers = kinds[name][1]
            texels = -(-texels_of(plan.buffers[name].elements) // max(layers, 1))
            step = ROWS_TOGETHER if layers else 1
            inside[slot].append(deferred(texel_layout, texels, self._limit, step))
            shifts.add(inside[slot][-1][0])
            heights.add(inside[slot][-1][1])
        for slot_layouts in inside:
            for sizes in zip(*slot_layouts, strict=True):
                extents.add(largest(*sizes))
        self._shifts, self._heights, self._extents = shifts.close(), heights.close(), extents.close()

    def place_temporaries(self, given: Values) -> list[tuple[GrowableTexture, Extent]]:
        """A texture for each slot, and the shift and height that its temporaries take."""
        extents = iter(self._extents(given).tolist())
        textures = map(self._backend.temporary, self._keys)
        return [*zip(textures, zip(extents, extents, strict=True), strict=True)]

    def needs(self, placed: list[tuple[GrowableTexture, Extent]]) -> Sequence[tuple[GrowableTexture, Extent]]:
        """The textures for temporaries, and their extents: as placed."""
        return placed

    def program(
        self,
        given: Values,
        placed: list[tuple[GrowableTexture, Extent]],
        outer: Sequence[GLPixelBuffer],
    ) -> GLPixelTemplateProgram:
        """The program for one set of sizes."""
        held = [*self._constants.values(), *outer]
        program = GLPixelTemplateProgram(self._commands, 0, (), held, dict)
        self.refill(program, given, placed, outer)
        return program

    def refill(
        self,
        program: GLPixelTemplateProgram,
        given: Values,
        placed: list[tuple[GrowableTexture, Extent]],
        outer: Sequence[GLPixelBuffer],
    ) -> None:
        """Turn a program into that of other sizes."""
        shared = [texture.reserve(extent) for texture, extent in placed]
        textures = [*shared, *[buffer.memory for buffer in outer]]
        own_shifts, heights = self._shifts(given), self._heights(given)
        shifts = np.append(own_shifts, np.array([b.memory.layout.shift for b in outer], np.int64))
        words = self._words(given)
        words[self._shift_words] = shifts[self._shift_numbers]
        table = self._filled_table(given, words)
        names = np.array([texture.name for texture in textures], np.int64)
        table[self._texture_rows, 2] = names[self._texture_numbers]
        framebuffers = np.array([textures[n].framebuffer for n in self._drawn_textures], np.int64)
        table[self._framebuffer_rows, 2] = framebuffers[self._framebuffer_numbers]
        across = -(-self._drawn(given) // self._rows_together)
        widths = 1 << shifts[self._outputs]
        width = np.minimum(across, widths)
        rows = -(-across // widths) * self._rows_together
        at_once = rows_of_draws(width, rows, self._texel_ns(given))
        table[self._viewport_rows, 3], table[self._viewport_rows, 4] = width, at_once
        vertices = table[self._viewport_rows + 1, 3]
        commands = self._commands.filled(table, (words,))
        if at_once is not rows and (is_cut := (at_once < rows) & (vertices > 0)).any():
            commands = self._cut(commands, np.flatnonzero(is_cut).tolist(), rows, at_once)

        def make_places() -> dict[str, TextureRange]:
            forms = zip(self._temporaries, self._slot_of, own_shifts.tolist(), heights.tolist(), strict=True)
            found = {
                name: TextureRange(shared[slot], TexelLayout(shift, height, shared[slot].layers > 0))
                for name, slot, shift, height in forms
            }
            bound = zip(self._outer, outer, strict=True)
            return found | {n: b.place for n, b in (*self._constants.items(), *bound)}

        program.become(commands, make_places)
        program.draws = int(vertices.sum()) // 3 + (len(commands.table) - len(table)) // 3
        program.textures = shared

    def _cut(self, whole: CallList, steps: Sequence[int], rows: np.ndarray, at_once: np.ndarray) -> CallList:
        """The calls with more draws for some steps, as one of all rows would take too long."""
        table, flush = whole.table, self._backend.device.gl.address("glFlush")
        pieces: list[np.ndarray] = []
        begin = 0
        added = np.zeros(len(table) + 1, np.int64)
        for number in steps:
            at = int(self._viewport_rows[number])
            pieces.append(table[begin : at + 2])
            begin = at + 2
            height, most = int(rows[number]), int(at_once[number])
            for first in range(most, height, most):
                part = np.zeros((3, table.shape[1]), np.int64)
                part[0, 0] = flush
                part[1:] = table[at : at + 2]
                part[1, 2], part[1, 4] = first, min(most, height - first)
                pieces.append(part)
                added[begin:] += 3
        commands = whole.filled(np.concatenate([*pieces, table[begin:]]), whole.keep)
        commands.steps = [int(start + added[start]) for start in whole.steps]
        return commands
