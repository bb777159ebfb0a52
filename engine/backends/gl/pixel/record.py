"""Records a plan as a command list of draws: tensor placement, bindings that change, split draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cost import formula_ns
from engine.backends.gl.commands import CallList, Setting
from engine.backends.gl.pixel.layout import TexelLayout, texels_of
from engine.backends.gl.pixel.memory import GLPixelBuffer, TensorTexture, TextureRange
from engine.backends.gl.pixel.printer import arguments
from engine.backends.gl.pixel.programs import PixelPrograms
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.record import GLProgram, GLRecorder
from engine.backends.gl.storage import memory_dtype
from engine.backends.gpu.symbolic_arrays import owned
from engine.base.generators import Offload, SmallSteps
from engine.compiler.memory_planner import assign_slots
from engine.compiler.plan import AnyKernel, Plan, RepeatedSteps, Step
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL
from engine.kernels.kernel import Kernel
from engine.kernels.size import largest, whole

# A processor's nanoseconds of work in one draw: the slowest GPUs take as long, and drivers reset after 1-2 s.
_DRAW_NS = 2.5e8

ShaderOf = Callable[[AnyKernel], Shader]


class GLPixelProgram(GLProgram):
    """A recorded plan, the textures of its temporaries, and the buffers it refers to."""

    def __init__(
        self,
        commands: CallList,
        draws: int,
        temporaries: Sequence[TensorTexture],
        buffers: Sequence[GLPixelBuffer],
        make_places: Callable[[], Mapping[str, TextureRange]],
    ) -> None:
        super().__init__(commands, temporaries, buffers, make_places)
        self.draws = draws

    @property
    def temporary_bytes(self) -> int:
        """Memory of the temporaries."""
        return sum(self.temporaries().values())


class PixelRecorder(GLRecorder):
    """Records the steps of a plan as draws; see `record`."""

    def __init__(self, device: GLDevice, programs: PixelPrograms, shader_of: ShaderOf) -> None:
        super().__init__(device, programs)
        self._shader_of = shader_of
        self.draws = 0
        self._sampled = 0
        for function, *values in programs.drawing_state():
            self.call(str(function), *(int(v) for v in values))

    def recording(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> SmallSteps[GLPixelProgram]:
        """Record the plan, one step at a time; `buffers` holds every tensor that is not temporary."""
        bound = owned(buffers, buffers, GLPixelBuffer)
        places = {name: b.place for name, b in bound.items()}
        temporaries = yield from self._making_temporaries(plan, places)
        for step in plan.steps:
            yield None
            self.commands.begin_step()
            if isinstance(step.kernel, RepeatedSteps):
                self.repeat(step, lambda inner: self.add_repeated(inner, places))
                continue
            inputs = [places[name] for name in step.inputs]
            self.draw(step.kernel, step.values, step.space, inputs, places[step.output])
        yield None
        self.commands.finish()
        return GLPixelProgram(self.commands, self.draws, temporaries, list(bound.values()), lambda: places)

    def _making_temporaries(
        self, plan: Plan, places: dict[str, TextureRange]
    ) -> SmallSteps[list[TensorTexture]]:
        lifetimes = plan.lifetimes()
        kinds: dict[tuple[str, int], dict[str, int]] = {}
        for name, kind in temporary_kinds(plan, self._shader_of).items():
            texels = -(-texels_of(plan.buffers[name].elements) // max(kind[1], 1))
            kinds.setdefault(kind, {})[name] = texels
        wanted: list[tuple[TexelLayout, str, int]] = []
        named: list[dict[str, TexelLayout]] = []
        limit = self.device.limits.max_texture_size
        for (element, count), sizes in kinds.items():
            slots, slot_sizes = assign_slots(sizes, {name: lifetimes[name] for name in sizes})
            layouts = {name: TexelLayout.of(n, limit, count > 0) for name, n in sizes.items()}
            for slot in range(len(slot_sizes)):
                here = [layouts[name] for name in sizes if slots[name] == slot]
                wanted.append((TexelLayout.around(here), element, count))
                named.append({name: layouts[name] for name in sizes if slots[name] == slot})
        made = Offload(lambda: [self._new_texture(*texture) for texture in wanted])
        yield made
        for texture, here_too in zip(made.result(), named, strict=True):
            places |= {name: TextureRange(texture, layout) for name, layout in here_too.items()}
        return made.result()

    def _new_texture(self, layout: TexelLayout, element: str, layers: int) -> TensorTexture:
        return TensorTexture(self.device, layout, element, layers, self.programs.context)

    def draw(
        self,
        kernel: AnyKernel,
        values: Sequence[int | float],
        space: Sequence[int],
        inputs: Sequence[TextureRange],
        output: TextureRange,
    ) -> None:
        """Add a step's draw, in parts if it may take long."""
        if not prod(space):
            return
        columns, rows = self.bind(kernel, values, space, inputs, output)
        texel_ns = texel_nanoseconds(kernel, self._shader_of(kernel), values)
        step = rows_at_once(columns, rows, texel_ns)
        for first in range(0, rows, step):
            if first:
                self.call("glFlush")
            self.call("glViewport", 0, first, columns, min(step, rows - first))
            self.call("glDrawArrays", GL.TRIANGLES, 0, 3)
            self.draws += 1

    def forget(self) -> None:
        super().forget()
        self._sampled = 0

    def add_repeated(self, step: Step, places: Mapping[str, TextureRange]) -> list[Setting]:
        """Add a step that is repeated; returns what sets its arguments for a run."""
        if not prod(step.space):
            return []
        inputs, output = [places[name] for name in step.inputs], places[step.output]
        if step.window is None:
            self.draw(step.kernel, step.values, step.space, inputs, output)
            return self.run_numbers(step)
        columns, _ = self.bind(step.kernel, step.values, step.space, inputs, output)
        viewport = len(self.commands) - self.first_row
        self.call("glViewport", 0, 0, columns, 1)
        self.call("glDrawArrays", GL.TRIANGLES, 0, 3)
        start, stride, count = (texels_of(n) if n else 0 for n in step.window)
        words, at, shift = self.used_words, len(step.values) - 2, output.layout.shift

        def setting(table: np.ndarray, first: int, run: int) -> None:
            texel = start + run * stride
            words[at], words[at + 1] = texel, texel + count
            row, end = texel >> shift, (texel + count - 1) >> shift
            left, width = (texel & (1 << shift) - 1, count) if row == end else (0, columns)
            table[first + viewport, 1:5] = left, row, width, end - row + 1

        return [*self.run_numbers(step), setting]

    def unbind_sampler(self, unit: int) -> None:
        """Make a texture unit use the texture's own sampling parameters."""
        if unit == self._sampled:
            self.call("glBindSampler", unit, 0)
            self._sampled += 1

    def bind(
        self,
        kernel: AnyKernel,
        values: Sequence[int | float],
        space: Sequence[int],
        inputs: Sequence[TextureRange],
        output: TextureRange,
    ) -> tuple[int, int]:
        """Bind the step's program and tensors; returns the columns and rows to draw."""
        shader = self._shader_of(kernel)
        texels = drawn_texels(shader, space)
        shifts = [output.layout.shift, *(t.layout.shift for t in inputs)]
        words = arguments(shader, values, space, shifts, texels)
        self.use(kernel.key, words)
        for k, place in enumerate(inputs):
            self.unbind_sampler(k)
            self.bind_texture(k, place.texture.target, place.texture.name)
        self.call("glBindFramebuffer", GL.FRAMEBUFFER, output.texture.framebuffer)
        return output.layout.area(texels)


