"""Tells observers when a GL device was at work for a plan."""

from __future__ import annotations

from engine import observing
from engine.devices import GLDevice


class ObservedCommands:
    """Two timestamps around commands; observers are told once both have come.

    Made inside the device's context in front of the commands, which `end` is called behind.
    """

    def __init__(self, device: GLDevice, backend: str) -> None:
        self._device = device
        self._backend = backend
        self._worker = observing.current_worker()
        self._is_told = False
        self._start = device.timer.stamp()

    def end(self) -> None:
        """The commands were issued."""
        self._device.timer.tell((self._start, self._device.timer.stamp()), self._tell)
        observing.later(self)

    def poll(self) -> bool:
        """Look whether the times have come."""
        if not self._is_told and not self._device.is_disposed:
            with self._device.current(flush=False):
                self._device.timer.collect()
        return self._is_told or self._device.is_disposed

    def _tell(self, times: list[float]) -> None:
        self._is_told = True
        observing.span("gpu", "commands", times[0], times[1], worker=self._worker, backend=self._backend)
