"""`GameObject`: a named place in a scene that components hang on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gameglue.behaviour import MonoBehaviour
from gameglue.errors import FieldError
from gameglue.fields import apply_fields, fields_of
from gameglue.transform import Transform

if TYPE_CHECKING:
    from gameglue.scene import Scene

T = TypeVar("T", bound=MonoBehaviour)


class GameObject:
    """A named object with a transform and components. Made by `scene.create(...)`."""

    def __init__(self, scene: Scene, name: str, *, tag: str = "", layer: int = 0) -> None:
        self.name = name
        self.tag = tag
        self.layer = layer
        self.transform = Transform(self)
        self._scene = scene
        self._components: list[MonoBehaviour] = []
        self._active = True
        self._is_destroyed = False

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

    # -- components -----------------------------------------------------------------------------

    def add_component(self, kind: type[T], **fields: object) -> T:
        """Attach a new component and give it field values; `awake` follows in the next wake phase.

        A field whose type is a resource (a texture, a model) may be given by file name. Raises `FieldError`
        for an unknown field or a value of the wrong type.
        """
        if not (isinstance(kind, type) and issubclass(kind, MonoBehaviour)):
            raise FieldError(f"add_component needs a class derived from MonoBehaviour, got {kind!r}")
        component = kind()
        component._app = self._scene.app
        component._game_object = self
        apply_fields(component, self._load_named(kind, fields))
        self._components.append(component)
        if self._scene.is_loaded:
            self._scene.app.lifecycle.add(component)
        return component

    def _load_named(self, kind: type, fields: dict[str, object]) -> dict[str, object]:
        declared = fields_of(kind)
        load = self._scene.app.resources.load_for_type
        return {
            name: load(declared[name].annotation, value) if name in declared else value
            for name, value in fields.items()
        }

    def get_component(self, kind: type[T]) -> T | None:
        """The first component of class `kind`, or `None`."""
        return next((c for c in self._components if isinstance(c, kind)), None)

    def get_components(self, kind: type[T]) -> list[T]:
        """All components of class `kind`."""
        return [c for c in self._components if isinstance(c, kind)]

    def get_component_in_children(self, kind: type[T]) -> T | None:
        """The first component of class `kind` here or below, or `None`."""
        return next((c for o in self.walk() for c in o._components if isinstance(c, kind)), None)

    def get_components_in_children(self, kind: type[T]) -> list[T]:
        """All components of class `kind` here and below."""
        return [c for o in self.walk() for c in o._components if isinstance(c, kind)]

    def walk(self) -> Iterator[GameObject]:
        """This object and all below it, parents first."""
        yield self
        for child in self.transform.children:
            if child.game_object is not None:
                yield from child.game_object.walk()

    # -- active ---------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether this object itself is switched on; the ones above it count too (`active_in_hierarchy`)."""
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
        transform: Transform | None = self.transform
        while transform is not None:
            owner = transform.game_object
            if owner is not None and not owner._active:
                return False
            transform = transform.parent
        return not self._is_destroyed

    def _hierarchy_changed(self) -> None:
        if not self._scene.is_loaded:
            return
        app = self._scene.app
        for owner in tuple(self.walk()):
            on = owner.active_in_hierarchy
            for component in owner.components:
                app.lifecycle.refresh(component)
                if not on:
                    app.coroutines.stop_all(component)

    # -- making and removing ----------------------------------------------------------------------

    def destroy(self, delay: float = 0.0) -> None:
        """Remove this object and all below it at the end of the frame, or `delay` seconds later."""
        self._scene.app.lifecycle.destroy(self, delay)

    def clone_into(self, scene: Scene, parent: Transform | None) -> GameObject:
        """A copy in `scene`: same components with the same field values, and copies of all below it."""
        copied = GameObject(scene, self.name, tag=self.tag, layer=self.layer)
        scene._enter(copied)
        copied._active = self._active
        copied.transform.set_parent(parent, keep_world=False)
        copied.transform.local_position = self.transform.local_position
        copied.transform.local_rotation = self.transform.local_rotation
        copied.transform.local_scale = self.transform.local_scale
        for component in self._components:
            kind = type(component)
            values = {
                name: _own(component.__dict__[name]) for name in fields_of(kind) if name in component.__dict__
            }
            copied.add_component(kind, **values)._enabled = component._enabled
        for child in self.transform.children:
            if child.game_object is not None:
                child.game_object.clone_into(scene, copied.transform)
        return copied

    def _forget(self, component: MonoBehaviour) -> None:
        self._components.remove(component)

    def _leave_scene(self) -> None:
        self._is_destroyed = True
        self.transform.set_parent(None)
        self._scene._forget(self)

    def __repr__(self) -> str:
        return f"<GameObject {self.name!r}>"


def _own(value: object) -> object:
    return copy.deepcopy(value) if isinstance(value, list | dict | set | np.ndarray) else value
