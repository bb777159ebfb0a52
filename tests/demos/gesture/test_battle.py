"""The demo as it is played: drawn spells, foes, waves, the script, and a camera, missing or made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from demos.gesture.autoplay import Autoplay
from demos.gesture.battle import CRYSTAL, HEALTH, Battle, Foe
from demos.gesture.camera import CameraWand
from demos.gesture.main import build
from demos.gesture.strokes import SIGNS
from demos.gesture.wand import FIELD, Wand
from gameglue import InputScript
from tests.cameras import FakeCamera
from tests.demos.playing import Demo, Play, part

Start = Callable[..., tuple[Demo, Battle, Wand]]


@pytest.fixture
def play(play_undrawn: Play) -> Start:
    """`play(script, **options)`: the demo, its battle and its wand."""

    def start(script: InputScript | None = None, **options: Any) -> tuple[Demo, Battle, Wand]:
        app = play_undrawn(build, script, seed=4, deterministic=True, **options)
        return app, part(app, Battle), part(app, Wand)

    return start


def drawn(spell: str) -> InputScript:
    """A player who draws a sign in the middle of the field, at an even pace."""
    path = SIGNS[spell] * 220 + (300, 320)
    far = np.r_[0.0, np.cumsum(np.hypot(*np.diff(path, axis=0).T))]
    even = np.linspace(0.0, far[-1], 80)
    x, y = (np.interp(even, far, path[:, axis]) for axis in (0, 1))
    places = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    return InputScript().drag(places, at=0.1, duration=0.3 + far[-1] / 1000)


@pytest.mark.parametrize("spell", sorted(SIGNS))
def test_a_sign_drawn_with_the_mouse_strikes_those_that_bear_it(play: Start, spell: str) -> None:
    app, battle, wand = play(drawn(spell))
    app.step()
    others = [name for name in SIGNS if name != spell]
    battle.stop_all_coroutines()
    battle.foes = [Foe(name, 500.0, 200.0, 0.0) for name in (spell, *others, spell)]
    app.run(frames=100)
    assert battle.last_spell == spell
    assert [foe.spell for foe in battle.foes] == others
    assert battle.wave == 1
    assert battle.score == 2 * 10
    assert wand.result_count > 20


def test_a_click_is_no_spell(play: Start) -> None:
    app, battle, _ = play(InputScript().click(300, 300, at=0.1))
    app.run(frames=25)
    assert battle.last_spell == "none"
    assert battle.score == 0


def test_strokes_begin_on_the_field_only(play: Start) -> None:
    app, _, wand = play(InputScript().drag([(800, 300), (300, 300), (200, 200)], at=0.1, duration=0.3))
    app.run(frames=40)
    assert wand.points == []
    assert wand.result_count == 0


def test_foes_that_arrive_break_the_crystal_and_n_begins_again(play: Start) -> None:
    app, battle, _ = play(InputScript().press("n", at=1.0))
    app.step()
    battle.foes = [Foe("circle", CRYSTAL[0] + 45, 300.0, 90.0) for _ in range(HEALTH + 1)]
    app.run(frames=55)
    assert battle.health == 0
    assert battle.foes == [], "no more are sent"
    app.run(frames=40)
    assert battle.health == HEALTH
    app.run(frames=60)
    assert battle.foes != []


def test_waves_grow(play: Start) -> None:
    app, battle, _ = play()
    app.step()
    app.time.time_scale = 20.0
    sent = {1: 0, 2: 0, 3: 0}
    while battle.wave < 4:
        if battle.foes:
            sent[battle.wave] += len(battle.foes)
            battle.foes.clear()
        app.step()
    assert sent == {1: 6, 2: 8, 3: 10}


def test_the_script_wins_its_first_wave(play: Start) -> None:
    app, battle, wand = play(autoplay=True)
    scores: list[int] = []
    wand.on_cast.connect(lambda spell: scores.append(battle.score))
    app.run(frames=500)
    assert battle.score >= 40
    assert battle.health >= HEALTH - 1
    struck = np.count_nonzero(np.diff([0, *scores]))
    assert struck >= 4 * (len(scores) - struck)


def test_the_script_begins_again_after_a_defeat(play: Start) -> None:
    app, battle, _ = play(autoplay=True)
    app.step()
    battle.health = 0
    app.run(frames=60)
    assert battle.health == 0
    app.run(frames=160)
    assert battle.health == HEALTH


def test_the_player_takes_over(play: Start) -> None:
    app, _, _ = play(InputScript().click(300, 300, at=0.5), autoplay=True)
    app.run(frames=40)
    assert not part(app, Autoplay).enabled


# -- a camera ----------------------------------------------------------------------------------------


def show(camera: FakeCamera, x: float, y: float) -> None:
    """The camera sees a bright square, in the middle of whose picture 160 pixels wide `x` and `y` are 0.5."""
    picture = np.zeros((120, 160, 3), np.uint8)
    left, top = int(x * 160) - 12, int(y * 120) - 12
    picture[top : top + 24, left : left + 24] = 255
    camera.show(picture)


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> FakeCamera:
    fake = FakeCamera()
    fake.plug_in(monkeypatch)
    return fake


def switch_on(play: Start) -> tuple[Demo, Battle, Wand]:
    """The demo with its camera on."""
    app, battle, wand = play(InputScript().press("c", at=0.0))
    app.run(frames=3)
    return app, battle, wand


def test_a_camera_follows_what_moves_as_in_a_mirror(play: Start, camera: FakeCamera) -> None:
    app, battle, wand = switch_on(play)
    for step in range(30):
        show(camera, 0.2 + 0.02 * step, 0.3)
        app.step()
    assert len(wand.points) > 25
    _, x, y = np.array(wand.points).T
    assert np.diff(x).max() < 0.0  # to the right in the picture is to the player's left
    assert np.abs(y - (FIELD.y + 0.3 * FIELD.height)).max() < 0.05 * FIELD.height
    app.run(frames=22)
    assert not wand.drawing
    assert battle.last_spell != ""
    assert len(wand.points) < 35, "a still picture moves nothing"


def test_no_camera_is_said_and_nothing_else(play: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCamera().plug_in(monkeypatch, names=())
    app, _, _ = switch_on(play)
    app.run(frames=20)
    component = part(app, CameraWand)
    assert component.note.startswith("no camera was found")
    assert not component.picture.is_playing


def test_what_moves_before_a_camera_casts(play: Start, camera: FakeCamera) -> None:
    app, battle, wand = switch_on(play)
    for step in range(70):
        angle = 2 * np.pi * min(step, 40) / 40
        show(camera, 0.5 + 0.3 * float(np.cos(angle)), 0.5 + 0.3 * float(np.sin(angle)))
        app.step()
        if 10 < step < 40:
            assert wand.drawing
    assert battle.last_spell == "circle"
    assert not wand.drawing
    app.dispose()
    assert not camera.is_open


def test_c_again_turns_the_camera_off(play: Start, camera: FakeCamera) -> None:
    app, _, wand = play(InputScript().press("c", at=0.0).press("c", at=0.5))
    component = part(app, CameraWand)
    seen = []
    for frames in (5, 40):
        app.run(frames=frames)
        seen.append((component.picture.is_playing, component.note))
    assert seen == [(True, "camera: move to draw, hold still to cast"), (False, wand.label)]
