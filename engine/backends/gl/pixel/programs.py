"""Fragment programs of one device, and the state that draws need."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.backends.gl.pixel.layout import TexelLayout
from engine.backends.gl.pixel.memory import TensorTexture
from engine.backends.gl.pixel.shader import Shader
from engine.backends.gl.programs import ProgramStore
from engine.backends.gl.storage import STORAGE_FORMATS
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL, generate

_VERTEX = """#version 330 core
void main() {
    vec2 corner = vec2(float(gl_VertexID & 1), float(gl_VertexID >> 1));
    gl_Position = vec4(corner * 4.0 - 1.0, 0.0, 1.0);
}
"""
_SIDE = 4

_OFF = (
    GL.BLEND, GL.DEPTH_TEST, GL.STENCIL_TEST, GL.SCISSOR_TEST, GL.CULL_FACE, GL.DITHER,
    GL.RASTERIZER_DISCARD, GL.FRAMEBUFFER_SRGB, GL.COLOR_LOGIC_OP,
)  # fmt: skip
_FRONT_AND_BACK, _FILL = 0x0408, 0x1B02


class PixelPrograms(ProgramStore[Shader]):
    """GL names of linked fragment programs by kernel key, and where their arguments are.

    `vertex_array` is the vertex array with which they are drawn: it has nothing in it.
    """

    stage = GL.FRAGMENT_SHADER

    def __init__(self, device: GLDevice, folder: Path | None = None) -> None:
        super().__init__(device, folder)
        gl = device.gl
        with device.current(flush=False):
            self.vertex_array = generate(gl.glGenVertexArrays)
            self._vertex_shader = self.compile(GL.VERTEX_SHADER, _VERTEX)

    def text(self, shader: Shader) -> str:
        return shader.source

    @property
    def companions(self) -> tuple[int]:
        """The vertex shader."""
        return (self._vertex_shader,)

    def drawing_state(self, vertex_array: int | None = None) -> list[tuple[str | int, ...]]:
        """Calls that set everything draws depend on, as function name and arguments.

        The draw that a driver compiles for has to have the state of those that follow.
        """
        return [
            *(("glDisable", state) for state in _OFF),
            ("glColorMask", 1, 1, 1, 1),
            ("glPolygonMode", _FRONT_AND_BACK, _FILL),
            ("glBindVertexArray", self.vertex_array if vertex_array is None else vertex_array),
        ]

    def use_once(self, programs: Mapping[str, tuple[int, Shader]]) -> Iterator[tuple[str, int]]:
        """Set each program's texture units, and draw once with it, without output."""
        gl = self.context.gl
        # Contexts do not share vertex arrays.
        vertex_array = self.vertex_array if self.context is self.device else generate(gl.glGenVertexArrays)
        for function, *arguments in self.drawing_state(vertex_array):
            getattr(gl, str(function))(*arguments)
        # Not kept: textures refer to their device, which this store must not keep alive.
        scratch: dict[tuple[str, int], TensorTexture] = {}
        for key, (program, shader) in programs.items():
            gl.glUseProgram(program)
            for k in range(len(shader.buffers)):
                gl.glUniform1i(gl.glGetUniformLocation(program, f"b{k}".encode()), k)
            location = gl.glGetUniformLocation(program, b"A")
            self._draw(shader, scratch)
            yield key, location
        for texture in scratch.values():
            texture.release()
        if self.context is not self.device:
            gl.glBindVertexArray(0)
            gl.glDeleteVertexArrays(1, ctypes.byref(ctypes.c_uint(vertex_array)))

    def _draw(self, shader: Shader, scratch: dict[tuple[str, int], TensorTexture]) -> None:
        """One fragment: many drivers compile at the first draw, for the textures that are then in use."""
        gl = self.context.gl

        def texture_of(storage: str, layers: int, role: str) -> TensorTexture:
            element = STORAGE_FORMATS[storage].memory
            key = (f"{element} {role}", layers)
            if key not in scratch:
                device = self.context
                layout = TexelLayout.of(_SIDE, device.limits.max_texture_size, layers > 0)
                scratch[key] = TensorTexture(device, layout, element, layers)
            return scratch[key]

        target = texture_of(shader.output, shader.layers, "written")
        gl.glBindFramebuffer(GL.FRAMEBUFFER, target.framebuffer)
        for k, (kind, layered) in enumerate(shader.inputs):
            texture = texture_of(kind, _SIDE if layered else 0, "read")
            gl.glActiveTexture(GL.TEXTURE0 + k)
            gl.glBindTexture(texture.target, texture.name)
        gl.glViewport(0, 0, 1, 1)
        gl.glDrawArrays(GL.TRIANGLES, 0, 3)
