"""What the time between two frames is spent on, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App
from gameglue.host.idle_time import MOST_IN_FLIGHT, IdleTime
from gameglue.inference import InferenceQueue


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
    pending: Callable[[], int] = lambda: 0,
    mark: Callable[[], None] = lambda: None,
) -> IdleTime:
    queue = InferenceQueue(pending_work=tuple, time_source=clock)
    queue.register(work)
    return IdleTime(
        queue, infers=lambda: infers, pending=pending, mark=mark, time_source=clock, sleep=clock.sleep
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


class Load:
    """Something that is being loaded without an end."""

    def __init__(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spent = 0.0

        def advance(budget_ms: float) -> int:
            self.spent += budget_ms
            clock.now += budget_ms / 1e3
            return 1

        monkeypatch.setattr("gameglue.host.idle_time.advance_loads", advance)


def test_loading_has_its_own_share(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(clock, monkeypatch)
    rest = rest_of(clock, Work(clock, 0.0))
    rest.spend(0.1, loading=0.012)
    assert load.spent == pytest.approx(11.0, abs=1.5)
    assert clock.now - 100.0 == pytest.approx(0.011, abs=0.0015)
    rest.spend(0.1, loading=-0.002)
    assert load.spent == pytest.approx(11.0, abs=1.5)
    rest.spend(0.012)
    assert load.spent == pytest.approx(22.0, abs=3.0)


def test_frames_without_a_pace_load_as_long_as_paced_ones(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Load(clock, monkeypatch)
    with App(headless=True, real_time=False, time_source=clock, sleep=clock.sleep) as app:
        app.loading_budget_ms = 0.0
        app.run(3)
    assert load.spent == pytest.approx(3 * (1e3 / 60 - 1.0), abs=4.0)


def test_where_it_may_not_infer_frames_keep_their_inference(clock: Clock) -> None:
    work = Work(clock, 10.0)
    rest = rest_of(clock, work, infers=False)
    for seconds in [0.012] + [-0.004] * 20:
        rest.spend(seconds)
        assert not rest.takes_inference
    assert work.given == []
    assert clock.now == 100.0


def test_frames_that_are_always_late_have_a_little_inference_between_them(clock: Clock) -> None:
    work = Work(clock, 10.0)
    rest = rest_of(clock, work)
    given = []
    for _ in range(14):
        # A late frame leaves it to the next one's rest, which may have some again.
        rest._queue.poll()
        rest.spend(-0.004)
        assert rest.took_inference()
        given.append(len(work.given))
    assert given == [0] * 6 + list(range(1, 9))
    assert set(work.given) == {1.5}


def test_nothing_is_enqueued_behind_what_is_not_done(clock: Clock) -> None:
    starts = []
    done_at = 0.0

    class Endless(InferenceQueue):
        """Always has a millisecond to enqueue, which the device is done with two milliseconds later."""

        _wants_turn = _wants_gpu = True

        def pump(self, budget_ms: float) -> float:
            starts.append(clock.now)
            clock.now += 0.001
            return 1.0

    def mark() -> None:
        nonlocal done_at
        done_at = clock.now + 0.002

    rest = IdleTime(
        Endless(),
        infers=lambda: True,
        pending=lambda: int(clock.now < done_at),
        mark=mark,
        time_source=clock,
        sleep=clock.sleep,
    )
    rest.spend(0.015)
    assert len(starts) == 4
    assert np.diff(starts).min() >= 0.003 - 1e-9


def test_the_picture_comes_first(clock: Clock) -> None:
    work = Work(clock, 10.0)
    rest = rest_of(clock, work, pending=lambda: int(clock.now <= 100.004))
    rest.spend(0.015)
    assert work.starts[0] > 100.004


def test_what_the_picture_leaves_no_time_for_is_done_behind_it_now_and_then(clock: Clock) -> None:
    work = Work(clock, 10.0)
    drawn = 0.0
    rest = rest_of(clock, work, pending=lambda: int(clock.now < drawn))
    for frame in range(1, 15):
        # A picture takes 20 ms, and a frame is due every 12.
        drawn = clock.now + 0.020
        rest._queue.poll()
        rest.spend(0.012)
        assert len(work.starts) == frame // 7
        if frame % 7 == 0:
            assert work.starts[-1] >= drawn
        clock.now = drawn


def test_frames_do_not_run_ahead_of_the_device(clock: Clock) -> None:
    """A picture takes 30 ms, and a frame is due every 10: two pictures are in flight, never three."""
    drawn: list[float] = []
    rest = rest_of(clock, Work(clock, 0.0), pending=lambda: sum(clock.now < end for end in drawn))
    late = []
    for _ in range(12):
        drawn.append(max([clock.now, *drawn[-1:]]) + 0.030)
        assert sum(clock.now < end for end in drawn) <= MOST_IN_FLIGHT
        began = clock.now
        rest.spend(0.010)
        late.append(rest.late)
        clock.now = max(clock.now, began + 0.010)
    assert late[0] == 0.0
    # From then on a frame lasts as long as a picture.
    assert late[2:] == pytest.approx([0.020] * 10, abs=0.001)


def test_frames_that_wait_for_pictures_are_named(clock: Clock) -> None:
    left = [0]
    rest = rest_of(clock, Work(clock, 0.0), infers=False, pending=lambda: left[0])

    def draw(seconds: float) -> None:
        clock.now += seconds
        left[0] = 0

    rest._sleep = draw
    for _ in range(8):
        rest.spend(0.0)
    assert rest.limit == ""
    for _ in range(24):
        left[0] = MOST_IN_FLIGHT
        rest._sleep = lambda seconds: draw(0.02)
        rest.spend(0.0)
    assert rest.limit == "the renderer: 75% of the frames waited for it, 20.0 ms each"
