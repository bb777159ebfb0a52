"""Time: real, game and fixed, with every cap tested at its value and one beyond."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gameglue import App, MonoBehaviour
from gameglue.host.clock import FixedClock, Time


def count_steps(time: Time, seconds: float) -> int:
    time.begin_frame(seconds)
    return time.fixed.steps_due(time.game.delta)


@pytest.mark.parametrize(
    ("steps", "expected", "dropped"), [(0, 0, 0), (1, 1, 0), (4, 4, 0), (5, 4, 1), (9, 4, 5)]
)
def test_fixed_steps_are_capped_and_the_rest_is_dropped(steps: int, expected: int, dropped: int) -> None:
    clock = FixedClock(0.02, max_steps=4)
    assert clock.steps_due(0.02 * steps) == expected
    assert clock.dropped == pytest.approx(0.02 * dropped)
    assert clock.steps_due(0.0) == 0, "what was dropped must not come back"


def test_time_left_over_counts_for_the_next_frame() -> None:
    time = Time(fixed_delta_time=0.02)
    assert [count_steps(time, 0.015) for _ in range(8)] == [0, 1, 1, 1, 0, 1, 1, 1]


def test_steps_that_fit_exactly_do_not_come_late_by_rounding() -> None:
    time = Time(fixed_delta_time=0.1, max_delta_time=10.0)
    assert [count_steps(time, 0.3) for _ in range(100)] == [3] * 100


@pytest.mark.parametrize(("seconds", "expected"), [(0.24, 0.24), (0.25, 0.25), (0.26, 0.25), (30.0, 0.25)])
def test_game_time_is_capped_and_real_time_is_not(seconds: float, expected: float) -> None:
    time = Time(max_delta_time=0.25)
    time.begin_frame(seconds)
    assert time.delta_time == pytest.approx(expected)
    assert time.unscaled_delta_time == pytest.approx(seconds)


def test_scale_and_pause_act_on_game_time_only() -> None:
    time = Time()
    time.time_scale = 0.5
    time.begin_frame(0.1)
    assert (time.delta_time, time.unscaled_delta_time) == pytest.approx((0.05, 0.1))
    time.paused = True
    time.begin_frame(0.1)
    assert (time.delta_time, time.time, time.unscaled_time) == pytest.approx((0.0, 0.05, 0.2))
    assert time.frame_count == 2


def test_time_does_not_run_backwards() -> None:
    time = Time()
    with pytest.raises(ValueError, match="-1"):
        time.begin_frame(-1.0)
    with pytest.raises(ValueError, match="time_scale must be 0 or more"):
        time.time_scale = -1.0
    with pytest.raises(ValueError, match="fixed_delta_time must be above 0"):
        Time(fixed_delta_time=0.0)
    with pytest.raises(ValueError, match="max_fixed_steps must be at least 1"):
        Time(max_fixed_steps=0)


class Watch(MonoBehaviour):
    """Notes what time its hooks see."""

    def awake(self) -> None:
        self.fixed: list[tuple[float, float]] = []
        self.frames: list[tuple[float, float]] = []

    def fixed_update(self) -> None:
        self.fixed.append((self.time.time, self.time.delta_time))

    def update(self) -> None:
        self.frames.append((self.time.time, self.time.delta_time))


def test_fixed_update_sees_its_own_time(app: App) -> None:
    watch = app.scene.create("watch").add_component(Watch)
    app.step(0.05)
    assert np.allclose(watch.fixed, [(0.02, 0.02), (0.04, 0.02)])
    assert np.allclose(watch.frames, [(0.05, 0.05)])


@pytest.mark.parametrize(("steps", "calls"), [(3, 3), (4, 3)])
def test_the_host_calls_fixed_update_at_most_max_fixed_steps_times(
    make_app: Callable[..., App], steps: int, calls: int
) -> None:
    app = make_app(fixed_delta_time=0.01, max_fixed_steps=3)
    watch = app.scene.create("watch").add_component(Watch)
    app.step(0.01 * steps)
    assert len(watch.fixed) == calls


def test_without_real_time_every_frame_has_the_same_length(make_app: Callable[..., App]) -> None:
    app = make_app(target_frame_rate=50)
    watch = app.scene.create("watch").add_component(Watch)
    app.run(frames=3)
    assert np.allclose(watch.frames, [(0.02, 0.02), (0.04, 0.02), (0.06, 0.02)])


def test_real_time_is_read_from_the_source_and_the_loop_sleeps_what_is_left(
    make_app: Callable[..., App],
) -> None:
    now = [100.0]
    slept: list[float] = []

    class Busy(Watch):
        def late_update(self) -> None:
            now[0] += 0.012

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    app = make_app(real_time=True, target_frame_rate=50, time_source=lambda: now[0], sleep=sleep)
    watch = app.scene.create("watch").add_component(Busy)
    app.run(frames=3)
    assert slept == pytest.approx([0.008] * 3)
    assert [delta for _, delta in watch.frames] == pytest.approx([0.02] * 3)


def test_a_late_frame_is_not_followed_by_sleep(make_app: Callable[..., App]) -> None:
    now = [0.0]

    class Slow(Watch):
        def update(self) -> None:
            super().update()
            now[0] += 0.05

    def sleep(seconds: float) -> None:
        pytest.fail(f"slept {seconds} s after a frame that was late")

    app = make_app(real_time=True, target_frame_rate=50, time_source=lambda: now[0], sleep=sleep)
    watch = app.scene.create("watch").add_component(Slow)
    app.run(frames=3)
    assert [delta for _, delta in watch.frames] == pytest.approx([0.02, 0.05, 0.05])


def test_smoothing_follows_slowly_and_arrives() -> None:
    """The weights are those of an exponential average: after n frames 0.8^n of the old length is left."""
    time = Time()
    for _ in range(5):
        time.begin_frame(0.01)
    assert time.smooth_delta_time == pytest.approx(0.01)
    time.begin_frame(0.11)
    assert time.smooth_delta_time == pytest.approx(0.01 + 0.2 * 0.1)
    for _ in range(10):
        time.begin_frame(0.01)
    assert time.smooth_delta_time == pytest.approx(0.01 + 0.2 * 0.1 * 0.8**10)
    time.time_scale = 0.5
    assert time.smooth_delta_time == pytest.approx(0.5 * (0.01 + 0.2 * 0.1 * 0.8**10))
    time.paused = True
    assert time.smooth_delta_time == 0.0
    time.in_fixed_step = True
    assert time.smooth_delta_time == time.fixed_delta_time


@pytest.mark.parametrize("frames", [1, 7, 120])
def test_what_glides_has_come_as_far_at_every_frame_rate(frames: int) -> None:
    time, number, array = Time(), 2.0, np.array((0.0, 10.0))
    for _ in range(frames):
        time.begin_frame(0.3 / frames)
        number, array = time.damp(number, 5.0, 0.3), time.damp(array, np.array((1.0, 0.0)), 0.3)
    assert number == pytest.approx(5.0 - 3.0 / np.e)
    np.testing.assert_allclose(array, (1.0 - 1.0 / np.e, 10.0 / np.e))
