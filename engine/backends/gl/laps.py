"""How long work on a GL device took, learned without waiting: timestamps, or fences."""

from __future__ import annotations

import weakref
from itertools import pairwise

from engine.devices import GL, GLDevice


class StampLaps:
    """What stretches of work took that follow each other, by the device's timestamps around them."""

    def __init__(self, device: GLDevice) -> None:
        self._device = device
        self._stamps = [device.timer.stamp()]
        self._times: list[float] | None = None

    def lap(self) -> None:
        """A stretch ends here, and the next one begins."""
        self._stamps.append(self._device.timer.stamp())

    def end(self) -> None:
        """The last one has ended."""
        self._device.timer.tell(self._stamps, self._take)

    def _take(self, times: list[float]) -> None:
        self._times = times

    def result(self) -> list[float] | None:
        """Seconds of each; None while they have not come. Never waits."""
        if self._times is None:
            with self._device.current(flush=False):
                self._device.timer.collect()
        if self._times is None:
            return None
        return [after - before for before, after in pairwise(self._times)]


class Fence:
    """A mark behind what was issued, which is deleted once it was seen open. The context is current."""

    def __init__(self, device: GLDevice) -> None:
        self._device = device
        self._name: int = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        # May run on any thread, also where nobody asks any more: the device calls it later.
        deletion = _DeleteFence(weakref.ref(device), self._name)
        self._finalizer = weakref.finalize(self, device.call_later, deletion)
        self._finalizer.atexit = False

    def is_open(self) -> bool:
        """Whether the device has done what was issued before it. Never waits."""
        if self._finalizer.alive and self._device.poll(self._name):
            self._finalizer()
        return not self._finalizer.alive


class _DeleteFence:
    def __init__(self, device: weakref.ref[GLDevice], fence: int) -> None:
        self._device = device
        self._fence = fence

    def __call__(self) -> None:
        device = self._device()
        if device is not None:
            device.gl.glDeleteSync(self._fence)
