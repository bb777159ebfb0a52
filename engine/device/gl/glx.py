"""OpenGL contexts through GLX: windows of SDL (pygame) and glfw on X11."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.base.errors import DeviceError
from engine.device.gl.connections import Connections
from engine.device.gl.context import (
    NO_FLUSH_ON_RELEASE,
    ROBUST,
    Binding,
    NativeContext,
    Platform,
    attribute_list,
    bind_functions,
    exported,
)

_FBCONFIG_ID, _SCREEN, _DRAWABLE_TYPE, _PBUFFER_BIT = 0x8013, 0x800C, 0x8010, 0x0004
_PBUFFER_HEIGHT, _PBUFFER_WIDTH = 0x8040, 0x8041
_NO_ERROR = 0x31B3

_LOCK_FUNCTIONS = 2408
"""Where `lock_fns` is in Xlib's display on 64-bit systems (Xlibint.h); null without threads."""

_p, _i, _xid = ctypes.c_void_p, ctypes.c_int, ctypes.c_ulong
_GLX_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "glXGetCurrentContext": (_p,),
    "glXGetCurrentDisplay": (_p,),
    "glXGetCurrentDrawable": (_xid,),
    "glXGetCurrentReadDrawable": (_xid,),
    "glXMakeContextCurrent": (_i, _p, _xid, _xid, _p),
    "glXQueryContext": (_i, _p, _p, _i, _p),
    "glXQueryExtensionsString": (ctypes.c_char_p, _p, _i),
    "glXGetFBConfigs": (_p, _p, _i, _p),
    "glXChooseFBConfig": (_p, _p, _i, _p, _p),
    "glXGetFBConfigAttrib": (_i, _p, _p, _i, _p),
    "glXCreatePbuffer": (_xid, _p, _p, _p),
    "glXDestroyPbuffer": (None, _p, _xid),
    "glXDestroyContext": (None, _p, _p),
    "glXGetProcAddressARB": (_p, ctypes.c_char_p),
}
_X11_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "XSync": (_i, _p, _i),
    "XFree": (_i, _p),
    "XSetErrorHandler": (_p, _p),
}
_ERROR_HANDLER = ctypes.CFUNCTYPE(_i, _p, _p)


