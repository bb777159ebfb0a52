"""Saves and restores OpenGL state around drawing.

Asking the driver (`glGet*`) may wait for it, so this is for tools, not for games.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import moderngl

from engine.device.gl.functions import FUNCTION_TYPE, GL, GLFunctions

_TEXTURE_BINDING, _SAMPLER_BINDING = 0x8069, 0x8919
_MAX_UNITS = 0x8B4D
_VALUES = {
    "draw framebuffer": (0x8CA6, 1),
    "read framebuffer": (0x8CAA, 1),
    "viewport": (0x0BA2, 4),
    "scissor": (0x0C10, 4),
    "color mask": (0x0C23, 4),
    "depth mask": (0x0B72, 1),
    "blend func": (0x80C9, 1),
    "blend func dst": (0x80C8, 1),
    "blend func alpha": (0x80CB, 1),
    "blend func dst alpha": (0x80CA, 1),
    "blend equation": (0x8009, 1),
    "blend equation alpha": (0x883D, 1),
    "program": (0x8B8D, 1),
    "vertex array": (0x85B5, 1),
    "array buffer": (0x8894, 1),
    "unpack buffer": (0x88EF, 1),
    "active texture": (0x84E0, 1),
}
_SWITCHES = (
    GL.BLEND, GL.DEPTH_TEST, GL.CULL_FACE, GL.SCISSOR_TEST, GL.STENCIL_TEST, GL.RASTERIZER_DISCARD,
    GL.PRIMITIVE_RESTART, GL.COLOR_LOGIC_OP, GL.FRAMEBUFFER_SRGB, 0x8642,
)  # fmt: skip
# Off while the overlay draws; moderngl knows the others.
_UNWANTED = (
    GL.STENCIL_TEST,
    GL.RASTERIZER_DISCARD,
    GL.PRIMITIVE_RESTART,
    GL.COLOR_LOGIC_OP,
    GL.FRAMEBUFFER_SRGB,
)
_TRANSFERS = (*range(0x0CF0, 0x0CF6), GL.PACK_ALIGNMENT)
"""How pixels are laid out in memory: the unpack parameters, and the one of packing that moderngl sets."""


class SavedState:
    """The OpenGL state that moderngl changes in one context."""

    def __init__(self, ctx: moderngl.Context) -> None:
        context: Any = ctx.mglo
        self._gl = GLFunctions(context._context)
        enums = (ctypes.c_uint,) * 4
        self._blend_func = FUNCTION_TYPE(None, *enums)(self._gl.address("glBlendFuncSeparate"))
        self._blend_equation = FUNCTION_TYPE(None, *enums[:2])(self._gl.address("glBlendEquationSeparate"))
        # moderngl uses the last unit when it makes and writes textures.
        self._last_unit = self._read(_MAX_UNITS)[0] - 1
        self._units = (0, self._last_unit)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Context manager: restores the state that is changed within."""
        gl = self._gl
        values = {name: self._read(number, count) for name, (number, count) in _VALUES.items()}
        switches = {switch: gl.glIsEnabled(switch) for switch in _SWITCHES}
        transfers = {number: self._read(number)[0] for number in _TRANSFERS}
        bound = {}
        for unit in self._units:
            gl.glActiveTexture(GL.TEXTURE0 + unit)
            bound[unit] = (self._read(_TEXTURE_BINDING)[0], self._read(_SAMPLER_BINDING)[0])
        for switch in _UNWANTED:
            gl.glDisable(switch)
        for number in _TRANSFERS:
            is_alignment = number in (GL.UNPACK_ALIGNMENT, GL.PACK_ALIGNMENT)
            gl.glPixelStorei(number, 4 if is_alignment else 0)
        gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, 0)
        try:
            yield
        finally:
            self._put_back(values, switches, transfers, bound)

    def _put_back(
        self,
        values: dict[str, tuple[int, ...]],
        switches: dict[int, int],
        transfers: dict[int, int],
        bound: dict[int, tuple[int, int]],
    ) -> None:
        gl = self._gl
        for unit, (texture, sampler) in bound.items():
            gl.glActiveTexture(GL.TEXTURE0 + unit)
            gl.glBindTexture(GL.TEXTURE_2D, texture)
            gl.glBindSampler(unit, sampler)
        gl.glActiveTexture(values["active texture"][0])
        gl.glBindFramebuffer(GL.DRAW_FRAMEBUFFER, values["draw framebuffer"][0])
        gl.glBindFramebuffer(GL.READ_FRAMEBUFFER, values["read framebuffer"][0])
        gl.glViewport(*values["viewport"])
        gl.glScissor(*values["scissor"])
        gl.glColorMask(*values["color mask"])
        gl.glDepthMask(*values["depth mask"])
        blending = ("blend func", "blend func dst", "blend func alpha", "blend func dst alpha")
        self._blend_func(*(values[name][0] for name in blending))
        self._blend_equation(values["blend equation"][0], values["blend equation alpha"][0])
        gl.glUseProgram(values["program"][0])
        gl.glBindVertexArray(values["vertex array"][0])
        gl.glBindBuffer(GL.ARRAY_BUFFER, values["array buffer"][0])
        gl.glBindBuffer(GL.PIXEL_UNPACK_BUFFER, values["unpack buffer"][0])
        for switch, on in switches.items():
            (gl.glEnable if on else gl.glDisable)(switch)
        for number, value in transfers.items():
            gl.glPixelStorei(number, value)

    def _read(self, number: int, count: int = 1) -> tuple[int, ...]:
        whole = (ctypes.c_int * 4)()
        self._gl.glGetIntegerv(number, whole)
        return tuple(whole[:count])
