"""Reports the GPU time of plans to observers."""

from __future__ import annotations

from time import perf_counter

from engine.base import instrumentation
from engine.device.gl.device import GLDevice
from engine.device.gl.functions import GL


class ObservedCommands:
    """Reports the GPU time of commands to observers once it is available.

    Made inside the device's context in front of the commands, which `end` is called behind. The times are the
    device's own, by timestamps. A renderer on the processor would stop for those: what it computes within the
    calls is timed there, and of what it leaves to threads (drawing) the end is when a fence is found open.
    """

    def __init__(self, device: GLDevice, backend: str) -> None:
        self._device = device
        self._backend = backend
        self._worker = instrumentation.current_worker()
        self._has_clock = not device.info.is_software
        self._is_reported = False
        self._fence = 0
        self._start = perf_counter()
        self._stamp = device.timer.stamp() if self._has_clock else 0

    def end(self) -> None:
        """Mark the end of the commands."""
        if self._has_clock:
            self._device.timer.request((self._stamp, self._device.timer.stamp()), self._report)
        elif self._backend == "gl_compute":
            self._report([self._start, perf_counter()])
            return
        else:
            self._fence = self._device.gl.glFenceSync(GL.SYNC_GPU_COMMANDS_COMPLETE, 0)
        instrumentation.later(self)

    def poll(self) -> bool:
        """Report the times if they are available."""
        device = self._device
        if self._is_reported or device.is_disposed:
            return True
        if not self._fence:
            with device.current(flush=False):
                device.timer.collect()
        elif device.poll(self._fence):
            self._report([self._start, perf_counter()])
            with device.current(flush=False):
                device.gl.glDeleteSync(self._fence)
        return self._is_reported

    def _report(self, times: list[float]) -> None:
        self._is_reported = True
        instrumentation.span(
            "gpu", "commands", times[0], times[1], worker=self._worker, backend=self._backend
        )