class GLX(Platform):
    """GLX and the four functions of Xlib that go with it."""

    name = "GLX"
    functions = _GLX_FUNCTIONS
    current = (
        ("glXGetCurrentDisplay",),
        ("glXGetCurrentDrawable",),
        ("glXGetCurrentReadDrawable",),
        ("glXGetCurrentContext",),
    )
    make = "glXMakeContextCurrent"
    keeps_display = True

    def __init__(self, library: ctypes.CDLL, x11: ctypes.CDLL) -> None:
        super().__init__(library)
        self._x11 = bind_functions(x11, _X11_FUNCTIONS)
        self._connections = Connections(x11)

    @classmethod
    def loaded(cls) -> GLX | None:
        """GLX if this process has loaded its library and Xlib, else None."""
        mode = os.RTLD_NOLOAD | os.RTLD_LAZY
        try:
            x11 = ctypes.CDLL("libX11.so.6", mode=mode)
        except OSError:
            return None
        for name in ("libGL.so.1", "libGLX.so.0"):
            try:
                return cls(ctypes.CDLL(name, mode=mode), x11)
            except (OSError, AttributeError):
                continue
        return None

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if unknown."""
        return exported(self._library, name) or self._api.glXGetProcAddressARB(name.encode()) or 0

    def create_sibling(self, version: tuple[int, int], of: Binding | None = None) -> NativeContext:
        """A core-profile context that shares objects with another. Raises `DeviceError`."""
        before = self.binding()
        shared = before if of is None else of
        display = shared[0]
        config = self._config_of(display, shared[-1])
        # X reports a refusal through a handler whose default ends the process.
        with self._errors_ignored(display):
            handle = self._create_context(display, config, shared[-1], version)
            drawable, pbuffer = self._drawable_for(shared, before, config, handle)
        binding = (display, drawable, drawable, handle)
        connection = self._connections.of(display)
        context = NativeContext(self, binding, (pbuffer, connection))
        connection.contexts.add(context)
        return context

    def destroy(self, context: NativeContext) -> None:
        """Destroy a context and the surface made for it."""
        display = context.binding[0]
        if not context.resources[1].is_open:
            return
        if context.resources[0]:
            self._api.glXDestroyPbuffer(display, context.resources[0])
        self._api.glXDestroyContext(display, context.handle)

    def check_alive(self, context: NativeContext) -> None:
        """Raise `DeviceError` if the display connection behind the context was closed."""
        # Xlib would crash the process on a display that the window library has closed.
        if not context.resources[1].is_open:
            raise DeviceError(
                "the window that this OpenGL device belongs to was closed; dispose workers and devices before"
                " it, and create new ones for a new window"
            )

    def _config_of(self, display: int, context: int) -> int:
        number, screen, count, found = (ctypes.c_int(0) for _ in range(4))
        self._api.glXQueryContext(display, context, _FBCONFIG_ID, ctypes.byref(number))
        self._api.glXQueryContext(display, context, _SCREEN, ctypes.byref(screen))
        # glXChooseFBConfig finds only those for windows, and moderngl's standalone contexts may have another.
        configs = self._configs(self._api.glXGetFBConfigs(display, screen.value, ctypes.byref(count)), count)
        for config in configs:
            self._api.glXGetFBConfigAttrib(display, config, _FBCONFIG_ID, ctypes.byref(found))
            if found.value == number.value:
                return config
        # Mesa reports "don't care" for a context created from a visual, which then matches every window's.
        wanted = attribute_list(_FBCONFIG_ID, number.value)
        chosen = self._api.glXChooseFBConfig(display, screen.value, wanted, ctypes.byref(count))
        for config in self._configs(chosen, count):
            return config
        raise DeviceError(
            "GLX does not tell the configuration of the game's OpenGL context; let the window library"
            " create the context with version 3.3 or later and the core profile"
        )

    def _configs(self, array: int | None, count: ctypes.c_int) -> list[int]:
        """The handles in an array that GLX allocated, which is freed."""
        if not array:
            return []
        handles = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))[: count.value]
        self._x11.XFree(array)
        return [handle for handle in handles if handle]

    def _create_context(self, display: int, config: int, share: int, version: tuple[int, int]) -> int:
        address = self._api.glXGetProcAddressARB(b"glXCreateContextAttribsARB")
        if not address:
            raise DeviceError(
                "GLX lacks glXCreateContextAttribsARB; a graphics driver with OpenGL 3.3 is needed"
            )
        create = ctypes.CFUNCTYPE(_p, _p, _p, _p, _i, _p)(address)
        screen = ctypes.c_int(0)
        self._api.glXQueryContext(display, share, _SCREEN, ctypes.byref(screen))
        extensions = (self._api.glXQueryExtensionsString(display, screen.value) or b"").decode().split()
        attempts: list[tuple[int, ...]] = [()]
        if "GLX_ARB_context_flush_control" in extensions:
            attempts.insert(0, NO_FLUSH_ON_RELEASE)
        # Sharing demands that both contexts agree on these, and GLX cannot be asked what the game chose.
        if "GLX_ARB_create_context_robustness" in extensions:
            attempts.append(ROBUST)
        if "GLX_ARB_create_context_no_error" in extensions:
            attempts.append((_NO_ERROR, 1))
        return self.first_created(lambda wanted: create(display, config, share, 1, wanted), version, attempts)

    def creates_anywhere(self, of: Binding) -> bool:
        """Whether Xlib was initialised for threads: SDL, glfw and libX11 since 1.8 do so."""
        # No function tells. What Xlib's macros read is part of its interface to extension libraries.
        is_known = ctypes.sizeof(ctypes.c_void_p) == ctypes.sizeof(ctypes.c_long) == 8
        return is_known and bool(ctypes.c_void_p.from_address(of[0] + _LOCK_FUNCTIONS).value)

    def _drawable_for(self, shared: Binding, before: Binding, config: int, handle: int) -> tuple[int, int]:
        """The default drawable of the context and the pixel buffer created for it, if any.

        before: what this thread goes back to.
        """
        display = shared[0]
        for make_pbuffer in (False, True):
            pbuffer = self._pbuffer(display, config) if make_pbuffer else 0
            if make_pbuffer and not pbuffer:
                continue
            works = self._api.glXMakeContextCurrent(display, pbuffer, pbuffer, handle)
            self._x11.XSync(display, 0)
            works = works and self._api.glXGetCurrentContext() == handle
            self._api.glXMakeContextCurrent(display, *before[1:])
            if works:
                return pbuffer, pbuffer
            if pbuffer:
                self._api.glXDestroyPbuffer(display, pbuffer)
        return shared[1], 0

    def _pbuffer(self, display: int, config: int) -> int:
        kinds = ctypes.c_int(0)
        self._api.glXGetFBConfigAttrib(display, config, _DRAWABLE_TYPE, ctypes.byref(kinds))
        if not kinds.value & _PBUFFER_BIT:
            return 0
        return int(
            self._api.glXCreatePbuffer(display, config, attribute_list(_PBUFFER_WIDTH, 1, _PBUFFER_HEIGHT, 1))
        )

    @contextmanager
    def _errors_ignored(self, display: int) -> Iterator[None]:
        handler = _ERROR_HANDLER(lambda display, event: 0)
        self._x11.XSync(display, 0)
        previous = self._x11.XSetErrorHandler(ctypes.cast(handler, ctypes.c_void_p))
        try:
            yield
        finally:
            self._x11.XSync(display, 0)
            self._x11.XSetErrorHandler(previous)
