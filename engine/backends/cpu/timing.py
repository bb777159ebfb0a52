"""What each step of a recorded plan takes: the plan's own commands with a look at the clock after each."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from engine import native, observing
from engine.jobs import CommandList, JobHandle
from engine.jobs_stock import STAMP


def time_commands(commands: CommandList, run: Callable[[CommandList], object]) -> list[float]:
    """Seconds that each command takes when `run`, which must wait for the end, runs the list."""
    stamped = Stamped(commands, each=True)
    run(stamped.commands)
    return [after - before for before, after in pairwise(stamped.times())]


class Stamped:
    """A command list with the clock read before it and behind it, or around `each` of its commands.

    The clock is read by the thread that has ended the command before. So the commands run as they always do,
    on all threads and with their data where the one before left it.
    """

    def __init__(self, commands: CommandList, *, each: bool = False) -> None:
        count = commands.count + 1 if each else 2
        self._stamps = np.zeros((count, 2), np.int64)
        block = np.zeros((count, 3), np.int64)
        function, self._units = _clock(block, self._stamps)
        block[:, 0] = function
        rows = np.zeros((commands.count + count, 4), np.int64)
        is_stamp = np.zeros(len(rows), np.bool_)
        is_stamp[slice(0, None, 2) if each else [0, -1]] = True
        marks = np.ones((count, 4), np.int64)
        marks[:, 0] = native.load([STAMP])[STAMP.key]
        marks[:, 1] = block.ctypes.data + block.strides[0] * np.arange(count)
        rows[is_stamp] = marks
        rows[~is_stamp] = commands.array[: commands.count]
        self.commands = CommandList(rows, (block, self._stamps, commands))

    def times(self) -> list[float]:
        """When the clock was read, in seconds of `time.perf_counter`, once the list has run."""
        whole, fraction = self._units
        # Counted from the first stamp: a float holds few nanoseconds beside the seconds since the start.
        first = self._stamps[0].tolist()
        begin = first[0] * whole + first[1] * fraction + _OFFSET
        return [
            begin + ((a - first[0]) * whole + (b - first[1]) * fraction) for a, b in self._stamps.tolist()
        ]


class ObservedJob:
    """Commands on job threads whose times observers are told once they have run."""

    def __init__(self, stamped: Stamped, handle: JobHandle) -> None:
        self._stamped = stamped
        self._handle = handle
        self._worker = observing.current_worker()

    def poll(self) -> bool:
        """Tell the time, if the commands have run."""
        if not self._handle.is_completed:
            return False
        start, end = self._stamped.times()
        observing.span("jobs", "job", start, end, worker=self._worker, backend="cpu")
        return True


def _offset() -> float:
    """What lies between the clock of the stamps and `time.perf_counter`; most systems have one for both."""
    if sys.platform == "win32":
        return 0.0
    offset = time.perf_counter() - time.clock_gettime(time.CLOCK_MONOTONIC)
    return offset if abs(offset) > 1e-3 else 0.0


_OFFSET = _offset()


def _clock(block: np.ndarray, stamps: np.ndarray) -> tuple[int, tuple[float, float]]:
    """The system's function that reads a steady clock, and the seconds of a stamp's two numbers.

    Writes the function's arguments into `block`: where the stamp goes, after the clock's number where the
    system has several.
    """
    targets = stamps.ctypes.data + stamps.strides[0] * np.arange(len(stamps))
    if sys.platform == "win32":
        library: Any = ctypes.WinDLL("kernel32")
        ticks = ctypes.c_int64(0)
        library.QueryPerformanceFrequency(ctypes.byref(ticks))
        block[:, 1] = targets
        function, units = library.QueryPerformanceCounter, (1.0 / ticks.value, 0.0)
    else:
        block[:, 1] = time.CLOCK_MONOTONIC
        block[:, 2] = targets
        function, units = ctypes.CDLL(None).clock_gettime, (1.0, 1e-9)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address, units
