"""Mistakes are answered where they are made, with what was probably meant."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import (
    App,
    BackendType,
    Brain,
    Camera2D,
    Color,
    FrameError,
    GameError,
    GameObject,
    GraphicsError,
    HookWarning,
    InputError,
    InputState,
    KeyEvent,
    ModelImportError,
    ModelLoader,
    MonoBehaviour,
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


class Follower(MonoBehaviour):
    """A component that refers to an object."""

    target: GameObject | None = None


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
        (state.get_key_down, "Space", "lower case: 'space'"),
        (state.get_key_up, "W", "lower case: 'w'"),
        (state.get_key, "esc", "did you mean 'escape'"),
        (state.get_key, 32, "not by a number or constant"),
        (state.get_mouse_button, "lft", "no mouse button 'lft'; did you mean 'left'?"),
        (state.get_mouse_button_down, -1, "0 left, 1 right"),
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
    assert state.get_mouse_button("back") is False


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


def test_a_wrong_colour_of_a_camera_does_not_end_the_game() -> None:
    with App(headless=True) as app:
        camera = app.scene.create("camera").add_component(Camera2D)
        app.run(1)
        camera.background = "darkgreen"
        app.run(2)
        assert [(failed.component, failed.where) for failed in app.errors] == [(camera, "draw")]


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


def test_another_apps_things_are_refused() -> None:
    with App(headless=True) as one, App(headless=True) as two:
        here, there = one.scene.create("here"), two.scene.create("there")
        for use in (
            lambda: here.transform.set_parent(there),
            lambda: here.add_component(Follower, target=there),
        ):
            with pytest.raises(SceneError, match=r"<GameObject 'there'> belongs to another app"):
                use()
        if one.ctx is not None:
            texture = two.graphics.texture(np.zeros((2, 2, 4), np.uint8))
            with pytest.raises(SceneError, match=r"SpriteRenderer\.texture: .* belongs to another app"):
                here.add_component(SpriteRenderer, texture=texture)
        assert here.transform.parent is None


def test_an_object_stands_for_its_transform() -> None:
    with App(headless=True) as app:
        body, hat = app.scene.create("body"), app.scene.create("hat")
        hat.transform.parent = body
        assert hat.transform.parent is body.transform
        hat.transform.set_parent(None)
        hat.transform.set_parent(body)
        assert body.transform.children == (hat.transform,)


AWAITED: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda self: asyncio.sleep(0.1),
        "asyncio does not run in a game; to wait, write await self.app.seconds(",
    ),
    (lambda self: 0.5, "float cannot be awaited; to wait for some time, write await self.app.seconds(0.5)"),
    (lambda self: self.app.next_frame, "method cannot be awaited; call it"),
    (lambda self: self.app.load_scene(self.app.new_scene()), "await self.app.load_scene_async(...)"),
]


@pytest.mark.parametrize(("wrong", "message"), AWAITED)
def test_what_cannot_be_awaited(wrong: Callable[[Any], Any], message: str) -> None:
    class Waiting(MonoBehaviour):
        async def start(self) -> None:
            await wrong(self)

    with App(headless=True) as app:
        app.scene.create("waiting", Waiting)
        app.run(2)
        (failed,) = app.errors
        assert message in str(failed.error)
        assert "Waiting.start: " in str(failed.error)


def test_a_wait_that_is_dropped_is_warned_of() -> None:
    with App(headless=True) as app:
        with pytest.warns(RuntimeWarning, match=r"write await self\.app\.seconds\(1\)") as found:
            app.seconds(1)
        assert found[0].filename == __file__
        with pytest.warns(RuntimeWarning, match=r"write await self\.app\.next_frame\(\)"):
            app.next_frame()

        class Waiting(MonoBehaviour):
            async def start(self) -> None:
                await self.app.seconds(0.01)
                await self.app.next_frame()
                WaitForSeconds(1.0)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            app.scene.create("waiting", Waiting)
            app.run(5)
        assert not app.errors


_ONE = "- name: one\n  components:\n"
SCENE_MISTAKES = {
    "bare colour": (_ONE + "  - Camera2D: {depth: 1, background: #0c1210}", 6,
                    'a colour needs quotes, "#0c1210": what follows # is a comment'),
    "colour in a block": (_ONE + "  - Camera2D:\n      background: #fff", 7, '"#fff"'),
    "colour in a list": (_ONE + "  - ParticleSystem:\n      colors:\n      - #ffd866", 8,
                         '"#ffd866"'),
    "tab": (_ONE + "\t- AudioListener", 6, "with spaces, not with tabs"),
    "no": (_ONE + "  - AudioSource: {play_on_awake: no}", 6,
           "play_on_awake must be bool, got str: 'no'; write false"),
    "enabled": (_ONE + "  - AudioSource:\n    enabled: yes", 7, "got 'yes'; write true"),
    "dotted class": (_ONE + "  - things.Hud", 6, "with a colon: things:Hud, not things.Hud"),
    "case of a class": (_ONE + f"  - {__name__}:FOLLOWER", 6, "did you mean 'Follower'?"),
    "parent": ("- name: one\n  parent: two", 5, "write it in the list 'children' of its parent"),
    "instance": ("- prefab: slime.prefab\n  overrides: {tg: 2}", 5, "object 'slime.prefab': override 'tg'"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENE_MISTAKES)
def test_a_mistake_in_a_scene_file_is_answered(tmp_path: Path, name: str) -> None:
    objects, line, message = SCENE_MISTAKES[name]
    (tmp_path / "slime.prefab").write_text("prefab: slime\nversion: 1\nobject:\n  name: slime\n")
    path = tmp_path / "level.scene"
    path.write_text(f"scene: level\nversion: 1\nobjects:\n{objects}\n", encoding="utf-8")
    with App(headless=True, folder=tmp_path) as app, pytest.raises(SceneError) as found:
        app.load_scene(path)
    assert message in str(found.value)
    assert f"line {line}" in str(found.value)


def test_quoted_colours_and_comments_are_read(app: App, tmp_path: Path) -> None:
    path = tmp_path / "level.scene"
    path.write_text(
        "scene: level  # a first one\nversion: 1 #2\nobjects:\n- name: '# one: #fff'\n"
        "  tag: \"#abc\"\n  components: # all of them\n  - Camera2D: {background: '#fff'} # white\n"
    )
    scene = app.load_scene(path)
    assert [(o.name, o.tag) for o in scene.objects] == [("# one: #fff", "#abc")]


def test_a_scene_without_a_version_says_what_to_write(app: App, tmp_path: Path) -> None:
    path = tmp_path / "level.scene"
    path.write_text("scene: level\nobjects: []\n")
    with pytest.raises(SceneError, match=r"line 1: the scene has no version: write 'version: 1'"):
        app.load_scene(path)


def test_a_request_with_an_unknown_option_names_the_likely_one(app: App) -> None:
    brain = Brain.open(app.scene.create("one"), ModelLoader.load(mlp((3, 4, 2), 0)))
    with pytest.raises(
        InputError, match=r"'latest' is neither .* did you mean 'latest_only'\?.* the inputs: x"
    ):
        brain.request(np.zeros((1, 3), np.float32), latest=True)
    brain.game_object.destroy()


def test_a_model_in_a_folder_below_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "net.onnx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ModelImportError, match=r"no file 'net.onnx' in .*; there is 'assets/net.onnx'.*Brain\.open"
    ):
        ModelLoader.load("net.onnx")
