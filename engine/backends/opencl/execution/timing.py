"""Reports the device time of plans on OpenCL to observers."""

from __future__ import annotations

from typing import Any

from engine.base import instrumentation
from engine.device.cl.device import CLDevice


class ObservedEvents:
    """The events of commands that were enqueued from `start` on, in seconds of `time.perf_counter`.

    Observers are notified after the last one, on devices whose queue measures times.
    """

    def __init__(self, device: CLDevice, events: list[Any], start: float) -> None:
        self._device = device
        self._first, self._last = events[0], events[-1]
        self._start = start
        self._worker = instrumentation.current_worker()

    def poll(self) -> bool:
        """Report the times if the commands have run."""
        if self._device.is_disposed:
            return True
        if not self._device.is_complete(self._last):
            return False
        first, last = self._first.profile, self._last.profile
        # The device has a clock of its own, which showed `queued` when the first was enqueued.
        offset = self._start - first.queued * 1e-9
        start, end = first.start * 1e-9 + offset, last.end * 1e-9 + offset
        instrumentation.span("gpu", "commands", start, end, worker=self._worker, backend="opencl")
        return True
