"""`invoke` and `invoke_repeating`: when calls are made, and what ends them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from gameglue import App, GameError, MonoBehaviour


class Clock(MonoBehaviour):
    """Notes the times at which it is called."""

    rung: list[float] = []

    def ring(self) -> None:
        self.rung.append(round(self.time.time, 6))

    def other(self) -> None:
        self.rung.append(-1.0)

    def fail(self) -> None:
        raise RuntimeError("broken")

    def slowly(self) -> Generator[Any, Any, Any]:
        yield None
        self.ring()


@pytest.fixture
def clock(app: App) -> Clock:
    made = app.scene.create("clock").add_component(Clock)
    app.step(0.0)
    return made


def run(app: App, frames: int, dt: float = 0.1) -> None:
    for _ in range(frames):
        app.step(dt)


def test_a_call_after_a_delay(app: App, clock: Clock) -> None:
    clock.invoke(clock.ring, 0.3)
    clock.invoke(clock.ring, 0.1)
    clock.invoke(clock.ring, 0.0)
    assert clock.is_invoking(clock.ring)
    run(app, 5)
    assert clock.rung == [0.1, 0.1, 0.3]
    assert not clock.is_invoking()


def test_a_repeated_call_keeps_its_beat(app: App, clock: Clock) -> None:
    clock.invoke_repeating(clock.ring, 0.1, 0.25)  # due at 0.1, 0.35, 0.6, 0.85, 1.1
    run(app, 11)
    assert clock.rung == [0.1, 0.4, 0.6, 0.9, 1.1]


def test_a_long_frame_makes_one_call(app: App, clock: Clock) -> None:
    clock.invoke_repeating(clock.ring, 0.05, 0.05)
    app.step(0.22)
    app.step(0.02)
    app.step(0.02)
    assert clock.rung == [0.22, 0.26]


def test_game_time_counts(app: App, clock: Clock) -> None:
    clock.invoke(clock.ring, 0.2)
    app.time.paused = True
    run(app, 5)
    app.time.paused = False
    app.time.time_scale = 0.5
    run(app, 3)
    assert clock.rung == []
    run(app, 1)
    assert clock.rung == [0.2]


def test_cancelling(app: App, clock: Clock) -> None:
    clock.invoke_repeating(clock.ring, 0.1, 0.1)
    clock.invoke_repeating(clock.other, 0.1, 0.1)
    run(app, 1)
    clock.cancel_invoke(clock.ring)
    run(app, 1)
    assert clock.rung == [0.1, -1.0, -1.0]
    clock.cancel_invoke()
    run(app, 2)
    assert len(clock.rung) == 3
    assert len(app._lifecycle.timers) == 0


def test_a_call_may_cancel_itself(app: App, clock: Clock) -> None:
    def once() -> None:
        clock.ring()
        clock.cancel_invoke()

    clock.invoke_repeating(once, 0.1, 0.1)
    run(app, 3)
    assert clock.rung == [0.1]


def test_timers_go_on_while_disabled_and_end_with_the_component(app: App, clock: Clock) -> None:
    clock.invoke_repeating(clock.ring, 0.1, 0.1)
    clock.enabled = False
    run(app, 2)
    clock.game_object.destroy()
    run(app, 3)
    assert clock.rung == [0.1, 0.2, 0.3]
    assert len(app._lifecycle.timers) == 0


def test_a_call_that_raises_ends_the_component_not_the_loop(make_app: Callable[..., App]) -> None:
    app = make_app()
    clock, well = (app.scene.create("clock").add_component(Clock) for _ in range(2))
    app.step(0.0)
    clock.invoke_repeating(clock.fail, 0.1, 0.1)
    clock.invoke(clock.ring, 0.3)
    well.invoke(well.ring, 0.1)
    run(app, 4)
    assert [str(e.error) for e in app.errors] == ["broken"]
    assert (clock.enabled, clock.rung, well.rung) == (False, [], [0.1])


def test_what_waits_is_started_as_a_coroutine(app: App, clock: Clock) -> None:
    clock.invoke(clock.slowly, 0.1)
    run(app, 3)
    assert clock.rung == [0.2]


def test_destroying_later_through_a_timer(app: App, clock: Clock) -> None:
    clock.invoke(clock.game_object.destroy, 0.1)
    run(app, 2)
    assert clock.is_destroyed


def test_wrong_use(clock: Clock) -> None:
    with pytest.raises(GameError, match=r"got str: 'ring'; write self\.invoke\(self\.ring, \.\.\.\)"):
        clock.invoke("ring", 1.0)  # type: ignore[arg-type]
    with pytest.raises(GameError, match="a delay is a time in seconds, 0 or more, got -1"):
        clock.invoke(clock.ring, -1.0)
    with pytest.raises(GameError, match="a period is a time in seconds above 0, got 0"):
        clock.invoke_repeating(clock.ring, 0.0, 0.0)
