"""What scene files mean, and what is said of those that make no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gameglue import App, GameObject, MonoBehaviour, Quaternion, SceneError, Vec3
from tests.gameglue.scene.files.conftest import Write
from tests.gameglue.scene.files.parts import Asset, Bearer, Logbook, Mood, Musket, Raider, Stats

PARTS = "tests.gameglue.scene.files.parts"

LEVEL = f"""
    scene: level 1
    version: 1
    objects:
    - name: camp
      tag: place
      layer: 3
      position: [1, 2]
      children:
      - name: ogre
        active: false
        position: [0, 1, 5]
        rotation: 90
        scale: 2
        components:
        - {PARTS}:Raider:
            speed: 2.5
            target: camp/fire
            gun: camp/ogre/club
            way: [camp, camp/fire, "camp/fire[1]"]
            picture: ogre.txt
            pictures: [ogre.txt, fire.txt]
            mood: ANGRY
            stats: {{strength: 7, home: camp}}
            spot: [1, 2]
            turn: 90
            pair: [3, x]
            either: right
            note: null
            numbers: [1, 2.5]
            names: [a, b]
            table: {{club: camp/ogre/club, none: null}}
            file: some/where.txt
            anything: [1, {{$ref: "camp/ogre:{PARTS}:Raider"}}, {{$tuple: [1, 2]}}, no, 1e3]
          enabled: false
        - Logbook:
          state: {{pages: {{$tuple: [one, two]}}}}
        children:
        - name: club
          components: [Musket]
      - name: fire
      - name: fire
        position: [9, 9]
