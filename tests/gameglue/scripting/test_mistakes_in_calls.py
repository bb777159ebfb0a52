"""Wrong arguments are answered where they are given, with what was probably meant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from gameglue import (
    App,
    AudioSource,
    BackendType,
    Camera2D,
    Camera3D,
    FieldError,
    FrameError,
    GameError,
    GameObject,
    GraphicsError,
    HookError,
    InputError,
    InputScript,
    LineRenderer,
    MonoBehaviour,
    ParticleSystem,
    Range,
    SceneError,
    SpriteRenderer,
    Tensor,
    WaitUntil,
)
from tests.gameglue.scripting.test_mistakes import Follower, Painted


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """An app that all rows of the table share: a mistake changes nothing."""
    with App("mistakes", headless=True, size=(64, 48)) as made:
        yield made


class Untyped(MonoBehaviour):
    """A component whose speed is no field."""

    n: int = 0
    speed = 3.0


async def _async_generator(self: object) -> AsyncIterator[int]:
    yield 1


MISTAKES: dict[str, tuple[Callable[[App, GameObject], object], type[Exception], str]] = {
    "colour name": (
        lambda app, hero: hero.add_component(SpriteRenderer, color="reed"),
        FieldError, "SpriteRenderer.color: unknown colour 'reed'; did you mean 'red'; write '#rrggbb'",
    ),
    "colour digits": (
        lambda app, hero: hero.add_component(SpriteRenderer, color="#ggg"),
        FieldError, "unknown colour '#ggg'",
    ),
    "colour to 255": (
        lambda app, hero: hero.add_component(SpriteRenderer, color=(0, 128, 0)),
        FieldError, "go from 0 to 1, not 0 to 255, got (0, 128, 0)",
    ),
    "colour above 1": (
        lambda app, hero: hero.add_component(SpriteRenderer, color=(1.0, 1.5, 0.0)),
        FieldError, "go from 0 to 1",
    ),
    "colour or none": (
        lambda app, hero: hero.add_component(Camera2D, background="darkgreen"),
        FieldError, "Camera2D.background: unknown colour 'darkgreen'; did you mean 'green'",
    ),
    "colour in a tuple": (
        lambda app, hero: hero.add_component(ParticleSystem, colors=("red", "gren")),
        FieldError, "ParticleSystem.colors: unknown colour 'gren'; did you mean 'green'",
    ),
    "colours": (
        lambda app, hero: hero.add_component(ParticleSystem, colors="red"),
        FieldError, "ParticleSystem.colors must be tuple[Color, ...], got str: 'red'",
    ),
    "colour type": (
        lambda app, hero: hero.add_component(Camera2D, background=5),
        FieldError, "Camera2D.background must be Color | None, got int: 5",
    ),
    "colour drawn": (
        lambda app, hero: app.gui.rect(0, 0, 9, 9, (0, 128, 0)), ValueError, "not 0 to 255",
    ),
    "field of objects": (
        lambda app, hero: hero.add_component(Follower, target="hero"),
        FieldError, "Follower.target must be GameObject | None, got str: 'hero'",
    ),
    "position of an object": (
        lambda app, hero: setattr(hero, "position", (1, 1)),
        AttributeError, "has no attribute 'position'; did you mean 'transform.position'?",
    ),
    "parent of an object": (
        lambda app, hero: setattr(hero, "parent", hero), AttributeError, "did you mean 'transform.parent'?",
    ),
    "class as name": (
        lambda app, hero: app.scene.create(SpriteRenderer),  # type: ignore[arg-type]
        SceneError, 'got SpriteRenderer: the name comes first, as in create("hero", SpriteRenderer)',
    ),
    "async generator": (
        lambda app, hero: type("Waits", (MonoBehaviour,), {"start": _async_generator}),
        HookError, "Waits.start is `async def` and has a yield, which nothing runs: write await",
    ),
    "scripted key": (
        lambda app, hero: InputScript().press("Space", at=0.0),
        GameError, "lower case: 'space', not 'Space'",
    ),
    "scripted key unknown": (
        lambda app, hero: InputScript().press("spce", at=0.0), GameError, "did you mean 'space'?",
    ),
    "scripted button": (
        lambda app, hero: InputScript().click(1, 2, at=0.0, button="lft"),
        GameError, "no mouse button 'lft'; did you mean 'left'? by number or name: 0 left, 1 right",
    ),
    "key constant": (
        lambda app, hero: app.input.get_key(1073741904),  # type: ignore[arg-type]
        GameError, 'not by a number or constant: get_key("space"), got 1073741904',
    ),
    "two axes": (
        lambda app, hero: app.input.get_axis("horizontal", "vertical"),
        GameError, "takes one axis, or two keys: get_axis('horizontal') and get_axis('vertical')",
    ),
    "size of nothing": (
        lambda app, hero: App(size=(0, 0), headless=True), FrameError, "size=(960, 640), got (0, 0)",
    ),
    "size of one number": (
        lambda app, hero: App(size=640, headless=True),  # type: ignore[arg-type]
        FrameError, "a width and a height in pixels, as in size=(960, 640), got 640",
    ),
    "parent by name": (
        lambda app, hero: hero.transform.set_parent("hero"),  # type: ignore[arg-type]
        SceneError, "a parent is a game object or its transform, got 'hero'",
    ),
    "component by name": (
        lambda app, hero: hero.get_component("Camera2D"),  # type: ignore[arg-type]
        FieldError, "get_component takes a class, as in get_component(Camera2D), got 'Camera2D'",
    ),
    "component found by name": (
        lambda app, hero: app.find_components("Camera2D"),  # type: ignore[arg-type]
        FieldError, "find_components takes a class, as in find_components(Camera2D)",
    ),
    "condition": (
        lambda app, hero: WaitUntil(True),  # type: ignore[arg-type]
        GameError, "as in WaitUntil(lambda: self.ready), got True",
    ),
    "argument without a name": (
        lambda app, hero: hero.add_component(Follower, 3),  # type: ignore[call-arg]
        FieldError, "fields are given by name, as in add_component(Door, speed=3.0)",
    ),
    "constructor": (
        lambda app, hero: type("Fast", (MonoBehaviour,), {"__init__": lambda self, speed: None}),
        HookError, "Fast.__init__ needs arguments, and components are made without: declare fields",
    ),
    "field without a type": (
        lambda app, hero: hero.add_component(Untyped, speed=2.0),
        FieldError, "it has no type; write speed: float = 3.0 in the class",
    ),
    "field alike": (
        lambda app, hero: hero.add_component(SpriteRenderer, colour="red"),
        FieldError, "SpriteRenderer has no field 'colour'; did you mean 'color'?",
    ),
    "rotation as text": (
        lambda app, hero: hero.transform.rotate("90"),  # type: ignore[arg-type]
        SceneError, "a rotation is a number of degrees or a Quaternion, got '90'",
    ),
    "three angles": (
        lambda app, hero: setattr(hero.transform, "rotation", (0, 0, 90)),
        SceneError, "three angles are given as transform.euler_angles",
    ),
    "scale as text": (
        lambda app, hero: setattr(hero.transform, "local_scale", "2"), SceneError, "got '2'",
    ),
    "sound by name": (
        lambda app, hero: hero.add_component(AudioSource).play("gem.wav"),  # type: ignore[call-arg]
        GameError, "it plays the field `clip`; play_one_shot(self.app.resources.load(name))",
    ),
    "colour as size": (
        lambda app, hero: app.gui.text("hi", 10, 10, "red"),  # type: ignore[arg-type]
        GraphicsError, "the size of a text must be a number, got 'red'; a colour is given by name",
    ),
    "array method of a tensor": (
        lambda app, hero: Tensor([1.0]).argmax(),  # type: ignore[attr-defined]
        AttributeError, "did you mean 'download_to_array().argmax'?",
    ),
    "number of a tensor": (
        lambda app, hero: float(Tensor([1.0])), InputError, "read with download_to_array()",
    ),
    "backend": (
        lambda app, hero: BackendType.GPU,  # type: ignore[attr-defined]
        AttributeError, "no attribute 'GPU'; it has: CPU, GPU_COMPUTE, GPU_PIXEL",
    ),
    "coroutine not called": (
        lambda app, hero: hero.add_component(Follower).start_coroutine(hero.destroy),  # type: ignore[arg-type]
        GameError, "call it: start_coroutine(self.destroy())",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(app: App, name: str) -> None:
    make, kind, message = MISTAKES[name]
    hero = app.scene.create("hero")
    with pytest.raises(kind) as found:
        make(app, hero)
    assert message in str(found.value)
    hero.destroy()


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
        (["x"], {"rotation": "left"}, SceneError, "a number of degrees or a Quaternion, got 'left'"),
        (["x"], {"parent": "ship"}, SceneError, "a GameObject or a Transform, got 'ship'; see scene.find"),
        ([Painted], {}, SceneError, "got Painted: the name comes first"),
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


def test_mouse_buttons_have_numbers_and_names() -> None:
    with App(headless=True, input_source=InputScript().click(5, 5, at=0.0, button="right")) as app:
        app.input.actions.add_action("aim", "mouse 1")
        app.run(1)
        assert app.input.get_mouse_button_down("right")
        assert app.input.get_mouse_button_down(1)
        assert app.input.get_action_down("aim")
        assert app.input.actions.bindings("aim") == ("mouse right",)
