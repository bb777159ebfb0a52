"""Finds objects and components, in one scene or in all loaded ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeVar

from gameglue.scene.game_object import GameObject, check_class
from gameglue.scripting.behaviour import MonoBehaviour

T = TypeVar("T", bound=MonoBehaviour)


class Finder(ABC):
    """The `find` methods of `Scene` and `App`. They include inactive objects, oldest first."""

    @abstractmethod
    def _every_object(self) -> Iterator[GameObject]:
        """The objects to look at."""

    def find(self, name: str) -> GameObject | None:
        """The first object of that name, active or not, or `None`."""
        return next((o for o in self._every_object() if o.name == name), None)

    def find_path(self, path: str) -> GameObject | None:
        """The first object at `path`, names from the top down such as "ship/turret/barrel", or `None`."""
        names = path.strip("/").split("/")
        tops = (o for o in self._every_object() if o.transform.parent is None and o.name == names[0])
        for top in tops:
            found = top.find_child("/".join(names[1:])) if len(names) > 1 else top
            if found is not None:
                return found
        return None

    def find_with_tag(self, tag: str) -> list[GameObject]:
        """All objects with that tag."""
        return [o for o in self._every_object() if o.tag == tag]

    def find_in_layer(self, layer: int) -> list[GameObject]:
        """All objects in that layer."""
        return [o for o in self._every_object() if o.layer == layer]

    def find_component(self, kind: type[T]) -> T | None:
        """The first component of class `kind`, or `None`."""
        check_class(kind, "find_component")
        return next((c for o in self._every_object() for c in o.components if isinstance(c, kind)), None)

    def find_components(self, kind: type[T]) -> list[T]:
        """All components of class `kind`."""
        check_class(kind, "find_components")
        return [c for o in self._every_object() for c in o.components if isinstance(c, kind)]
