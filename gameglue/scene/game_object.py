"""`GameObject`: a named object in a scene, with a transform and components."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, TypeVar

from engine.base.spelling import answers_spelling, explains_arguments, raise_unknown
from gameglue.errors import FieldError, SceneError
from gameglue.graphics.device import GraphicsDevice
from gameglue.scene.copying import CopyMap, copy_value
from gameglue.scene.transform import Transform
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import apply_fields, fields_of, set_fields
from gameglue.scripting.required import required_of

if TYPE_CHECKING:
    from gameglue.host.app import App
    from gameglue.scene.files.prefab import Prefab
    from gameglue.scene.scene import Scene

T = TypeVar("T", bound=MonoBehaviour)


@answers_spelling
class GameObject:
    """A named object with a transform and components. Made by `scene.create(...)`.

    Attributes:
        name: Name to find the object by; need not be unique.
        tag: A label for groups of objects; "" for none.
        layer: Number of the layer; a camera's `layers` choose what it shows.
        transform: Position, rotation, scale and place in the hierarchy.
    """

    _parts: ClassVar[tuple[str, ...]] = ("transform",)

    def __init__(self, scene: Scene, name: str, *, tag: str = "", layer: int = 0) -> None:
        _check_name(name)
        self.name = name
        self.tag = tag
        self.layer = layer
        self.transform = Transform(self)
        self.is_saved = True
        """Whether `scene.save` writes this object, and all below it, into the file."""
        self.prefab: Prefab | None = None
        """The prefab of which this object is an instance."""
        self._origin: GameObject | None = None
        self._being_added: list[type[MonoBehaviour]] = []
        self._scene = scene
        self._components: list[MonoBehaviour] = []
        self._active = True
        self._is_destroyed = False

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OF_TRANSFORM:
            raise_unknown(self, name)
        object.__setattr__(self, name, value)

    @property
    def scene(self) -> Scene:
        """The scene that holds this object."""
        return self._scene

    @property
    def components(self) -> tuple[MonoBehaviour, ...]:
        """The components in the order in which they were added."""
        return tuple(self._components)

    @property
    def is_destroyed(self) -> bool:
        """True once the object has left its scene."""
        return self._is_destroyed

    @property
    def path(self) -> str:
        """The names from the top down to this object: "ship/turret/barrel"."""
        return "/".join(reversed([owner.name for owner in self.self_and_ancestors()]))

    # -- components -----------------------------------------------------------------------------

    @explains_arguments(FieldError, "fields are given by name, as in add_component(Door, speed=3.0)")
    def add_component(self, kind: type[T], **fields: object) -> T:
        """Attach a new component and give it field values; `awake` follows in the next wake phase.

        A field whose type is a resource (a texture, a model) may be given by file name. What `kind` requires
        and the object has not is added before.

        Raises:
            FieldError: A field is unknown, or its value has the wrong type or is out of range.
            Exception: What the component's `on_validate` raises.
        """
        component = self._make_component(kind)
        apply_fields(component, {})
        give_fields(component, fields)
        self._add_required(kind)
        self._components.append(component)
        try:
            self._scene.app._lifecycle.validate(component)
        except Exception:
            self._components.remove(component)
            raise
        if self._scene.is_loaded:
            self._scene.app._lifecycle.add(component)
        return component

    def _make_component(self, kind: type[T]) -> T:
        if not (isinstance(kind, type) and issubclass(kind, MonoBehaviour)):
            raise FieldError(f"add_component needs a class derived from MonoBehaviour, got {kind!r}")
        component = kind()
        component._app = self._scene.app
        component._game_object = self
        return component

    def _attach(self, kind: type[T]) -> T:
        """A component with its defaults; the caller sets its fields and adds it to the loop."""
        component = self._make_component(kind)
        apply_fields(component, {})
        self._components.append(component)
        return component

    def _add_required(self, kind: type[MonoBehaviour]) -> None:
        # Two classes may need each other: the one that is being added counts as there.
        self._being_added.append(kind)
        try:
            for needed in required_of(kind):
                there = any(issubclass(adding, needed) for adding in self._being_added)
                if not there and self.get_component(needed) is None:
                    self.add_component(needed)
        finally:
            self._being_added.pop()

    def get_component(self, kind: type[T]) -> T | None:
        """The first component of class `kind`, or `None`."""
        check_class(kind, "get_component")
        return next((c for c in self._components if isinstance(c, kind)), None)

    def get_components(self, kind: type[T]) -> list[T]:
        """All components of class `kind`."""
        check_class(kind, "get_components")
        return [c for c in self._components if isinstance(c, kind)]

    def get_component_in_children(self, kind: type[T]) -> T | None:
        """The first component of class `kind` here or below, or `None`."""
        check_class(kind, "get_component_in_children")
        return next(
            (c for o in self.self_and_descendants() for c in o._components if isinstance(c, kind)), None
        )

    def get_components_in_children(self, kind: type[T]) -> list[T]:
        """All components of class `kind` here and below."""
        check_class(kind, "get_components_in_children")
        return [c for o in self.self_and_descendants() for c in o._components if isinstance(c, kind)]

    def get_component_in_parent(self, kind: type[T]) -> T | None:
        """The first component of class `kind` here or above, or `None`."""
        check_class(kind, "get_component_in_parent")
        return next(
            (c for o in self.self_and_ancestors() for c in o._components if isinstance(c, kind)), None
        )

    # -- neighbours -----------------------------------------------------------------------------

    def find_child(self, path: str) -> GameObject | None:
        """The first object below this one at `path`, such as "turret/barrel", or `None`."""
        name, _, rest = path.partition("/")
        for child in self.transform.children:
            owner = child.game_object
            if owner is not None and owner.name == name:
                found = owner.find_child(rest) if rest else owner
                if found is not None:
                    return found
        return None

    def self_and_ancestors(self) -> Iterator[GameObject]:
        """This object and all above it, up to the top of the hierarchy."""
        transform: Transform | None = self.transform
        while transform is not None:
            if transform.game_object is not None:
                yield transform.game_object
            transform = transform.parent

    def self_and_descendants(self) -> Iterator[GameObject]:
        """This object and all below it, parents first."""
        yield self
        for child in self.transform.children:
            if child.game_object is not None:
                yield from child.game_object.self_and_descendants()

    # -- active ---------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether this object itself is active, regardless of its parents (`active_in_hierarchy`)."""
        return self._active

    @active.setter
    def active(self, active: bool) -> None:
        if active != self._active:
            self._active = active
            self._hierarchy_changed()

    def set_active(self, active: bool) -> None:
        """Switch the object and all below it on or off; switching off ends their coroutines."""
        self.active = active

    @property
    def active_in_hierarchy(self) -> bool:
        """True if this object and all above it are switched on."""
        return not self._is_destroyed and all(owner._active for owner in self.self_and_ancestors())

    def _check_parent(self, parent: GameObject) -> None:
        check_same_app(parent, self._scene.app, f"the parent of {self!r}")

    def _hierarchy_changed(self) -> None:
        parent = self.transform.parent
        above = parent.game_object if parent is not None else None
        if above is not None and above._scene is not self._scene:
            self._change_scene(above._scene)
        if not self._scene.is_loaded:
            return
        app = self._scene.app
        for owner in tuple(self.self_and_descendants()):
            on = owner.active_in_hierarchy
            for component in owner.components:
                app._lifecycle.refresh(component)
                if not on:
                    app._coroutines.stop_all(component)

    # -- making and removing ----------------------------------------------------------------------

    def destroy(self, delay: float = 0.0) -> None:
        """Remove this object and all below it at the end of the frame, or `delay` seconds later."""
        self._scene.app._lifecycle.destroy(self, delay)

    def move_to_scene(self, scene: Scene) -> None:
        """Move this root object and its children to another scene of the same app.

        Raises:
            SceneError: The object is a child of another, or the scene is not loaded while the object is
                in the game.
        """
        if self.transform.parent is not None:
            raise SceneError(f"{self!r} is a child of another object: first set transform.parent = None")
        if scene.app is not self._scene.app:
            raise SceneError(f"{scene!r} belongs to another app than {self!r}")
        self._change_scene(scene)

    def _change_scene(self, scene: Scene) -> None:
        if self._scene.is_loaded and not scene.is_loaded:
            raise SceneError(f"{self!r} is in the game and cannot move into {scene!r}, which is not loaded")
        for owner in tuple(self.self_and_descendants()):
            begins = scene.is_loaded and not owner._scene.is_loaded
            owner._scene._forget(owner)
            owner._scene = scene
            scene._enter(owner)
            if begins:
                for component in owner.components:
                    scene.app._lifecycle.add(component)

    def clone_into(self, scene: Scene, parent: Transform | None) -> GameObject:
        """Copy this object with its components, field values and children into `scene`.

        Fields that hold objects or components of the original hold those of the copy.
        """
        return self._clone(scene, parent, from_template=False)

    def _clone(self, scene: Scene, parent: Transform | None, *, from_template: bool) -> GameObject:
        twins: CopyMap = {}
        copied = self._clone_objects(scene, parent, twins, from_template)
        for original, twin in [pair for pair in twins.values() if isinstance(pair[0], MonoBehaviour)]:
            for name in fields_of(type(original)):
                if name in original.__dict__:
                    setattr(twin, name, copy_value(original.__dict__[name], twins))
            twin._file_names = original._file_names
        for owner in copied.self_and_descendants():
            for component in owner.components:
                scene.app._lifecycle.validate(component)
                if scene.is_loaded:
                    scene.app._lifecycle.add(component)
        return copied

    def _clone_objects(
        self, scene: Scene, parent: Transform | None, twins: CopyMap, from_template: bool
    ) -> GameObject:
        copied = GameObject(scene, self.name, tag=self.tag, layer=self.layer)
        scene._enter(copied)
        copied._active, copied.is_saved, copied.prefab = self._active, self.is_saved, self.prefab
        copied._origin = self if from_template else self._origin
        copied.transform.set_parent(parent, keep_world=False)
        copied.transform.local_position = self.transform.local_position
        copied.transform.local_rotation = self.transform.local_rotation
        copied.transform.local_scale = self.transform.local_scale
        twins[id(self)], twins[id(self.transform)] = (self, copied), (self.transform, copied.transform)
        for component in self._components:
            twin = copied._attach(type(component))
            twin._enabled = component._enabled
            twin._origin = component if from_template else component._origin
            twins[id(component)] = (component, twin)
        for child in self.transform.children:
            if child.game_object is not None:
                child.game_object._clone_objects(scene, copied.transform, twins, from_template)
        return copied

    def _forget(self, component: MonoBehaviour) -> None:
        self._components.remove(component)

    def _leave_scene(self) -> None:
        self._is_destroyed = True
        self.transform.set_parent(None)
        self._scene._forget(self)

    def __repr__(self) -> str:
        return f"<GameObject {self.name!r}>"


