"""A shared context, in which another thread compiles programs in the background."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.base.errors import DeviceError, DisposedError
from engine.device.gl.context import NativeContext
from engine.device.gl.context_switch import ContextSwitch
from engine.device.gl.fence import has_passed
from engine.device.gl.functions import GL, GLFunctions, raise_recorded
from engine.device.gl.limits import GLLimits

_SECOND = 1_000_000_000
"""In the nanoseconds of OpenGL."""


class _ClosedFunctions(GLFunctions):
    """Replaces the GL functions of a context whose window is being closed: every lookup raises."""

    def address(self, name: str) -> int:
        """Raises `DeviceError`."""
        raise DeviceError("the window that this shared OpenGL context belongs to was closed")


class SharedContext:
    """Made by `GLDevice.create_shared`; belongs to the thread that enters it first.

    Attributes:
        gl: the raw entry points, for use inside `with shared.current():` only. Calls release the GIL.
        limits: those of the device that it was made for.
    """

    def __init__(self, native: NativeContext, limits: GLLimits) -> None:
        self.limits = limits
        self._trash: deque[Callable[[], Any]] = deque()
        self._depth = 0
        self._in_use = threading.RLock()
        self._native = native
        self._switch = ContextSwitch(native)
        self._thread: int | None = None
        self._disposed = False
        self.gl = GLFunctions(native.platform)
        native.stop = self.stop

    def check_errors(self, doing: str) -> None:
        """Raise `DeviceError` (`OutOfMemoryError`) if OpenGL recorded an error in this context."""
        with self.current():
            raise_recorded(self.gl.glGetError(), doing)

    def call_later(self, function: Callable[[], Any]) -> None:
        """Schedule a function for when the context is left, with the context current."""
        self._trash.append(function)

    @contextmanager
    def current(self, *, flush: bool = True) -> Iterator[SharedContext]:
        """Context manager that makes the context current on this thread; may be nested.

        What the block made may be used by other contexts afterwards: it ends by waiting until the GPU has
        finished, which concerns this thread only. Raises `DeviceError` on a second thread and once the window
        is closed, `DisposedError` after `dispose`. `flush` is there for those who take this for a device.
        """
        if self._disposed:
            raise DisposedError("this shared OpenGL context was disposed; create another one")
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        if self._thread != thread:
            raise DeviceError("a shared OpenGL context belongs to the thread that entered it first")
        with self._in_use:
            self._native.platform.check_alive(self._native)
            self._switch.enter()
            self._depth += 1
            try:
                yield self
                if self._depth > 1:
                    return
                while self._trash:
                    self._trash.popleft()()
                fence = self.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
                while not has_passed(self.gl.glClientWaitSync(fence, GL.SYNC_FLUSH_COMMANDS_BIT, _SECOND)):
                    pass
                self.gl.glDeleteSync(fence)
            finally:
                self._depth -= 1
                self._switch.leave()

    def stop(self) -> None:
        """Have its thread leave it, whose next call fails, and return then."""
        self.gl = _ClosedFunctions(self._native.platform)
        with self._in_use:
            pass

    def hand_over(self) -> None:
        """Transfer the context to the thread that enters it next; it must not be in use."""
        self._thread = None

    def dispose(self) -> None:
        """Destroy the context, once its thread has left it. A second call does nothing."""
        with self._in_use:
            if not self._disposed:
                self._disposed = True
                self._native.destroy()
