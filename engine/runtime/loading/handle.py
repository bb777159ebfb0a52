"""`Loading`: the handle of something that is made ready beside a game's frames.

What makes it is a generator: between two of its yields it works on the caller's thread, and it yields a
`SlicedThread` whose result it wants. `advance_loads` gives this thread's loads a little time; a host
calls it every frame, and so does every poll of a handle that nobody has advanced lately.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from time import perf_counter
from typing import Any, Generic, TypeVar, cast

from engine.base import instrumentation
from engine.base.errors import CancelledError, DeviceError
from engine.base.sliced_thread import SlicedThread
from engine.device.native import children
from engine.runtime.tensor import in_asyncio

T = TypeVar("T")
Steps = Generator[SlicedThread[Any] | None, Any, T]
"""Yields None where a slice may end, or a thread whose result it is to be sent."""

log = logging.getLogger("engine")

SLICE_MS = 0.5
"""What a poll may spend of the caller's time, in milliseconds."""

_PAUSE = 0.004
_ASLEEP = 0.002


class Loading(Generic[T]):
    """Something on its way: poll `is_done()`, `await` it, `yield` it in a coroutine, or `wait()` for it.

    It is used on the thread that made it, and goes on a slice at a time: in an `App` by itself, elsewhere
    whenever `is_done()` is asked.

    Attributes:
        progress: from 0 to 1, as far as that can be told.
        stage: what is being done, for a loading screen.
        worker: whose work it is, from when there is a worker until it is over.
        longest_ms: the longest time that it has kept the caller's thread at once, in milliseconds;
            `longest_stage` is where.
    """

    def __init__(self, steps: Steps[T] | None = None, *, name: str = "", worker: object = None) -> None:
        """`worker`: whose work it is, where there is one already, for observers."""
        self.name = name
        self.worker = worker
        self.progress = 0.0
        self.stage = ""
        self.longest_ms = 0.0
        self.longest_stage = ""
        self._steps = steps
        self._thread: SlicedThread[Any] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._is_cancelled = False
        self._last = 0.0
        self._owner = threading.get_ident()
        if steps is not None:
            self.begin(steps)

    def begin(self, steps: Steps[T]) -> Loading[T]:
        """Have the steps run; for those who need the handle to make them. Returns the handle."""
        self._steps = steps
        _active.loads.append(self)
        return self

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to do."""
        return self._is_over

    def report(self, stage: str, progress: float) -> None:
        """Say how far it is; may be called from its threads."""
        self.stage, self.progress = stage, progress

    # Asking

    def is_done(self) -> bool:
        """Whether `result()` can be had: it is ready, has failed or was cancelled. Never waits.

        Where nobody else does, asking gives it half a millisecond to go on.
        """
        if not self._is_over and not self._is_cancelled and perf_counter() - self._last > _PAUSE:
            if threading.get_ident() == self._owner:
                self.advance(SLICE_MS)
        return self._is_over or self._is_cancelled

    def result(self) -> T:
        """What was loaded; raises why it could not be, `CancelledError` after `cancel`.

        Only once `is_done()`: before, it raises that too.
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
        """Why it failed; None while it has not."""
        return self._error

    def wait(self) -> T:
        """Block until it is ready and return it: for scripts, not for frames."""
        children.let_go()
        while not self._is_over and not self._is_cancelled:
            self._advance(None)
        return self.result()

    def cancel(self) -> None:
        """Give it up: `is_done()` from now on, and `result()` raises.

        What has begun goes on unseen to a place where it can end.
        """
        if not self._is_over:
            self._is_cancelled = True

    def stop(self) -> None:
        """Give it up and block until nothing of it is left: before what it uses is closed."""
        self.cancel()
        while not self._is_over:
            self._advance(None)

    def __await__(self) -> Generator[Any, None, T]:
        while not self.is_done():
            if in_asyncio():
                yield from asyncio.sleep(_ASLEEP).__await__()
            else:
                yield None
        return self.result()

    def __repr__(self) -> str:
        state = "cancelled" if self._is_cancelled else "done" if self._is_over else f"{self.progress:.0%}"
        return f"<Loading {self.name}: {state}>"

    # Going on

    def advance(self, budget_ms: float) -> None:
        """Go on for about so many milliseconds of the caller's time.

        Raises `DeviceError` on another thread.
        """
        if threading.get_ident() != self._owner:
            raise DeviceError("a load is advanced on the thread that began it")
        if not self._is_over:
            self._advance(budget_ms * 1e-3)

    def _advance(self, seconds: float | None) -> None:
        """Go on for so long; with None, until something happened."""
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
        """One step; False where it waits for its thread."""
        thread = self._thread
        if thread is not None:
            if not (thread.wait() if seconds is None else thread.advance(seconds)):
                return False
            self._thread = None
        try:
            if self.worker is None:
                self._go_on(thread)
            else:
                with instrumentation.working_for(self.worker):
                    self._go_on(thread)
        except StopIteration as end:
            self._result = end.value
            self.progress = 1.0
            self._end()
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self._error = error
            self._end()
        return True

    def _go_on(self, thread: SlicedThread[Any] | None) -> None:
        """Up to the next yield, with what a thread has found if it was waited for."""
        assert self._steps is not None
        if self._is_cancelled:
            self._steps.close()
            self._end()
        elif thread is None:
            self._thread = next(self._steps)
        else:
            try:
                found = thread.result()
            except Exception as error:  # noqa: BLE001 - the steps decide what becomes of it
                self._thread = self._steps.throw(error)
            else:
                self._thread = self._steps.send(found)

    def _end(self) -> None:
        self._is_over = True
        self._steps = self.worker = None
        if self in _active.loads:
            _active.loads.remove(self)


class _Active(threading.local):
    """The loads of each thread that have not ended."""

    def __init__(self) -> None:
        self.loads: list[Loading[Any]] = []


_active = _Active()


def advance_loads(budget_ms: float = SLICE_MS) -> int:
    """Give this thread's loads about so many milliseconds of its time, in turn; how many are on their way.

    A host calls it once a frame, and again where it has time to spare.
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
        # The next round begins with another one.
        loads.append(loads.pop(0))
    return len(loads)
