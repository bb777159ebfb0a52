"""Thread scheduling on Linux: time slices and policies for the frame, driver and job threads.

A thread that is woken may take the core from the one that woke it, and one that works on may lose it at any
tick (every 4 ms at 250 a second) until the next: either makes a frame late. So the thread that frames run on
keeps a core for a frame's time. Threads that run with it have longer time slices, as Linux lets a thread of
shorter ones go first (since 6.12), and threads that draw for it or run jobs wait for their turn when they are
woken.

Elsewhere nothing of this does anything, and the game is the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path

FRAME_SLICE = 0.016
"""Seconds that the thread of the frames keeps its core."""

LONG_SLICE = 0.04
"""The same for threads that run with that thread."""

_NUMBERS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
"""Of the system calls sched_setattr and sched_getattr, by machine."""

_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""Linux's `struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline and period."""

_RESET_ON_FORK = 1
"""A flag of it: what the thread starts has the usual slices, as nobody knows what that will be."""

_FAIR = (0, 3)
"""The policies that have slices: SCHED_OTHER and SCHED_BATCH."""


def set_batch_policy(thread: int = 0) -> None:
    """Let a woken thread preempt no other (SCHED_BATCH), by its native id; 0 is the calling thread.

    Woken on its waker's core it would: a call that hands over work would last until the first time slice of
    the work is over, which is milliseconds.
    """
    if hasattr(os, "SCHED_BATCH"):
        # A container may forbid it; the thread works all the same.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def set_slice(thread: int, seconds: float) -> None:
    """Set the time slice of a thread, by its native number or 0 for the calling one.

    Linux takes 0.1 to 100 ms. Threads that it starts later do not inherit that. Where Linux has no such
    thing, or a container forbids it, nothing happens.
    """
    attributes = _attributes(thread)
    if attributes is None or attributes[1] not in _FAIR:
        return
    size, policy, flags, nice, priority, *_ = attributes
    changed = (size, policy, flags | _RESET_ON_FORK, nice, priority, round(seconds * 1e9), 0, 0)
    _call(0)(thread, _ATTRIBUTES.pack(*changed), 0)


def get_slice(thread: int) -> float | None:
    """The time slice of a thread in seconds; None if Linux does not report it."""
    attributes = _attributes(thread)
    return attributes[5] * 1e-9 if attributes is not None and attributes[5] else None


def threads_named(prefix: str) -> list[int]:
    """The native ids of this process's threads with a name prefix; empty if the system does not list them."""
    found = []
    with contextlib.suppress(OSError):
        for folder in Path("/proc/self/task").iterdir():
            # A thread may end while they are listed.
            with contextlib.suppress(OSError):
                if (folder / "comm").read_text(encoding="utf-8", errors="replace").startswith(prefix):
                    found.append(int(folder.name))
    return found


def _attributes(thread: int) -> tuple[int, ...] | None:
    if sys.platform != "linux" or platform.machine() not in _NUMBERS:
        return None
    room = ctypes.create_string_buffer(_ATTRIBUTES.size)
    failed = _call(1)(thread, room, _ATTRIBUTES.size, 0)
    return None if failed else _ATTRIBUTES.unpack(room.raw)


@functools.cache
def _call(which: int) -> Callable[..., int]:
    return functools.partial(ctypes.CDLL(None).syscall, _NUMBERS[platform.machine()][which])
