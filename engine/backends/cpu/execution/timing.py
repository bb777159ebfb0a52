"""Times the steps of a recorded plan: its commands with a timestamp after each."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from engine.base import instrumentation
from engine.device import native
from engine.device.jobs.builtin_commands import STAMP
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.command_loops import units_of
from engine.device.jobs.system import JobHandle


def time_commands(commands: CommandList, run: Callable[[CommandList], object]) -> list[float]:
    """Seconds that each command takes when `run`, which must wait for the end, runs the list.

    Commands that repeat are one with what follows their last run.
    """
    stamped = TimestampedList(commands, each=True)
    run(stamped.commands)
    return stamped.seconds()


class TimestampedList:
    """A command list with timestamps before and after it, or around `each` of its commands.

    Commands that repeat are one with what follows their last run.

    The clock is read by the thread that has ended the command before. So the commands run as they always do,
    on all threads and with their data where the previous one left it.
    """

    def __init__(self, commands: CommandList, *, each: bool = False) -> None:
        clock = _clock()
        given = commands.array[: commands.count]
        starts = units_of(given) if each else np.zeros(1, np.int64)
        count = len(starts) + 1
        # For each timestamp the arguments of `stamp`, and the two numbers that it writes.
        memory = np.zeros((count, _ARGUMENTS + 2), np.int64)
        places = memory.ctypes.data + memory.strides[0] * np.arange(count)
        memory[:, : len(clock.arguments)] = clock.arguments
        memory[:, len(clock.arguments)] = places + 8 * _ARGUMENTS
        marks = np.ones((count, 4), np.int64)
        marks[:, 0] = clock.stamp
        marks[:, 1] = places
        rows = np.insert(given, [*starts, len(given)], marks, axis=0)
        self._units = clock.units
        self._stamps = memory[:, _ARGUMENTS:]
        self.commands = CommandList(rows, (memory, commands))

    def times(self) -> list[float]:
        """The timestamps, in seconds of `time.perf_counter`, once the list has run."""
        whole, fraction = self._units
        # Counted from the first stamp: a float that holds the seconds since the start has few nanoseconds
        # left.
        first = self._stamps[0].tolist()
        begin = first[0] * whole + first[1] * fraction + _OFFSET
        return [
            begin + ((a - first[0]) * whole + (b - first[1]) * fraction) for a, b in self._stamps.tolist()
        ]

    def seconds(self) -> list[float]:
        """Seconds between consecutive timestamps."""
        return [after - before for before, after in pairwise(self.times())]


class ObservedJob:
    """Commands on job threads whose times are reported to observers, or returned."""

    def __init__(self, stamped: TimestampedList, handle: JobHandle) -> None:
        self._stamped = stamped
        self._handle = handle
        self._worker = instrumentation.current_worker()

    def result(self) -> list[float] | None:
        """Seconds between timestamps, once the commands have run."""
        return self._stamped.seconds() if self._handle.is_completed else None

    def poll(self) -> bool:
        """Report the times, if the commands have run."""
        if not self._handle.is_completed:
            return False
        start, *_, end = self._stamped.times()
        instrumentation.span("jobs", "job", start, end, worker=self._worker, backend="cpu")
        return True


def _offset() -> float:
    """The offset between the clock of the stamps and `time.perf_counter`; most systems have one for both."""
    if sys.platform == "win32":
        return 0.0
    # A thread that loses its core between the two finds less; it hardly does each time.
    offset = max(time.perf_counter() - time.clock_gettime(time.CLOCK_MONOTONIC) for _ in range(5))
    return offset if abs(offset) > 1e-3 else 0.0


_OFFSET = _offset()


_ARGUMENTS = 3


@dataclass(frozen=True)
class _Clock:
    """The system's monotonic clock function and its parameters.

    stamp: the address of the kernel that calls it. arguments: of that kernel, in front of where the numbers
    go. units: the seconds of a stamp's two numbers.
    """

    stamp: int
    arguments: tuple[int, ...]
    units: tuple[float, float]


@cache
def _clock() -> _Clock:
    if sys.platform == "win32":
        library: Any = ctypes.WinDLL("kernel32")
        ticks = ctypes.c_int64(0)
        library.QueryPerformanceFrequency(ctypes.byref(ticks))
        function, number, units = library.QueryPerformanceCounter, (), (1.0 / ticks.value, 0.0)
    else:
        # This one takes the number of a clock, as the system has several.
        function, number, units = ctypes.CDLL(None).clock_gettime, (time.CLOCK_MONOTONIC,), (1.0, 1e-9)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return _Clock(native.process_store().address(STAMP), (address, *number), units)
