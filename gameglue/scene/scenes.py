"""`Scenes`: the loaded scenes of an app, and their loading and unloading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine import Loading
from gameglue.errors import SceneError
from gameglue.scene.files.loading import load_in_background, read_scene
from gameglue.scene.scene import Scene

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.scene.game_object import GameObject

PERSISTENT = "persistent"
"""The name of the scene that holds what `dont_destroy_on_load` was given."""


class Scenes:
    """Loads and unloads scenes; within a frame the changes wait for its end."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._persistent: Scene | None = None
        self._loaded: list[Scene] = [Scene(app, "main")]
        self._active = self._loaded[0]
        self._active.load()
        self._pending: list[tuple[str, Scene]] = []

    @property
    def active(self) -> Scene:
        """The active scene: the last one loaded non-additively, unless another was set."""
        return self._active

    @active.setter
    def active(self, scene: Scene) -> None:
        if scene not in self._loaded:
            raise SceneError(
                f"{scene!r} is not loaded: load_scene(scene) or load_scene(scene, additive=True)"
            )
        self._active = scene

    @property
    def loaded(self) -> tuple[Scene, ...]:
        """All loaded scenes in order; the persistent one comes last."""
        return (*self._loaded, *(() if self._persistent is None else (self._persistent,)))

    def new(self, name: str) -> Scene:
        """An empty scene that is not loaded."""
        return Scene(self._app, name)

    def load(self, scene: Scene | str | Path, *, additive: bool) -> Scene:
        """Load `scene`, or a scene file, instead of all others or additively.

        That happens at the next `change`. Returns the scene.
        """
        if isinstance(scene, str | Path):
            scene = read_scene(self._app, scene)
        self._check(scene)
        self._pending.append(("add" if additive else "replace", scene))
        return scene

    def load_async(self, name: str | Path, loaded: Callable[[Scene], None]) -> Loading[Scene]:
        """Read a file over many frames, then call `loaded`."""
        return load_in_background(self._app, name, loaded)

    def unload(self, scene: Scene) -> None:
        """Destroy the scene and what is in it at the next `change`."""
        self._check(scene)
        if not scene.is_loaded and ("add", scene) not in self._pending:
            raise SceneError(f"{scene!r} is not loaded, so it cannot be unloaded")
        self._pending.append(("unload", scene))

    def change(self) -> None:
        """Carry out the requests since the last call, in order."""
        while self._pending:
            pending, self._pending = self._pending, []
            # Of several scenes in the place of others only the last one is seen.
            last = max((i for i, (what, _) in enumerate(pending) if what == "replace"), default=0)
            for what, scene in pending[last:]:
                if what == "replace":
                    self._replace(scene)
                elif what == "add":
                    self._add(scene)
                else:
                    self._remove(scene)

    def keep(self, owner: GameObject) -> None:
        """Move a root object and its children to the persistent scene."""
        if owner.transform.parent is not None:
            raise SceneError(
                f"{owner!r} is a child of another object, and only root objects survive a load: "
                "first set transform.parent = None"
            )
        if self._persistent is None:
            self._persistent = Scene(self._app, PERSISTENT)
            self._persistent.load()
        owner.move_to_scene(self._persistent)

    def end(self) -> None:
        """Unload everything, what survives loads last."""
        for scene in self.loaded:
            scene.unload()

    def _check(self, scene: Scene) -> None:
        if not isinstance(scene, Scene):
            raise SceneError(f"expected a Scene, or the name of its file, got {type(scene).__name__}")
        if scene.app is not self._app:
            raise SceneError(f"{scene!r} belongs to another app: make it with this one's new_scene()")
        if scene is self._persistent:
            raise SceneError("the persistent scene cannot be unloaded; move objects out of it")

    def _replace(self, scene: Scene) -> None:
        if self._loaded == [scene]:
            return
        for old in self._loaded:
            if old is not scene:
                old.unload()
        self._loaded = [scene]
        self._active = scene
        scene.load()

    def _add(self, scene: Scene) -> None:
        if scene not in self._loaded:
            self._loaded.append(scene)
            scene.load()

    def _remove(self, scene: Scene) -> None:
        if scene not in self._loaded:
            return
        scene.unload()
        self._loaded.remove(scene)
        if not self._loaded:
            self._add(Scene(self._app, "main"))
        if self._active is scene:
            self._active = self._loaded[-1]
