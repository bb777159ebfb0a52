"""`InferenceQueue`: where the frame loop and the inference engine meet.

It knows nothing of models: what registers here can be pumped, and a tensor is something with a readback that
can be asked for, asked about, and downloaded. Nothing in this module ever waits.
"""

from __future__ import annotations

import logging
import time as clock
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import numpy as np

from gameglue.clock import Time
from gameglue.coroutines import ResumePoint, Wait, YieldInstruction

_log = logging.getLogger("gameglue")


@runtime_checkable
class Pumpable(Protocol):
    """Work that goes on in slices, such as a `Worker` whose plan is split."""

    def pump(self, budget_ms: float | None) -> object:
        """Submit what is ready, for at most `budget_ms` milliseconds, and return without waiting."""
        ...


@runtime_checkable
class Readable(Protocol):
    """A tensor whose value may still be being computed."""

    def readback_request(self) -> object:
        """Begin to bring the value to the CPU."""
        ...

    def is_readback_request_done(self) -> bool:
        """True once `download_to_array` is immediate."""
        ...

    def download_to_array(self) -> np.ndarray:
        """The value."""
        ...


class InferenceResult(YieldInstruction):
    """One readback under way: poll it (`is_done`), `yield` or `await` it, or give a callback.

    `await` and `result()` give the array. `frame` is the frame in which it was asked for, `payload` what the
    caller attached, so an answer that comes late can be matched with its question.
    """

    def __init__(
        self,
        tensor: Readable,
        frame: int,
        payload: object,
        callback: Callable[[InferenceResult], object] | None,
    ) -> None:
        self.frame = frame
        self.payload = payload
        self._tensor: Readable | None = tensor
        self._callback = callback
        self._array: np.ndarray | None = None
        self._error: Exception | None = None
        tensor.readback_request()

    def poll(self) -> bool:
        """Look whether the value has come; the queue does this every frame."""
        if self._tensor is None:
            return True
        try:
            if not self._tensor.is_readback_request_done():
                return False
            self._array = self._tensor.download_to_array()
        except Exception as error:  # noqa: BLE001 - kept for whoever asks for the result
            self._error = error
        self._tensor = None
        return True

    def is_done(self) -> bool:
        """True once the value, or the reason why there is none, has come."""
        return self.poll()

    def result(self) -> np.ndarray:
        """The array; raises what the readback raised. Call it once `is_done()`."""
        if self._error is not None:
            raise self._error
        if self._array is None:
            raise ValueError("the readback is still under way: wait until is_done(), or await it")
        return self._array

    def begin(self, time: Time) -> Wait:
        """Start one wait."""
        return Wait((ResumePoint.RESULTS, ResumePoint.FRAME), self.poll, self.result)

    def deliver(self) -> None:
        """Call the callback, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)


class InferenceQueue:
    """Advances all registered work of one app, within the frame's budget, and delivers results.

    The host calls `poll` at the start of a frame and `pump` near its end. Outside the host, any loop may.
    """

    def __init__(
        self,
        frame: Callable[[], int] = lambda: 0,
        unfinished: Callable[[], Iterable[Pumpable]] = tuple,
    ) -> None:
        """frame: the current frame's number. unfinished: work that must go on though nobody registered it."""
        self._frame = frame
        self._unfinished = unfinished
        # Weak, so that a worker nobody holds any more is not kept alive by being registered.
        self._work: list[weakref.ref[Pumpable]] = []
        self._results: list[InferenceResult] = []
        self._turn = 0
        self.paused = False
        """While true, games begin nothing new, for comparing frames with and without inference; code that
        schedules on its own looks here first. What is under way goes on."""

    def __len__(self) -> int:
        return len(self._alive())

    @property
    def pending(self) -> int:
        """How many results are still to come."""
        return len(self._results)

    def register(self, work: Pumpable) -> None:
        """Pump `work` every frame. If it also has `poll()`, that is called when the frame begins."""
        if not isinstance(work, Pumpable):
            raise TypeError(f"cannot register {type(work).__name__}: it has no method pump(budget_ms)")
        if all(known is not work for known in self._alive()):
            self._work.append(weakref.ref(work))

    def unregister(self, work: Pumpable) -> None:
        """Pump `work` no more."""
        self._work = [ref for ref in self._work if ref() is not work]

    def result(
        self,
        tensor: Readable,
        callback: Callable[[InferenceResult], object] | None = None,
        *,
        payload: object = None,
    ) -> InferenceResult:
        """Ask for the value of `tensor`; `await queue.result(t)` gives the array when it has come.

        `callback(result)` is called at the start of the frame that has the value.
        """
        asked = InferenceResult(tensor, self._frame(), payload, callback)
        self._results.append(asked)
        return asked

    def poll(self) -> None:
        """Look what has come, and call back. A callback that raises is logged."""
        for work in self._alive():
            poll = getattr(work, "poll", None)
            if poll is not None:
                self._guarded(work, poll)
        for work in self._unfinished():
            self._guarded(work, work.pump, None)
        waiting, self._results = self._results, []
        for asked in waiting:
            if not asked.poll():
                self._results.append(asked)
                continue
            try:
                asked.deliver()
            except Exception:  # noqa: BLE001 - the other results still have to be delivered
                _log.exception("a callback of inference results raised")

    def pump(self, budget_ms: float) -> float:
        """Let registered work submit, in turns, until `budget_ms` are spent; returns what was, in ms."""
        start = clock.perf_counter()
        alive = self._alive()
        # The one to begin with changes every frame, so that a heavy worker cannot starve the ones behind it.
        self._turn = (self._turn + 1) % max(len(alive), 1)
        spent = 0.0
        self._work = [weakref.ref(work) for work in alive]
        for work in alive[self._turn :] + alive[: self._turn]:
            if _is_done(work):
                continue
            self._guarded(work, work.pump, max(budget_ms - spent, 0.0))
            spent = (clock.perf_counter() - start) * 1e3
            if spent >= budget_ms:
                break
        return spent

    def _guarded(self, work: Pumpable, call: Callable[..., object], *args: object) -> None:
        try:
            call(*args)
        except Exception:  # noqa: BLE001 - such as a worker that was disposed; the others go on
            _log.exception("%r raised and is advanced no more", work)
            self.unregister(work)

    def _alive(self) -> list[Pumpable]:
        return [work for ref in self._work if (work := ref()) is not None]


def _is_done(work: Pumpable) -> bool:
    is_done = getattr(work, "is_done", None)
    return is_done is not None and bool(is_done())
