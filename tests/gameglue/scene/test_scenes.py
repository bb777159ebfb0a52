"""Several scenes at once: additive loading, what survives a load, and finding in all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from gameglue import App, InputScript, MonoBehaviour, Scene, SceneError
from gameglue.input import FocusChanged


class Noted(MonoBehaviour):
    """Writes its life down."""

    log: ClassVar[list[str]] = []

    def awake(self) -> None:
        self.log.append(f"{self.name} awake")

    def update(self) -> None:
        self.log.append(f"{self.name} update")

    def on_destroy(self) -> None:
        self.log.append(f"{self.name} destroy")

    def on_application_focus(self, focused: bool) -> None:
        self.log.append(f"{self.name} focused {focused}")

    def on_application_pause(self, paused: bool) -> None:
        self.log.append(f"{self.name} paused {paused}")


@pytest.fixture(autouse=True)
def log() -> list[str]:
    Noted.log = []
    return Noted.log


def filled(app: App, name: str) -> Scene:
    scene = app.new_scene(name)
    scene.create(f"{name} object", Noted, tag=name, layer=len(name))
    return scene


def test_additive_loading(app: App, log: list[str]) -> None:
    first, second = filled(app, "first"), filled(app, "second")
    assert app.load_scene(first) is first
    app.load_scene(second, additive=True)
    assert (app.scene, app.scenes) == (first, (first, second))
    app.step(0.0)
    assert log == [
        "first object awake", "second object awake", "first object update", "second object update",
    ]  # fmt: skip
    app.unload_scene(second)
    assert app.scenes == (first,)
    assert log[-1] == "second object destroy"
    third = filled(app, "third")
    app.load_scene(third)
    assert (app.scene, app.scenes) == (third, (third,))


def test_the_active_scene_may_be_another_or_go(app: App) -> None:
    first, second = filled(app, "first"), filled(app, "second")
    app.load_scene(first)
    app.load_scene(second, additive=True)
    app.scene = second
    app.unload_scene(second)
    assert app.scene is first
    app.unload_scene(first)
    assert (len(app.scenes), len(app.scene)) == (1, 0)


def test_within_a_frame_changes_wait_for_its_end(app: App) -> None:
    first, second, third = (filled(app, name) for name in ("first", "second", "third"))
    seen: list[tuple[str, ...]] = []

    class Loader(MonoBehaviour):
        def update(self) -> None:
            self.app.load_scene(first)
            self.app.load_scene(second)
            self.app.load_scene(third, additive=True)
            seen.append(tuple(scene.name for scene in self.app.scenes))

    app.scene.create("loader", Loader)
    app.step(0.0)
    assert seen == [("main",)]
    assert app.scenes == (second, third)
    assert not first.is_loaded


def test_what_survives_a_load(app: App, log: list[str]) -> None:
    music = app.scene.create("music", Noted)
    app.scene.create("needle", parent=music)
    gone = app.scene.create("gone", Noted)
    app.dont_destroy_on_load(music)
    app.step(0.0)
    app.load_scene(filled(app, "next"))
    app.step(0.0)
    assert log.count("music awake") == 1
    assert "gone destroy" in log
    assert gone.is_destroyed
    assert [scene.name for scene in app.scenes] == ["next", "persistent"]
    assert music.scene is app.scenes[-1]
    assert app.find_path("music/needle") is not None
    app.dispose()
    assert log[-1] == "music destroy"


def test_only_the_top_of_a_hierarchy_survives(app: App) -> None:
    parent = app.scene.create("parent")
    child = app.scene.create("child", parent=parent)
    with pytest.raises(SceneError, match=r"'child'> is a child of another object.*transform\.parent = None"):
        app.dont_destroy_on_load(child)


def test_hanging_an_object_under_one_of_another_scene_moves_it(app: App, log: list[str]) -> None:
    shelf = filled(app, "shelf")
    moved = shelf.objects[0]
    below = shelf.create("below", Noted, parent=moved)
    base = app.scene.create("base")
    moved.transform.parent = base.transform
    assert (moved.scene, below.scene) == (app.scene, app.scene)
    assert len(shelf) == 0
    app.step(0.0)
    assert log[:2] == ["shelf object awake", "below awake"]


def test_moving_between_scenes(app: App) -> None:
    other = filled(app, "other")
    ball = app.scene.create("ball", Noted)
    with pytest.raises(SceneError, match=r"is in the game and cannot move into <Scene 'other'"):
        ball.move_to_scene(other)
    app.load_scene(other, additive=True)
    ball.move_to_scene(other)
    assert ball in other.objects
    assert len(app.scene) == 0


def test_finding_in_all_scenes(app: App) -> None:
    first, second = filled(app, "first"), filled(app, "second")
    app.load_scene(first)
    app.load_scene(second, additive=True)
    ship = second.create("ship")
    turret = second.create("turret", parent=ship)
    wrong = second.create("turret", parent=ship)
    barrel = second.create("barrel", parent=wrong)
    assert app.find("second object") is second.objects[0]
    assert first.find("second object") is None
    assert app.find_path("ship/turret") is turret
    assert app.find_path("/ship/turret/barrel") is barrel
    assert app.find_path("turret") is None
    assert ship.find_child("turret/barrel") is barrel
    assert barrel.path == "ship/turret/barrel"
    assert [o.name for o in app.find_in_layer(5)] == ["first object"]
    assert app.find_with_tag("second") == [second.objects[0]]
    assert [c.name for c in app.find_components(Noted)] == ["first object", "second object"]
    assert app.find_component(Noted) is first.objects[0].components[0]
    assert second.roots == (second.objects[0], ship)
    assert barrel.get_component_in_parent(Noted) is None


def test_the_pause_is_told(app: App, log: list[str]) -> None:
    app.scene.create("a", Noted)
    app.step(0.0)
    app.time.paused = True
    app.step(0.0)
    app.step(0.0)
    app.time.paused = False
    app.step(0.0)
    assert [line for line in log if "paused" in line] == ["a paused True", "a paused False"]


def test_the_focus_is_told(make_app: Callable[..., App], log: list[str]) -> None:
    script = InputScript().add(0.15, FocusChanged(False)).add(0.35, FocusChanged(True))
    app = make_app(on_error="raise", input_source=script)
    app.scene.create("a", Noted)
    for _ in range(4):
        app.step(0.1)
    assert log[1:] == [
        "a update", "a focused False", "a update", "a update", "a focused True", "a update",
    ]  # fmt: skip


def test_copies_refer_to_each_other(app: App) -> None:
    class Link(MonoBehaviour):
        to: MonoBehaviour | None = None
        all: list[object] = []
        outside: object = None

    chain = app.scene.create("chain")
    ring = app.scene.create("ring", parent=chain)
    a, b = chain.add_component(Link), ring.add_component(Link)
    outside = app.scene.create("outside")
    a.to, b.to, a.all, a.outside = b, a, [ring, {"place": ring.transform}], outside
    copied = app.scene.instantiate(chain)
    copied_ring = copied.transform.children[0].game_object
    assert copied_ring is not None
    c, d = copied.get_components(Link)[0], copied_ring.get_components(Link)[0]
    assert (c.to, d.to, c.outside) == (d, c, outside)
    assert c.all == [copied_ring, {"place": copied_ring.transform}]
    assert a.all == [ring, {"place": ring.transform}]


def test_wrong_scenes(app: App) -> None:
    with pytest.raises(SceneError, match="is not loaded: load_scene"):
        app.scene = app.new_scene("x")
    with pytest.raises(SceneError, match="expected a Scene, or the name of its file, got int"):
        app.load_scene(3)  # type: ignore[arg-type]
    app.dont_destroy_on_load(app.scene.create("x"))
    with pytest.raises(SceneError, match="the persistent scene cannot be unloaded"):
        app.unload_scene(app.scenes[-1])
    with pytest.raises(SceneError, match="is not loaded, so it cannot be unloaded"):
        app.unload_scene(app.new_scene("x"))
