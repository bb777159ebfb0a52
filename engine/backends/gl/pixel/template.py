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
from engine.backends.gl.pixel.growable import Extent, GrowableTexture, TextureKey
from engine.backends.gl.pixel.layout import ROWS_TOGETHER, TexelLayout, layouts
from engine.backends.gl.pixel.memory import GLPixelBuffer, TensorTexture, TextureRange, target_of
from engine.backends.gl.pixel.printer import StageArguments, arguments, inverses
from engine.backends.gl.pixel.record import (
    GLPixelProgram,
    PixelRecorder,
    drawn_texels,
    rows_of_draws,
    temporary_kinds,
    texel_nanoseconds,
)
from engine.backends.gl.template import GLTemplate, SymbolicRecorder
from engine.backends.gpu.symbolic_arrays import Slots, SymbolicArray, Values, columns, owned
from engine.compiler.memory_planner import share
from engine.compiler.plan import Plan, Step
from engine.device.gl.functions import GL
from engine.kernels.size import hint_of

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
        super().__init__(
            lambda sizes: (sizes, inverses(sizes)), backend.device, backend.programs, backend.shader
        )
        self._layers = layers
        # Rows of calls, of bindings each with the number of the tensor.
        self.framebuffer_rows: list[tuple[int, int]] = []
        self.viewport_rows: list[int] = []
        # Words that are shifts of tensors; those of each step: its last texel, and its last element if any.
        self.shift_words: list[tuple[int, int]] = []
        self.texel_words: list[int] = []
        self.element_words: list[tuple[int, int]] = []
        self.counts = SymbolicArray(self.numbers)
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
        number = len(self.texel_words)
        self.texel_words.append(places.texels)
        if shader.rank is not None:
            self.element_words.append((places.elements, number))
            for axis, size in enumerate(step.space[1:]):
                self.words.divide_by(places.elements + 1 + 2 * axis, size)
        self.counts.add(prod(step.space))
        self.texel_ns.add(texel_nanoseconds(step.kernel, shader, step.values))
        for unit, tensor in enumerate(inputs):
            self._bind_input(unit, tensor)
        self.framebuffer_rows.append((len(self.commands), output))
        self.call("glBindFramebuffer", GL.FRAMEBUFFER, 0)
        self.viewport_rows.append(len(self.commands))
        self.call("glViewport", 0, 0, 0, 0)
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
        layers = [kinds[name][1] for name in self._temporaries]
        self._layers = np.array([*layers, *[0] * len(self._outer)], np.int64)
        recorder = _TemplateRecorder(backend, self._layers.tolist())
        self._place_temporaries(plan, kinds)
        places: dict[str, Any] = {n: b.place for n, b in self._constants.items()} | tensors
        outputs = []
        for step in plan.steps:
            before = len(recorder.viewport_rows)
            recorder.add(step, tensors[step.output], [places[name] for name in step.inputs])
            if len(recorder.viewport_rows) > before:
                outputs.append(tensors[step.output])
        self._close(plan, recorder)
        self._outputs = np.array(outputs, np.int64)
        self._framebuffer_rows, self._framebuffer_numbers = columns(recorder.framebuffer_rows)
        self._viewport_rows = np.array(recorder.viewport_rows, np.int64)
        self._shift_words, self._shift_numbers = columns(recorder.shift_words)
        self._texel_words = np.array(recorder.texel_words, np.int64)
        self._element_words, self._element_steps = columns(recorder.element_words)
        self._is_generic = np.zeros(len(recorder.texel_words), bool)
        self._is_generic[self._element_steps] = True
        self._counts, self._texel_ns = recorder.counts.close(), recorder.texel_ns.close()

    def _place_temporaries(self, plan: Plan, kinds: Mapping[str, tuple[str, int]]) -> None:
        """Choose which temporaries share a texture, by what they take while planning."""
        keys: dict[TextureKey, int] = {}
        slots: dict[str, int] = {}
        for kind in dict.fromkeys(kinds.values()):
            names = [name for name in self._temporaries if kinds[name] == kind]
            hints = {name: int(hint_of(plan.buffers[name].elements)) for name in names}
            own, _ = share(hints, {name: self._lifetimes[name] for name in names})
            slots |= {name: keys.setdefault((*kind, slot), len(keys)) for name, slot in own.items()}
        self._keys = list(keys)
        self._slots = Slots([slots[name] for name in self._temporaries])

    def place_temporaries(self, given: Values) -> tuple[np.ndarray, np.ndarray]:
        """The shifts and heights of temporaries."""
        layers = self._layers[: len(self._temporaries)]
        texels = np.maximum(1, -(-self._elements(given) // 4))
        texels = -(-texels // np.maximum(layers, 1))
        return layouts(texels, self._backend.device.limits.max_texture_size, layers > 0)

    def needs(self, placed: tuple[np.ndarray, np.ndarray]) -> Sequence[tuple[GrowableTexture, Extent]]:
        """A texture for each slot, and the shift and height that its temporaries take."""
        largest = (self._slots.largest(sizes).tolist() for sizes in placed)
        return [*zip(map(self._backend.temporary, self._keys), zip(*largest, strict=True), strict=True)]

    def program(
        self, given: Values, placed: tuple[np.ndarray, np.ndarray], outer: Sequence[GLPixelBuffer]
    ) -> GLPixelTemplateProgram:
        """The program for one set of sizes."""
        shifts, heights = placed
        shared = [texture.of(extent) for texture, extent in self.needs(placed)]
        textures = [*(shared[slot] for slot in self._slots.of.tolist()), *(b.memory for b in outer)]
        shifts = np.append(shifts, np.array([b.memory.layout.shift for b in outer], np.int64))
        counts = self._counts(given)
        drawn = np.where(self._is_generic, np.maximum(1, -(-counts // 4)), counts)
        words = self._filled_words(given, shifts, counts, drawn)
        table = self._filled_table(words)
        names = np.array([texture.name for texture in textures], np.int64)
        table[self._texture_rows, 2] = names[self._texture_numbers]
        outputs = {number: textures[number].framebuffer for number in set(self._framebuffer_numbers.tolist())}
        table[self._framebuffer_rows, 2] = [outputs[n] for n in self._framebuffer_numbers.tolist()]
        steps = np.where(self._layers[self._outputs] > 0, ROWS_TOGETHER, 1)
        across = -(-drawn // steps)
        width = np.minimum(across, 1 << shifts[self._outputs])
        rows = -(-across // (1 << shifts[self._outputs])) * steps
        at_once = rows_of_draws(width, rows, self._texel_ns(given))
        table[self._viewport_rows, 3], table[self._viewport_rows, 4] = width, at_once
        # No vertices where there are no elements.
        table[self._viewport_rows + 1, 3] = np.where(counts > 0, 3, 0)
        is_cut = (at_once < rows) & (counts > 0)
        commands = self._commands.filled(table, (words,))
        if is_cut.any():
            commands = self._cut(commands, np.flatnonzero(is_cut).tolist(), rows, at_once)

        def make_places() -> dict[str, TextureRange]:
            forms = zip(self._temporaries, textures, shifts.tolist(), heights.tolist(), strict=False)
            found = {
                n: TextureRange(t, TexelLayout(shift, height, t.layers > 0)) for n, t, shift, height in forms
            }
            bound = zip(self._outer, outer, strict=True)
            return found | {n: b.place for n, b in (*self._constants.items(), *bound)}

        draws = int((counts > 0).sum()) + (len(commands.table) - len(table)) // 3
        held = [*self._constants.values(), *outer]
        program = GLPixelTemplateProgram(commands, draws, (), held, make_places)
        program.textures = shared
        program.temporary_bytes = sum(texture.nbytes for texture in shared)
        return program

    def _filled_words(
        self, given: Any, shifts: np.ndarray, counts: np.ndarray, drawn: np.ndarray
    ) -> np.ndarray:
        words = self._words(given)
        words[self._shift_words] = shifts[self._shift_numbers]
        words[self._texel_words] = drawn - 1
        words[self._element_words] = np.maximum(counts[self._element_steps] - 1, 0)
        return words

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
