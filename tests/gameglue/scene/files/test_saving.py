"""Scenes saved while they run, and read again: the same objects with the same values."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import App, GameObject, MonoBehaviour, Quaternion, Scene, SceneError, SpriteRenderer, Vec3
from gameglue.scene.files.component_types import Problem, class_name, find_class
from tests.gameglue.scene.files.conftest import Write
from tests.gameglue.scene.files.parts import Bearer, Logbook, Mood, Musket, Raider, Stats

PARTS = "tests.gameglue.scene.files.parts"


def again(app: App, scene: Scene, name: str = "saved") -> Scene:
    """The scene after it was saved and loaded; saving that gives the same text."""
    path = scene.save(name)
    loaded = app.load_scene(path)
    assert loaded.save(name + " again").read_text() == path.read_text()
    return loaded


def enemy_of(scene: Scene) -> Raider:
    found = scene.find_component(Raider)
    assert found is not None
    return found


def test_what_a_file_looks_like(game_app: App, write: Write) -> None:
    write("a.txt", "a")
    scene = game_app.new_scene("level 1")
    camp = scene.create("camp", tag="place", position=(1.5, 2), layer=2)
    ogre = scene.create("ogre", parent=camp, rotation=90, scale=2.0)
    ogre.active = False
    gun = ogre.add_component(Musket, damage=3)
    ogre.add_component(Raider, target=camp, gun=gun, picture="a.txt", spot=Vec3(1, 2, 3)).enabled = False
    scene.create("note", Logbook)
    path = scene.save("level")
    assert path.name == "level.scene"
    assert (
        path.read_text()
        == f"""\
scene: level 1
version: 1
objects:
- name: camp
  tag: place
  layer: 2
  position: [1.5, 2.0]
  children:
  - name: ogre
    active: false
    rotation: 90.0
    scale: 2.0
    components:
    - {PARTS}:Musket: {{damage: 3}}
    - {PARTS}:Raider:
        target: camp
        gun: camp/ogre
        picture: a.txt
        spot: [1.0, 2.0, 3.0]
      enabled: false
- name: note
  components:
  - {PARTS}:Logbook: null
    state:
      pages:
        $tuple: []
