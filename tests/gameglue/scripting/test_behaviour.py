"""Game objects, scenes, and the serialized fields of components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from gameglue import App, FieldError, MonoBehaviour, Vec3
from gameglue.scripting.fields import fields_of, matches


class Asset:
    """Stands for a resource type such as a model."""

    def __init__(self, path: Path) -> None:
        self.path = path


class Door(MonoBehaviour):
    """Has a field of each kind."""

    speed: float = 2.0
    steps: int = 3
    label: str | None = None
    mode: Literal["slide", "swing"] = "slide"
    stops: list[float] = [1.0, 2.0]
    size: tuple[float, float] = (1.0, 2.0)
    anything: Any = None
    asset: Asset
    shared: ClassVar[int] = 0
    _progress: float = 0.0
    not_annotated = 5


class BigDoor(Door):
    """Adds to the fields of its base."""

    weight: float = 100.0
    speed = 0.5


def test_fields_are_the_public_annotated_attributes() -> None:
    assert list(fields_of(Door)) == ["speed", "steps", "label", "mode", "stops", "size", "anything", "asset"]
    assert list(fields_of(BigDoor))[-1] == "weight"
    assert fields_of(BigDoor)["speed"].default == 0.5


def test_values_and_defaults(app: App) -> None:
    door = app.scene.create("door").add_component(Door, speed=3, mode="swing")
    assert (door.speed, door.mode, door.steps) == (3, "swing", 3)
    other = app.scene.create("door").add_component(BigDoor)
    assert (other.speed, other.weight) == (0.5, 100.0)


def test_mutable_defaults_are_not_shared(app: App) -> None:
    first, second = (app.scene.create("door").add_component(Door) for _ in range(2))
    first.stops.append(9.0)
    assert second.stops == [1.0, 2.0]
    assert Door.stops == [1.0, 2.0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("speed", "fast", r"Door\.speed must be float, got str: 'fast'"),
        ("speed", True, r"Door\.speed must be float, got bool"),
        ("steps", 1.5, r"Door\.steps must be int, got float: 1\.5"),
        ("label", 3, r"Door\.label must be str \| None, got int"),
        ("mode", "turn", r"Door\.mode must be Literal\['slide', 'swing'\], got str: 'turn'"),
        ("stops", [1.0, "x"], r"Door\.stops must be list\[float\]"),
        ("size", (1.0,), r"Door\.size must be tuple\[float, float\]"),
        ("asset", 7, r"Door\.asset must be Asset, got int"),
        ("spede", 7, r"Door has no field 'spede'; did you mean 'speed'"),
        ("height", 7, r"Door has no field 'height'; its fields: speed, steps, label"),
        ("_progress", 7, "Door has no field '_progress'"),
    ],
)
def test_wrong_values_are_refused_where_they_are_given(
    app: App, field: str, value: object, message: str
) -> None:
    with pytest.raises(FieldError, match=message):
        app.scene.create("door").add_component(Door, **{field: value})


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, float, True),
        (np.float32(1), float, True),
        (np.int64(1), int, True),
        (1, str, False),
        (None, int | None, True),
        ((1, 2, 3), tuple[int, ...], True),
        ((1, "x"), tuple[int, ...], False),
        ((1, 2), Sequence[int], True),
        ((1, "x"), Sequence[int], False),
        ([1, 2], Sequence[int], True),
        ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False),
        (1, Literal[True], False),
        (object(), "NameOnlyCheckersKnow", True),
    ],
)
def test_what_fits_a_type(value: object, annotation: object, expected: bool) -> None:
    assert matches(value, annotation) is expected


def test_a_field_without_value_says_so_when_it_is_read(app: App) -> None:
    door = app.scene.create("door").add_component(Door)
    with pytest.raises(
        AttributeError, match=r"Door\.asset has no value: pass it as add_component\(Door, asset="
    ):
        _ = door.asset


def test_an_attribute_error_in_a_property_keeps_its_own_message(app: App) -> None:
    """A `__getattr__` on the base class would hide it behind "no attribute 'broken'"."""

    class WithProperty(MonoBehaviour):
        @property
        def broken(self) -> int:
            return [].lenght  # type: ignore[attr-defined]

    component = app.scene.create("x").add_component(WithProperty)
    with pytest.raises(AttributeError, match="lenght"):
        _ = component.broken


def test_resource_fields_may_be_given_by_name(make_app: Callable[..., App], tmp_path: Path) -> None:
    (tmp_path / "door.bin").write_bytes(b"")
    app = make_app(folder=tmp_path)
    app.resources.register_loader(Asset, Asset)
    door = app.scene.create("door").add_component(Door, asset="door.bin")
    assert door.asset.path == tmp_path / "door.bin"
    given = Asset(tmp_path)
    assert app.scene.create("door").add_component(Door, asset=given).asset is given
    assert app.scene.create("door").add_component(Door, label="door.bin").label == "door.bin"


class Part(MonoBehaviour):
    """A second kind of component."""


def test_finding_components_and_objects(app: App) -> None:
    scene = app.scene
    house = scene.create("house", tag="building", position=(1, 2))
    door = scene.create("door", Door, parent=house, tag="opening")
    part = door.add_component(Part)
    assert scene.find("door") is door
    assert scene.find("window") is None
    assert scene.find_with_tag("building") == [house]
    assert scene.find_component(Part) is part
    assert scene.find_components(MonoBehaviour) == [door.components[0], part]
    assert house.get_component(Part) is None
    assert house.get_component_in_children(Part) is part
    assert part.get_component(Door) is door.components[0]
    assert part.get_components(Door) == [door.components[0]]
    roof = scene.create("roof", Part, parent=door).components[0]
    assert roof.get_component_in_parent(Door) is door.components[0]
    assert roof.get_component_in_parent(MonoBehaviour) is roof
    assert part.get_components_in_children(Part) == [part, roof]
    assert door.components[0].get_component_in_children(Part) is part
    roof.game_object.destroy()
    app.step(0.0)
    assert (part.name, part.scene, part.transform.parent) == ("door", scene, house.transform)
    assert part.resources is app.resources


def test_instantiate_copies_components_fields_and_children(app: App) -> None:
    shelf = app.new_scene("prefabs")
    prefab = shelf.create("house", position=(1, 0), scale=2.0)
    prefab.add_component(Door, speed=9.0, stops=[5.0]).not_annotated = 6
    shelf.create("chimney", Part, parent=prefab, position=(0, 1))
    app.step(0.0)
    made = app.scene.instantiate(prefab, position=(10, 10), rotation=90)
    door = made.get_component(Door)
    assert door is not None
    assert (door.speed, door.stops) == (9.0, [5.0])
    door.stops.append(1.0)
    assert prefab.get_components(Door)[0].stops == [5.0]
    chimney = made.transform.children[0].game_object
    assert chimney is not None
    assert chimney.name == "chimney"
    assert chimney.transform.position == pytest.approx((8, 10, 0))
    assert (len(shelf), len(app.scene)) == (2, 2)
    app.step(0.0)
    assert door.is_active_and_enabled


def test_loading_another_scene_destroys_the_first(app: App) -> None:
    log: list[str] = []

    class Talks(MonoBehaviour):
        word: str = ""

        def awake(self) -> None:
            log.append(f"{self.word} awake")

        def update(self) -> None:
            log.append(f"{self.word} update")
            if self.word == "first":
                second = self.app.new_scene("second")
                second.create("b").add_component(Talks, word="second")
                self.app.load_scene(second)

        def on_destroy(self) -> None:
            log.append(f"{self.word} destroy")

    app.scene.create("a").add_component(Talks, word="first")
    app.step(0.0)
    assert log == ["first awake", "first update", "first destroy"]
    assert app.scene.name == "second"
    app.step(0.0)
    assert log[3:] == ["second awake", "second update"]


def test_a_component_can_be_destroyed_alone(app: App) -> None:
    owner = app.scene.create("x", Door, Part)
    app.step(0.0)
    owner.components[0].destroy()
    app.step(0.0)
    assert [type(c) for c in owner.components] == [Part]
    assert not owner.is_destroyed


def test_vectors() -> None:
    assert Vec3(1, 2, 3) + (1, 1) == Vec3(2, 3, 3)  # noqa: RUF005 - a sum, not a tuple made longer
    assert (1, 1) - Vec3(1, 2, 3) == Vec3(0, -1, -3)
    assert 2 * Vec3(1, 2, 3) == Vec3(2, 4, 6)
    assert Vec3(1, 2, 3) * (2, 2) == Vec3(2, 4, 3)
    assert Vec3(3, 4).length() == 5
    assert Vec3(3, 4).normalized() == Vec3(0.6, 0.8)
    assert Vec3().normalized() == Vec3()
    assert Vec3(0, 0).lerp((10, 20), 0.5) == Vec3(5, 10)
    with pytest.raises(AttributeError):
        Vec3().x = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="2 or 3 numbers, got 1"):
        Vec3.of([1.0])
