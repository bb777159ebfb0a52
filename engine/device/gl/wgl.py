"""OpenGL contexts through WGL: windows on Windows."""

from __future__ import annotations

import ctypes
from typing import Any

from engine.base.errors import DeviceError
from engine.device.gl.context import (
    NO_FLUSH_ON_RELEASE,
    ROBUST,
    Binding,
    NativeContext,
    Platform,
    exported,
    is_loaded_on_windows,
)
from engine.device.gl.functions import FUNCTION_TYPE

_p, _i = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "wglGetCurrentContext": (_p,),
    "wglGetCurrentDC": (_p,),
    "wglMakeCurrent": (_i, _p, _p),
    "wglDeleteContext": (_i, _p),
    "wglGetProcAddress": (_p, ctypes.c_char_p),
}
# What wglGetProcAddress returns, apart from NULL, for a function that it does not know.
_UNKNOWN_ADDRESSES = (1, 2, 3, ctypes.c_void_p(-1).value)


class WGL(Platform):
    """WGL, bound from opengl32.dll."""

    name = "WGL"
    functions = _FUNCTIONS
    current = (("wglGetCurrentDC",), ("wglGetCurrentContext",))
    """Of the window, and of OpenGL."""
    make = "wglMakeCurrent"

    @classmethod
    def loaded(cls) -> WGL | None:
        """WGL if this process has loaded its library, else None."""
        windows: Any = ctypes
        return cls(windows.WinDLL("opengl32.dll")) if is_loaded_on_windows("opengl32.dll") else None

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown; a context must be current."""
        address = self._api.wglGetProcAddress(name.encode()) or 0
        if address and address not in _UNKNOWN_ADDRESSES:
            return int(address)
        # The functions of OpenGL 1.1 are the library's own.
        return exported(self._library, name)

    def create_sibling(self, version: tuple[int, int], of: Binding | None = None) -> NativeContext:
        """A core-profile context that shares objects with the current one. Raises `DeviceError`."""
        window, game = self.binding()
        address = self._api.wglGetProcAddress(b"wglCreateContextAttribsARB")
        if not address:
            raise DeviceError("WGL lacks wglCreateContextAttribsARB; install the graphics card's own driver")
        create = FUNCTION_TYPE(_p, _p, _p, _p)(address)
        # Sharing demands that both agree on the last one, and WGL cannot be asked what the game chose.
        attempts = (NO_FLUSH_ON_RELEASE, (), ROBUST)
        handle = self.first_created(lambda wanted: create(window, game, wanted), version, attempts)
        # The window's device context serves both: the engine never draws to it.
        return NativeContext(self, (window, handle))

    def destroy(self, context: NativeContext) -> None:
        """Destroy a context."""
        self._api.wglDeleteContext(context.handle)