_OF_TRANSFORM = {name for name in dir(Transform) if not (name.startswith("_") or hasattr(GameObject, name))}
"""What an object's transform has and the object has not: assigning it to the object would do nothing."""


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        shown = name.__name__ if isinstance(name, type) else repr(name)
        hint = f': the name comes first, as in create("hero", {shown})' if isinstance(name, type) else ""
        raise SceneError(f"an object's name must be text, got {shown}{hint}")


def check_same_app(value: object, app: App, what: str) -> None:
    """Raise `SceneError` for an object, component, texture or image of another app than `app`."""
    owner = value.game_object if isinstance(value, Transform) else value
    device = getattr(value, "_device", None)
    if isinstance(owner, GameObject):
        is_foreign = owner.scene.app is not app
    elif isinstance(owner, MonoBehaviour):
        is_foreign = owner.__dict__.get("_app", app) is not app
    else:
        is_foreign = isinstance(device, GraphicsDevice) and device.ctx is not app.graphics.device.ctx
    if is_foreign:
        raise SceneError(f"{what}: {value!r} belongs to another app")


def check_class(kind: object, method: str) -> None:
    """Raise `FieldError` unless `kind` is a class, as `get_component` takes it."""
    if not isinstance(kind, type):
        shown = kind if isinstance(kind, str) else type(kind).__name__
        raise FieldError(f"{method} takes a class, as in {method}({shown}), got {kind!r}")


def give_fields(component: MonoBehaviour, values: dict[str, object]) -> None:
    """Set fields of an attached component; resources may be file names, which are remembered."""
    declared = fields_of(type(component))
    load = component.app.resources.load_for_type
    loaded = {
        name: load(declared[name].annotation, value) if name in declared else value
        for name, value in values.items()
    }
    for name, value in loaded.items():
        check_same_app(value, component.app, f"{type(component).__name__}.{name}")
    set_fields(component, loaded)
    named = {
        name: ((str(value), loaded[name]),) for name, value in values.items() if loaded[name] is not value
    }
    if named:
        component._file_names = {**component._file_names, **named}
