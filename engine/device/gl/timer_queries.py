"""GPU timer queries: timestamps in a command stream, read when available, never waited for."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter

from engine.device.gl.functions import GL, GLFunctions

Report = Callable[[list[float]], None]
"""Called with the times of several stamps, in seconds of `time.perf_counter`."""

_AT_ONCE = 64


class GLTimer:
    """Takes and reads the timestamps of one context, which is current whenever a method is called.

    A timestamp is when the GPU has done all commands before it, by its own clock. How that clock goes with
    `time.perf_counter` is learned from the stamps themselves: none can lie before the moment of its issue, so
    the latest issue, seen from the GPU's clock, is the difference. Asking the driver for both would be a
    `glGet*` that waits. Software renderers may tell when work was queued instead.
    """

    def __init__(self, gl: GLFunctions) -> None:
        self._gl = gl
        self._free: list[int] = []
        self._issued: dict[int, float] = {}
        self._waiting: deque[tuple[Sequence[int], Report]] = deque()
        self._offset: float | None = None
        self._flag = ctypes.c_uint(0)
        self._time = ctypes.c_uint64(0)

    def stamp(self) -> int:
        """Add a timestamp after the commands issued so far; returns its number for `request`."""
        if not self._free:
            names = (ctypes.c_uint * _AT_ONCE)()
            self._gl.glGenQueries(_AT_ONCE, names)
            self._free.extend(names)
        query = self._free.pop()
        self._issued[query] = perf_counter()
        self._gl.glQueryCounter(query, GL.TIMESTAMP)
        return query

    def request(self, stamps: Sequence[int], report: Report) -> None:
        """Have `collect` call `report` with the times of `stamps` once they are available."""
        self._waiting.append((stamps, report))

    def collect(self) -> int:
        """Report available timestamps; returns the number of pending groups. Never waits."""
        while self._waiting:
            stamps, report = self._waiting[0]
            # Of one stream: when the last has come, so have those before it.
            if not self._is_there(stamps[-1]):
                break
            self._waiting.popleft()
            report([self._read(stamp) for stamp in stamps])
        return len(self._waiting)

    def release(self) -> None:
        """Delete the queries."""
        names = [*self._free, *self._issued]
        self._waiting.clear()
        self._free.clear()
        self._issued.clear()
        if names:
            self._gl.glDeleteQueries(len(names), (ctypes.c_uint * len(names))(*names))

    def _is_there(self, query: int) -> bool:
        self._gl.glGetQueryObjectuiv(query, GL.QUERY_RESULT_AVAILABLE, ctypes.byref(self._flag))
        return self._flag.value != 0

    def _read(self, query: int) -> float:
        # A counting loader wants to see the question before the answer, and it costs next to nothing.
        if not self._is_there(query):
            self._free.append(query)
            return self._issued.pop(query)
        self._gl.glGetQueryObjectui64v(query, GL.QUERY_RESULT, ctypes.byref(self._time))
        seconds = self._time.value * 1e-9
        issued = self._issued.pop(query)
        self._free.append(query)
        if self._offset is None or issued - seconds > self._offset:
            self._offset = issued - seconds
        return seconds + self._offset
