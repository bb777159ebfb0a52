"""A thread that runs only while another one lets it: background work in slices of a frame's time.

Python threads take turns every 5 ms (`sys.getswitchinterval`), a third of a frame, and one that works in the
background costs the frame's thread that much wherever it gives the GIL up. A `SlicedThread` is let run for
so many microseconds at a time by the thread that made it, and stops by itself at the next call or return of
a function (a hook of `sys.setprofile`, which belongs to that thread alone). While it is in a call that does
without the GIL (a file, a compiler, a copy of large arrays), nobody waits for it: it stops when it comes
back.

A thread that nobody has let run for a while runs freely, as threads do. So a program that never asks
gets its result all the same, and one that waits for a lock that the thread holds does not wait forever.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import Any, Generic, TypeVar

from engine.base import thread_scheduling
from engine.base.memory import parallel

T = TypeVar("T")

PATIENCE = 0.1
"""Seconds after which a stopped thread that nobody lets run continues freely."""

_GLANCE = 5e-5


class SlicedThread(Generic[T]):
    """Runs a function on a daemon thread, a slice at a time. Used from one other thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._deadline = 0.0
        # `_stopped` is free while the thread is paused and after its end; acquiring it resumes the thread.
        self._stopped = threading.Lock()
        self._stopped.acquire()
        self._go = threading.Lock()
        self._go.acquire()
        self._thread = threading.Thread(target=self._run, name="gameglue-loading", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the function has returned or raised."""
        return self._ended.is_set()

    def advance(self, seconds: float) -> bool:
        """Let the thread run for `seconds`; returns whether its function has ended.

        Returns at once where the thread is in a call that does without the GIL, and is back from its own
        slice no later than the calls in it allow.
        """
        if self._ended.is_set():
            return True
        if not self._stopped.acquire(blocking=False):
            if self._deadline == math.inf:
                self._deadline = 0.0
            # One that has come back from such a call needs the GIL for a moment, to see that it is to stop.
            if not self._stopped.acquire(timeout=min(seconds, _GLANCE)):
                return self._ended.is_set()
        if self._ended.is_set():
            self._stopped.release()
            return True
        self._deadline = perf_counter() + seconds
        self._go.release()
        if self._stopped.acquire(timeout=seconds):
            self._stopped.release()
        return self._ended.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Let the thread run freely and block until its function has ended; False if it has not by then."""
        self._deadline = math.inf
        # One that stops at this very moment, for the previous deadline, resumes by itself after `PATIENCE`.
        if self._stopped.acquire(blocking=False):
            self._go.release()
        return self._ended.wait(seconds)

    def result(self) -> T:
        """What the function returned; raises what it raised. Only once it is done."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    # On the thread itself

    def _run(self) -> None:
        parallel.here.is_beside_a_game = True
        thread_scheduling.set_slice(0, thread_scheduling.LONG_SLICE)
        self._stop()
        sys.setprofile(self._hook)
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is read
            self._error = error
        finally:
            sys.setprofile(None)
            del self._work
            self._ended.set()
            self._stopped.release()

    def _hook(self, frame: FrameType, event: str, argument: Any) -> None:
        if perf_counter() >= self._deadline:
            self._stop()

    def _stop(self) -> None:
        self._stopped.release()
        while not self._go.acquire(timeout=PATIENCE):
            # Timed out. If the thread is let run at this very moment, the next iteration notices.
            if self._stopped.acquire(blocking=False):
                self._deadline = math.inf
                return
