"""Durations of work on a GL device, by timer queries that are never waited for."""

from __future__ import annotations

from itertools import pairwise

from engine.device.gl.device import GLDevice


class TimerQueries:
    """Times of consecutive pieces of work, from the device's timestamps between them."""

    def __init__(self, device: GLDevice) -> None:
        self._device = device
        self._stamps = [device.timer.stamp()]
        self._times: list[float] | None = None

    def lap(self) -> None:
        """End an interval here, and begin the next one."""
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
