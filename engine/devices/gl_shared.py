"""A further context with a device's objects, for a thread that compiles programs in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.devices.gl_context import NativeContext
from engine.devices.gl_functions import GL, GLFunctions
from engine.devices.gl_switch import Switch
from engine.errors import DeviceError, DisposedError


class SharedContext:
    """Made by `GLDevice.create_shared`; belongs to the thread that enters it first.

    Attributes:
        gl: the raw entry points, for use inside `with shared.current():` only. Calls release the GIL.
    """

    def __init__(self, native: NativeContext) -> None:
        self._native = native
        self._switch = Switch(native)
        self._thread: int | None = None
        self._disposed = False
        self.gl = GLFunctions(native.platform)

    @contextmanager
    def current(self) -> Iterator[SharedContext]:
        """A block in which the context is current on this thread.

        What the block made may be used by other contexts afterwards: it ends by waiting until the GPU has
        finished, which concerns this thread only. Raises `DeviceError` on a second thread, `DisposedError`
        after `dispose`.
        """
        if self._disposed:
            raise DisposedError("this shared OpenGL context was disposed; create another one")
        thread = threading.get_ident()
        if self._thread is None:
            self._thread = thread
        if self._thread != thread:
            raise DeviceError("a shared OpenGL context belongs to the thread that entered it first")
        self._switch.enter()
        try:
            yield self
            fence = self.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
            self.gl.glClientWaitSync(fence, GL.SYNC_FLUSH_COMMANDS_BIT, GL.TIMEOUT_IGNORED)
            self.gl.glDeleteSync(fence)
        finally:
            self._switch.leave()

    def dispose(self) -> None:
        """Destroy the context; it must not be in use by its thread. A second call does nothing."""
        if not self._disposed:
            self._disposed = True
            self._native.destroy()
