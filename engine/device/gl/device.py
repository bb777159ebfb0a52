"""`GLDevice`: the OpenGL context in which inference runs; it shares objects with the game's context."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, NoReturn, cast

import moderngl

from engine.base import instrumentation
from engine.base.errors import DeviceError, DisposedError, ThreadError
from engine.base.lifetime import Disposable
from engine.device.counters import DeviceCounters
from engine.device.gl import counting
from engine.device.gl.context import Binding
from engine.device.gl.context_switch import ContextSwitch, current_platform
from engine.device.gl.create import (
    create_native,
    default_context_if_current,
    destroy_abandoned,
    made_current,
    wrap_in_moderngl,
)
from engine.device.gl.current_context import DISPOSED, CurrentContext, DeviceLoader
from engine.device.gl.fence import has_passed
from engine.device.gl.functions import GL, GLFunctions, Loader, raise_recorded
from engine.device.gl.limits import GLInfo, GLLimits
from engine.device.gl.sentinel import Sentinel
from engine.device.gl.shared_context import SharedContext
from engine.device.gl.staging import StagingPool
from engine.device.gl.timer_queries import GLTimer

_LOST = "the OpenGL context was lost (driver reset); create the window and its workers again"
_FORKED = "an OpenGL context does not survive a fork: make devices and workers in the child process itself"


class GLDevice(Disposable):
    """An OpenGL context of the engine's own, on the thread that created it.

    With a moderngl context (or one that is current on this thread) it is a sibling of that context: it shares
    buffers, textures, programs and fences, and has all other state to itself, so the game's drawing and the
    engine's work cannot disturb each other. Otherwise it is a private context without a window.

    Attributes:
        ctx: a moderngl context over the device's own context; use it inside `with device.current():` only.
        gl: the raw entry points, see `GLFunctions`; likewise.
        info: renderer, vendor, version, extensions.
        limits: what kernels must respect: the context's own limits, or stricter ones given by the caller.
        counters: what was moved and waited for.
        staging: buffers for readbacks and uploads that never wait.
        timer: the timestamps of this context; use it inside `with device.current():` only.
        shares_with_game: whether the device is a sibling of the game's context.
        name: "gl".
    """

    name = "gl"
    _owns_memory = False

    def __init__(
        self,
        ctx: moderngl.Context | None = None,
        *,
        limits: GLLimits | None = None,
        loader_wrapper: Callable[[Loader], Loader] | None = None,
    ) -> None:
        """Create the context.

        Args:
            ctx: the game's moderngl context, current on this thread; None takes the one that is current,
                or creates a private one.
            limits: limits to pretend, never looser than the context's own; for tests.
            loader_wrapper: wraps the loader, such as `CountingLoader`; for tests.

        Raises `DeviceError` where the platform offers no such context.
        """
        super().__init__()
        self._thread = threading.get_ident()
        self._lost = ""
        self._native, self._game_handle = create_native(ctx)
        self.shares_with_game = self._game_handle != 0
        self._switch = ContextSwitch(self._native)
        self._trash: deque[Callable[[], Any]] = deque()
        loader: Loader = DeviceLoader(self._native.platform)
        wrap = loader_wrapper or counting.loader_wrapper()
        if wrap is not None:
            loader = wrap(loader)
        self.counters = DeviceCounters()
        self.gl = GLFunctions(loader)
        self.timer = GLTimer(self.gl)
        self._wants_flush = self._wants_publishing = False
        self._switch.enter()
        try:
            self.info = GLInfo.query(self.gl)
            own_limits = GLLimits.query(self.gl, self.info.version_code)
            self.limits = own_limits if limits is None else limits.restricted_to(own_limits)
            self.ctx = wrap_in_moderngl(loader)
            self._sentinel = Sentinel(self.gl)
            self.gl.glPixelStorei(GL.PACK_ALIGNMENT, 1)
            self.gl.glPixelStorei(GL.UNPACK_ALIGNMENT, 1)
        finally:
            self._switch.leave()
        self.staging = StagingPool(self)
        self._spare: list[SharedContext] = []
        self._lent: list[SharedContext] = []
        self._creating = threading.Lock()
        self._finalizer = weakref.finalize(self, destroy_abandoned, self._native, self._thread)
        self._finalizer.atexit = False
        _by_own_context[self.ctx] = weakref.ref(self)
        _devices.add(self)
        if self._game_handle and not self._native.platform.creates_anywhere(self._native.binding):
            # Now rather than in a frame, as it takes milliseconds.
            with contextlib.suppress(DeviceError):
                self._spare.append(self.create_shared())

    @classmethod
    def for_context(cls, ctx: moderngl.Context | None = None) -> GLDevice:
        """The device of a moderngl context, the same one each time; contexts are expensive.

        With None: the device of the context that is current on this thread, else this thread's private one.
        """
        if ctx is None:
            ctx = default_context_if_current()
        if ctx is not None:
            return _device_of_context(ctx)
        return _private_device() if current_platform() is None else _device_of_current(None)

    def current(
        self, *, after_game: bool = False, before_game: bool = False, flush: bool = True
    ) -> CurrentContext:
        """Context manager that makes the device's context current; may be nested.

        Leaving makes current what was so before, be it none.

        Args:
            after_game: what the block does on the GPU waits there for what the game issued before; needed
                to read what the game has just drawn or written.
            before_game: what the game issues afterwards waits, on the GPU, for what the block did; needed
                when the game reads a result as a texture or buffer.
            flush: hand the commands to the GPU on leaving; False for blocks that issued none.
        """
        return CurrentContext(self, after_game, before_game, flush)

    def create_shared(self) -> SharedContext:
        """Another context with the same objects, for one other thread: to compile programs in the background.

        Raises `DeviceError` where the platform refuses.
        """
        with self.current(flush=False):
            return self._new_shared()

    def _new_shared(self, of: Binding | None = None) -> SharedContext:
        version = self.info.version_code
        sibling = self._native.platform.create_sibling((version // 100, version // 10 % 10), of)
        return SharedContext(sibling, self.limits)

    def borrow_shared(self) -> SharedContext:
        """One from `create_shared`, or one that was given back; making one takes milliseconds."""
        self.check()
        context = self._spare.pop() if self._spare else self.create_shared()
        self._lent.append(context)
        return context

    def shared_maker(self) -> Callable[[], None] | None:
        """A function that creates a context for `borrow_shared` on any thread; None if unavailable.

        Where the platform refuses, it does nothing.
        """
        native = self._native
        if self._spare or not native.platform.creates_anywhere(native.binding):
            return None

        def make() -> None:
            with self._creating, contextlib.suppress(DeviceError):
                if self._disposed:
                    return
                native.platform.check_alive(native)
                self._spare.append(self._new_shared(native.binding))

        return make

    def give_back_shared(self, context: SharedContext) -> None:
        """Return a shared context to the pool; its thread must be done with it."""
        context.hand_over()
        self._lent.remove(context)
        if self._disposed:
            context.dispose()
        else:
            self._spare.append(context)

    def poll(self, fence: int) -> bool:
        """Whether the GPU has passed a fence; never waits.

        It needs no switch of contexts while the game's is current.

        Raises `DeviceError` if the driver cannot tell, as when the context was lost.
        """
        self.check()
        current = self._native.platform.current_context()
        # A private device has no game's context: 0, as is the answer where nothing is current.
        if current and current in (self._native.handle, self._game_handle):
            return self._has_passed(self.gl.glClientWaitSync(fence, 0, 0))
        with self.current(flush=False):
            return self._has_passed(self.gl.glClientWaitSync(fence, 0, 0))

    def wait(self, fence: int) -> None:
        """Block until the GPU has passed a fence; counted as a blocking call.

        Raises `DeviceError` if the driver cannot tell, as when the context was lost.
        """
        with self.current():
            self.counters.blocking["glClientWaitSync"] += 1
            instrumentation.count("blocking calls", 1)
            flush, second = GL.SYNC_FLUSH_COMMANDS_BIT, 1_000_000_000
            while not self._has_passed(self.gl.glClientWaitSync(fence, flush, second)):
                pass

    def _has_passed(self, status: int) -> bool:
        if status == GL.WAIT_FAILED:
            self._lose(_LOST)
        return has_passed(status)

    def _lose(self, reason: str) -> NoReturn:
        """Raise `DeviceError(reason)`, now and at every further use: the context is gone."""
        self._lost = reason
        self._thread = 0  # the one test that `check` makes fails from here on
        raise DeviceError(reason)

    def check_errors(self, doing: str) -> None:
        """Raise `DeviceError` (`OutOfMemoryError`) if OpenGL recorded an error.

        Asks the driver, so not for the frame loop.
        """
        with self.current(flush=False):
            error = self.gl.glGetError()
        if error == GL.CONTEXT_LOST:
            self._lose(_LOST)
        raise_recorded(error, doing)

    def call_later(self, function: Callable[[], Any]) -> None:
        """Schedule a function for the next `collect`, with the context current; from any thread."""
        self._trash.append(function)

    def dispose(self) -> None:
        """Destroy the context; call it before the game's window closes. A second call does nothing.

        Raises `ThreadError` on another thread than the device's.
        """
        if self._disposed:
            return
        if not self._lost:
            self.check()
        # A window that was closed first took its objects with it: what is left is to forget them.
        with contextlib.suppress(DeviceError), self.current():
            self.staging.dispose()
            self.timer.release()
            self._sentinel.delete()
            self.collect()
        # The display may be closed next, in whose library a thread must not be then.
        with self._creating:
            self._disposed = True
        for shared in (*self._spare, *self._lent):
            shared.dispose()
        self._spare.clear()
        self._finalizer.detach()
        if self._lost != _FORKED:
            self._native.destroy()
        self.ctx = cast(moderngl.Context, DISPOSED)
        self.gl = cast(GLFunctions, DISPOSED)

    def check(self) -> None:
        """Raise `DisposedError` after `dispose`, `ThreadError` on another thread than the device's, and
        `DeviceError` where the context was lost.
        """
        if self._disposed:
            raise DisposedError("this OpenGL device was disposed; create another one")
        if threading.get_ident() != self._thread:
            if self._lost:
                raise DeviceError(self._lost)
            raise ThreadError(
                "an OpenGL device belongs to the thread that created it; schedule, poll and dispose there,"
                " and pass arrays to other threads"
            )

    @property
    def is_lost(self) -> bool:
        """Whether the context was found to be gone: a driver reset, or a fork."""
        return bool(self._lost)

    @property
    def platform_name(self) -> str:
        """The window system interface in use: EGL, GLX, WGL or CGL."""
        return self._native.platform.name

    def __repr__(self) -> str:
        state = (
            "disposed"
            if self._disposed
            else f"{self.info.renderer}, OpenGL {self.info.version_code / 100:.1f}"
        )
        return f"<GLDevice {state}>"

    def is_shared_with_current(self) -> bool:
        """Whether the context current on this thread shares objects with the device's; asks the driver."""
        is_current = self._native.platform.current_context() != 0
        is_usable = not self._disposed and not self._lost
        return is_usable and is_current and self._sentinel.is_in_current()

    def collect(self, seconds: float = math.inf) -> int:
        """Release dropped resources within a time limit; the rest follows next time.

        Inside `current()`, which calls it for a moment. Returns how many objects were released.
        """
        count, end = 0, perf_counter() + seconds
        while self._trash:
            self._trash.popleft()()
            count += 1
            if perf_counter() > end:
                return count
        # Not `ctx.gc()`: it fails on an object that was released before it was dropped.
        dropped = self.ctx.objects
        while dropped:
            release = getattr(dropped.popleft(), "release", None)
            if release is not None:
                release()
                count += 1
        return count