def temporary_kinds(plan: Plan, shader_of: ShaderOf) -> dict[str, tuple[str, int]]:
    """The NumPy type and number of layers of each temporary."""
    layers = {s.output: shader_of(s.kernel).layers for step in plan.steps for s in step.parts}
    return {n: (memory_dtype(plan.buffers[n].dtype).name, layers.get(n, 0)) for n in plan.lifetimes()}


def rows_at_once(columns: int, rows: int, texel_ns: float) -> int:
    """How many rows one draw may have."""
    return max(1, min(rows, int(_DRAW_NS // (columns * texel_ns))))


def rows_of_draws(columns: np.ndarray, rows: np.ndarray, texel_ns: np.ndarray) -> np.ndarray:
    """`rows_at_once` for several steps, some without columns; `rows` itself if none is cut."""
    if (columns * rows * texel_ns).max(initial=0.0) <= _DRAW_NS:
        return rows
    most = _DRAW_NS // (np.maximum(columns, 1) * texel_ns)
    return np.maximum(1, np.minimum(rows, most.astype(np.int64)))


def drawn_texels(shader: Shader, space: Sequence[int]) -> int:
    """How many texels a step draws."""
    count = prod(space)
    return count if shader.rank is None else texels_of(count)


def texel_nanoseconds(kernel: AnyKernel, shader: Shader, values: Sequence[int | float]) -> float:
    """Estimated nanoseconds of one processor for one texel."""
    if isinstance(kernel, Kernel):
        return 4.0 * formula_ns(kernel.body, values) + 1.0
    return shader.round_ns * largest(1, prod(whole(values[k]) for k in shader.rounds))
