"""How long work on a GL device took, learned without waiting: timestamps, or fences that are looked at."""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

from engine.backends.pieces import Between
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


class FenceLap:
    """What was issued since `started`: a fence behind it, and when that was seen open or not."""

    def __init__(self, device: GLDevice, started: float) -> None:
        self._device = device
        self._started = started
        self._fence: int = device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        self._latest = started
        self._found: Between | None = None

    def result(self) -> Between | None:
        """Bounds for what it took, once the fence is open. Never waits."""
        if self._found is None:
            now = perf_counter()
            if self._device.poll(self._fence):
                self._end(self._latest, now)
            else:
                self._latest = now
        return self._found

    def has_ended(self) -> float:
        """It ended just now; returns when that is."""
        now = perf_counter()
        if self._found is None:
            self._end(now, now)
        return now

    def _end(self, least: float, most: float) -> None:
        self._found = Between(least - self._started, most - self._started)
        with self._device.current(flush=False):
            self._device.gl.glDeleteSync(self._fence)
