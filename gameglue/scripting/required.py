"""Required components: added if missing, and not removable while needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gameglue.errors import SceneError
from gameglue.scripting.behaviour import MonoBehaviour

T = TypeVar("T", bound=type[MonoBehaviour])


def require_component(*kinds: type[MonoBehaviour]) -> Callable[[T], T]:
    """A class decorator: every object with a component of the class has one of each of `kinds`, too.

        @require_component(SpriteRenderer)
        class Hero(MonoBehaviour): ...

    The same as the class attribute `required_components = (SpriteRenderer,)`.

    Raises:
        SceneError: One of `kinds` is no component class.
    """
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, MonoBehaviour)):
            raise SceneError(f"require_component needs classes derived from MonoBehaviour, got {kind!r}")

    def require(cls: T) -> T:
        cls.required_components = (*cls.__dict__.get("required_components", ()), *kinds)
        return cls

    return require


def required_of(kind: type[MonoBehaviour]) -> tuple[type[MonoBehaviour], ...]:
    """The components that `kind` and its base classes require, each once, base classes first."""
    found: dict[type[MonoBehaviour], None] = {}
    for owner in reversed(kind.__mro__):
        found.update(dict.fromkeys(owner.__dict__.get("required_components", ())))
    return tuple(found)


def check_removable(component: MonoBehaviour, stays: Callable[[MonoBehaviour], bool]) -> None:
    """Raise `SceneError` if another component requires `component` and nothing replaces it."""
    neighbours = [c for c in component.game_object.components if c is not component and stays(c)]
    for other in neighbours:
        for needed in required_of(type(other)):
            if isinstance(component, needed) and not any(isinstance(c, needed) for c in neighbours):
                raise SceneError(
                    f"{component!r} cannot be removed: {type(other).__name__} needs a {needed.__name__}; "
                    f"remove the {type(other).__name__} first, or disable this one"
                )
