"""Coroutines: generators and `async def` that continue over frames, without asyncio.

A coroutine runs until it yields (or awaits) something to wait for:

- nothing (`yield`, `await app.next_frame()`): continue in the next frame, after `update`;
- `WaitForSeconds`, `WaitUntil`, `WaitForEndOfFrame` and their like, below;
- another coroutine, or a generator: continue when it has ended, with what it returned;
- anything that can be asked whether it is done: `is_readback_request_done()`, `is_done()` or `done()`.

A wait always gives up control, even where its condition already holds: a loop of waits cannot hang a frame.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from collections.abc import Coroutine as NativeCoroutine
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from gameglue.errors import GameError
from gameglue.host.clock import Time

# Generators are often annotated as iterators; what runs must be able to take values and exceptions.
Routine = Iterator[Any] | NativeCoroutine[Any, Any, Any]
_Driven = Generator[Any, Any, Any] | NativeCoroutine[Any, Any, Any]


class ResumePoint(Enum):
    """The points of a frame where waiting code continues."""

    RESULTS = "poll"
    FIXED = "fixed_update"
    FRAME = "coroutines"
    END = "end_of_frame"


@dataclass(frozen=True)
class StartedWait:
    """A wait in progress: its resume point, whether it is over, and its result."""

    points: tuple[ResumePoint, ...]
    is_over: Callable[[], bool]
    value: Callable[[], object] = lambda: None


_FRAME = (ResumePoint.FRAME,)
_RESULTS = (ResumePoint.RESULTS, ResumePoint.FRAME)


class YieldInstruction(ABC):
    """Something to `yield` in a generator or `await` in an `async def`; may be used many times."""

    @abstractmethod
    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class WarnsIfNotAwaited(YieldInstruction):
    """A wait that can warn if it is deleted without having been awaited."""

    _written: str | None = None
    """How to wait for it; None where it may go away."""

    def __del__(self) -> None:
        if self._written is not None:
            # Above this is the statement of the game's that dropped it.
            warnings.warn(f"this wait is never awaited: write {self._written}", RuntimeWarning, stacklevel=2)

    def _awaited(self) -> None:
        if self._written is not None:
            object.__setattr__(self, "_written", None)


P = TypeVar("P", bound=WarnsIfNotAwaited)


def warn_if_not_awaited(wait: P, written: str) -> P:
    """`wait`, which warns if it is dropped. written: how to wait for it, such as "await seconds(1)"."""
    object.__setattr__(wait, "_written", written)
    return wait


class NextFrame(WarnsIfNotAwaited):
    """Continue in the next frame, after `update`."""

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        self._awaited()
        return StartedWait(_FRAME, lambda: True)


def _check_condition(kind: str, condition: object) -> None:
    if not callable(condition):
        raise GameError(
            f"{kind} takes a function that is called in each frame, as in {kind}(lambda: self.ready), "
            f"got {condition!r}"
        )


def _check_seconds(seconds: object) -> None:
    if not isinstance(seconds, int | float | np.number) or seconds != seconds:
        raise GameError(f"a wait takes a number of seconds, got {seconds!r}")


@dataclass(frozen=True)
class WaitForSeconds(WarnsIfNotAwaited):
    """Continue when `seconds` of game time have passed: slower in slow motion, never while paused.

    Attributes:
        seconds: Game time to wait, in seconds.
    """

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        self._awaited()
        end = time.game.time + self.seconds - 1e-9
        return StartedWait(_FRAME, lambda: time.game.time >= end)


@dataclass(frozen=True)
class WaitForSecondsRealtime(YieldInstruction):
    """Continue when `seconds` of real time have passed, also while the game is paused.

    Attributes:
        seconds: Real time to wait, in seconds.
    """

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds(self.seconds)

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        end = time.real.time + self.seconds - 1e-9
        return StartedWait(_FRAME, lambda: time.real.time >= end)


@dataclass(frozen=True)
class WaitUntil(YieldInstruction):
    """Continue in the first frame in which `condition()` is true.

    Attributes:
        condition: Called each frame, after `update`.
    """

    condition: Callable[[], bool]

    def __post_init__(self) -> None:
        _check_condition("WaitUntil", self.condition)

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        return StartedWait(_FRAME, self.condition)


@dataclass(frozen=True)
class WaitWhile(YieldInstruction):
    """Continue in the first frame in which `condition()` is false.

    Attributes:
        condition: Called each frame, after `update`.
    """

    condition: Callable[[], bool]

    def __post_init__(self) -> None:
        _check_condition("WaitWhile", self.condition)

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        return StartedWait(_FRAME, lambda: not self.condition())


class WaitForFixedUpdate(YieldInstruction):
    """Continue after the next fixed step."""

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        return StartedWait((ResumePoint.FIXED,), lambda: True)


class WaitForEndOfFrame(YieldInstruction):
    """Continue when the frame has been presented."""

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        return StartedWait((ResumePoint.END,), lambda: True)


@dataclass(frozen=True)
class WaitUntilDone(YieldInstruction):
    """Continue when `handle` is done; yields its result, or the handle if it has none.

    Attributes:
        handle: An object with `is_done()` or `done()`.
    """

    handle: object

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        wait = _poll_handle(self.handle)
        if wait is None:
            raise GameError(
                f"cannot wait for {type(self.handle).__name__}: it has none of the methods "
                "is_readback_request_done(), is_done() and done()"
            )
        return wait


def seconds(duration: float) -> WaitForSeconds:
    """Wait for `duration` seconds of game time: `yield` or `await` the result."""
    return warn_if_not_awaited(WaitForSeconds(duration), f"await seconds({duration!r})")


def next_frame() -> NextFrame:
    """Wait for the next frame: `yield` or `await` the result."""
    return warn_if_not_awaited(NextFrame(), "await next_frame()")


def _poll_handle(handle: object) -> StartedWait | None:
    for name in ("is_readback_request_done", "is_done", "done"):
        asked = getattr(handle, name, None)
        if asked is None:
            continue
        is_done = asked if callable(asked) else functools.partial(getattr, handle, name)
        result = getattr(handle, "result", None)
        return StartedWait(_RESULTS, is_done, result if callable(result) else lambda: handle)
    return None


@dataclass(eq=False)
class Coroutine(YieldInstruction):
    """A running generator or `async def`. Yield or await it to wait for its end; `stop()` ends it early.

    Attributes:
        owner: The component that it belongs to, or None.
        name: Name for messages.
        stopped: Whether `stop()` ended it.
        finished: Whether it ran to its end or raised.
    """

    _routine: _Driven
    owner: object | None
    name: str
    _stack: list[_Driven] = field(default_factory=list)
    _wait: StartedWait | None = None
    stopped: bool = False
    finished: bool = False
    _returned: object = None
    _running: bool = False

    def is_done(self) -> bool:
        """True when it has ended, was stopped, or raised."""
        return self.finished or self.stopped

    def result(self) -> object:
        """What the coroutine returned; `None` before its end, or if it was stopped."""
        return self._returned

    def stop(self) -> None:
        """Stop it now. Its `finally` blocks run, and coroutines that wait for it continue."""
        self.stopped = True
        self._wait = None
        if not self._running:  # A generator cannot be closed from inside itself; it is when it yields.
            while self._stack:
                self._stack.pop().close()

    def _begin(self, time: Time) -> StartedWait:
        """Start one wait."""
        return StartedWait(_RESULTS, self.is_done, self.result)


ErrorHandler = Callable[[object, str, Exception], None]


class CoroutineRunner:
    """Keeps the waiting coroutines of one app and drives them at their resume points."""

    def __init__(self, time: Time, on_error: ErrorHandler) -> None:
        self._time = time
        self._on_error = on_error
        self._waiting: list[Coroutine] = []

    def __len__(self) -> int:
        return sum(not coroutine.is_done() for coroutine in self._waiting)

    def start(self, routine: object, owner: object | None = None, name: str = "") -> Coroutine:
        """Run `routine` up to its first wait, and keep it. An exception is reported to `owner`."""
        if not _is_routine(routine):
            got = type(routine).__name__
            raise GameError(f"start_coroutine needs a generator or coroutine, got {got}{_hint(routine)}")
        assert inspect.isgenerator(routine) or inspect.iscoroutine(routine)
        coroutine = Coroutine(routine, owner, name or routine.__qualname__, [routine])
        self._advance(coroutine, None)
        return coroutine

    def stop_all(self, owner: object) -> None:
        """Stop every coroutine of `owner`."""
        for coroutine in self._waiting:
            if coroutine.owner is owner:
                self._stop(coroutine)

    def step(self, point: ResumePoint) -> None:
        """Resume the coroutines that wait for `point`, except for waits that begin meanwhile."""
        batch, self._waiting = self._waiting, []
        for coroutine in batch:
            wait = coroutine._wait
            if coroutine.is_done() or wait is None:
                continue
            if point not in wait.points:
                self._waiting.append(coroutine)
                continue
            try:
                over = wait.is_over()
                value = wait.value() if over else None
            except Exception as error:  # noqa: BLE001 - it belongs to the code that waits
                self._advance(coroutine, None, error)
                continue
            if over:
                self._advance(coroutine, value)
            else:
                self._waiting.append(coroutine)

    def _advance(self, coroutine: Coroutine, value: object, error: Exception | None = None) -> None:
        coroutine._wait = None
        coroutine._running = True
        try:
            yielded = self._resume(coroutine, value, error)
            if coroutine.is_done():
                return
            coroutine._wait = self._as_wait(coroutine, yielded)
            self._waiting.append(coroutine)
        except Exception as failure:  # noqa: BLE001 - one component's fault must not end the loop
            coroutine.finished = True
            self._on_error(coroutine.owner, coroutine.name, _explained(failure, coroutine.name))
        finally:
            coroutine._running = False
            if coroutine.stopped:
                self._stop(coroutine)

    @staticmethod
    def _resume(coroutine: Coroutine, value: object, error: Exception | None) -> object:
        """Run the innermost routine to its next yield; return what it yielded."""
        stack = coroutine._stack
        while True:
            try:
                if error is not None:
                    failure, error = error, None
                    yielded = stack[-1].throw(failure)
                else:
                    yielded = stack[-1].send(value)
            except StopIteration as end:
                stack.pop()
                value = end.value
                if not stack:
                    coroutine.finished = True
                    coroutine._returned = value
                    return None
                continue
            except Exception as failure:
                stack.pop()
                if not stack:
                    raise
                error = failure
                continue
            if not _is_routine(yielded):
                return yielded
            stack.append(yielded)
            value = None

    def _as_wait(self, coroutine: Coroutine, yielded: object) -> StartedWait:
        if yielded is None:
            return NextFrame()._begin(self._time)
        if isinstance(yielded, YieldInstruction):
            return yielded._begin(self._time)
        wait = _poll_handle(yielded)
        if wait is not None:
            return wait
        hint = f"; write WaitForSeconds({yielded!r})" if isinstance(yielded, int | float) else ""
        raise GameError(
            f"{coroutine.name} yielded {type(yielded).__name__}, expected nothing, a wait such as "
            f"WaitForSeconds, a coroutine, or something with is_done(){hint}"
        )

    def _stop(self, coroutine: Coroutine) -> None:
        try:
            coroutine.stop()
        except Exception as failure:  # noqa: BLE001 - raised by a `finally` block of the game's
            self._on_error(coroutine.owner, coroutine.name, failure)


def _hint(routine: Any) -> str:
    """Advice for an argument of `start_coroutine` that is no generator or coroutine; else ""."""
    if inspect.isasyncgen(routine):
        return ": `async def` waits with await, not with yield"
    name = routine if isinstance(routine, str) else getattr(routine, "__name__", "blink")
    if not (isinstance(routine, str) or callable(routine)):
        return ""
    of = "" if inspect.isfunction(routine) else "self."
    return f"; call it: start_coroutine({of}{name}())"


_NOT_AWAITABLE = re.compile(r"object (\w+) can't be used in 'await'|'(\w+)' object can't be awaited")
_INSTEAD = {
    "float": "to wait for some time, write await self.app.seconds(0.5)",
    "int": "to wait for some time, write await self.app.seconds(1)",
    "Scene": "load_scene does not wait; write await self.app.load_scene_async(...)",
    "method": "call it, as in await self.app.next_frame()",
    "function": "call it, as in await next_frame()",
}


def _explained(failure: Exception, name: str) -> Exception:
    """Convert Python's error for awaiting the wrong thing to a `GameError` that says what to write."""
    text = str(failure)
    found = _NOT_AWAITABLE.search(text) if isinstance(failure, TypeError) else None
    if isinstance(failure, RuntimeError) and text == "no running event loop":
        said = "asyncio does not run in a game; to wait, write await self.app.seconds(0.1)"
    elif found is not None:
        kind = found[1] or found[2]
        said = f"{kind} cannot be awaited; {_INSTEAD.get(kind, 'await a coroutine, or what has is_done()')}"
    else:
        return failure
    explained = GameError(f"{name}: {said}")
    explained.__cause__ = failure
    return explained.with_traceback(failure.__traceback__)


def _is_routine(value: object) -> bool:
    return inspect.isgenerator(value) or inspect.iscoroutine(value)
