"""A plan as a command list of draws: where its tensors lie, which bindings change, what is cut in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from engine.backends.base import DeviceBuffer, Program
from engine.backends.cpu.cost import formula_ns
from engine.backends.gl_compute.commands import CommandList
from engine.backends.gl_pixel.layout import Layout, texels_of
from engine.backends.gl_pixel.memory import GLPixelBuffer, Place, Texture
from engine.backends.gl_pixel.printer import arguments
from engine.backends.gl_pixel.programs import PixelPrograms
from engine.backends.gl_pixel.shader import Shader
from engine.backends.glsl import WORDS
from engine.compiler.memory import share
from engine.compiler.plan import AnyKernel, Plan
from engine.devices import GL, GLDevice
from engine.errors import DisposedError
from engine.kernels.kernel import Kernel

# A processor's nanoseconds of work in one draw: the slowest GPUs take as long, and drivers reset after 1-2 s.
_DRAW_NS = 2.5e8

ShaderOf = Callable[[AnyKernel], Shader]


class GLPixelProgram(Program):
    """A recorded plan, the textures of its temporaries, and the buffers it refers to."""

    def __init__(
        self,
        commands: CommandList,
        temporaries: Sequence[Texture],
        buffers: Sequence[GLPixelBuffer],
        draws: int,
    ) -> None:
        self.commands = commands
        self.draws = draws
        self._temporaries = tuple(temporaries)
        self._buffers = tuple(buffers)
        self._is_released = False

    @property
    def temporary_bytes(self) -> int:
        """Memory of the temporaries."""
        return sum(16 * t.layout.texels * max(t.layers, 1) for t in self._temporaries)

    def check(self) -> None:
        """Raise `DisposedError` if this program or a buffer that it uses was released."""
        if self._is_released or any(b.is_released for b in self._buffers):
            raise DisposedError("a recorded plan was run after its buffers were released")

    def release(self) -> None:
        """Free the temporaries."""
        self._is_released = True
        for texture in self._temporaries:
            texture.release()


class Recorder:
    """Turns steps into calls. Nothing is assumed of the context's state when a list begins."""

    def __init__(self, device: GLDevice, programs: PixelPrograms, shader_of: ShaderOf) -> None:
        self._device = device
        self._programs = programs
        self._shader_of = shader_of
        self.commands = CommandList()
        self.draws = 0
        self._program = 0
        self._unit = -1
        self._textures: dict[tuple[int, int], int] = {}
        self._sampled = 0
        self._begin()

    def _begin(self) -> None:
        for function, *values in self._programs.drawing_state():
            self._call(str(function), *(int(v) for v in values))

    def record(self, plan: Plan, buffers: Mapping[str, DeviceBuffer]) -> GLPixelProgram:
        """The plan as a program; `buffers` holds every tensor that is no temporary."""
        bound: dict[str, GLPixelBuffer] = {}
        for name, buffer in buffers.items():
            assert isinstance(buffer, GLPixelBuffer), f"{name} is no buffer of this backend"
            bound[name] = buffer
        places = {name: b.place for name, b in bound.items()}
        temporaries = self._make_temporaries(plan, places)
        for step in plan.steps:
            inputs = [places[name] for name in step.inputs]
            self.draw(step.kernel, step.values, step.space, inputs, places[step.output])
        self.commands.finish()
        return GLPixelProgram(self.commands, temporaries, list(bound.values()), self.draws)

    def _make_temporaries(self, plan: Plan, places: dict[str, Place]) -> list[Texture]:
        lifetimes = plan.lifetimes()
        layers = {s.output: self._shader_of(s.kernel).layers for s in plan.steps}
        kinds: dict[tuple[str, int], dict[str, int]] = {}
        for name in lifetimes:
            spec = plan.buffers[name]
            texels = -(-texels_of(spec.elements) // max(layers.get(name, 0), 1))
            kinds.setdefault((WORDS[spec.dtype.name], layers.get(name, 0)), {})[name] = texels
        made = []
        limit = self._device.limits.max_texture_size
        for (word, count), sizes in kinds.items():
            slots, slot_sizes = share(sizes, {name: lifetimes[name] for name in sizes})
            layouts = {name: Layout.of(n, limit, count > 0) for name, n in sizes.items()}
            for slot in range(len(slot_sizes)):
                here = [layouts[name] for name in sizes if slots[name] == slot]
                texture = Texture(self._device, Layout.around(here), word, count)
                places |= {n: Place(texture, layouts[n]) for n in sizes if slots[n] == slot}
                made.append(texture)
        return made

    def draw(
        self,
        kernel: AnyKernel,
        values: Sequence[int | float],
        space: Sequence[int],
        inputs: Sequence[Place],
        output: Place,
    ) -> None:
        """Add a step's draw, in parts if it may take long."""
        count = prod(space)
        if not count:
            return
        shader = self._shader_of(kernel)
        texels = count if shader.rank is None else texels_of(count)
        shifts = [output.layout.shift, *(t.layout.shift for t in inputs)]
        words = arguments(shader, values, space, shifts, texels)
        self._use(kernel.key, len(words) // 4, self.commands.pointer(words))
        for k, place in enumerate(inputs):
            self._bind(k, place.texture)
        self._call("glBindFramebuffer", GL.FRAMEBUFFER, output.texture.framebuffer)
        columns, rows = output.layout.area(texels)
        step = max(1, min(rows, int(_DRAW_NS // (columns * _texel_ns(kernel, shader, values)))))
        for first in range(0, rows, step):
            if first:
                self._call("glFlush")
            self._call("glViewport", 0, first, columns, min(step, rows - first))
            self._call("glDrawArrays", GL.TRIANGLES, 0, 3)
            self.draws += 1

    def _use(self, key: str, vectors: int, pointer: int) -> None:
        program = self._programs[key]
        if program != self._program:
            self._call("glUseProgram", program)
            self._program = program
        self._call("glUniform4iv", self._programs.location(key), vectors, pointer)

    def _bind(self, unit: int, texture: Texture) -> None:
        if self._textures.get((unit, texture.target)) == texture.name:
            return
        self._textures[unit, texture.target] = texture.name
        if self._unit != unit:
            self._call("glActiveTexture", GL.TEXTURE0 + unit)
            self._unit = unit
        while self._sampled <= unit:
            self._call("glBindSampler", self._sampled, 0)
            self._sampled += 1
        self._call("glBindTexture", texture.target, texture.name)

    def _call(self, function: str, *arguments_: int) -> None:
        self.commands.call(self._device.address(function), *arguments_)


def _texel_ns(kernel: AnyKernel, shader: Shader, values: Sequence[int | float]) -> float:
    """Estimated nanoseconds of one processor for one texel."""
    if isinstance(kernel, Kernel):
        return 4.0 * formula_ns(kernel.body, values) + 1.0
    return shader.round_ns * max(1, prod(int(values[k]) for k in shader.rounds))
