"""Partial dispatch: enqueues a recorded program by steps or parts of steps, and times it without waiting.

A step's work is `units` equal parts, in an order that the backend knows. A `StepRange` is a range of them;
every unit enqueued once, in any ranges, writes the same bits as the whole step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol


class StepRange(NamedTuple):
    """Units `first` to `end` of a step (its position in the plan)."""

    step: int
    first: int
    end: int


class TimeBounds(NamedTuple):
    """Bounds of the time of several parts together, in seconds."""

    least: float
    most: float


class Timing(Protocol):
    """Protocol of the time measurement of parts."""

    def result(self) -> Sequence[float] | TimeBounds | None:
        """Seconds for each part, or bounds for all together; None while that is not known. Never waits."""
        ...


class CombinedTiming(NamedTuple):
    """A time that is known at once, for all parts together."""

    bounds: TimeBounds

    def result(self) -> TimeBounds:
        """The known bounds."""
        return self.bounds


class TimedInterval:
    """The time of work that can only be polled. It starts when the previous work ends.

    is_done: asks; never waits. started: when it was enqueued, in seconds of `perf_counter`.
    """

    def __init__(self, is_done: Callable[[], bool], started: float, before: TimedInterval | None) -> None:
        self._is_done = is_done
        self._begin = (started, started)
        self._before = before
        self._end: tuple[float, float] | None = None
        self._latest = started

    def result(self) -> TimeBounds | None:
        """The most it can have taken, once it was seen done; other work may have come between."""
        end = self.look()
        return None if end is None else TimeBounds(0.0, end[1] - self._begin[0])

    def look(self, has_waited: bool = False) -> tuple[float, float] | None:
        """The interval in which it ended; None if it has not. `has_waited`: the caller blocked for it."""
        if self._end is not None:
            return self._end
        if self._before is not None and (ended := self._before.look(has_waited)) is not None:
            started = self._begin[0]
            self._begin = (max(started, ended[0]), max(started, ended[1]))
            self._before = None
        now = perf_counter()
        if self._is_done():
            self._end = (now if has_waited else max(self._latest, self._begin[0]), now)
        else:
            self._latest = now
        return self._end


class KnownTiming(NamedTuple):
    """Times of calls in which the driver computes, known immediately."""

    seconds: Sequence[float]

    def result(self) -> Sequence[float]:
        """Seconds for each part."""
        return self.seconds


class PartialDispatch(ABC):
    """A recorded program that is enqueued in parts, from its first step to its last.

    units: into how many parts each step of the plan can be divided; 0 for steps without elements.
    is_synchronous: whether enqueuing takes as long as computing, or computing the previous part.
    """

    units: Sequence[int]
    is_synchronous: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether enqueuing would have to wait for the device."""
        return False

    @abstractmethod
    def enqueue(self, parts: Sequence[StepRange], timed: bool) -> Timing | None:
        """Enqueue parts that follow each other. With `timed`, their times are measured."""

    def fitting(self, step: int, first: int, count: int) -> int:
        """The best number of units from `first` on for one part, from 1 to `count`."""
        return count
