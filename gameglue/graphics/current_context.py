"""The current OpenGL context of a thread, in processes with windows and off-screen apps.

On Linux a window's context usually comes from GLX and an off-screen one from EGL. While a context of the one
is current, the other refuses to make its own so, and X then ends the process. So what is current is released
first. The other systems have one way only, and need none of this.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

import moderngl

SYSTEM = platform.system()

_EGL_DRAW, _EGL_READ = 0x3059, 0x305A


class _Api:
    """The functions of one library that return and release the thread's current context."""

    def __init__(self, library: str, display: str, context: str, make_current: str, nothing: int) -> None:
        self._library = library
        self._names = (display, context, make_current)
        self._nothing = (None,) * nothing
        self._bound: tuple[Any, Any, Any] | None = None

    def _functions(self) -> tuple[Any, Any, Any] | None:
        # Only what the process has loaded already: a library that is not there has no current context.
        if self._bound is None:
            try:
                library = ctypes.CDLL(self._library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            except OSError:
                return None
            display, context, make_current = self._names
            pointer, void = ctypes.c_void_p, [ctypes.c_void_p]
            self._bound = (
                ctypes.CFUNCTYPE(pointer)((display, library)),
                ctypes.CFUNCTYPE(pointer)((context, library)),
                ctypes.CFUNCTYPE(ctypes.c_int, *(void * (1 + len(self._nothing))))((make_current, library)),
            )
        return self._bound

    def current(self) -> int:
        """The handle of the current context, 0 if none."""
        functions = self._functions()
        return (functions[1]() or 0) if functions is not None else 0

    def release(self) -> None:
        """Leave no context current."""
        functions = self._functions()
        if functions is not None and functions[1]():
            functions[2](functions[0](), *self._nothing)


def _apis() -> tuple[_Api, ...]:
    if SYSTEM != "Linux":
        return ()
    return (
        _Api("libEGL.so.1", "eglGetCurrentDisplay", "eglGetCurrentContext", "eglMakeCurrent", 3),
        _Api("libGL.so.1", "glXGetCurrentDisplay", "glXGetCurrentContext", "glXMakeCurrent", 2),
    )


def release_current_context() -> None:
    """Leave this thread without a current context, so that a context of any type can be created."""
    for api in _apis():
        api.release()


class EglContext:
    """The EGL context that is current now, in the form in which moderngl takes a context."""

    def __init__(self, library: ctypes.CDLL, handles: tuple[int, int, int, int]) -> None:
        pointer = ctypes.c_void_p
        self._handles = handles
        self._address = ctypes.CFUNCTYPE(pointer, ctypes.c_char_p)(("eglGetProcAddress", library))
        self._make_current = ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 4)(("eglMakeCurrent", library))

    @classmethod
    def current(cls) -> EglContext | None:
        """The context that is current on this thread, or `None` if EGL has none."""
        if SYSTEM != "Linux":
            return None
        try:
            library = ctypes.CDLL("libEGL.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            return None
        pointer, integer = ctypes.c_void_p, ctypes.c_int
        context = ctypes.CFUNCTYPE(pointer)(("eglGetCurrentContext", library))()
        if not context:
            return None
        display = ctypes.CFUNCTYPE(pointer)(("eglGetCurrentDisplay", library))()
        surface = ctypes.CFUNCTYPE(pointer, integer)(("eglGetCurrentSurface", library))
        return cls(library, (display, surface(_EGL_DRAW) or 0, surface(_EGL_READ) or 0, context))

    def load_opengl_function(self, name: str) -> int:
        """The address of an OpenGL function, 0 if the driver has none of that name."""
        return self._address(name.encode()) or 0

    def __enter__(self) -> EglContext:
        self._make_current(*self._handles)
        return self

    def __exit__(self, *exception: object) -> None:
        """Do nothing: the context stays current until another one is made current."""

    def release(self) -> None:
        """Do nothing: SDL owns the context."""


class ContextGuard:
    """Keeps one context current on its thread: makes it current again if another has replaced it."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._apis = _apis()
        ctx.__enter__()
        # Only one of them can have a current context, so the others need not be asked every frame.
        self._own = next((api for api in self._apis if api.current()), None)
        self._handle = self._own.current() if self._own is not None else 0

    def make_current(self) -> None:
        """Make the context current; cheap if it already is."""
        if self._own is None:
            self._ctx.__enter__()
        elif self._own.current() != self._handle:
            for api in self._apis:
                api.release()
            self._ctx.__enter__()
