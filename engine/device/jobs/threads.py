"""The job threads: their main function, priorities and cores."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from engine.base import thread_scheduling
from engine.device.jobs.layout import LAYOUT, OP_PAUSE, OP_STOP, OP_WORK
from engine.device.jobs.waiting import MOST_CORES

Priority = Literal["normal", "below_normal"]
Program = Callable[[Any], int]
"""The native program: takes the address of a request."""

_pause: list[float] = []
_PAUSES_TIMED = 1000


def pause_seconds(program: Program) -> float:
    """Measured duration of a pause instruction, in seconds; it differs by processor."""
    if not _pause:
        times = []
        for _ in range(3):  # the shortest counts, as any may be interrupted
            before = time.perf_counter()
            ask(program, OP_PAUSE, _PAUSES_TIMED)
            times.append(time.perf_counter() - before)
        _pause.append(max(min(times) / _PAUSES_TIMED, 1e-9))
    return _pause[0]


def ask(program: Program, operation: int, *operands: int) -> int:
    """Send a request to the native program and return its answer."""
    return program((ctypes.c_int64 * 4)(operation, *operands))


def set_allowed_cores(words: memoryview) -> None:
    """Keep the first thread off the submitting thread's core if there are at least two."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(cores) < 2 or max(cores) >= MOST_CORES:
        words[LAYOUT["OS_CORE"]] = 0
    for core in cores if words[LAYOUT["OS_CORE"]] else ():
        word = LAYOUT["ALLOWED"] + core // 64
        bits = (words[word] & (1 << 64) - 1) | 1 << core % 64
        words[word] = bits - (1 << 64) if bits >> 63 else bits


def thread_body(program: Program, address: int, priority: Priority, number: int) -> None:
    """The main function of a job thread."""
    thread_scheduling.set_batch_policy()
    if number == 0:
        ctypes.c_int64.from_address(address + 8 * LAYOUT["FIRST_THREAD"]).value = threading.get_native_id()
    if priority == "below_normal":
        thread_scheduling.set_slice(0, thread_scheduling.LONG_SLICE)
        if sys.platform == "linux":
            # A container may forbid it; the jobs run all the same. Linux allows 19 at most.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 5)
        elif sys.platform == "win32":
            kernel = ctypes.windll.kernel32
            kernel.SetThreadPriority(kernel.GetCurrentThread(), -1)
    ask(program, OP_WORK, address, number)


def abandon(
    program: Program, address: int, threads: list[threading.Thread], memory: list[np.ndarray]
) -> None:
    """Ends the threads after their current chunks; jobs that have not run by then never will."""
    ask(program, OP_STOP, address, 2)
    for thread in threads:
        # A chunk that takes longer than this must not keep the game from quitting.
        thread.join(timeout=5.0)
    if not any(thread.is_alive() for thread in threads):
        memory.clear()
