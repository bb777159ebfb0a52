"""Prefabs: templates from files, instances with overrides, prefabs in prefabs, and both saved again."""

from __future__ import annotations

import os
from typing import Any

import pytest

from gameglue import App, GameObject, Scene, SceneError
from tests.gameglue.scene.files.conftest import Write
from tests.gameglue.scene.files.parts import Asset, Logbook, Musket, Raider

PARTS = "tests.gameglue.scene.files.parts"

GUN = f"""
    prefab: gun
    version: 1
    object:
      name: gun
      position: [1, 0]
      components: [{PARTS}:Musket: {{damage: 2}}]
      children: [{{name: muzzle}}]
"""
ENEMY = f"""
    prefab: enemy
    version: 1
    object:
      name: enemy
      tag: foe
      components:
      - {PARTS}:Raider:
          speed: 2
          gun: enemy/left/gun
          way: [enemy/left, enemy/right gun/muzzle]
          picture: ogre.txt
      children:
      - name: left
        children:
        - prefab: gun.prefab
      - prefab: gun.prefab
        name: right gun
        overrides: {{Musket.damage: 9, muzzle/tag: hot}}
"""


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    write("gun.prefab", GUN)
    write("enemy.prefab", ENEMY)
    write("ogre.txt", "ogre")


def at(scene: Scene, path: str) -> GameObject:
    found = scene.find_path(path)
    assert found is not None, path
    return found


def only(owner: GameObject, kind: type[Any]) -> Any:
    (found,) = owner.get_components(kind)
    return found


def test_instances_with_overrides(game_app: App) -> None:
    Asset.made = 0
    scene = game_app.scene
    plain = scene.instantiate("enemy.prefab", position=(5, 0))
    boss = scene.instantiate(
        "enemy",
        overrides={
            "Raider.speed": 3.5, "name": "boss", "left/gun/Musket.damage": 7, "right gun/active": False,
            "right gun/name": "stump", "right gun/muzzle/tag": "cold", "Raider.target": plain,
            "Raider.enabled": False, "scale": 2, "Raider.picture": "gun.prefab",
        },
    )  # fmt: skip
    assert Asset.made == 2
    assert (list(plain.transform.position), plain.tag, plain.name) == ([5, 0, 0], "foe", "enemy")
    assert (only(plain, Raider).speed, only(boss, Raider).speed) == (2, 3.5)
    assert only(plain, Raider).gun is only(at(scene, "enemy/left/gun"), Musket)
    assert only(boss, Raider).gun is only(at(scene, "boss/left/gun"), Musket)
    assert only(boss, Raider).way == [
        at(scene, "boss/left").transform,
        at(scene, "boss/stump/muzzle").transform,
    ]
    assert [only(at(scene, p), Musket).damage for p in ("enemy/left/gun", "enemy/right gun")] == [2, 9]
    assert [only(at(scene, p), Musket).damage for p in ("boss/left/gun", "boss/stump")] == [7, 9]
    assert (at(scene, "enemy/right gun/muzzle").tag, at(scene, "boss/stump/muzzle").tag) == ("hot", "cold")
    assert not at(scene, "boss/stump").active
    assert only(boss, Raider).target is plain
    assert not only(boss, Raider).enabled
    assert list(boss.transform.local_scale) == [2, 2, 2]
    assert plain.prefab is boss.prefab
    assert repr(plain.prefab) == "<Prefab 'enemy.prefab'>"
    game_app.step(0.0)
    assert only(plain, Raider)._is_awake


def test_a_prefab_is_a_field(game_app: App) -> None:
    enemy = game_app.scene.create("nest").add_component(Raider, spawns="enemy.prefab")
    assert enemy.spawns is game_app.resources.load("enemy.prefab")
    made = game_app.scene.instantiate(enemy.spawns, parent=enemy.game_object)
    assert made.path == "nest/enemy"


