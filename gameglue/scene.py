"""`Scene`: the objects that are in the game together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gameglue.behaviour import MonoBehaviour
from gameglue.finding import Finder
from gameglue.game_object import GameObject
from gameglue.transform import Rotation, Transform

if TYPE_CHECKING:
    from gameglue.app import App


class Scene(Finder):
    """Holds game objects. Nothing in it wakes before the app loads it (`app.load_scene(scene)`)."""

    def __init__(self, app: App, name: str = "scene") -> None:
        self.app = app
        self.name = name
        self._objects: dict[int, GameObject] = {}
        self._loaded = False

    @property
    def is_loaded(self) -> bool:
        """True while its components live in the frame loop."""
        return self._loaded

    @property
    def objects(self) -> tuple[GameObject, ...]:
        """Every object in the scene, the oldest first."""
        return tuple(self._objects.values())

    @property
    def roots(self) -> tuple[GameObject, ...]:
        """The objects that hang under no other."""
        return tuple(o for o in self._objects.values() if o.transform.parent is None)

    def __iter__(self) -> Iterator[GameObject]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self._objects)

    def create(
        self,
        name: str = "object",
        *components: type[MonoBehaviour],
        position: Iterable[float] = (0.0, 0.0),
        rotation: Rotation = 0.0,
        scale: Iterable[float] | float = 1.0,
        parent: GameObject | Transform | None = None,
        tag: str = "",
        layer: int = 0,
    ) -> GameObject:
        """Make an object; place and size are relative to `parent`, the rotation in degrees around z."""
        made = GameObject(self, name, tag=tag, layer=layer)
        self._enter(made)
        if parent is not None:
            above = parent.transform if isinstance(parent, GameObject) else parent
            made.transform.set_parent(above, keep_world=False)
        made.transform.local_position = position
        made.transform.local_rotation = rotation
        made.transform.local_scale = scale
        for kind in components:
            made.add_component(kind)
        return made

    def instantiate(
        self,
        prefab: GameObject,
        *,
        position: Iterable[float] | None = None,
        rotation: Rotation | None = None,
        parent: GameObject | Transform | None = None,
    ) -> GameObject:
        """Copy `prefab` with its components, field values and everything below it into this scene.

        `prefab` may be in a scene that is not loaded: a shelf of templates. Place and rotation are the
        prefab's, unless given (in the world).
        """
        above = parent.transform if isinstance(parent, GameObject) else parent
        made = prefab.clone_into(self, above)
        if position is not None:
            made.transform.position = position
        if rotation is not None:
            made.transform.rotation = rotation
        return made

    # -- for the host ---------------------------------------------------------------------------

    def load(self) -> None:
        """Hand every component to the frame loop; they wake in the next wake phase."""
        if self._loaded:
            return
        self._loaded = True
        for owner in self:
            for component in owner.components:
                self.app.lifecycle.add(component)

    def unload(self) -> None:
        """Disable and destroy everything in the scene now."""
        for owner in self:
            if owner.transform.parent is None and not owner.is_destroyed:
                self.app.lifecycle.remove(owner)
        self._loaded = False

    def _every_object(self) -> Iterator[GameObject]:
        return iter(self._objects.values())

    def _enter(self, owner: GameObject) -> None:
        self._objects[id(owner)] = owner

    def _forget(self, owner: GameObject) -> None:
        self._objects.pop(id(owner), None)

    def __repr__(self) -> str:
        return f"<Scene {self.name!r}, {len(self._objects)} objects>"