# The device of each context; none keeps a context alive. A device's own context leads to it, too.
_by_context: weakref.WeakKeyDictionary[moderngl.Context, GLDevice] = weakref.WeakKeyDictionary()
_by_own_context: weakref.WeakKeyDictionary[moderngl.Context, weakref.ref[GLDevice]]
_by_own_context = weakref.WeakKeyDictionary()
_by_handle: weakref.WeakValueDictionary[tuple[str, int], GLDevice] = weakref.WeakValueDictionary()
_private: weakref.WeakValueDictionary[int, GLDevice] = weakref.WeakValueDictionary()


def _device_of_context(ctx: moderngl.Context) -> GLDevice:
    own = _by_own_context.get(ctx)
    device = own() if own is not None else _by_context.get(ctx)
    if device is None or device.is_disposed or device.is_lost:
        with made_current(ctx):
            device = _by_context[ctx] = _device_of_current(ctx)
    return device


def _device_of_current(ctx: moderngl.Context | None) -> GLDevice:
    """The device of this thread's current context, for any moderngl context of it."""
    platform = current_platform()
    if platform is None:
        return GLDevice(ctx)
    key = (platform.name, platform.current_context())
    device = _by_handle.get(key)
    # The handle of a destroyed context may return as that of an unrelated one.
    if device is None or not device.is_shared_with_current():
        device = _by_handle[key] = GLDevice(ctx)
    return device


def _private_device() -> GLDevice:
    key = threading.get_ident()
    device = _private.get(key)
    if device is None or device.is_disposed or device.is_lost:
        device = _private[key] = GLDevice()
    return device


_devices: weakref.WeakSet[GLDevice] = weakref.WeakSet()


class _Process:
    """Stands for this process: its finalizer runs at the end."""


def _dispose_devices() -> None:
    """Dispose this thread's devices: NVIDIA's driver crashes at exit where buffers are left in a context."""
    here = threading.get_ident()
    for device in [d for d in _devices if d._thread == here and not d._disposed]:
        # That the game's context is gone is as it should be.
        logging.getLogger("engine").setLevel(logging.CRITICAL)
        for shared in device._lent:
            shared.stop()
        with contextlib.suppress(DeviceError):
            device.dispose()


# Finalizers run in reverse order: those of objects, which leave them to their device, come before.
_process = _Process()
weakref.finalize(_process, _dispose_devices)


def _after_fork_in_child() -> None:
    for device in list(_devices):
        with contextlib.suppress(DeviceError):
            device._lose(_FORKED)
        # A thread that only the parent has may hold it.
        device._creating = threading.Lock()
        device._finalizer.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
