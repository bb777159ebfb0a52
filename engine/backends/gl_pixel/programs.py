"""Fragment programs of one device: compiled once, kept for all workers, and stored between runs."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping
from typing import Self

from engine.backends.base import Progress
from engine.backends.gl_compute.programs import ProgramStore
from engine.backends.gl_pixel.layout import Layout
from engine.backends.gl_pixel.memory import Texture, generate
from engine.backends.gl_pixel.shader import Shader
from engine.backends.glsl import WORDS
from engine.devices import GL, GLDevice

_VERTEX = b"""#version 330 core
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


class PixelPrograms(ProgramStore):
    """GL names of linked programs by kernel key, and where their arguments are.

    `vertex_array` is the vertex array with which they are drawn: it has nothing in it.
    """

    def __init__(self, device: GLDevice) -> None:
        super().__init__(device)
        self._locations: dict[str, int] = {}
        gl = device.gl
        with device.current(flush=False):
            self.vertex_array = generate(gl.glGenVertexArrays)
            self._vertex_shader = gl.glCreateShader(GL.VERTEX_SHADER)
            self._give_source(self._vertex_shader, _VERTEX)
            gl.glCompileShader(self._vertex_shader)

    @classmethod
    def of(cls, device: GLDevice) -> Self:
        """The store that all backends on a device share."""
        store = _stores.get(device)
        if store is None:
            store = _stores[device] = cls(device)
        return store  # type: ignore[return-value]

    def drawing_state(self) -> list[tuple[str | int, ...]]:
        """Calls that set everything draws depend on, as function name and arguments.

        The draw that a driver compiles for has to have the state of those that follow.
        """
        return [
            *(("glDisable", state) for state in _OFF),
            ("glColorMask", 1, 1, 1, 1),
            ("glPolygonMode", _FRONT_AND_BACK, _FILL),
            ("glBindVertexArray", self.vertex_array),
        ]

    def location(self, key: str) -> int:
        """Where a program's arguments are."""
        return self._locations[key]

    def prepare_shaders(self, shaders: Mapping[str, Shader], progress: Progress | None = None) -> int:
        """Compile what is missing and draw each once, on nothing; returns how many came from source."""
        wanted = {key: shader for key, shader in shaders.items() if key not in self._locations}
        if not wanted:
            return 0
        compiled = self.prepare({key: shader.source for key, shader in wanted.items()}, progress)
        gl = self._require_device().gl
        # Not kept: textures refer to their device, which this store must not keep alive.
        scratch: dict[tuple[str, int], Texture] = {}
        with self._require_device().current():
            for function, *arguments in self.drawing_state():
                getattr(gl, str(function))(*arguments)
            for key, shader in wanted.items():
                program = self[key]
                gl.glUseProgram(program)
                for k in range(len(shader.buffers)):
                    gl.glUniform1i(gl.glGetUniformLocation(program, f"b{k}".encode()), k)
                self._locations[key] = gl.glGetUniformLocation(program, b"A")
                self._draw_once(shader, scratch)
            for texture in scratch.values():
                texture.release()
        return compiled

    def _start(self, source: str) -> tuple[int, int]:
        gl = self._require_device().gl
        fragment = gl.glCreateShader(GL.FRAGMENT_SHADER)
        self._give_source(fragment, source.encode("ascii"))
        gl.glCompileShader(fragment)
        program = gl.glCreateProgram()
        gl.glAttachShader(program, self._vertex_shader)
        gl.glAttachShader(program, fragment)
        if self._folder is not None:
            gl.glProgramParameteri(program, GL.PROGRAM_BINARY_RETRIEVABLE_HINT, 1)
        gl.glLinkProgram(program)
        return program, fragment

    def _give_source(self, shader: int, text: bytes) -> None:
        pointer = ctypes.c_char_p(text)
        length = ctypes.byref(ctypes.c_int(len(text)))
        self._require_device().gl.glShaderSource(shader, 1, ctypes.byref(pointer), length)

    def _warm_up(self, program: int) -> None:
        """Nothing here: a draw needs to know the shader, see `prepare_shaders`."""

    def _draw_once(self, shader: Shader, scratch: dict[tuple[str, int], Texture]) -> None:
        """Many drivers compile at the first draw, for the textures that are then in use."""
        gl = self._require_device().gl

        def texture_of(storage: str, layers: int, role: str) -> Texture:
            key = (f"{WORDS[storage]} {role}", layers)
            if key not in scratch:
                device = self._require_device()
                layout = Layout.of(_SIDE, device.limits.max_texture_size, layers > 0)
                scratch[key] = Texture(device, layout, WORDS[storage], layers)
            return scratch[key]

        target = texture_of(shader.output, shader.layers, "written")
        gl.glBindFramebuffer(GL.FRAMEBUFFER, target.framebuffer)
        for k, (kind, layered) in enumerate(shader.inputs):
            texture = texture_of(kind, _SIDE if layered else 0, "read")
            gl.glActiveTexture(GL.TEXTURE0 + k)
            gl.glBindTexture(texture.target, texture.name)
        gl.glViewport(0, 0, 1, 1)
        gl.glDrawArrays(GL.TRIANGLES, 0, 3)


_stores: weakref.WeakKeyDictionary[GLDevice, PixelPrograms] = weakref.WeakKeyDictionary()
