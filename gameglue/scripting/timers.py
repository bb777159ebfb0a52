"""Timers of `self.invoke` and `self.invoke_repeating`."""

from __future__ import annotations

import heapq
import inspect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gameglue.errors import GameError
from gameglue.host.clock import Time
from gameglue.scripting.coroutines import CoroutineRunner

# Sums of frame times fall short of a delay by a few ulps; without this a call comes a frame late.
_ROUNDING = 1e-9


@dataclass(eq=False, slots=True)
class Timer:
    """A pending call. `period`: seconds between calls, `None` for a single one."""

    owner: Any
    call: Callable[[], object]
    due: float
    period: float | None
    is_over: bool = False


class Timers:
    """The pending timed calls of one app."""

    def __init__(
        self, time: Time, coroutines: CoroutineRunner, on_error: Callable[[Any, str, Exception], None]
    ) -> None:
        self._time = time
        self._coroutines = coroutines
        self._on_error = on_error
        self._queue: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        # By id, as a game may make its component a dataclass, which has no hash.
        self._by_owner: dict[int, list[Timer]] = {}

    def __len__(self) -> int:
        return sum(len(timers) for timers in self._by_owner.values())

    def start(self, owner: Any, call: Any, delay: float, period: float | None = None) -> Timer:
        """Call a function after `delay` seconds of game time, and then every `period` seconds.

        Raises `GameError` unless it can be called, the delay is 0 or more and the period above 0.
        """
        if not callable(call):
            hint = f"; write self.invoke(self.{call}, ...)" if isinstance(call, str) else ""
            raise GameError(f"invoke needs something to call, got {type(call).__name__}: {call!r}{hint}")
        if not (math.isfinite(delay) and delay >= 0.0):
            raise GameError(f"a delay is a time in seconds, 0 or more, got {delay}")
        if period is not None and not (math.isfinite(period) and period > 0.0):
            raise GameError(f"a period is a time in seconds above 0, got {period}")
        timer = Timer(owner, call, self._time.game.time + delay, period)
        self._by_owner.setdefault(id(owner), []).append(timer)
        self._push(timer)
        return timer

    def cancel(self, owner: object, call: Callable[[], object] | None = None) -> int:
        """Drop the owner's calls of `call`, or all it has; returns how many waited."""
        found = [t for t in self._by_owner.get(id(owner), ()) if call is None or t.call == call]
        for timer in found:
            self._end(timer)
        return len(found)

    def is_waiting(self, owner: object, call: Callable[[], object] | None = None) -> bool:
        """True if a call of `call`, or any, still waits for its time."""
        return any(call is None or timer.call == call for timer in self._by_owner.get(id(owner), ()))

    def run(self) -> None:
        """Make the calls that are due, the earliest first, each at most once per frame."""
        now = self._time.game.time + _ROUNDING
        again = []
        while self._queue and self._queue[0][0] <= now:
            timer = heapq.heappop(self._queue)[2]
            if timer.is_over:
                continue
            if timer.period is None:
                self._end(timer)
            else:
                # What was missed in a long frame is dropped, and the beat is kept.
                missed = math.floor((now - timer.due) / timer.period)
                timer.due += (missed + 1) * timer.period
                again.append(timer)
            self._make(timer)
        for timer in again:
            if not timer.is_over:
                self._push(timer)

    def _make(self, timer: Timer) -> None:
        try:
            returned = timer.call()
            if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
                self._coroutines.start(returned, timer.owner)
        except Exception as error:  # noqa: BLE001 - one component's fault must not end the loop
            self._end(timer)
            self._on_error(timer.owner, getattr(timer.call, "__qualname__", repr(timer.call)), error)

    def _push(self, timer: Timer) -> None:
        heapq.heappush(self._queue, (timer.due, next(self._order), timer))

    def _end(self, timer: Timer) -> None:
        timer.is_over = True
        timers = self._by_owner.get(id(timer.owner))
        if timers is not None and timer in timers:
            timers.remove(timer)
            if not timers:
                del self._by_owner[id(timer.owner)]
