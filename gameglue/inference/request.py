"""`InferenceRequest`: one request to a worker, from submission to result."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal, Protocol, overload

import numpy as np

from engine import InputError, ValuePending
from engine.base.event_loops import in_asyncio, suspend
from gameglue.errors import RequestCancelledError
from gameglue.host.clock import Time
from gameglue.inference.readback import Result
from gameglue.scripting.coroutines import ResumePoint, StartedWait, YieldInstruction

RequestState = Literal["waiting", "running", "reading", "done", "cancelled", "expired", "failed"]
Callback = Callable[["InferenceRequest"], object]

_OVER = ("done", "cancelled", "expired", "failed")
_ASYNCIO_SECONDS = 0.001


class RequestOwner(Protocol):
    """Protocol of the queue that a request belongs to."""

    @property
    def frame(self) -> int:
        """The current frame's number."""
        ...

    def milliseconds(self) -> float:
        """The queue's clock in milliseconds."""
        ...

    def cancel(self, request: InferenceRequest) -> None:
        """Remove a request, regardless of its state."""
        ...


class InferenceRequest(YieldInstruction):
    """A requested inference. Poll it (`is_done`), `yield` or `await` it, or give a callback.

    Its state changes only in `queue.poll()` and `queue.pump()`, and by `cancel()`: all code of one frame
    sees the same. `state` is

    - "waiting": not begun; a newer request may replace it,
    - "running": its slices are being enqueued,
    - "reading": all is enqueued, the outputs are on their way,
    - "done", "cancelled" (also by a newer request), "expired" (its deadline has passed) or "failed".

    `frame` is the frame in which it was requested, `payload` what the caller attached: an answer that comes
    late can be matched with its question.

    Attributes:
        priority: Higher ones run first.
        payload: The object that `submit` was given to recognise the request.
        frame: Number of the frame in which it was submitted.
        state: "waiting", "running", "reading", "done", "cancelled", "expired" or "failed".
    """

    def __init__(
        self,
        owner: RequestOwner,
        number: int,
        priority: int,
        expires: float,
        payload: object,
        callback: Callback | None,
        asked_at: str,
    ) -> None:
        """Made by `InferenceQueue.submit`. expires: on the owner's clock, in ms.

        asked_at: the game's line, for messages.
        """
        self.number = number
        """Counts the queue's requests in the order in which they were asked."""
        self.priority = priority
        self.payload: Any = payload
        self.frame = owner.frame
        self.state: RequestState = "waiting"
        self._expires = expires
        self._is_awaited = False
        self._owner = owner
        self._asked = owner.milliseconds()
        self._age: tuple[int, float] | None = None
        self._callback = callback
        self._asked_at = asked_at
        self._result: Result = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<InferenceRequest {self.number} of frame {self.frame}: {self.state}>"

    def is_done(self) -> bool:
        """Whether `result()` returns the arrays, or raises the reason why there are none."""
        return self.state in _OVER

    @overload
    def result(self) -> np.ndarray: ...

    @overload
    def result(self, kind: type[dict[Any, Any]]) -> dict[str, np.ndarray]: ...

    def result(self, kind: type[dict[Any, Any]] | None = None) -> Any:
        """The output as an array; a dict of arrays by name where there are several.

        With `dict` as `kind`, type checkers know of the dict, and `InputError` is raised where there is none.
        An output that is a sequence is a list of arrays, an empty optional None.

        Raises:
            ValuePending: The request is under way.
            RequestCancelledError: It was cancelled; `RequestReplacedError` where a newer one took its place.
            RequestExpiredError: Its deadline has passed.
            Exception: What the inference raised.
        """
        if self._error is not None:
            raise self._error
        if self.state != "done":
            raise ValuePending(f"the request is {self.state}: wait until is_done(), or await it")
        if kind is not None and not isinstance(self._result, dict):
            raise InputError("the request has one output: call result() without `dict`")
        return self._result

    @property
    def error(self) -> Exception | None:
        """The error that `result()` raises; None if there is none."""
        return self._error

    @property
    def age_frames(self) -> int:
        """Frames since it was submitted; once it is done, the frames that it took."""
        return self._owner.frame - self.frame if self._age is None else self._age[0]

    @property
    def age_ms(self) -> float:
        """Milliseconds since it was submitted; once it is done, the time that it took."""
        return self._owner.milliseconds() - self._asked if self._age is None else self._age[1]

    def cancel(self) -> None:
        """Cancel it: nothing more is enqueued, and the result is dropped. Does nothing if it is over."""
        if not self.is_done():
            self._owner.cancel(self)

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        self._is_awaited = True
        return StartedWait((ResumePoint.RESULTS, ResumePoint.FRAME), self.is_done, self.result)

    def __await__(self) -> Generator[Any, Any, np.ndarray]:
        if not in_asyncio():
            return (yield self)
        self._is_awaited = True
        while not self.is_done():
            yield from suspend(_ASYNCIO_SECONDS)
        return self.result()

    def _end(self, state: RequestState, result: Result = None, error: Exception | None = None) -> None:
        """Close it. Called by the queue."""
        self._age = (self.age_frames, self.age_ms)
        self.state, self._result, self._error = state, result, error

    def _call_back(self) -> None:
        """Call the callback, once. Not after `cancel()`, or where a newer request took its place.

        What a callback lets out of `result()` is reported as the request's failure, or is no fault (a passed
        deadline).
        """
        callback, self._callback = self._callback, None
        if callback is None or isinstance(self._error, RequestCancelledError):
            return
        try:
            callback(self)
        except Exception as error:
            if error is not self._error:
                raise
