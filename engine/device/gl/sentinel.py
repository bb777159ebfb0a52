"""`Sentinel`: tests whether the current OpenGL context shares objects with another."""

from __future__ import annotations

import ctypes
import itertools

from engine.device.gl.functions import GL, GLFunctions

_numbers = itertools.count()


class Sentinel:
    """A shader that is never compiled and whose source no other has in this process.

    Names and handles of objects, fences among them, are small numbers in some drivers, the same ones in
    contexts that have nothing in common.
    """

    def __init__(self, gl: GLFunctions) -> None:
        self._gl = gl
        self._source = f"// gameglue {next(_numbers)}".encode()
        self._name: int = gl.glCreateShader(GL.VERTEX_SHADER)
        gl.glShaderSource(self._name, 1, ctypes.byref(ctypes.c_char_p(self._source)), None)

    def is_in_current(self) -> bool:
        """Whether the context that is current on this thread has it. Binds nothing."""
        if not self._gl.glIsShader(self._name):
            return False
        found = ctypes.create_string_buffer(len(self._source) + 1)
        self._gl.glGetShaderSource(self._name, len(found), None, found)
        return found.value == self._source

    def delete(self) -> None:
        """Delete the shader; a context that shares with its own must be current."""
        self._gl.glDeleteShader(self._name)
