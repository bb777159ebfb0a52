"""Creates the native OpenGL context of a `GLDevice`, and the moderngl context for it."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import moderngl

from engine.base.errors import DeviceError
from engine.device.gl.context import VERSIONS, NativeContext, Platform
from engine.device.gl.context_switch import current_platform
from engine.device.gl.egl import EGL
from engine.device.gl.functions import GLFunctions, Loader
from engine.device.gl.limits import query_version_code

_OLDEST_VERSION = 330


def create_native(ctx: moderngl.Context | None) -> tuple[NativeContext, int]:
    """(the context for a device, the handle of the game's context that it shares with, 0 for a private one).

    What is current on this thread stays so. Raises `DeviceError`.
    """
    if ctx is None:
        platform = current_platform()
        return (_create_private(), 0) if platform is None else _create_sibling_of_current(platform)
    with made_current(ctx):
        platform = current_platform()
        if platform is None:
            raise DeviceError(
                "the moderngl context is not current on this thread; create the device on the thread and at"
                " a time when the game may draw"
            )
        return _create_sibling_of_current(platform)


def wrap_in_moderngl(loader: Loader) -> moderngl.Context:
    """A moderngl context over the native one that is current now; moderngl's default one stays."""
    try:
        with _keeping_default_context():
            create: Any = moderngl.create_context
            ctx: moderngl.Context = create(context=loader)
    except ValueError as error:
        raise DeviceError(f"inference needs OpenGL 3.3 or later: {error}") from error
    # Objects that are dropped wait for `collect` on the context's thread; "auto" would free them on any.
    ctx.gc_mode = "context_gc"
    return ctx


@contextmanager
def _keeping_default_context() -> Iterator[None]:
    """Context manager: a context that moderngl creates does not become its default one."""
    store: Any = getattr(moderngl, "_store", None)
    default = getattr(store, "default_context", None)
    try:
        yield
    finally:
        if store is not None:
            store.default_context = default


def default_context_if_current() -> moderngl.Context | None:
    """moderngl's default context if it is the one that is current on this thread, else None."""
    ctx = getattr(getattr(moderngl, "_store", None), "default_context", None)
    platform = current_platform()
    if not isinstance(ctx, moderngl.Context) or platform is None:
        return None
    handle = platform.current_context()
    with made_current(ctx):
        is_current = platform.current_context() == handle
    return ctx if is_current else None


def destroy_abandoned(native: NativeContext, thread: int) -> None:
    """Destroy the context of a device that was not disposed, if that is safe."""
    if threading.get_ident() == thread:
        native.destroy()
    else:
        warnings.warn(
            "a GLDevice was dropped on another thread than its own without dispose(); its context is lost"
            " until the process ends",
            ResourceWarning,
            stacklevel=2,
        )


def _create_sibling_of_current(platform: Platform) -> tuple[NativeContext, int]:
    version = query_version_code(GLFunctions(platform))
    if version < _OLDEST_VERSION:
        raise DeviceError(
            f"the game's OpenGL context is version {version / 100:.1f}; inference needs 3.3 or later: ask the"
            " window library for version 3.3 and the core profile before it creates the window"
        )
    return _newest_sibling(platform, (version // 100, version // 10 % 10)), platform.current_context()


def _newest_sibling(platform: Platform, game_version: tuple[int, int]) -> NativeContext:
    """A sibling of the newest version: compute shaders need 4.3, and games ask for less.

    Raises `DeviceError` where not even one of the game's own version does.
    """
    for version in VERSIONS:
        if version > game_version:
            with suppress(DeviceError):
                return platform.create_sibling(version)
    return platform.create_sibling(game_version)


@contextmanager
def made_current(ctx: moderngl.Context) -> Iterator[None]:
    """Context manager: makes a context current through moderngl, then restores the previous one.

    A context that its loader cannot make current is taken to be current.
    """
    before = current_platform()
    binding = before.binding() if before is not None else None
    try:
        ctx.__enter__()
    except AttributeError:
        # The loader is not a context manager.
        yield
        return
    try:
        yield
    finally:
        ctx.__exit__(None, None, None)
        if before is not None and binding is not None and before.current_context() != binding[-1]:
            before.make_current(binding)


def _create_private() -> NativeContext:
    """A context without window, not current."""
    egl = EGL.load() if sys.platform not in ("win32", "darwin") else None
    if egl is None:
        return _create_hidden()
    try:
        return egl.create_headless()
    except DeviceError:
        if not os.environ.get("DISPLAY"):
            raise
        # An X server may still offer what EGL does not.
        return _create_hidden()


def _create_hidden() -> NativeContext:
    """Create a context with moderngl's hidden window, for systems without EGL."""
    try:
        with _keeping_default_context():
            ctx = moderngl.create_standalone_context()
    except Exception as error:  # glcontext raises plain Exception
        raise DeviceError(
            f"this machine offers no OpenGL ({error}); install a graphics driver, on Linux also libegl1 and"
            " libgl1-mesa-dri, or use BackendType.CPU"
        ) from error
    platform = current_platform()
    if platform is None:
        raise DeviceError("moderngl created an OpenGL context, but no platform shows it as current")
    binding = platform.binding()
    platform.release_current(binding)
    return _HiddenContext(platform, binding, ctx)


class _HiddenContext(NativeContext):
    """A context that glcontext created, and destroys."""

    def __init__(self, platform: Platform, binding: tuple[int, ...], ctx: moderngl.Context) -> None:
        super().__init__(platform, binding)
        self._ctx = ctx

    def destroy(self) -> None:
        self._ctx.release()
