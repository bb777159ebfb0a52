"""What each step of a recorded plan takes: the plan's own commands with a look at the clock after each."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from engine import native
from engine.jobs import CommandList
from engine.jobs_waiting import CALL_OS
from engine.native import NativeSource
from engine.native_prelude import PRELUDE

_TEXT = """
def stamp(args, begin, end):
    call_os(arg_i64(args, 0), arg_i64(args, 1), arg_i64(args, 2), 0, 0, 0, 0)
"""

STAMP = NativeSource("stamp", PRELUDE + CALL_OS + _TEXT, "stamp")


def time_commands(commands: CommandList, run: Callable[[CommandList], object]) -> list[float]:
    """Seconds that each command takes when `run`, which must wait for the end, runs the list.

    Between two commands, the clock is read by the thread that has ended the first one. So the commands run as
    they always do, on all threads and with their data where the one before left it.
    """
    stamps = np.zeros((commands.count + 1, 2), np.int64)
    block = np.zeros((commands.count + 1, 3), np.int64)
    function, seconds_of = _clock(block, stamps)
    block[:, 0] = function
    rows = np.zeros((2 * commands.count + 1, 4), np.int64)
    rows[0::2, 0] = native.load([STAMP])[STAMP.key]
    rows[0::2, 1] = block.ctypes.data + block.strides[0] * np.arange(len(block))
    rows[0::2, 2:] = 1
    rows[1::2] = commands.array[: commands.count]
    run(CommandList(rows, (block, stamps, commands)))
    return [seconds_of(after) - seconds_of(before) for before, after in pairwise(stamps.tolist())]


def _clock(block: np.ndarray, stamps: np.ndarray) -> tuple[int, Callable[[list[int]], float]]:
    """The system's function that reads a steady clock, and what its stamps mean.

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
    # Counted from the first stamp: a float holds no nanoseconds beside the seconds since the machine started.
    origin = stamps[0]
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return (
        address,
        lambda stamp: (stamp[0] - int(origin[0])) * units[0] + (stamp[1] - int(origin[1])) * units[1],
    )
