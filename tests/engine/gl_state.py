"""All of a context's OpenGL state that a program can set and ask for, read with `glGet*`: for tests only.

`snapshot` reads it, `disturb` sets most of it to something that is nobody's default.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from engine.device.gl.functions import FUNCTION_TYPE, GL, GLFunctions

UNITS = 16  # every OpenGL 3.3 has as many texture units for fragment shaders
POINTS = 16  # vertex attributes

# name: (number, values). Core profile of OpenGL 3.3.
_VALUES: dict[str, tuple[int, int]] = {
    "ARRAY_BUFFER_BINDING": (0x8894, 1),
    "COPY_READ_BUFFER_BINDING": (0x8F36, 1),
    "COPY_WRITE_BUFFER_BINDING": (0x8F37, 1),
    "PIXEL_PACK_BUFFER_BINDING": (0x88ED, 1),
    "PIXEL_UNPACK_BUFFER_BINDING": (0x88EF, 1),
    "TRANSFORM_FEEDBACK_BUFFER_BINDING": (0x8C8F, 1),
    "UNIFORM_BUFFER_BINDING": (0x8A28, 1),
    "VERTEX_ARRAY_BINDING": (0x85B5, 1),
    "ELEMENT_ARRAY_BUFFER_BINDING": (0x8895, 1),
    "CURRENT_PROGRAM": (0x8B8D, 1),
    "DRAW_FRAMEBUFFER_BINDING": (0x8CA6, 1),
    "READ_FRAMEBUFFER_BINDING": (0x8CAA, 1),
    "RENDERBUFFER_BINDING": (0x8CA7, 1),
    "DRAW_BUFFER0": (0x8825, 1),
    "READ_BUFFER": (0x0C02, 1),
    "ACTIVE_TEXTURE": (0x84E0, 1),
    "BLEND_SRC_RGB": (0x80C9, 1),
    "BLEND_DST_RGB": (0x80C8, 1),
    "BLEND_SRC_ALPHA": (0x80CB, 1),
    "BLEND_DST_ALPHA": (0x80CA, 1),
    "BLEND_EQUATION_RGB": (0x8009, 1),
    "BLEND_EQUATION_ALPHA": (0x883D, 1),
    "BLEND_COLOR": (0x8005, 4),
    "COLOR_CLEAR_VALUE": (0x0C22, 4),
    "COLOR_WRITEMASK": (0x0C23, 4),
    "DEPTH_CLEAR_VALUE": (0x0B73, 1),
    "DEPTH_FUNC": (0x0B74, 1),
    "DEPTH_RANGE": (0x0B70, 2),
    "DEPTH_WRITEMASK": (0x0B72, 1),
    "STENCIL_CLEAR_VALUE": (0x0B91, 1),
    "STENCIL_FUNC": (0x0B92, 1),
    "STENCIL_REF": (0x0B97, 1),
    "STENCIL_VALUE_MASK": (0x0B93, 1),
    "STENCIL_WRITEMASK": (0x0B98, 1),
    "STENCIL_BACK_WRITEMASK": (0x8CA5, 1),
    "STENCIL_FAIL": (0x0B94, 1),
    "CULL_FACE_MODE": (0x0B45, 1),
    "FRONT_FACE": (0x0B46, 1),
    "POLYGON_MODE": (0x0B40, 1),
    "POLYGON_OFFSET_FACTOR": (0x8038, 1),
    "POLYGON_OFFSET_UNITS": (0x2A00, 1),
    "LINE_WIDTH": (0x0B21, 1),
    "POINT_SIZE": (0x0B11, 1),
    "POINT_FADE_THRESHOLD_SIZE": (0x8128, 1),
    "PROVOKING_VERTEX": (0x8E4F, 1),
    "PRIMITIVE_RESTART_INDEX": (0x8F9E, 1),
    "LOGIC_OP_MODE": (0x0BF0, 1),
    "SAMPLE_COVERAGE_VALUE": (0x80AA, 1),
    "SCISSOR_BOX": (0x0C10, 4),
    "VIEWPORT": (0x0BA2, 4),
    "CLAMP_READ_COLOR": (0x891C, 1),
    **{
        f"{side}_{name}": (base + offset, 1)
        for side, base in (("UNPACK", 0x0CF0), ("PACK", 0x0D00))
        for offset, name in enumerate(
            ("SWAP_BYTES", "LSB_FIRST", "ROW_LENGTH", "SKIP_ROWS", "SKIP_PIXELS", "ALIGNMENT")
        )
    },
    "PACK_SKIP_IMAGES": (0x806B, 1),
    "PACK_IMAGE_HEIGHT": (0x806C, 1),
    "UNPACK_SKIP_IMAGES": (0x806D, 1),
    "UNPACK_IMAGE_HEIGHT": (0x806E, 1),
}

_SWITCHES: dict[str, int] = {
    "BLEND": GL.BLEND,
    "COLOR_LOGIC_OP": GL.COLOR_LOGIC_OP,
    "CULL_FACE": GL.CULL_FACE,
    "DEPTH_CLAMP": 0x864F,
    "DEPTH_TEST": GL.DEPTH_TEST,
    "DITHER": GL.DITHER,
    "FRAMEBUFFER_SRGB": GL.FRAMEBUFFER_SRGB,
    "LINE_SMOOTH": 0x0B20,
    "MULTISAMPLE": GL.MULTISAMPLE,
    "POLYGON_OFFSET_FILL": 0x8037,
    "POLYGON_SMOOTH": 0x0B41,
    "PRIMITIVE_RESTART": GL.PRIMITIVE_RESTART,
    "PROGRAM_POINT_SIZE": 0x8642,
    "RASTERIZER_DISCARD": GL.RASTERIZER_DISCARD,
    "SAMPLE_ALPHA_TO_COVERAGE": 0x809E,
    "SAMPLE_COVERAGE": 0x80A0,
    "SCISSOR_TEST": GL.SCISSOR_TEST,
    "STENCIL_TEST": GL.STENCIL_TEST,
    "TEXTURE_CUBE_MAP_SEAMLESS": 0x884F,
    **{f"CLIP_DISTANCE{i}": 0x3000 + i for i in range(6)},
}

_OF_EACH_UNIT: dict[str, int] = {
    "TEXTURE_BINDING_1D": 0x8068,
    "TEXTURE_BINDING_2D": 0x8069,
    "TEXTURE_BINDING_3D": 0x806A,
    "TEXTURE_BINDING_1D_ARRAY": 0x8C1C,
    "TEXTURE_BINDING_2D_ARRAY": 0x8C1D,
    "TEXTURE_BINDING_BUFFER": 0x8C2C,
    "TEXTURE_BINDING_CUBE_MAP": 0x8514,
    "TEXTURE_BINDING_RECTANGLE": 0x84F6,
    "SAMPLER_BINDING": 0x8919,
}

_INDEXED: dict[str, int] = {"UNIFORM_BUFFER_BINDING": 0x8A28, "TRANSFORM_FEEDBACK_BUFFER_BINDING": 0x8C8F}
_INDEXED_4_3: dict[str, int] = {"SHADER_STORAGE_BUFFER_BINDING": 0x90D3, "IMAGE_BINDING_NAME": 0x8F3A}

_ATTRIBUTES: dict[str, int] = {"ENABLED": 0x8622, "BUFFER": 0x889F, "SIZE": 0x8623, "STRIDE": 0x8624}


def _function(gl: GLFunctions, name: str, *arguments: Any) -> Callable[..., Any]:
    return FUNCTION_TYPE(None, *arguments)(gl.address(name))


def snapshot(gl: GLFunctions) -> dict[str, tuple[float, ...]]:
    """The state of the current context by name; OpenGL's error state is checked, and left empty."""
    get_floats = _function(gl, "glGetFloatv", ctypes.c_uint, ctypes.c_void_p)
    get_attribute = _function(gl, "glGetVertexAttribiv", ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)
    floats = (ctypes.c_float * 16)()
    whole = (ctypes.c_int * 16)()
    version = (ctypes.c_int * 2)()
    gl.glGetIntegerv(GL.MAJOR_VERSION, ctypes.byref(version))
    gl.glGetIntegerv(GL.MINOR_VERSION, ctypes.byref(version, 4))
    state: dict[str, tuple[float, ...]] = {}
    for name, (number, count) in _VALUES.items():
        get_floats(number, floats)
        state[name] = tuple(floats[:count])
    for name, number in _SWITCHES.items():
        state[name] = (gl.glIsEnabled(number),)
    active = int(state["ACTIVE_TEXTURE"][0])
    for unit in range(UNITS):
        gl.glActiveTexture(GL.TEXTURE0 + unit)
        for name, number in _OF_EACH_UNIT.items():
            gl.glGetIntegerv(number, whole)
            state[f"{name} of unit {unit}"] = (whole[0],)
    gl.glActiveTexture(active)
    indexed = _INDEXED | (_INDEXED_4_3 if tuple(version) >= (4, 3) else {})
    for name, number in indexed.items():
        for index in range(4):
            gl.glGetIntegeri_v(number, index, whole)
            state[f"{name} {index}"] = (whole[0],)
    for point in range(POINTS if state["VERTEX_ARRAY_BINDING"][0] else 0):
        for name, number in _ATTRIBUTES.items():
            get_attribute(point, number, whole)
            state[f"vertex attribute {point} {name}"] = (whole[0],)
    error = gl.glGetError()
    assert error == GL.NO_ERROR, f"OpenGL error 0x{error:04x} while reading the state"
    return state


