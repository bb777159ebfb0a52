"""The measuring code against a clock that tells what time it is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from gameglue.profiling.compare import MOST_REST, CallTimes, alternate, geometric_mean, until_quiet


class Clock:
    """Time passes only where something says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def work(self, name: str, *costs: float) -> Callable[[], None]:
        """Something whose calls last `costs` in turn."""
        done = 0

        def call() -> None:
            nonlocal done
            self.log.append(name)
            self.now += costs[done % len(costs)]
            done += 1

        return call

    def rest(self) -> None:
        self.log.append("rest")
        self.now += 0.5

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def measure(self, rounds: int, **options: Any) -> Callable[..., dict[str, CallTimes]]:
        def run(**contenders: Callable[[], None]) -> dict[str, CallTimes]:
            return alternate(contenders, rounds, rest=self.rest, clock=lambda: self.now, **options)

        return run


def test_contenders_take_turns_and_the_first_call_does_not_count() -> None:
    clock = Clock()
    found = clock.measure(2, turn=2.0)(a=clock.work("a", 9.0, 1.0, 1.0), b=clock.work("b", 4.0))
    assert " ".join(clock.log) == "rest a a a rest b b rest b b rest a a a"
    assert found["a"].turns == ((1.0, 1.0), (1.0, 1.0))
    assert found["b"].turns == ((4.0,), (4.0,))
    assert found["b"].calls == (4.0, 4.0)


@pytest.mark.parametrize("seconds", [0.0, 0.04, math.inf])
def test_a_turn_begins_when_other_threads_sleep(seconds: float) -> None:
    """One of them is busy for so long."""
    clock = Clock()
    until_quiet(used=lambda: min(clock.now, seconds), clock=lambda: clock.now, sleep=clock.sleep)
    least = min(seconds, MOST_REST)
    assert least <= clock.now < least + 0.1


def test_what_is_slow_sits_out_once_its_budget_is_spent() -> None:
    clock = Clock()
    found = clock.measure(5, turn=0.0, budget=15.0)(slow=clock.work("s", 4.0), quick=clock.work("q", 1.0))
    assert [len(found[name].turns) for name in ("slow", "quick")] == [2, 5]


def test_medians_and_ratios() -> None:
    ours = CallTimes(((1.0, 2.0, 9.0), (8.0, 8.0), (30.0,)))
    theirs = CallTimes(((1.0,), (2.0,)))
    # The turns' own medians are 2, 8 and 30.
    assert ours.median == 8.0
    assert CallTimes(((1.0, 1.0, 1.0), (5.0,), (6.0,))).median == 5.0
    assert ours.best == 1.0
    # Rounds of 2 against 1 and of 8 against 2; the third round has no counterpart.
    assert ours.ratio(theirs) == 3.0
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_no_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        alternate({}, 0)
