"""`Fence`: a fence in an OpenGL command stream that can be polled."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

from engine.base.errors import DeviceError
from engine.device.gl.functions import GL

if TYPE_CHECKING:
    from engine.device.gl.device import GLDevice


def has_passed(status: int) -> bool:
    """Whether a result of `glClientWaitSync` means that the fence was passed.

    Raises `DeviceError` for an answer that says nothing, as drivers give where no context is current.
    """
    if status in (GL.ALREADY_SIGNALED, GL.CONDITION_SATISFIED):
        return True
    if status == GL.TIMEOUT_EXPIRED:
        return False
    raise DeviceError(f"OpenGL cannot tell whether a fence was passed (answer 0x{status:04x})")


class Fence:
    """A fence after the commands issued in the current context, the device's or the game's.

    It is deleted once it was seen open.
    """

    def __init__(self, device: GLDevice) -> None:
        self._device = device
        self._name: int = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        # May run on any thread, also where nobody asks any more: the device calls it later.
        deletion = partial(device.gl.glDeleteSync, self._name)
        self._finalizer = weakref.finalize(self, device.call_later, deletion)
        self._finalizer.atexit = False

    def is_open(self) -> bool:
        """Whether the commands before it have completed. Never waits."""
        if self._finalizer.alive and self._device.poll(self._name):
            self._finalizer()
        return not self._finalizer.alive

    def wait(self) -> None:
        """Block until it is open; for a script, not for a frame loop."""
        if self._finalizer.alive:
            self._device.wait(self._name)
            self._finalizer()