"""
    )


def test_fields_of_every_kind_come_back(game_app: App, write: Write) -> None:
    write("a.txt", "a")
    write("b.txt", "b")
    scene = game_app.scene
    ogre = scene.create("ogre")
    twin = scene.create("ogre")
    odd = scene.create("a/b: [c] 100%", parent=twin)
    gun = odd.add_component(Musket)
    second = odd.add_component(Musket)
    given: dict[str, Any] = {
        "speed": np.float32(0.1), "target": twin, "gun": second, "way": [odd.transform, ogre.transform],
        "mood": Mood.ANGRY, "stats": Stats(4, odd), "turn": Quaternion.from_euler((10, 20, 30)),
        "pair": (2, "é"),
        "note": None, "numbers": np.arange(6.0).reshape(2, 3), "names": {"x", "y"}, "file": Path("a/b"),
        "table": {"$odd": second, "": None, "no": gun},
        "anything": [
            1, 1e-7, "1e5", "", "~", "yes", "a: b\n\tc ", True, None, (1, (2.5,)), {3, 4}, frozenset((5,)),
            {1: "x"}, {"$a": 1}, Vec3(1.0, 2.0, 3.0), Quaternion(), ogre, odd.transform, gun, second,
            float("inf"), -0.0, 10**30,
            np.arange(100, dtype=np.int16), np.array(3.5), Path("c"), {"deep": [{"deeper": twin}]}, [],
        ],
    }  # fmt: skip
    enemy = ogre.add_component(Raider, picture="a.txt", **given)
    enemy.pictures = [enemy.picture, enemy.picture]  # type: ignore[list-item]
    enemy._file_names = {**enemy._file_names, "pictures": enemy._file_names["picture"]}
    loaded = again(game_app, scene)
    new_ogre, new_twin, new_odd = loaded.objects
    back = enemy_of(loaded)
    twins: dict[int, Any] = {id(a): b for a, b in zip((ogre, twin, odd), loaded.objects, strict=True)}
    twins.update(
        {id(a.transform): b.transform for a, b in zip((ogre, twin, odd), loaded.objects, strict=True)}
    )
    twins.update({id(a): b for a, b in zip((gun, second), new_odd.components, strict=True)})

    def check(a: Any, b: Any) -> None:
        if id(a) in twins:
            assert b is twins[id(a)]
        elif isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert np.array_equal(a, b)
        elif isinstance(a, Quaternion):
            assert b == pytest.approx(a, abs=1e-12)
        elif isinstance(a, list | tuple):
            assert type(a) is type(b)
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                check(x, y)
        elif isinstance(a, dict):
            assert list(a) == list(b)
            for key in a:
                check(a[key], b[key])
        elif isinstance(a, Stats):
            assert (a.strength, new_odd) == (b.strength, b.home)
        else:
            assert a == b
            assert type(a) is type(b) or isinstance(a, np.floating)

    for name, value in given.items():
        check(value, getattr(back, name))
    assert back.picture is not None
    assert [p.content for p in (back.picture, *back.pictures)] == ["a"] * 3
    assert new_odd.name == "a/b: [c] 100%"
    assert new_odd.transform.parent is new_twin.transform
    assert back.game_object is new_ogre


def test_places_come_back_exactly_enough(game_app: App) -> None:
    scene = game_app.new_scene("places")
    rng = np.random.default_rng(3)
    for i in range(50):
        owner = scene.create(f"{i}", position=rng.normal(size=3), scale=rng.normal(size=3))
        axis = rng.normal(size=3)
        owner.transform.local_rotation = Quaternion.from_axis(float(rng.uniform(-180, 180)), axis)
    path = scene.save("places")
    loaded = game_app.load_scene(path)
    for a, b in zip(scene, loaded, strict=True):
        assert a.transform.local_position == b.transform.local_position
        assert a.transform.local_scale == b.transform.local_scale
        assert a.transform.local_rotation == pytest.approx(b.transform.local_rotation, abs=1e-12)


def test_a_game_goes_on_where_it_was_saved(game_app: App) -> None:
    class Runner(MonoBehaviour):
        speed: float = 1.0
        laps: int = 0

        def update(self) -> None:
            self.transform.translate((self.speed * self.time.delta_time, 0))
            if self.transform.position.x > 1.0:
                self.transform.position = (0, 0)
                self.laps += 1

    scene = game_app.new_scene("run")
    scene.create("runner").add_component(Runner, speed=3.0)
    game_app.load_scene(scene)
    for _ in range(20):
        game_app.step(0.05)
    path = scene.save("saves/one")
    saved = scene.find_components(Runner)[0]
    position, laps = saved.transform.position, saved.laps
    for _ in range(20):
        game_app.step(0.05)
    later = saved.transform.position, saved.laps
    runner = game_app.load_scene(path).find_components(Runner)[0]
    assert (runner.transform.position, runner.laps, runner.speed) == (position, laps, 3.0)
    for _ in range(20):
        game_app.step(0.05)
    assert (runner.transform.position, runner.laps) == later


def test_state_that_is_no_field(game_app: App) -> None:
    diary = game_app.scene.create("d").add_component(Logbook)
    diary._pages = ("first", "second")
    loaded = again(game_app, game_app.scene)
    assert loaded.find_components(Logbook)[0]._pages == ("first", "second")


def test_what_is_not_to_be_saved(game_app: App) -> None:
    scene = game_app.scene
    scene.create("spark").is_saved = False
    scene.create("spark").add_component(Raider, target=scene.create("spark"))
    loaded = again(game_app, scene)
    assert len(loaded) == 2
    assert enemy_of(loaded).target is loaded.objects[1]


def test_what_cannot_be_saved_is_told_all_at_once(game_app: App, write: Write) -> None:
    write("a.txt", "a")
    scene = game_app.new_scene("x")
    other = game_app.new_scene("y").create("elsewhere")
    gone = scene.create("gone")
    ogre = scene.create("ogre")
    ring: list[Any] = []
    ring.append(ring)
    ogre.add_component(Raider, anything=object(), target=other, way=[gone.transform])
    ogre.add_component(Raider, anything=ring, name_shown="a\ud800")
    holder = ogre.add_component(Bearer, thing="a.txt")
    holder.thing = type(holder.thing)(game_app.resources.find("a.txt"))
    game_app.load_scene(scene)
    gone.destroy()
    game_app.step(0.0)
    with pytest.raises(SceneError) as told:
        scene.save("x")
    lines = str(told.value).splitlines()
    assert lines[0].startswith(
        "object 'ogre': Raider.target cannot be saved: refers to 'elsewhere', which is"
    )
    assert lines[1].startswith("object 'ogre': Raider.way cannot be saved: refers to what was destroyed")
    assert (
        lines[2] == "object 'ogre': Raider.anything cannot be saved: type object cannot be stored in a file"
    )
    assert lines[3].startswith("object 'ogre': Raider.name_shown cannot be saved: is no text: 'utf-8' codec")
    assert lines[4] == "object 'ogre': Raider.anything cannot be saved: is more than 15 levels deep"
    assert lines[5] == "object 'ogre': Bearer.thing cannot be saved: type Asset cannot be stored in a file"
    assert "save(..., strict=False)" in lines[6]
    assert not (game_app.resources.folder / "x.scene").exists()
    loaded = game_app.load_scene(scene.save("x", strict=False))
    assert enemy_of(loaded).target is None


def test_what_was_destroyed_is_none_where_that_fits(game_app: App) -> None:
    scene = game_app.new_scene("x")
    gone = scene.create("gone", Musket)
    scene.create("ogre").add_component(Raider, target=gone, gun=gone.components[0], anything=[gone])
    game_app.load_scene(scene)
    gone.destroy()
    game_app.step(0.0)
    back = enemy_of(again(game_app, scene))
    assert (back.target, back.gun, back.anything) == (None, None, [None])


def test_too_deep_a_hierarchy(game_app: App) -> None:
    parent: GameObject | None = None
    scene = game_app.new_scene("rope")
    for i in range(64):
        parent = scene.create(f"link {i}", Raider, parent=parent)
        parent.components[0].anything = [[[[1]]]]  # type: ignore[attr-defined]
    assert len(again(game_app, scene, "rope")) == 64
    scene.create("one more", parent=scene.objects[-1])
    with pytest.raises(SceneError, match="'one more' is more than 64 levels deep"):
        scene.save("rope")


def test_the_old_file_stays_if_the_new_one_fails(game_app: App, tmp_path: Path) -> None:
    (tmp_path / "folder.scene").mkdir()
    with pytest.raises(SceneError, match=r"folder\.scene cannot be written"):
        game_app.scene.save("folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.scene"]


def test_a_class_of_a_function_is_found_by_its_name(game_app: App) -> None:
    class Local(MonoBehaviour):
        x: int = 1

    game_app.scene.create("a").add_component(Local, x=2)
    loaded = again(game_app, game_app.scene)
    assert [type(c) for c in loaded.objects[0].components] == [Local]


def test_components_that_are_equal_are_not_the_same(game_app: App) -> None:
    @dataclass
    class Point(MonoBehaviour):
        x: int = 0
        to: MonoBehaviour | None = None

    owner = game_app.scene.create("a")
    first, second, third = (owner.add_component(Point) for _ in range(3))
    first.to = third
    template = game_app.scene.save_prefab(owner, "points")
    copied = game_app.scene.instantiate(template.name)
    points = copied.get_components(Point)
    assert points[0].to is points[2]
    points[0].to = points[1]
    text = game_app.scene.save("x").read_text()
    assert "Point.to: 'a[1]:Point[1]'" in text
    loaded = game_app.load_scene("x").objects[1].get_components(Point)
    assert loaded[0].to is loaded[1]
    assert second == third


def test_names_of_classes(game_app: App) -> None:
    def made() -> type[MonoBehaviour]:
        class Shadow(MonoBehaviour):
            pass

        return Shadow

    first, again_made = made(), made()
    assert find_class("Shadow") is again_made  # as after a reload, the newest counts
    with pytest.raises(Problem, match="and this one is defined in a function"):
        class_name(first)
    assert class_name(SpriteRenderer) == "SpriteRenderer"
    other = type("SpriteRenderer", (MonoBehaviour,), {"__module__": "my_game"})
    assert class_name(SpriteRenderer) == "gameglue.graphics.camera:SpriteRenderer"
    assert find_class(class_name(SpriteRenderer)) is SpriteRenderer
    with pytest.raises(Problem, match="write gameglue.graphics.camera:SpriteRenderer or my_game:SpriteRend"):
        find_class("SpriteRenderer")
    del other, first
    gc.collect()
    assert class_name(SpriteRenderer) == "SpriteRenderer"
