"""A game that is halted: drawn, but not going on; one frame at a time; and not part of what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from gameglue import App, InputScript, MonoBehaviour, Phase, WaitForEndOfFrame

MakeApp = Callable[..., App]


class Counter(MonoBehaviour):
    """Counts what is called, and notes the times."""

    def awake(self) -> None:
        self.calls: dict[str, int] = {}
        self.deltas: list[float] = []

    def start(self) -> None:
        self.start_coroutine(self.ends())

    def ends(self) -> Generator[Any, Any, None]:
        while True:
            yield WaitForEndOfFrame()
            self.count("end")

    def count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def fixed_update(self) -> None:
        self.count("fixed_update")

    def update(self) -> None:
        self.count("update")

    def late_update(self) -> None:
        self.count("late_update")

    def on_gui(self) -> None:
        self.count("on_gui")
        self.deltas.append(self.time.delta_time)


def test_a_halted_game_is_drawn_and_does_not_go_on(app: App) -> None:
    counter = app.scene.create("a").add_component(Counter)
    own: list[int] = []
    app.frame.insert(Phase("physics", "", lambda app: own.append(app.time.frame_count)), after="update")
    for _ in range(3):
        app.step(0.02)
    before, count, time = dict(counter.calls), app.time.frame_count, app.time.time
    app.halted = True
    for _ in range(5):
        app.step(0.02)
    assert counter.calls == {**before, "on_gui": before["on_gui"] + 5}
    assert (app.time.frame_count, app.time.time, app.time.unscaled_time) == (count, time, pytest.approx(time))
    assert counter.deltas[-5:] == [0.0] * 5
    assert len(own) == 3
    assert app._player_time == pytest.approx(0.16)
    app.halted = False
    app.step(0.02)
    assert counter.calls["update"] == before["update"] + 1
    assert app.time.time == pytest.approx(0.08)


def test_single_steps_have_the_length_of_a_frame(make_app: MakeApp) -> None:
    app = make_app(on_error="raise", target_frame_rate=50.0, real_time=True)
    counter = app.scene.create("a").add_component(Counter)
    app.step(0.02)
    app.halted = True
    app.single_step()
    app.single_step()
    for _ in range(4):
        app.step()
    assert counter.calls["update"] == counter.calls["end"] == 3
    assert app.time.time == pytest.approx(0.06)
    app.halted = False
    app.single_step()
    app.halted = True
    app.step(0.02)
    assert counter.calls["update"] == 3


def test_what_is_destroyed_goes_and_input_comes_while_halted(make_app: MakeApp) -> None:
    app = make_app(on_error="raise", input_source=InputScript().press("a", at=0.05, hold=1.0))
    owner = app.scene.create("a")
    app.step(0.02)
    app.halted = True
    owner.destroy()
    app.step(0.02)
    assert owner.is_destroyed
    app.step(0.02)
    assert app.input.get_key("a")


class Walker(MonoBehaviour):
    """Moves while a key is held."""

    def awake(self) -> None:
        self.path: list[float] = []

    def update(self) -> None:
        self.transform.translate((self.input.get_axis("horizontal") * self.time.delta_time, 0))
        self.path.append(self.transform.position.x)


def test_a_recording_knows_nothing_of_frames_in_which_the_game_stood_still(make_app: MakeApp) -> None:
    first = make_app(input_source=InputScript().press("d", at=0.0, hold=9.0))
    walker = first.scene.create("a").add_component(Walker)
    recording = first.record_input()
    for frame in range(20):
        first.halted = 5 <= frame < 12
        if frame == 8:
            first.single_step()
        first.step(0.01 + 0.001 * frame)
    assert len(recording.frames) == len(walker.path) == 14
    second = make_app(replay=recording)
    again = second.scene.create("a").add_component(Walker)
    second.run()
    assert again.path == walker.path
