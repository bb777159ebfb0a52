"""The inspector by hand: a scripted mouse and keyboard change a running game through it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from gameglue import App, GameError, GameObject, InputScript, MonoBehaviour, SpriteRenderer, Texture, Vec3
from gameglue.graphics.colors import Color
from gameglue.scripting.fields import Range

pytestmark = pytest.mark.gl

MakeApp = Callable[..., App]
RunChild = Callable[..., str]


class Mood(Enum):
    """For a field with named values."""

    CALM = 1
    ANGRY = 2


class Enemy(MonoBehaviour):
    """A field of every type that can be edited, and some of those that cannot."""

    speed: float = 2.0
    health: Annotated[float, Range(0, 100, "hp")] = 80.0
    lives: int = 3
    is_awake: bool = True
    title: str = "goblin"
    mood: Mood = Mood.CALM
    stance: Literal["guard", "attack"] = "guard"
    home: Vec3 = Vec3(1, 2, 3)
    tint: Color = "#4cc2ff"
    size: tuple[int, int] = (3, 4)
    path: list[float] = [1.0, 2.0]
    target: GameObject | None = None
    image: Texture | None = None
    weights: np.ndarray | None = None
    model: object

    def awake(self) -> None:
        self.frames = 0
        self.clicks = 0
        self.keys = 0

    def update(self) -> None:
        self.frames += 1
        self.clicks += self.input.get_mouse_button_down()
        self.keys += self.input.get_key_down("a")


@pytest.fixture
def enemy(hand: Any) -> Enemy:
    enemy: Enemy = hand.app.scene.create("enemy", position=(2, 1)).add_component(Enemy)
    hand.app.inspector.select(hand.app, enemy.game_object)
    hand.frames(3)
    return enemy


def test_an_object_is_selected_and_switched_off(hand: Any) -> None:
    app = hand.app
    first, second = app.scene.create("first"), app.scene.create("second")
    hand.frames()
    hand.click("second###name")
    assert app.inspector.selected is second
    hand.click("##active")
    assert (first.active, second.active) == (False, True)
    # The checkbox in the details is the last one.
    hand.click("##active", -1)
    assert (first.active, second.active) == (False, False)
    hand.click("Destroy")
    assert second.is_destroyed
    assert app.inspector.selected is None


def test_children_unfold_and_objects_are_found(hand: Any) -> None:
    app = hand.app
    parent = app.scene.create("parent")
    app.scene.create("child", SpriteRenderer, parent=parent)
    other = app.new_scene("other")
    other.create("elsewhere")
    app.load_scene(other, additive=True)
    hand.frames()
    assert "child###name" not in hand.imgui.places
    assert "elsewhere###name" in hand.imgui.places
    left, top, _, bottom = hand.imgui.places["parent###name"][0]
    hand.click_at(left + 6, (top + bottom) / 2)
    assert "child###name" in hand.imgui.places
    hand.click("##search")
    hand.type("sprite")
    assert [label for label in hand.imgui.places if label.endswith("###name")] == ["child###name"]


def test_numbers_are_dragged_and_typed(hand: Any, enemy: Enemy) -> None:
    hand.drag("##speed", 60)
    assert enemy.speed > 2.2
    assert isinstance(enemy.speed, float)
    hand.double_click("##lives")
    hand.type("7")
    assert enemy.lives == 7
    hand.click("##health", along=0.25)
    assert 10 < enemy.health < 40
    hand.drag("##health", 400)
    assert enemy.health == 100.0


def test_words_switches_and_choices(hand: Any, enemy: Enemy) -> None:
    hand.click("##is_awake", along=0.05)
    assert enemy.is_awake is False
    hand.click("##title")
    hand.type("ogre")
    assert enemy.title == "ogre"
    # The list opens below; the second entry is the other one.
    for field, expected in (("mood", Mood.ANGRY), ("stance", "attack")):
        hand.click(f"##{field}")
        left, _, right, bottom = hand.imgui.places[f"##{field}"][0]
        hand.click_at((left + right) / 2, bottom + 32)
        assert getattr(enemy, field) == expected


def test_vectors_and_the_transform(hand: Any, enemy: Enemy) -> None:
    hand.drag("##home", 50, along=0.5)
    assert enemy.home.y > 2.3
    assert (enemy.home.x, enemy.home.z) == (1, 3)
    assert type(enemy.home) is Vec3
    hand.drag("##position", -50, along=0.15)
    assert enemy.transform.local_position.x < 1.7
    hand.drag("##rotation", 40, along=0.85)
    angle = enemy.transform.angle
    assert 5 < angle < 60
    hand.drag("##size", 60, along=0.25)
    assert enemy.size[0] > 3
    assert enemy.size[1] == 4
    assert all(isinstance(n, int) for n in enemy.size)


def test_what_cannot_be_edited_is_shown(hand: Any, enemy: Enemy) -> None:
    hero = hand.app.scene.create("hero")
    enemy.target = hero
    enemy.weights = np.zeros((3, 4), np.float32)
    enemy.image = hand.app.graphics.texture(np.full((20, 20, 3), (255, 0, 0), np.uint8))
    hand.frames()
    assert "float32 (3, 4)" in hand.imgui.places
    assert "not set" in hand.imgui.places
    hand.click("hero")
    assert hand.app.inspector.selected is hero


def test_a_texture_is_shown_as_it_looks(make_drawing_app: MakeApp, watched: Any) -> None:
    app = make_drawing_app(size=(640, 900))
    enemy = app.scene.create("enemy").add_component(Enemy)
    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[:20], pixels[20:] = (255, 0, 0), (0, 0, 255)
    enemy.image = app.graphics.texture(pixels)
    app.inspector.select(app, enemy.game_object)
    for _ in range(4):
        app.step(0.02)
    picture = app.graphics.read_pixels().astype(int)
    red = np.argwhere((picture == [255, 0, 0]).all(axis=2))
    blue = np.argwhere((picture == [0, 0, 255]).all(axis=2))
    assert abs(len(red) - 800) < 100
    assert abs(len(blue) - 800) < 100
    assert red[:, 0].max() < blue[:, 0].min()


def test_the_game_gets_what_is_not_meant_for_the_inspector(hand: Any, enemy: Enemy) -> None:
    hand.click_at(280, 460)
    assert enemy.clicks == 1
    hand.click("##title")
    assert enemy.clicks == 1
    hand.type("banana")
    assert enemy.keys == 0
    hand.click_at(280, 460)
    hand.press("a")
    assert (enemy.clicks, enemy.keys) == (2, 1)


def test_pause_step_and_resume(hand: Any, enemy: Enemy) -> None:
    hand.click("Pause")
    assert hand.app.halted
    before = enemy.frames
    hand.frames(5)
    assert enemy.frames == before
    hand.click("Step")
    assert enemy.frames == before + 1
    hand.press("f7")
    assert enemy.frames == before + 2
    # What is changed while it stands still counts.
    hand.drag("##speed", 60)
    assert enemy.speed > 2.2
    hand.click("Resume")
    assert enemy.frames > before + 2
    hand.press("f6")
    assert hand.app.halted
    hand.press("f6")
    assert not hand.app.halted


def test_its_key_shows_and_hides_it(hand: Any, enemy: Enemy) -> None:
    hand.press("f2")
    assert not hand.app.inspector.visible
    clicks = enemy.clicks
    hand.click("##title")
    assert enemy.clicks == clicks + 1
    hand.press("f2")
    assert hand.app.inspector.visible


def test_players_of_a_built_game_do_not_meet_it(
    make_drawing_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_drawing_app(input_source=InputScript().press("f2", at=0.03))
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    for _ in range(3):
        app.step(0.02)
    assert not app.inspector.visible
    assert app.input.get_key("f2")


def test_a_value_that_the_field_refuses_is_not_taken(hand: Any, enemy: Enemy) -> None:
    class Strict(MonoBehaviour):
        level: Annotated[int, Range(1, 3)] = 2

        def __setattr__(self, name: str, value: object) -> None:
            if name == "level":
                raise ValueError("the level is fixed")
            super().__setattr__(name, value)

    strict = enemy.game_object.add_component(Strict)
    for component in enemy.game_object.get_components(Enemy):
        component.destroy()
    hand.frames(3)
    hand.drag("##level", 200)
    assert strict.level == 2
    assert any("the level is fixed" in label for label in _texts(hand))


def test_a_value_that_validation_refuses_is_put_back(hand: Any, enemy: Enemy) -> None:
    class Even(MonoBehaviour):
        level: Annotated[int, Range(1, 3)] = 2
        checked: tuple[int, ...] = ()

        def on_validate(self) -> None:
            self.checked += (self.level,)
            if self.level % 2:
                raise ValueError("the level is even")

    even = enemy.game_object.add_component(Even)
    for component in enemy.game_object.get_components(Enemy):
        component.destroy()
    hand.frames(3)
    hand.drag("##level", 200)
    assert even.level == 2
    assert even.checked[:2] == (2, 3)
    assert any("the level is even" in label for label in _texts(hand))


def _texts(hand: Any) -> list[str]:
    details = hand.app.inspector._overlay._details
    return list(details._mistakes.values())


class Unspeakable:
    """A value that cannot even be written."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Odd(MonoBehaviour):
    """Values at the edges of what the editors take."""

    big: int = 2**40
    open_end: Annotated[float, Range(0, float("inf"))] = 1.0
    open_int: Annotated[int, Range(0, 10**12)] = 5
    nan: float = float("nan")
    scalar: float = np.float32(2)  # type: ignore[assignment]
    text: str = "100%d %s ##x"
    zero: str = "a\0b"
    empty: tuple[int, ...] = ()
    value: object = Unspeakable()

    def __getattribute__(self, name: str) -> object:
        if name == "empty":
            raise RuntimeError("not to be read")
        return super().__getattribute__(name)