"""


@pytest.fixture
def files(write: Write) -> None:
    write("ogre.txt", "ogre")
    write("assets/fire.txt", "fire")
    write("level.scene", LEVEL)


@pytest.mark.usefixtures("files")
def test_everything_a_scene_may_say(game_app: App) -> None:
    Asset.made = 0
    scene = game_app.load_scene("level.scene")
    assert (scene.name, game_app.scene, len(scene)) == ("level 1", scene, 5)
    camp, ogre, club, fire, second = (scene.objects[i] for i in range(5))
    assert [o.name for o in scene.objects] == ["camp", "ogre", "club", "fire", "fire"]
    assert (camp.tag, camp.layer, camp.active, ogre.active) == ("place", 3, True, False)
    assert list(camp.transform.local_position) == [1, 2, 0]
    assert list(ogre.transform.local_position) == [0, 1, 5]
    assert ogre.transform.angle == pytest.approx(90)
    assert list(ogre.transform.local_scale) == [2, 2, 2]
    assert ogre.transform.parent is camp.transform
    enemy, diary = ogre.components
    assert isinstance(enemy, Raider)
    assert isinstance(diary, Logbook)
    assert (enemy.enabled, diary.enabled) == (False, True)
    assert (enemy.speed, enemy.name_shown, enemy.mood, enemy.either) == (2.5, "grunt", Mood.ANGRY, "right")
    assert enemy.target is fire
    assert enemy.gun is club.components[0]
    assert enemy.way == [camp.transform, fire.transform, second.transform]
    assert enemy.picture is not None
    assert [enemy.picture.content, *(p.content for p in enemy.pictures)] == ["ogre", "ogre", "fire"]
    assert Asset.made == 2  # a file that is named twice is read once
    assert enemy.stats == Stats(7, camp)
    assert (enemy.spot, enemy.pair, enemy.note) == (Vec3(1, 2, 0), (3, "x"), None)
    assert enemy.turn == Quaternion.from_axis(90)
    assert np.array_equal(np.asarray(enemy.numbers), [1, 2.5])
    assert (enemy.names, enemy.table) == ({"a", "b"}, {"club": enemy.gun, "none": None})
    assert enemy.file == Path("some/where.txt")
    assert enemy.anything == [1, enemy, (1, 2), "no", 1000.0]
    assert diary._pages == ("one", "two")
    game_app.step(0.0)
    assert club.components[0]._is_awake is False  # below an inactive object
    assert not diary._is_awake


def test_names_of_files(game_app: App, write: Write) -> None:
    write("levels/one.scene", "scene: one\nversion: 1\n")
    for name in ("levels/one.scene", "levels/one", Path("levels/one.scene")):
        assert game_app.load_scene(name).name == "one"
    with pytest.raises(SceneError, match="no file 'levels/on.scene'; searched"):
        game_app.load_scene("levels/on")


def test_a_failed_load_changes_nothing(game_app: App, write: Write) -> None:
    write("bad.scene", "scene: bad\nversion: 1\nobjects: [{name: a}, {nme: b}]")
    before = game_app.scene
    before.create("x")
    with pytest.raises(SceneError):
        game_app.load_scene("bad.scene")
    game_app.step(0.0)
    assert (game_app.scene, len(before)) == (before, 1)


def test_what_is_required_is_added_unless_the_file_has_it(game_app: App, write: Write) -> None:
    write("thing.txt", "thing")
    write(
        "a.scene",
        f"""
        scene: a
        version: 1
        objects:
        - {{name: bare, components: [{{"{PARTS}:Bearer": {{thing: thing.txt}}}}]}}
        - name: armed
          components: [Bearer: {{thing: thing.txt}}, Musket: {{damage: 4}}]
        """,
    )
    scene = game_app.load_scene("a.scene")
    assert [type(c) for c in scene.objects[0].components] == [Bearer, Musket]
    assert [type(c) for c in scene.objects[1].components] == [Bearer, Musket]
    assert scene.find_components(Musket)[1].damage == 4


def component(text: str) -> str:
    return f"- name: ogre\n  components:\n  - Raider: {{{text}}}\n"


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (component("spede: 1"), "line 6, object 'ogre': Raider has no field 'spede'; did you mean 'speed'"),
        (component("speed: fast"), "line 6, object 'ogre': Raider.speed must be float, got str: 'fast'"),
        (component("speed: 11"), "object 'ogre': Raider.speed must be 0.0 to 10.0 m/s, got 11"),
        (component("target: ogr"), "Raider.target: there is no object 'ogr'; did you mean 'ogre'?"),
        (component("gun: ogre"), "Raider.gun: object 'ogre' has no Musket; its components: Raider"),
        (component("gun: 'ogre:Musket'"), "Raider.gun: object 'ogre' has no Musket; its components: Raider"),
        (component("target: 'ogre[1]'"), "Raider.target: there is no object 'ogre[1]'; did you mean 'ogre'?"),
        (component("mood: ANGRI"), "Raider.mood: Mood has no 'ANGRI'; did you mean 'ANGRY'?"),
        (component("stats: {strenth: 1}"), "Raider.stats: Stats has no 'strenth'; did you mean 'strength'?"),
        (component("stats: {strength: x}"), "Stats.strength must be int, got str: 'x'"),
        (component("picture: no.txt"), "Raider.picture: no file 'no.txt'; searched:"),
        (component("pair: [1]"), "Raider.pair must be tuple[int, str], got tuple: (1,)"),
        (component("either: up"), "Raider.either must be Literal['left', 'right'], got str: 'up'"),
        (component("spot: [1]"), "Raider.spot: Vec3 cannot be made of [1]: a vector needs 2 or 3 numbers"),
        (component("anything: {$tupel: []}"), "unknown mark '$tupel'; did you mean '$tuple'?"),
        (component("name_shown: nobody"), "object 'ogre': Raider.on_validate: an enemy is somebody"),
        ("- name: a\n  components: [Raidr]\n", "no component class 'Raidr' is known; did you mean 'Raider'"),
        ("- name: a\n  components: ['no.such:X']\n", "module 'no.such' cannot be imported"),
        ("- name: a\n  components: ['../x:X']\n", "'../x' is no module's name"),
        (f"- name: a\n  components: ['{PARTS}:Muskt']\n", "has no class 'Muskt'; did you mean 'Musket'?"),
        (f"- name: a\n  components: ['{PARTS}:Mood']\n", "parts:Mood is no class derived from MonoBehav"),
        ("- name: a\n  components: [{Musket: {}, Raider: {}}]\n", "a component is written as 'Class: {"),
        ("- name: a\n  components: [{Musket: 3}]\n", "Musket must be followed by its fields, got 3"),
        ("- name: a\n  components: [{Musket: , enabled: 1}]\n", "enabled must be true or false, got 1"),
        ("- name: a\n  components: [{Musket: , state: 1}]\n", "Musket has no on_load(state) to take its"),
        ("- name: a\n  postion: [1, 2]\n", "object at the top: an object has no 'postion'; did you mean 'posi"
         "tion' or 'rotation'?"),
        ("- tag: a\n", "an object needs a name, got None"),
        ("- name: 3\n", "an object needs a name, got 3"),
        ("- name: a\n  position: [1]\n", "line 5, object 'a': position needs 2 or 3 numbers, got 1"),
        ("- name: a\n  position: [1, .nan]\n", "position must be made of finite numbers, got nan"),
        ("- name: a\n  position: up\n", "position must be a list of numbers, got str: 'up'"),
        ("- name: a\n  rotation: {w: 1, x: 1, y: 0, z: 0}\n", "a rotation has length 1, this one"),
        ("- name: a\n  layer: high\n", "layer must be a whole number, got str: 'high'"),
        ("- name: a\n  children: 3\n", "object 'a': children must be a list, got 3"),
        ("- name: a\n  children: [{name: b, tag: 1}]\n", "object 'a/b': tag must be text, got int: 1"),
        ("- name: a\n  overrides: {}\n", "only the instance of a prefab has overrides"),
        ("- 3\n", "an object must be keys with values, got 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(game_app: App, write: Write, objects: str, message: str) -> None:
    write("x.scene", "scene: x\nversion: 1\nobjects:\n" + objects)
    with pytest.raises(SceneError) as told:
        game_app.load_scene("x.scene")
    assert message in str(told.value)
    assert str(told.value).startswith("x.scene, ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.scene, line 1: a scene begins with 'scene: NAME' and 'version: 1'"),
        ("prefab: x\nversion: 1", "a scene begins with"),
        ("scene: x", "line 1: the scene has no version: write 'version: 1' in the next line"),
        ("scene: x\nversion: 2", "line 2: version 2 cannot be read, only 1 to 1: it was written by a newer"),
        ("scene: 3\nversion: 1", "the scene's name must be text, got 3"),
        ("scene: x\nversion: 1\nobject: []", "line 3: a scene has no 'object'; did you mean 'objects'?"),
        ("scene: x\nversion: 1\nobjects: {}", "objects must be a list, got {}"),
        ("scene: [", "x.scene, line 2: this is not YAML: while parsing a flow node"),
        ("scene: x\nscene: y", "line 2: duplicate key 'scene'"),
        ("scene: &a x\nversion: *a", "anchors (& and *) are not used in scenes"),
        ("scene: !!python/object x", "tags such as 'tag:yaml.org,2002:python/object' are not used"),
        ("scene: x\n--- 2", "a file holds one document, and here begins another"),
        ("[" * 200, "more than 150 levels"),
        ("scene: \x00", "is not YAML"),
    ],
)
def test_what_is_no_scene_is_told(game_app: App, write: Write, text: str, message: str) -> None:
    write("x.scene", text)
    with pytest.raises(SceneError) as told:
        game_app.load_scene("x.scene")
    assert message in str(told.value)


def test_a_file_that_is_no_text(game_app: App, tmp_path: Path) -> None:
    (tmp_path / "x.scene").write_bytes(b"scene: \xff\xfe")
    with pytest.raises(SceneError, match=r"x\.scene cannot be read: .*codec can't decode"):
        game_app.load_scene("x.scene")


def test_loading_beside_the_frames(game_app: App, files: Any) -> None:
    seen: list[float] = []
    ended: list[object] = []
    loading = game_app.load_scene_async("level.scene")
    before = game_app.scene

    async def wait() -> None:
        scene = await loading
        assert len(scene) == 5
        ended.append(game_app.scene)

    game_app.start_coroutine(wait())
    # Asking `is_done()` here would let it go on between two frames.
    while not loading.is_over:
        seen.append(loading.progress)
        game_app.step(0.0)
    assert game_app.scene is loading.result()
    assert ended == [before]  # it takes its place at the end of the frame
    assert seen == sorted(seen)
    assert game_app.scene.find_components(Raider)[0].pictures[1].content == "fire"


def test_a_bad_file_is_told_by_the_handle(game_app: App, write: Write) -> None:
    write("bad.scene", "scene: bad\nversion: 1\nobjects: [{nme: b}]")
    loading = game_app.load_scene_async("bad.scene", additive=True)
    with pytest.raises(SceneError, match="an object has no 'nme'; did you mean 'name'"):
        loading.wait()
    with pytest.raises(SceneError, match="no file 'none.scene'"):
        game_app.load_scene_async("none")
    assert len(game_app.scenes) == 1


CAMP = """scene: level 1
version: 1
objects:
- name: camp
  position: [3, 0]
  components:
  - my_game.camps:Camp: {flag: flag.png, guard: "camp/big ogre"}  # module:Class; `Camp` where it is imported
  children:
  - prefab: ogre.prefab
    name: big ogre
    scale: 2
    overrides: {Ogre.speed: 2.5, club/Weapon.damage: 7}
