"""Scene loading: the methods of `App` that load, unload and find scenes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine import Loading
from gameglue.scene.finding import Finder
from gameglue.scene.game_object import GameObject
from gameglue.scene.scene import Scene
from gameglue.scene.scenes import Scenes


class SceneLoading(Finder):
    """The scenes that are loaded. Within a frame, changes wait for the frame's end."""

    _scenes: Scenes
    _in_frame: bool

    @property
    def scene(self) -> Scene:
        """The active scene: the last one loaded non-additively, unless another was set. Empty at first."""
        return self._scenes.active

    @scene.setter
    def scene(self, scene: Scene) -> None:
        self._scenes.active = scene

    @property
    def scenes(self) -> tuple[Scene, ...]:
        """Every loaded scene: the active one, additive ones, and the one of objects that survive loads."""
        return self._scenes.loaded

    def new_scene(self, name: str = "scene") -> Scene:
        """An empty scene that is not loaded: fill it, then `load_scene(scene)`."""
        return self._scenes.new(name)

    def load_scene(self, scene: Scene | str | Path, additive: bool = False) -> Scene:
        """Replace the loaded scenes by `scene`, destroying their objects, or load it additively.

        `scene` may be the name of a file, such as "level 1.scene", as for `resources`. Within a frame the
        change happens at its end.

        Returns:
            The scene.

        Raises:
            SceneError: Something in the file is wrong; the message names it and its line, and all stays as it
                is.
        """
        loaded = self._scenes.load(scene, additive=additive)
        self._change_scenes()
        return loaded

    def load_scene_async(self, name: str | Path, additive: bool = False) -> Loading[Scene]:
        """Load a scene file in the background: `await self.app.load_scene_async("level 2.scene")`.

        Its objects are made within `loading_budget_ms` of each frame, its textures and other resources read
        on another thread. When the handle is done they are there, and the scene takes its place at the end of
        that frame. The handle has `progress`, and `result()` raises what `load_scene` does.
        """

        def loaded(scene: Scene) -> None:
            self.load_scene(scene, additive)

        return self._scenes.load_async(name, loaded)

    def unload_scene(self, scene: Scene) -> None:
        """Destroy a loaded scene and all in it, within a frame at its end; other scenes stay.

        Raises:
            SceneError: The scene is not loaded.
        """
        self._scenes.unload(scene)
        self._change_scenes()

    def dont_destroy_on_load(self, owner: GameObject) -> None:
        """Keep a root object and its children when other scenes are loaded.

        It moves into a scene of its own, the last of `scenes`.

        Raises:
            SceneError: The object is a child of another.
        """
        self._scenes.keep(owner)

    def _change_scenes(self) -> None:
        if not self._in_frame:
            self._scenes.change()

    def _every_object(self) -> Iterator[GameObject]:
        return (owner for scene in self._scenes.loaded for owner in scene.objects)