def test_odd_values_are_shown_as_well_as_they_can_be(hand: Any) -> None:
    owner = hand.app.scene.create("odd 50%s ## ###")
    owner.add_component(Odd)
    hand.app.inspector.select(hand.app, owner)
    hand.frames(3)
    assert hand.app.inspector.visible
    assert "1099511627776" in hand.imgui.places
    assert "raises RuntimeError('not to be read')" in hand.imgui.places
    assert any("no words" in label for label in hand.imgui.places)


def test_an_inspector_that_raises_is_closed_and_the_game_goes_on(
    hand: Any, enemy: Enemy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("gameglue.inspector.details.fields_of", lambda cls: 1 / 0)
        before = enemy.frames
        hand.frames(3)
    assert enemy.frames == before + 3
    assert not hand.app.inspector.visible
    assert "is closed; F2 opens a new one" in caplog.text
    hand.press("f2")
    assert hand.app.inspector.visible


def test_ten_thousand_objects_are_laid_out_as_far_as_they_are_seen(hand: Any) -> None:
    for n in range(10_000):
        hand.app.scene.create(f"o{n}")
    hand.frames()
    rows = [label for label in hand.imgui.places if label.endswith("###name")]
    assert 5 < len(rows) < 60


def test_without_imgui_bundle_it_says_how_to_get_it(
    make_drawing_app: MakeApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "imgui_bundle", None)
    script = InputScript().press("f2", at=0.03).press("f2", at=0.1)
    app = make_drawing_app(input_source=script)
    with pytest.raises(GameError, match=r'pip install "gameglue\[inspector\]"'):
        app.inspector.show(app)
    with caplog.at_level(logging.WARNING):
        for _ in range(8):
            app.step(0.02)
    assert [r.getMessage().count("gameglue[inspector]") for r in caplog.records] == [1]
    hint = app.graphics.read_pixels()[10:40]
    assert (hint.max(axis=2) > 150).sum() > 50
    assert not app.inspector.visible


def test_without_opengl_it_says_so(make_app: MakeApp) -> None:
    app = make_app()
    with pytest.raises(GameError, match="draws with OpenGL"):
        app.inspector.show(app)


STATE = """
import moderngl
from gameglue import App
from engine.device.gl.functions import GLFunctions
from engine.device.gl.context_switch import current_platform
from tests.engine.gl_state import Disturbed, differences, snapshot

ctx = moderngl.create_standalone_context(backend="egl")
with App("state", context=ctx, size=(640, 480), on_error="raise") as app:
    owner = app.scene.create("thing")
    app.inspector.select(app, owner)
    app.step(0.02)
    ctx.detect_framebuffer(0).use()
    gl = GLFunctions(current_platform())
    disturbed = Disturbed(gl)
    before = snapshot(gl)
    # The frame itself draws as it likes; this is about the overlay.
    for text in ("a", "other letters: äöü", "b"):
        owner.name = text
        app.inspector.draw(app)
        found = differences(before, snapshot(gl))
        assert not found, found
    picture = app.graphics.picture
    gl.glPixelStorei(0x0D02, 0)  # pack row length, and the pack buffer: they would count for the read below
    gl.glBindBuffer(0x88EB, 0)
    print((picture.read()[66:106, 20:200].max(axis=2) > 150).sum())
"""


def test_the_opengl_state_is_left_as_it_was_found(run_child: RunChild) -> None:
    pytest.importorskip("imgui_bundle")
    assert int(run_child(STATE).split()[-1]) > 100
