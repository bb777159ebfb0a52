"""The demo as it is played: drawn spells, foes, waves, the script, and a camera, missing or made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from demos.gesture import camera as camera_module
from demos.gesture.battle import CRYSTAL, HEALTH, Battle, Foe
from demos.gesture.camera import Camera, CameraWand
from demos.gesture.main import build
from demos.gesture.strokes import SIGNS
from demos.gesture.wand import AutoWand, Wand
from gameglue import App, BackendChoice, BackendType, InputScript, PlayOptions

Play = Callable[..., tuple[App, Battle, Wand]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """`play(script, **options)`: the demo on the CPU, without OpenGL, in which no component may raise."""
    monkeypatch.setenv("GAMEGLUE_NO_OPENGL", "1")
    apps: list[App] = []

    def start(script: InputScript | None = None, autoplay: bool = False) -> tuple[App, Battle, Wand]:
        app = App("test", headless=True, input_source=script, on_error="raise", deterministic=True, seed=4)
        apps.append(app)
        build(app, PlayOptions(choice=BackendChoice(BackendType.CPU), autoplay=autoplay))
        battle, wand = app.scene.find_component(Battle), app.scene.find_component(Wand)
        assert battle is not None
        assert wand is not None
        return app, battle, wand

    yield start
    for app in apps:
        app.dispose()


def drawn(spell: str) -> InputScript:
    """A player who draws a sign in the middle of the field, at an even pace."""
    path = SIGNS[spell] * 220 + (300, 320)
    far = np.r_[0.0, np.cumsum(np.hypot(*np.diff(path, axis=0).T))]
    even = np.linspace(0.0, far[-1], 80)
    x, y = (np.interp(even, far, path[:, axis]) for axis in (0, 1))
    places = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    return InputScript().drag(places, at=0.1, duration=0.3 + far[-1] / 1000)


@pytest.mark.parametrize("spell", sorted(SIGNS))
def test_a_sign_drawn_with_the_mouse_strikes_those_that_bear_it(play: Play, spell: str) -> None:
    app, battle, wand = play(drawn(spell))
    app.step()
    others = [name for name in SIGNS if name != spell]
    battle.left, battle.foes = 0, [Foe(name, 500.0, 200.0, 0.0, 0.0) for name in (spell, *others, spell)]
    app.run(frames=100)
    assert battle.last_spell == spell
    assert [foe.spell for foe in battle.foes] == others
    assert battle.score == 2 * 10 * battle.wave
    assert (battle.cast_right, battle.cast_wrong) == (1, 0)
    assert wand.answers > 20


def test_a_click_is_no_spell(play: Play) -> None:
    app, battle, _ = play(InputScript().click(300, 300, at=0.1))
    app.run(frames=25)
    assert battle.last_spell == "none"
    assert (battle.score, battle.cast_wrong) == (0, 1)


def test_strokes_begin_on_the_field_only(play: Play) -> None:
    app, _, wand = play(InputScript().drag([(800, 300), (300, 300), (200, 200)], at=0.1, duration=0.3))
    app.run(frames=40)
    assert wand.points == []
    assert wand.answers == 0


def test_foes_that_arrive_break_the_crystal_and_n_begins_again(play: Play) -> None:
    app, battle, _ = play(InputScript().press("n", at=1.0))
    app.step()
    battle.left, battle.foes = 0, [Foe("circle", CRYSTAL[0] + 45, 300.0, 90.0, 0.0) for _ in range(HEALTH)]
    app.run(frames=30)
    assert battle.is_over
    assert battle.foes == []
    app.run(frames=40)
    assert battle.health == HEALTH


def test_waves_grow(play: Play) -> None:
    app, battle, _ = play()
    app.step()
    sent = []
    for _ in range(3):
        while not battle.left:
            app.step()
        sent.append(battle.left)
        battle.left = 0
        battle.foes.clear()
    assert sent == [6, 8, 10]


def test_the_script_wins_its_first_wave(play: Play) -> None:
    app, battle, _ = play(autoplay=True)
    app.run(frames=500)
    assert battle.score >= 40
    assert battle.health >= HEALTH - 1
    assert battle.cast_right >= 4 * battle.cast_wrong


def test_the_player_takes_over(play: Play) -> None:
    app, _, _ = play(InputScript().click(300, 300, at=0.5), autoplay=True)
    app.run(frames=40)
    auto = app.scene.find_component(AutoWand)
    assert auto is None or not auto.enabled


class FakeCamera:
    """A picture in which a bright square goes where `place` says, from 0 to 1."""

    def __init__(self) -> None:
        self.place = (0.5, 0.5)
        self.stopped = False

    def query_image(self) -> bool:
        return True

    def get_image(self) -> Any:
        import pygame

        surface = pygame.Surface((160, 120))
        surface.fill((255, 255, 255), (int(self.place[0] * 160) - 12, int(self.place[1] * 120) - 12, 24, 24))
        return surface

    def stop(self) -> None:
        self.stopped = True


def test_a_camera_follows_what_moves_as_in_a_mirror() -> None:
    device = FakeCamera()
    camera, seen = Camera(device), []
    for step in range(30):
        device.place = (0.2 + 0.02 * step, 0.3)
        place = camera.look(step / 30)
        if place:
            seen.append(place)
    assert len(seen) > 25
    assert np.diff([x for x, _ in seen]).max() < 0.0  # to the right in the picture is to the player's left
    assert np.abs(np.array([y for _, y in seen]) - 0.3).max() < 0.05
    assert [camera.look(t) for t in (1.0, 1.1)] == [(), ()]
    assert camera.look(1.4) is None
    assert camera.look(1.5) == ()
    camera.close()
    assert device.stopped


def test_no_camera_is_said_and_nothing_else(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise OSError("no camera was found")

    monkeypatch.setattr(camera_module, "_first_camera", missing)
    app, _, _ = play(InputScript().press("c", at=0.1))
    app.run(frames=20)
    component = app.scene.find_component(CameraWand)
    assert component is not None
    assert component.message == "no camera was found"
    assert component.camera is None


def test_what_moves_before_a_camera_casts(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeCamera()
    monkeypatch.setattr(camera_module, "_first_camera", lambda: device)
    app, battle, wand = play(InputScript().press("c", at=0.0))
    for step in range(100):
        if 10 < step < 50:
            angle = 2 * np.pi * (step - 10) / 40
            device.place = (0.5 + 0.3 * float(np.cos(angle)), 0.5 + 0.3 * float(np.sin(angle)))
        app.step()
        if 30 < step < 50:
            assert wand.drawing
    assert battle.last_spell != ""
    assert not wand.drawing
    app.dispose()
    assert device.stopped
