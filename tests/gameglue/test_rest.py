"""What the time between two frames is spent on, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue.inference import InferenceQueue
from gameglue.rest import Rest


class Clock:
    """Time passes where somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Work:
    """Has so many milliseconds left to enqueue; `pump` takes what it is given of them."""

    def __init__(self, clock: Clock, left: float) -> None:
        self.clock = clock
        self.left = left
        self.given: list[float] = []
        self.starts: list[float] = []

    def pump(self, budget_ms: float | None) -> bool:
        assert budget_ms is not None
        self.given.append(budget_ms)
        self.starts.append(self.clock.now)
        spent = min(budget_ms, self.left)
        self.left -= spent
        self.clock.now += spent / 1e3
        return self.left == 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rest_of(
    clock: Clock,
    work: Work,
    infers: bool = True,
    is_done: Callable[[], bool] = lambda: True,
    mark: Callable[[], None] = lambda: None,
) -> Rest:
    queue = InferenceQueue(unfinished=tuple, time_source=clock)
    queue.register(work)
    return Rest(
        queue, infers=lambda: infers, is_done=is_done, mark=mark, time_source=clock, sleep=clock.sleep
    )


def test_inference_gets_half_of_the_rest_at_a_time(clock: Clock) -> None:
    work = Work(clock, 1000.0)
    rest = rest_of(clock, work)
    rest.spend(0.012)
    assert rest.took_inference()
    assert not rest.took_inference()  # a frame without a rest came between
    # The last millisecond stays free. What was registered has one turn.
    assert work.given == [pytest.approx(5.5, rel=0.01)]
    assert clock.now - 100.0 == pytest.approx(0.0055, rel=0.01)


def test_nothing_to_do_ends_it_early(clock: Clock) -> None:
    rest = rest_of(clock, Work(clock, 0.0))
    rest.spend(0.1)
    assert clock.now - 100.0 < 0.01


def test_without_leave_or_time_frames_keep_their_inference(clock: Clock) -> None:
    work = Work(clock, 10.0)
    elsewhere = rest_of(clock, work, infers=False)
    elsewhere.spend(0.012)
    assert not elsewhere.takes_inference
    rest = rest_of(clock, work)
    for _ in range(6):
        # A late frame leaves it to the next one's rest, which has some again.
        rest.spend(-0.004)
        assert rest.takes_inference
    for seconds in (0.002, -0.004):
        rest.spend(seconds)
        assert not rest.takes_inference
    assert work.given == []
    assert clock.now == 100.0


def test_nothing_is_enqueued_behind_what_is_not_done(clock: Clock) -> None:
    starts = []
    done_at = 0.0

    class Endless(InferenceQueue):
        """Always has a millisecond to enqueue, which the device is done with two milliseconds later."""

        wants_turn = wants_gpu = True

        def pump(self, budget_ms: float) -> float:
            starts.append(clock.now)
            clock.now += 0.001
            return 1.0

    def mark() -> None:
        nonlocal done_at
        done_at = clock.now + 0.002

    rest = Rest(
        Endless(),
        infers=lambda: True,
        is_done=lambda: clock.now >= done_at,
        mark=mark,
        time_source=clock,
        sleep=clock.sleep,
    )
    rest.spend(0.015)
    assert len(starts) == 4
    assert np.diff(starts).min() >= 0.003 - 1e-9


def test_the_picture_comes_first(clock: Clock) -> None:
    work = Work(clock, 10.0)
    rest = rest_of(clock, work, is_done=lambda: clock.now > 100.004)
    rest.spend(0.015)
    assert work.starts[0] > 100.004


def test_what_the_picture_leaves_no_time_for_is_done_in_a_frame_now_and_then(clock: Clock) -> None:
    work = Work(clock, 10.0)
    rest = rest_of(clock, work, is_done=lambda: False)
    left_to_rest = []
    for _ in range(14):
        rest.spend(0.012)
        left_to_rest.append(rest.took_inference())
    assert left_to_rest.count(False) == 2
    assert work.given == []
