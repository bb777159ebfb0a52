"""Mistakes are answered where they are made, with what was probably meant."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    BackendType,
    Camera2D,
    Camera3D,
    Color,
    FieldError,
    FrameError,
    GameError,
    GraphicsError,
    HookWarning,
    InputError,
    InputState,
    KeyEvent,
    LineRenderer,
    ModelLoader,
    MonoBehaviour,
    ParticleSystem,
    Range,
    ResourceError,
    SceneError,
    SpriteRenderer,
    Tensor,
    TensorShape,
    Texture,
    TextureConverter,
    Vec3,
    WaitForSeconds,
    WaitForSecondsRealtime,
    Worker,
)
from gameglue.scripting.hooks import HOOKS
from tests.graphs import mlp


class Painted(MonoBehaviour):
    """A component with a colour."""

    color: Color = "red"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("updte", "update"), ("on_destory", "on_destroy"), ("strat", "start"), ("uppdate", "update"),
        ("onn_enable", "on_enable"), ("late_updata", "late_update"), ("on_gu", "on_gui"),
    ],
)  # fmt: skip
def test_a_hook_one_letter_off_is_warned_of(name: str, meant: str) -> None:
    with pytest.warns(HookWarning, match=rf"Slip\.{name} is not called by the app: .*'{meant}'") as found:
        type("Slip", (MonoBehaviour,), {name: lambda self: None})
    assert found[0].filename == __file__


def test_a_message_without_counterpart_is_warned_of() -> None:
    with pytest.warns(HookWarning, match="there is no physics"):

        class Wall(MonoBehaviour):
            def on_trigger_enter(self) -> None: ...


@pytest.mark.parametrize("name", ["reset", "updated", "starts", "wake", "move", "restart", *HOOKS])
def test_names_that_are_meant_as_they_are_pass(name: str) -> None:
    hook = HOOKS.get(name)
    parameters = ", ".join(("self", *(hook.parameters if hook else ())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = type("Fine", (MonoBehaviour,), {name: eval(f"lambda {parameters}: None")})
        type("Finer", (made,), {})


def test_unknown_keys_and_buttons_name_the_likely_one() -> None:
    state = InputState()
    asked: list[tuple[Callable[[Any], object], Any, str]] = [
        (state.get_key, "spce", "no keyboard has a key 'spce'; did you mean 'space'?"),
        (state.get_key_down, "Space", "small letters: 'space'"),
        (state.get_key_up, "W", "small letters: 'w'"),
        (state.get_key, "esc", "did you mean 'escape'"),
        (state.get_key, 32, "no keyboard has a key 32"),
        (state.get_mouse_button, "left", "no mouse button 'left'; 'left' is 0"),
        (state.get_mouse_button_down, -1, "0 is left, 1 right"),
        (state.get_pad_button, "dpad_lef", "did you mean 'dpad_left'?"),
        (lambda name: state.get_pad_button_up(name, 0), "aa", "a gamepad has no button 'aa'"),
        (state.get_pad_axis, "leftx", "did you mean 'left_x'?"),
        (lambda name: state.get_axis(name, "right"), "lft", "did you mean 'left'?"),
    ]
    for ask, given, message in asked:
        with pytest.raises(GameError) as found:
            ask(given)
        assert message in str(found.value)
    for known in ("space", "a", "é", "f5", "left shift"):
        assert state.get_key(known) is False
    assert state.get_mouse_button(4) is False


def test_a_key_that_was_pressed_is_known() -> None:
    state = InputState()

    class Source:
        def events(self, time: float) -> list[Any]:
            return [KeyEvent("volume up", True)]

    state.sources.append(Source())
    state.begin_frame(0.0)
    assert state.get_key_down("volume up")
    assert not state.get_key_up("volume up")


def test_c_sharp_spellings_name_the_python_one() -> None:
    with App(headless=True) as app, Worker(ModelLoader.load(mlp((3, 4, 2), 0))) as worker:
        painted = app.scene.create("one").add_component(Painted)
        for owner, name, meant in (
            (painted, "StartCoroutine", "start_coroutine"),
            (painted, "gameObject", "game_object"),
            (painted.game_object, "AddComponent", "add_component"),
            (painted.transform, "localPosition", "local_position"),
            (worker, "Schedule", "schedule"),
            (worker, "PeekOutput", "peek_output"),
            (Tensor([1.0]), "ReadbackRequest", "readback_request"),
            (BackendType, "GPUCompute", "GPU_COMPUTE"),
            (ModelLoader, "Load", "load"),
            (TextureConverter, "ToTensor", "to_tensor"),
            (app.input, "GetKeyDown", "get_key_down"),
            (app.time, "deltaTime", "delta_time"),
        ):
            with pytest.raises(AttributeError, match=f"no attribute {name!r}; .* spelled {meant!r}"):
                getattr(owner, name)
        with pytest.raises(AttributeError, match="did you mean 'schedule'"):
            worker.shedule  # type: ignore[attr-defined] # noqa: B018
        with pytest.raises(AttributeError) as plain:
            worker.nothing_like_it  # type: ignore[attr-defined] # noqa: B018
        assert str(plain.value) == "'Worker' object has no attribute 'nothing_like_it'"
        assert not hasattr(worker, "Schedule")


def test_what_a_property_raises_stays_what_it_is() -> None:
    class Odd(MonoBehaviour):
        @property
        def broken(self) -> int:
            return self.missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'missing'"):
        _ = Odd().broken


def test_constructors_say_what_they_take() -> None:
    with pytest.raises(GraphicsError, match=r"app\.graphics\.texture"):
        Texture(np.zeros((2, 2, 4), np.uint8))  # type: ignore[arg-type]
    zeros = Tensor(TensorShape(1, 2, 3))
    assert zeros.shape == (1, 2, 3)
    assert zeros.dtype == np.float32
    assert not zeros.download_to_array().any()
    assert Tensor(TensorShape(2), np.int32).dtype == np.int32
    with pytest.raises(InputError, match="TensorShape, not object"):
        Tensor(object())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="numbers or text, not NoneType"):
        Tensor([None, 1])  # type: ignore[arg-type]
    assert Tensor(["a", "b"]).download_to_array().tolist() == ["a", "b"]


def test_an_unknown_colour_in_a_scene_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "level.scene"
    text = "scene: level\nversion: 1\nobjects:\n- name: one\n  components:\n  - TextRenderer:\n"
    path.write_text(f"{text}      color: blurple\n", encoding="utf-8")
    with App(headless=True, folder=tmp_path) as app, pytest.raises(SceneError) as found:
        app.load_scene(path)
    assert "unknown colour 'blurple'" in str(found.value)
    assert "line 7" in str(found.value)


def test_after_the_end_run_and_create_say_so() -> None:
    app = App(headless=True)
    app.quit()
    app.run(1)
    with pytest.raises(FrameError, match="this app has ended"):
        app.run()
    with pytest.raises(FrameError, match="this app has ended"):
        app.scene.create("late")
    app.dispose()


def test_the_exit_code_tells_of_component_errors() -> None:
    class Bad(MonoBehaviour):
        def update(self) -> None:
            raise ValueError("bad")

    with App(headless=True) as app:
        app.run(1)
        assert app.exit_code == 0
        app.scene.create("bad", Bad)
        app.run(1)
        assert app.exit_code == 1
    with App(headless=True, on_error="raise") as app:
        app.scene.create("bad", Bad)
        with pytest.raises(ValueError, match="bad"):
            app.run(1)


def test_vectors_have_their_magnitude() -> None:
    vector = Vec3(3.0, 4.0)
    assert (vector.magnitude, vector.sqr_magnitude) == (5.0, 25.0)


def test_changing_a_vector_in_place_says_what_to_write() -> None:
    with App(headless=True) as app:
        hero = app.scene.create("hero")
        with pytest.raises(AttributeError, match=r"x cannot be set: .*transform\.position \+= \(1, 0\)"):
            hero.transform.position.x = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("ask", "meant"),
    [
        (lambda hero, component: hero.position, "transform.position"),
        (lambda hero, component: hero.transform.x, "position.x"),
        (lambda hero, component: component.deltaTime, "time.delta_time"),
        (lambda hero, component: component.rotate(90), "transform.rotate"),
        (lambda hero, component: component.tag, "game_object.tag"),
        (lambda hero, component: component.get_axis("horizontal"), "input.get_axis"),
        (lambda hero, component: component.quit(), "app.quit"),
    ],
)
def test_an_attribute_of_a_part_is_named(ask: Callable[[Any, Any], object], meant: str) -> None:
    with App(headless=True) as app:
        hero = app.scene.create("hero")
        with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
            ask(hero, hero.add_component(Painted))


@pytest.mark.parametrize("value", [5, 0, None, b"bytes"])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with App(headless=True) as app:
        with pytest.raises(GraphicsError, match="text must be str, got"):
            app.gui.text(value, 10, 10)
        with pytest.raises(GraphicsError, match="text must be str, got"):
            app.gui.measure(value)


def test_a_misspelt_file_name_is_answered_with_names_alike(tmp_path: Path) -> None:
    (tmp_path / "assets" / "levels").mkdir(parents=True)
    (tmp_path / "assets" / "levels" / "forest.json").write_text("{}")
    (tmp_path / "hero.txt").write_text("")
    with App(headless=True, folder=tmp_path) as app:
        with pytest.raises(ResourceError, match=r"there is: levels/forest\.json"):
            app.resources.find("levels/forrest.json")
        with pytest.raises(ResourceError, match=r"there is: hero\.txt"):
            app.resources.find("heros.txt")


@pytest.mark.parametrize("value", ["2", None, float("nan")])
@pytest.mark.parametrize("wait", [WaitForSeconds, WaitForSecondsRealtime])
def test_a_wait_takes_a_number(wait: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(GameError, match=f"a wait takes a number of seconds, got {value!r}"):
        wait(value)


def test_a_name_is_no_sound() -> None:
    with App(headless=True) as app, pytest.raises(GameError, match=r"got str; load it .*load\('bang.ogg'\)"):
        app.audio.play("bang.ogg")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "named", "error", "message"),
    [
        (["x", Painted], {"color": "red"}, FieldError, r"create\('x'\).add_component\(Painted, color=...\)"),
        (["x", Painted], {"colour": "red"}, FieldError, r"'colour'; .*add_component\(Painted, color=...\)"),
        (["x", Painted], {"tint": 1}, FieldError, "its arguments: position, .*; fields of Painted: color$"),
        (["x"], {"postion": (1, 2)}, FieldError, "no argument 'postion'; did you mean 'position'"),
        (["x"], {"position": 5}, SceneError, r"position takes two or three numbers, got 5; write \(5, 0\)"),
        (["x"], {"position": "ab"}, SceneError, "position takes two or three numbers, got 'ab'"),
        (["x"], {"position": None}, SceneError, "position takes two or three numbers, got None"),
        (["x"], {"scale": (1, 2, 3, 4)}, SceneError, "scale takes one, two or three numbers"),
        (["x"], {"rotation": "left"}, SceneError, "degrees around z, or a Quaternion; got 'left'"),
        (["x"], {"parent": "ship"}, SceneError, "a GameObject or a Transform, got 'ship'; see scene.find"),
        ([Painted], {}, FieldError, "create takes the object's name first, got <class"),
        (
            ["x", "Painted"],
            {},
            FieldError,
            "classes derived from MonoBehaviour after the name, got 'Painted'",
        ),
        (["x", Painted()], {}, FieldError, "classes derived from MonoBehaviour after the name, got <Painted"),
    ],
)
def test_creating_says_what_it_takes(
    arguments: list[Any], named: dict[str, Any], error: type[Exception], message: str
) -> None:
    with App(headless=True) as app:
        with pytest.raises(error, match=message):
            app.scene.create(*arguments, **named)
        assert len(app.scene) == 0, "nothing is left of it"


def test_a_place_is_no_single_number() -> None:
    with App(headless=True) as app:
        transform = app.scene.create("x", scale=2).transform
        assert tuple(transform.local_scale) == (2, 2, 2)
        for name in ("position", "local_position"):
            with pytest.raises(SceneError, match="position takes two or three numbers, got 5"):
                setattr(transform, name, 5)


def test_an_unknown_field_is_answered_with_the_likely_one() -> None:
    with App(headless=True) as app, pytest.raises(FieldError, match="'colour'; did you mean 'color'"):
        app.scene.create("x").add_component(Painted, colour="red")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Camera2D, {"height": 0.0}, r"Camera2D.height must be above 0.0 units, got 0.0"),
        (Camera3D, {"field_of_view": 180.0}, "must be above 0.0 and below 180.0 degrees, got 180.0"),
        (SpriteRenderer, {"width": -1.0}, "SpriteRenderer.width must be at least 0.0 units"),
        (
            SpriteRenderer,
            {"height": float("nan")},
            "SpriteRenderer.height must be at least 0.0 units, got nan",
        ),
        (LineRenderer, {"width": -0.1}, "LineRenderer.width must be at least 0.0 units"),
        (ParticleSystem, {"capacity": 0}, "ParticleSystem.capacity must be at least 1 particles"),
        (ParticleSystem, {"sizes": (0.2, -0.1)}, r"sizes must be at least 0.0 units, got \(0.2, -0.1\)"),
        (ParticleSystem, {"lifetime": (-1.0, 2.0)}, "lifetime must be at least 0.0 seconds"),
    ],
)
def test_a_field_takes_what_lies_in_its_range(
    kind: type[MonoBehaviour], fields: dict[str, Any], message: str
) -> None:
    with App(headless=True) as app:
        owner = app.scene.create("x")
        with pytest.raises(FieldError, match=message):
            owner.add_component(kind, **fields)
        assert owner.components == ()
        owner.add_component(kind)


def test_ranges_read_as_they_are() -> None:
    assert [str(r) for r in (Range(), Range(1, 2, "m"), Range(high=3), Range(0, 1, exclusive=True))] == [
        "any number", "1 to 2 m", "at most 3", "above 0 and below 1",
    ]  # fmt: skip