def test_a_file_that_changed_is_read_again(game_app: App, write: Write) -> None:
    game_app.scene.instantiate("gun")
    path = write("gun.prefab", GUN.replace("damage: 2", "damage: 20"))
    os.utime(path, (1, 1))
    assert only(game_app.scene.instantiate("gun"), Musket).damage == 20
    # So is one that holds it.
    game_app.scene.instantiate("enemy.prefab")
    os.utime(write("gun.prefab", GUN.replace("damage: 2", "damage: 200")), (2, 2))
    game_app.scene.instantiate("enemy.prefab", overrides={"name": "new"})
    assert only(at(game_app.scene, "new/left/gun"), Musket).damage == 200
    assert only(at(game_app.scene, "enemy/left/gun"), Musket).damage == 20
    assert game_app._prefabs.load("enemy") is game_app._prefabs.load("enemy.prefab")


def saved(scene: Scene, name: str = "saved") -> str:
    return scene.save(name).read_text()


def test_instances_are_saved_as_what_they_have_otherwise(game_app: App) -> None:
    scene = game_app.new_scene("x")
    scene.instantiate("enemy.prefab")
    boss = scene.instantiate("enemy.prefab", position=(1, 2))
    boss.name = "boss"
    only(boss, Raider).speed = 3.5
    only(boss, Raider).gun = only(at(scene, "boss/right gun"), Musket)
    at(scene, "boss/left/gun/muzzle").transform.local_position = (0, 4)
    at(scene, "boss/right gun").name = "big"
    only(at(scene, "boss/big"), Musket).enabled = False
    boss.add_component(Logbook)
    scene.create("hat", parent=boss)
    text = saved(scene)
    assert (
        text
        == f"""\
scene: x
version: 1
objects:
- {{prefab: enemy.prefab, name: enemy}}
- prefab: enemy.prefab
  name: boss
  position: [1.0, 2.0]
  overrides:
    Raider.speed: 3.5
    Raider.gun: boss/big
    left/gun/muzzle/position: [0.0, 4.0]
    right gun/name: big
    right gun/Musket.enabled: false
  components:
  - {PARTS}:Logbook: null
    state:
      pages:
        $tuple: []
  children:
  - {{name: hat}}
"""
    )
    loaded = game_app.load_scene("saved")
    assert saved(loaded, "again") == text
    back = at(loaded, "boss")
    assert only(back, Raider).gun is only(at(loaded, "boss/big"), Musket)
    assert only(back, Raider).way[1] is at(loaded, "boss/big/muzzle").transform
    assert only(at(loaded, "enemy/left/gun"), Musket).enabled


def test_a_changed_prefab_reaches_saved_scenes(game_app: App, write: Write) -> None:
    scene = game_app.new_scene("x")
    only(scene.instantiate("gun.prefab"), Musket).damage = 5
    scene.instantiate("gun.prefab")
    scene.save("x")
    os.utime(write("gun.prefab", GUN.replace("damage: 2", "damage: 20")), (1, 1))
    loaded = game_app.load_scene("x")
    assert [g.damage for g in loaded.find_components(Musket)] == [5, 20]


def test_an_instance_that_lost_a_part_is_saved_in_full(game_app: App) -> None:
    scene = game_app.new_scene("x")
    boss = scene.instantiate("enemy.prefab")
    game_app.load_scene(scene)
    only(boss, Raider).way = []
    at(scene, "enemy/left/gun/muzzle").destroy()
    game_app.step(0.0)
    text = saved(scene)
    assert "prefab: enemy.prefab" not in text
    assert text.count("prefab: gun.prefab") == 1  # the other gun is whole
    loaded = game_app.load_scene("saved")
    assert saved(loaded, "again") == text
    assert loaded.find_path("enemy/left/gun/muzzle") is None
    assert [g.damage for g in loaded.find_components(Musket)] == [2, 9]


def test_an_inner_instance_that_left_is_one_of_its_own_prefab(game_app: App) -> None:
    scene = game_app.new_scene("x")
    scene.instantiate("enemy.prefab")
    right = at(scene, "enemy/right gun")
    right.transform.set_parent(None)
    text = saved(scene)
    assert "- prefab: gun.prefab\n  name: right gun\n  overrides: {Musket.damage: 9, muzzle/tag: hot}" in text
    assert saved(game_app.load_scene("saved"), "again") == text


