"""Benchmarking: alternates between contenders and compares medians.

On a machine that others use too, what runs first and what runs later meet different loads. So contenders
alternate within one run, and a ratio is formed from turns of the same round. Before each turn the threads of
the one before have to sleep: onnxruntime's wait for work in a busy loop for 40 ms after their last (measured
with 2 threads on 2 cores), in which the next contender would have had a core less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

MOST_REST = 0.5
"""Seconds after which `until_quiet` waits no longer."""

_GLANCE = 0.005

_QUIET = 0.2
"""Of a core's time: less than a busy loop takes, and more than this process takes to look."""


def until_quiet(
    *,
    used: Callable[[], float] = time.process_time,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until the other threads of this process sleep, `MOST_REST` seconds at most.

    used: seconds of processors' time that the process has taken. Other processes are not looked at.
    """
    # On some systems that counts in sixteen milliseconds.
    glance = max(_GLANCE, 2 * time.get_clock_info("process_time").resolution)
    began = before = clock()
    taken = used()
    quiet = 0
    # Twice: a busy thread may have had to leave its core to another process for once.
    while quiet < 2 and before - began < MOST_REST:
        sleep(glance)
        now, by_now = clock(), used()
        quiet = quiet + 1 if by_now - taken < _QUIET * (now - before) else 0
        before, taken = now, by_now


@dataclass(frozen=True)
class CallTimes:
    """The call times of one contender: a tuple of seconds for each of its rounds."""

    turns: tuple[tuple[float, ...], ...]

    @property
    def calls(self) -> tuple[float, ...]:
        """All calls in the order in which they were made, in seconds."""
        return tuple(seconds for turn in self.turns for seconds in turn)

    @property
    def median(self) -> float:
        """The median of the rounds' medians, in seconds."""
        return median(median(turn) for turn in self.turns)

    @property
    def best(self) -> float:
        """The shortest call, in seconds."""
        return min(self.calls)

    def share(self, parts: int) -> CallTimes:
        """The same times divided by `parts`, for calls that do several at once."""
        return CallTimes(tuple(tuple(seconds / parts for seconds in turn) for turn in self.turns))

    def ratio(self, other: CallTimes) -> float:
        """The median ratio of this time to `other`'s, over their common rounds."""
        pairs = zip(self.turns, other.turns, strict=False)
        return median(median(ours) / median(theirs) for ours, theirs in pairs)


def take_turns(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Each name once in each of `rounds` rounds, as (round, name); every other round in reverse.

    Raises `ValueError` unless `rounds` is at least 1.
    """
    if rounds < 1:
        raise ValueError(f"a comparison needs at least one round, got {rounds}")
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name


def alternate(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int = 5,
    *,
    turn: float = 0.05,
    gap: float = 0.0,
    budget: float = math.inf,
    rest: Callable[[], object] = until_quiet,
    progress: Callable[[int, int], object] = lambda done, wanted: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, CallTimes]:
    """Time `contenders`, by name, in alternation; each call must complete its work.

    In each round every contender has a turn: one call that does not count, as the caches are still another's,
    then calls until `turn` seconds are over, at least one. Every other round goes through them backwards.

    rounds: how many turns each has.
    gap: seconds of sleep before each call that counts, as between the frames of a game.
    budget: seconds after which a contender sits out the rounds that are left.
    rest: called before each turn.
    progress: called with (turns over, turns in all).
    Raises `ValueError` unless `rounds` is at least 1.
    """
    turns: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    spent = dict.fromkeys(contenders, 0.0)
    for done, (number, name) in enumerate(take_turns(list(contenders), rounds)):
        progress(done, rounds * len(contenders))
        if number > 0 and spent[name] >= budget:
            continue
        rest()
        call = contenders[name]
        began = clock()
        call()
        before = start = clock()
        calls: list[float] = []
        while not calls or before - start < turn:
            if gap:
                time.sleep(gap)
                before = clock()
            call()
            after = clock()
            calls.append(after - before)
            before = after
        spent[name] += before - began
        turns[name].append(tuple(calls))
    return {name: CallTimes(tuple(taken)) for name, taken in turns.items()}


def geometric_mean(values: Iterable[float]) -> float:
    """The mean of ratios; NaN for none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
