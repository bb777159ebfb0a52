"""`Loading`: the handle of background loading.

The work is a generator: between two yields it runs on the caller's thread, and it yields a `SlicedThread`
whose result it needs. `advance_loads` advances the loads of this thread; a host calls it every frame, and
polling a handle advances it if it was not advanced lately.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar, cast

from engine.base import instrumentation
from engine.base.errors import CancelledError, DeviceError
from engine.base.event_loops import suspend
from engine.device.native import child_processes

T = TypeVar("T")


class BackgroundTask(Protocol):
    """Protocol of background work that a load awaits, such as a `SlicedThread`."""

    def advance(self, seconds: float) -> bool:
        """Let it work for `seconds`; returns whether it is done."""
        ...

    def wait(self) -> bool:
        """Block until it is done."""
        ...

    def result(self) -> Any:
        """Return the result or raise the error."""
        ...


Steps = Generator[BackgroundTask | None, Any, T]
"""Yields None where a slice may end, or a thread (or alike) whose result is sent back."""

log = logging.getLogger("engine")

SLICE_MS = 0.5
"""Milliseconds of the caller's time that a poll may take."""

_PAUSE = 0.004
_ASLEEP = 0.002


class Loading(Generic[T]):
    """A load in progress: poll `is_done()`, `await` it, `yield` it in a coroutine, or `wait()` for it.

    It belongs to the thread that created it and advances in slices: by itself in an `App`, elsewhere whenever
    `is_done()` is called.

    Attributes:
        progress: Estimated progress, 0 to 1.
        stage: Current stage, for a loading screen.
        worker: The worker that is loaded, while there is one.
        longest_ms: The longest time that the caller's thread was blocked at once, in milliseconds.
        longest_stage: The stage in which that was.
        name: Name for observers, such as the model's.
    """

    def __init__(self, steps: Steps[T] | None = None, *, name: str = "", worker: object = None) -> None:
        """Begin with `steps`, if given. `worker` is for observers."""
        self.name = name
        self.worker = worker
        self.progress = 0.0
        self.stage = ""
        self.longest_ms = 0.0
        self.longest_stage = ""
        self._steps = steps
        self._thread: BackgroundTask | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._is_cancelled = False
        self._last = 0.0
        self._owner = threading.get_ident()
        if steps is not None:
            self.begin(steps)

    def begin(self, steps: Steps[T]) -> Loading[T]:
        """Start loading with these steps, which need the handle; returns it."""
        self._steps = steps
        _active.loads.append(self)
        return self

    @property
    def is_over(self) -> bool:
        """Whether no work is left."""
        return self._is_over

    def report(self, stage: str, progress: float) -> None:
        """Set stage and progress. May be called from any thread."""
        self.stage, self.progress = stage, progress

    # Polling

    def is_done(self) -> bool:
        """Whether the load is ready, has failed or was cancelled. Never waits.

        If no host advances the load, this call does, for up to half a millisecond.
        """
        if not self._is_over and not self._is_cancelled and perf_counter() - self._last > _PAUSE:
            if threading.get_ident() == self._owner:
                self.advance(SLICE_MS)
        return self._is_over or self._is_cancelled

    def result(self) -> T:
        """The loaded object.

        Raises:
            CancelledError: The load was cancelled, or is not done yet.
            Exception: The error that made the load fail.
        """
        if self._is_cancelled:
            raise CancelledError(f"loading {self.name} was cancelled")
        if not self._is_over:
            raise CancelledError(
                f"{self.name} is still being loaded; await the handle, poll is_done(), or call wait()"
            )
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    @property
    def error(self) -> BaseException | None:
        """The exception that made the load fail, or None."""
        return self._error

    def wait(self) -> T:
        """Block until the load is done and return its result. For scripts, not for frames."""
        child_processes.let_go()
        while not self._is_over and not self._is_cancelled:
            self._advance(None)
        return self.result()

    def postpone(self) -> None:
        """Defer the next step to the host, or to a poll some milliseconds later."""
        self._last = perf_counter()

    def take_over(self) -> None:
        """Move a load whose thread has ended to the calling thread."""
        thread = threading.get_ident()
        if self._owner != thread and not self._is_over:
            self._owner = thread
            _active.loads.append(self)

    def advance_until(self, is_reached: Callable[[], bool]) -> None:
        """Block until the condition holds, or the load is done. For scripts, not for frames."""
        child_processes.let_go()
        while not self._is_over and not is_reached():
            self._step(None)

    def cancel(self) -> None:
        """Cancel the load: `is_done()` returns True and `result()` raises from now on.

        Work in progress continues in the background up to the next point where it can end.
        """
        if not self._is_over:
            self._is_cancelled = True

    def stop(self) -> None:
        """Cancel the load and block until its work has ended. Call this before closing what it uses."""
        self.cancel()
        while not self._is_over:
            self._advance(None)

    def __await__(self) -> Generator[Any, None, T]:
        while not self.is_done():
            yield from suspend(_ASLEEP)
        return self.result()

    def __repr__(self) -> str:
        state = "cancelled" if self._is_cancelled else "done" if self._is_over else f"{self.progress:.0%}"
        return f"<Loading {self.name}: {state}>"

    # Advancing

    def advance(self, budget_ms: float) -> None:
        """Work for about the given milliseconds of the caller's time.

        Raises:
            DeviceError: Called on another thread than the one that began the load.
        """
        if threading.get_ident() != self._owner:
            raise DeviceError("a load is advanced on the thread that began it")
        if not self._is_over:
            self._advance(budget_ms * 1e-3)

    def _advance(self, seconds: float | None) -> None:
        """Work for the given seconds; with None, wait until a step is done."""
        began = now = perf_counter()
        stage = self.stage
        try:
            while not self._is_over:
                left = None if seconds is None else seconds - (now - began)
                if left is not None and left <= 0:
                    break
                if not self._step(left):
                    break
                now = perf_counter()
        finally:
            self._last = perf_counter()
            if seconds is not None:
                spent = (self._last - began) * 1e3
                if spent > self.longest_ms:
                    self.longest_ms, self.longest_stage = spent, stage

    def _step(self, seconds: float | None) -> bool:
        """One step. Returns False if it waits for its thread."""
        thread = self._thread
        if thread is not None:
            if not (thread.wait() if seconds is None else thread.advance(seconds)):
                return False
            self._thread = None
        try:
            if self.worker is None:
                self._resume(thread)
            else:
                with instrumentation.working_for(self.worker):
                    self._resume(thread)
        except StopIteration as end:
            self._result = end.value
            self.progress = 1.0
            self._end()
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._error = error
            self._end()
        return True

    def _resume(self, thread: BackgroundTask | None) -> None:
        """Run up to the next yield, sending the result of the thread that was waited for."""
        assert self._steps is not None
        if self._is_cancelled:
            self._steps.close()
            self._end()
        elif thread is None:
            self._thread = next(self._steps)
        else:
            try:
                found = thread.result()
            except Exception as error:  # noqa: BLE001 - the steps handle it
                self._thread = self._steps.throw(error)
            else:
                self._thread = self._steps.send(found)

    def _end(self) -> None:
        self._is_over = True
        self._steps = self.worker = None
        if self in _active.loads:
            _active.loads.remove(self)


class _Active(threading.local):
    """The unfinished loads of each thread."""

    def __init__(self) -> None:
        self.loads: list[Loading[Any]] = []


_active = _Active()


def advance_loads(budget_ms: float = SLICE_MS) -> int:
    """Advance this thread's loads in turn for about the given milliseconds.

    A host calls it once a frame, and again in frame idle time.

    Returns:
        How many loads are unfinished.
    """
    loads = _active.loads
    if not loads:
        return 0
    end = perf_counter() + budget_ms * 1e-3
    for load in tuple(loads):
        left = (end - perf_counter()) * 1e3
        if left <= 0.0:
            break
        load.advance(left)
    if len(loads) > 1:
        # The next call begins with another load.
        loads.append(loads.pop(0))
    return len(loads)
