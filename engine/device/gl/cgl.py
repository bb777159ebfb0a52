"""OpenGL contexts through CGL: every context on macOS, regardless of its creator."""

from __future__ import annotations

import ctypes
from typing import Any

from engine.base.errors import DeviceError
from engine.device.gl.context import Binding, NativeContext, Platform, exported

_LIBRARY = "/System/Library/Frameworks/OpenGL.framework/OpenGL"

_p, _i = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "CGLGetCurrentContext": (_p,),
    "CGLSetCurrentContext": (_i, _p),
    "CGLGetPixelFormat": (_p, _p),
    "CGLCreateContext": (_i, _p, _p, _p),
    "CGLDestroyContext": (_i, _p),
}


class CGL(Platform):
    """CGL, bound from the OpenGL framework."""

    name = "CGL"
    functions = _FUNCTIONS
    current = (("CGLGetCurrentContext",),)
    """CGL ties the window to the context."""
    make = "CGLSetCurrentContext"

    @classmethod
    def loaded(cls) -> CGL | None:
        """The CGL library; None if it cannot be loaded."""
        try:
            return cls(ctypes.CDLL(_LIBRARY))
        except OSError:
            return None

    def make_current(self, binding: Binding) -> None:
        """Make a context current on this thread. Raises `DeviceError`."""
        error = self._make(*binding)
        if error:
            raise DeviceError(f"CGL cannot make an OpenGL context current (error {error})")

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown."""
        return exported(self._library, name)

    def create_sibling(self, version: tuple[int, int], of: Binding | None = None) -> NativeContext:
        """A context that shares objects with the current one and has its pixel format, so its version too.

        Raises `DeviceError`.
        """
        game = self.current_context()
        handle = ctypes.c_void_p()
        error = self._api.CGLCreateContext(self._api.CGLGetPixelFormat(game), game, ctypes.byref(handle))
        if error or not handle.value:
            raise DeviceError(
                f"CGL cannot create a context that shares objects with the game's (error {error}); let the"
                " window library create its context with version 3.3 or later and the core profile"
            )
        return NativeContext(self, (handle.value,))

    def destroy(self, context: NativeContext) -> None:
        """Destroy a context."""
        self._api.CGLDestroyContext(context.handle)
