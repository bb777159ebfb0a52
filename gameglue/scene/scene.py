"""`Scene`: a set of game objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Never

from engine.base.spelling import answers_spelling
from gameglue.scene.create_arguments import check_arguments
from gameglue.scene.files.locations import PREFAB, SCENE, place_to_save, write_text
from gameglue.scene.files.overrides import apply_overrides
from gameglue.scene.files.prefab import Prefab
from gameglue.scene.files.saving import prefab_text, scene_text
from gameglue.scene.finding import Finder
from gameglue.scene.game_object import GameObject
from gameglue.scene.transform import Rotation, Transform
from gameglue.scripting.behaviour import MonoBehaviour

if TYPE_CHECKING:
    from gameglue.host.app import App


@answers_spelling
class Scene(Finder):
    """Holds game objects. Nothing in it wakes before the app loads it (`app.load_scene(scene)`).

    Attributes:
        app: The app that the scene belongs to.
        name: Name of the scene; `scene.save` writes it.
    """

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
        **unknown: Never,
    ) -> GameObject:
        """Create an object.

        Args:
            name: Its name.
            *components: Component classes to add.
            position: Position relative to the parent, in world units.
            rotation: Degrees around z, or a rotation, relative to the parent.
            scale: Scale relative to the parent.
            parent: The object below which it is placed.
            tag: Its tag.
            layer: Number of its layer.
            **unknown: Nothing else; fields of a component are given to `add_component`.

        Raises:
            FieldError: A component is no class derived from `MonoBehaviour`, or an argument is unknown.
            SceneError: A position, rotation, scale or parent is none.
            FrameError: The app has ended.
        """
        self.app._check_not_over()
        check_arguments(name, components, parent, unknown)
        made = GameObject(self, name, tag=tag, layer=layer)
        place = made.transform
        place.local_position, place.local_rotation, place.local_scale = position, rotation, scale
        self._enter(made)
        if parent is not None:
            place.set_parent(parent, keep_world=False)
        for kind in components:
            made.add_component(kind)
        return made

    def instantiate(
        self,
        prefab: GameObject | Prefab | str | Path,
        *,
        position: Iterable[float] | None = None,
        rotation: Rotation | None = None,
        parent: GameObject | Transform | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> GameObject:
        """Copy a prefab with its components, field values and children into this scene.

        Fields that refer to a part of the prefab refer to the same part of the copy.

        Args:
            prefab: A prefab, its file name, or an object, also of a scene that is not loaded.
            position: World position; by default that of the prefab.
            rotation: World rotation; by default that of the prefab.
            parent: The object below which it is placed.
            overrides: Values by name, such as `{"Enemy.speed": 3.0, "tag": "boss", "gun/Gun.damage": 7}`,
                where `gun` is a child.

        Raises:
            SceneError: The prefab cannot be read, or an override does not exist.
        """
        above = parent.transform if isinstance(parent, GameObject) else parent
        if isinstance(prefab, str | Path):
            prefab = self.app._prefabs.load(prefab)
        made = prefab.place(self, above) if isinstance(prefab, Prefab) else prefab.clone_into(self, above)
        if overrides:
            try:
                apply_overrides(made, overrides)
            except Exception:
                self.app._lifecycle.remove(made)
                raise
        if position is not None:
            made.transform.position = position
        if rotation is not None:
            made.transform.rotation = rotation
        return made

    # -- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path, *, strict: bool = True) -> Path:
        """Save the scene to a file that `app.load_scene` reads; returns its path.

        Written are objects, components and their fields, references between them, resources by file name,
        instances of prefabs as what they have otherwise, and what a component's `on_save` returns. Timers,
        coroutines, listeners and private attributes are not: after loading, `awake` and `start` run again. An
        object whose `is_saved` is False is left out. path: relative to the game's folder.

        Raises:
            SceneError: Fields cannot be written (a worker, an image made in code); with `strict=False` they
                are left out.
        """
        place = place_to_save(self.app.resources, path, SCENE)
        write_text(place, scene_text(self.name, self.roots, self.app.resources, strict=strict))
        return place

    def save_prefab(self, owner: GameObject, path: str | Path, *, strict: bool = True) -> Path:
        """Write an object with its children as a prefab.

        Args:
            owner: The object.
            path: The file.
            strict: As for `save`.

        Returns:
            The path of the file.
        """
        place = place_to_save(self.app.resources, path, PREFAB)
        write_text(place, prefab_text(owner, self.app.resources, strict=strict))
        return place

    # -- for the host ---------------------------------------------------------------------------

    def load(self) -> None:
        """Register every component with the frame loop; they wake in the next wake phase."""
        if self._loaded:
            return
        self._loaded = True
        for owner in self:
            for component in owner.components:
                self.app._lifecycle.add(component)

    def unload(self) -> None:
        """Disable and destroy everything in the scene now."""
        for owner in self:
            if owner.transform.parent is None and not owner.is_destroyed:
                self.app._lifecycle.remove(owner)
        self._loaded = False

    def _every_object(self) -> Iterator[GameObject]:
        return iter(self._objects.values())

    def _enter(self, owner: GameObject) -> None:
        self._objects[id(owner)] = owner

    def _forget(self, owner: GameObject) -> None:
        self._objects.pop(id(owner), None)

    def __repr__(self) -> str:
        return f"<Scene {self.name!r}, {len(self._objects)} objects>"
