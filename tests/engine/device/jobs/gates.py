"""`Gate`: a job that runs until a test lets it end. What is claimed of work in flight then needs no clock."""

from __future__ import annotations

import functools
import threading
from types import TracebackType

import numpy as np

from engine.device import native
from engine.device.jobs.command_list import CommandList
from engine.device.jobs.system import JobHandle, JobSystem
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE

_TEXT = """
def gate(args, begin, end):
    while atomic_load_i64(arg_i64(args, 0), 0) == 0:
        cpu_pause()
"""
_PATIENCE = 60.0
"""Seconds after which a gate opens by itself: code that waits for it makes the test fail, not hang."""


@functools.cache
def _address() -> int:
    source = NativeSource("gate", PRELUDE + _TEXT, "gate")
    return native.process_store().address(source)


class Gate:
    """Holds the job threads that run its `commands` until it is opened; as a context, to its end at most."""

    def __init__(self) -> None:
        self.flag = np.zeros(1, np.int64)
        words = np.array([self.flag.ctypes.data], np.int64)
        self.commands = CommandList([(_address(), words.ctypes.data, 1, 1)], (words, self.flag))
        self._timer: threading.Timer | None = None

    def open(self) -> None:
        """Let them go on. Fails in a context whose time is over, where they went on before."""
        waited_for = bool(self.flag[0])
        self.flag[0] = 1
        assert not waited_for, "something waited for a job that was held up"

    def hold(self, jobs: JobSystem) -> JobHandle:
        """The handle of a job that ends once this is open; other jobs can depend on it."""
        return jobs.submit(self.commands)

    def __enter__(self) -> Gate:
        self._timer = threading.Timer(_PATIENCE, self.flag.fill, (1,))
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.flag[0] = 1