def test_copies_of_an_instance_are_instances(game_app: App) -> None:
    scene = game_app.new_scene("x")
    first = scene.instantiate("gun.prefab")
    only(first, Musket).damage = 3
    scene.instantiate(first)
    assert saved(scene).count("prefab: gun.prefab") == 2
    assert saved(scene).count("Musket.damage: 3") == 2


def test_saving_a_prefab(game_app: App) -> None:
    scene = game_app.scene
    tower = scene.create("tower", tag="building")
    scene.instantiate("gun.prefab", parent=tower, overrides={"Musket.damage": 4})
    tower.add_component(Raider, gun=at(scene, "tower/gun").components[0], target=tower)
    path = scene.save_prefab(tower, "towers/tower")
    assert path.name == "tower.prefab"
    made = scene.instantiate("towers/tower.prefab", overrides={"name": "copy"})
    assert only(made, Raider).gun is only(at(scene, "copy/gun"), Musket)
    assert only(made, Raider).target is made
    assert only(at(scene, "copy/gun"), Musket).damage == 4
    # A prefab that is itself an instance of one with other values.
    variant = scene.instantiate("gun.prefab", overrides={"Musket.damage": 40})
    text = scene.save_prefab(variant, "big gun").read_text()
    assert "prefab: gun.prefab" in text
    assert only(scene.instantiate("big gun"), Musket).damage == 40


def test_prefabs_hold_themselves_never(game_app: App, write: Write) -> None:
    write("a.prefab", "prefab: a\nversion: 1\nobject: {name: a, children: [{prefab: b.prefab}]}")
    write("b.prefab", "prefab: b\nversion: 1\nobject: {name: b, children: [{prefab: a.prefab}]}")
    with pytest.raises(SceneError, match=r"a prefab cannot hold itself: a\.prefab in b\.prefab in a\.prefab"):
        game_app.scene.instantiate("a.prefab")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"Raider.spede": 1},
            "override 'Raider.spede' of 'enemy': Raider has no field 'spede'; did you mean 'speed'",
        ),
        ({"Raidr.speed": 1}, "no component class 'Raidr' is known; did you mean 'Raider'"),
        ({"Musket.damage": 1}, "object 'enemy' has no Musket; its components: Raider"),
        (
            {"Raider.speed": "x"},
            "override 'Raider.speed' of 'enemy': Raider.speed must be float, got str: 'x'",
        ),
        ({"lft/gun/Musket.damage": 1}, "there is no object 'lft/gun'; did you mean 'left/gun'"),
        ({"left/gun/Musket[1].damage": 1}, "object 'gun' has 1 Musket, so there is no [1]"),
        ({"colour": 1}, "'colour' is no property of an object; there are: name, tag, layer"),
        ({"position": 1}, "position must be a list of numbers, got int: 1"),
        ({"Raider.picture": "none.txt"}, "no file 'none.txt'"),
    ],
)
def test_wrong_overrides(game_app: App, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(SceneError) as told:
        game_app.scene.instantiate("enemy.prefab", overrides=overrides)
    assert message in str(told.value)
    assert len(game_app.scene) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prefab: x\nversion: 1", "x.prefab: a prefab has one 'object:'"),
        ("prefab: x\nversion: 1\nobjects: []", "a prefab has no 'objects'; did you mean 'object'"),
        ("prefab: x\nversion: 1\nobject: {name: a, children: [{prefab: enmy.prefab}]}",
         "line 3, object 'a/enmy.prefab': no file 'enmy.prefab'; searched"),
        ("prefab: x\nversion: 1\nobject: {name: a, children: [{prefab: gun.prefab, overrides: {tga: 1}}]}",
         "override 'tga': 'tga' is no property of an object; did you mean 'tag'?"),
        ("prefab: x\nversion: 1\nobject: {name: a, children: [{prefab: 3}]}", "prefab must be the name"),
    ],
)  # fmt: skip
def test_wrong_prefabs(game_app: App, write: Write, text: str, message: str) -> None:
    write("x.prefab", text)
    with pytest.raises(SceneError) as told:
        game_app.scene.instantiate("x.prefab")
    assert message in str(told.value)