def differences(before: dict[str, tuple[float, ...]], after: dict[str, tuple[float, ...]]) -> dict[str, Any]:
    """What changed: name -> (before, after)."""
    return {name: (before[name], after.get(name)) for name in before if before[name] != after.get(name)}


class Disturbed:
    """Objects and settings of a game that uses everything, set in the current context."""

    def __init__(self, gl: GLFunctions) -> None:
        self.buffers = (ctypes.c_uint * 8)()
        self.textures = (ctypes.c_uint * 3)()
        self.arrays = (ctypes.c_uint * 1)()
        self.framebuffers = (ctypes.c_uint * 1)()
        self.samplers = (ctypes.c_uint * 1)()
        gl.glGenBuffers(8, self.buffers)
        gl.glGenTextures(3, self.textures)
        gl.glGenVertexArrays(1, self.arrays)
        gl.glGenFramebuffers(1, self.framebuffers)
        gl.glGenSamplers(1, self.samplers)
        self._bind(gl)
        self._switch(gl)
        self.program = self._program(gl)
        gl.glUseProgram(self.program)
        assert gl.glGetError() == GL.NO_ERROR

    def _bind(self, gl: GLFunctions) -> None:
        targets = (
            GL.ARRAY_BUFFER,
            GL.COPY_READ_BUFFER,
            GL.COPY_WRITE_BUFFER,
            GL.PIXEL_PACK_BUFFER,
            GL.UNIFORM_BUFFER,
        )
        for unit, texture in zip((0, 3, 9), self.textures, strict=True):
            gl.glActiveTexture(GL.TEXTURE0 + unit)
            gl.glBindTexture(GL.TEXTURE_2D, texture)
            gl.glTexImage2D(GL.TEXTURE_2D, 0, GL.RGBA8, 4, 4, 0, GL.RGBA, GL.UNSIGNED_BYTE, None)
            gl.glBindSampler(unit, self.samplers[0])
        gl.glBindVertexArray(self.arrays[0])
        for target, buffer in zip(targets, self.buffers, strict=False):
            gl.glBindBuffer(target, buffer)
            gl.glBufferData(target, 1 << 14, None, GL.DYNAMIC_DRAW)
        gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, self.buffers[5])
        gl.glBufferData(GL.PIXEL_UNPACK_BUFFER, 64, None, GL.DYNAMIC_DRAW)
        gl.glBindBufferBase(GL.UNIFORM_BUFFER, 1, self.buffers[4])
        types = (ctypes.c_uint, ctypes.c_int, ctypes.c_uint, ctypes.c_ubyte, ctypes.c_int, ctypes.c_void_p)
        pointer = _function(gl, "glVertexAttribPointer", *types)
        pointer(2, 3, GL.FLOAT, 0, 24, None)
        _function(gl, "glEnableVertexAttribArray", ctypes.c_uint)(2)
        gl.glBindFramebuffer(GL.FRAMEBUFFER, self.framebuffers[0])
        gl.glFramebufferTexture2D(GL.FRAMEBUFFER, GL.COLOR_ATTACHMENT0, GL.TEXTURE_2D, self.textures[2], 0)
        gl.glActiveTexture(GL.TEXTURE0 + 5)

    def _switch(self, gl: GLFunctions) -> None:
        for switch in (
            *(GL.BLEND, GL.SCISSOR_TEST, GL.CULL_FACE, GL.DEPTH_TEST, GL.STENCIL_TEST, GL.FRAMEBUFFER_SRGB),
            *(GL.COLOR_LOGIC_OP, GL.PRIMITIVE_RESTART, GL.RASTERIZER_DISCARD, 0x8037),
        ):
            gl.glEnable(switch)
        gl.glDisable(GL.DITHER)
        gl.glBlendFunc(0x0306, 0x0303)
        gl.glBlendEquation(0x800B)
        gl.glScissor(1, 2, 3, 4)
        gl.glViewport(5, 6, 7, 8)
        gl.glCullFace(0x0404)
        gl.glColorMask(1, 0, 1, 0)
        gl.glDepthMask(0)
        gl.glDepthFunc(0x0204)
        gl.glStencilMask(0x0F)
        gl.glClearColor(0.25, 0.5, 0.75, 0.125)
        for name, value in (
            *((GL.UNPACK_ALIGNMENT, 8), (GL.UNPACK_ROW_LENGTH, 41), (GL.UNPACK_SKIP_PIXELS, 3)),
            *((GL.UNPACK_SWAP_BYTES, 1), (GL.UNPACK_SKIP_ROWS, 2), (GL.PACK_ALIGNMENT, 2)),
            (GL.PACK_ROW_LENGTH, 37),
        ):
            gl.glPixelStorei(name, value)

    @staticmethod
    def _program(gl: GLFunctions) -> int:
        program: int = gl.glCreateProgram()
        for kind, text in (
            (GL.VERTEX_SHADER, b"#version 330\nin vec4 at; void main() { gl_Position = at; }"),
            (GL.FRAGMENT_SHADER, b"#version 330\nout vec4 color; void main() { color = vec4(1.0); }"),
        ):
            shader = gl.glCreateShader(kind)
            gl.glShaderSource(shader, 1, ctypes.byref(ctypes.c_char_p(text)), None)
            gl.glCompileShader(shader)
            gl.glAttachShader(program, shader)
        gl.glLinkProgram(program)
        return program