"""


def test_a_level_with_a_prefab(game_app: App) -> None:
    shown = CAMP
    (game_app.resources.folder / "shown.scene").write_text(shown, encoding="utf-8")
    with pytest.raises(
        SceneError, match=r"shown\.scene, line 7, object 'camp': module 'my_game\.camps' cannot"
    ):
        game_app.load_scene("shown")
    (game_app.resources.folder / "flag.png").write_text("flag")
    (game_app.resources.folder / "ogre.prefab").write_text(
        "prefab: ogre\nversion: 1\nobject: {name: ogre, components: [Ogre], "
        "children: [{name: club, components: [Weapon]}]}"
    )

    class Camp(MonoBehaviour):
        flag: Asset
        guard: GameObject | None = None

    class Ogre(MonoBehaviour):
        speed: float = 1.0

    class Weapon(MonoBehaviour):
        damage: int = 1

    known = shown.replace("my_game.camps:Camp", "Camp")
    (game_app.resources.folder / "shown.scene").write_text(known, encoding="utf-8")
    scene = game_app.load_scene("shown")
    ogre = scene.find("big ogre")
    assert ogre is not None
    assert scene.find_components(Camp)[0].guard is ogre
    assert (scene.find_components(Ogre)[0].speed, scene.find_components(Weapon)[0].damage) == (2.5, 7)
