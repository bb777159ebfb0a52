"""Overrides: how an instance differs from its prefab.

Enemy.speed: 3              # a field of a component
tag: boss                   # a property of the object
gun/Gun.damage: 7           # the same of an object below
gun/active: false
gun/Gun[1].enabled: false   # of its second Gun
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.base.spelling import near
from gameglue.errors import GameError, SceneError
from gameglue.scene.files.component_types import Problem
from gameglue.scene.files.paths import children_of, find_component, find_object
from gameglue.scene.files.properties import PROPERTIES, set_property
from gameglue.scene.game_object import GameObject, give_fields
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import fields_of


class OverriddenProperty(NamedTuple):
    """What an override sets: a property of `owner`, or a field, "enabled" or "$state" of `component`."""

    owner: GameObject
    component: MonoBehaviour | None
    name: str


def find_override(root: GameObject, key: str) -> OverriddenProperty:
    """Resolve `key` on the instance with root object `root`. Raises `Problem`."""
    path, slash, last = key.rpartition("/")
    owner = find_object(path, children_of(root)) if slash else root
    kind, dot, name = last.rpartition(".")
    if not dot:
        if last not in PROPERTIES:
            kinds = [f"{type(c).__name__}.FIELD" for c in owner.components]
            raise Problem(
                f"{last!r} is no property of an object{near(last, (*PROPERTIES, *kinds), 'there are')}"
            )
        return OverriddenProperty(owner, None, last)
    component = find_component(owner, kind)
    known = fields_of(type(component))
    if name not in known and name not in ("enabled", "$state"):
        raise Problem(f"{type(component).__name__} has no field {name!r}{near(name, known, 'its fields')}")
    return OverriddenProperty(owner, component, name)


def apply_overrides(root: GameObject, overrides: Mapping[str, object]) -> None:
    """Apply values given in code, as for `add_component`. Raises `SceneError`."""
    touched: dict[int, MonoBehaviour] = {}
    targets: dict[str, OverriddenProperty] = {}
    # All before any is changed, as a name that changes is the way to others.
    for key in overrides:
        try:
            targets[key] = find_override(root, key)
        except Problem as error:
            raise SceneError(f"override {key!r} of {root.name!r}: {error}") from error
    for key, target in targets.items():
        value = overrides[key]
        try:
            if target.component is None:
                set_property(target.owner, target.name, value)
                continue
            if target.name == "enabled":
                target.component.enabled = bool(value)
            else:
                give_fields(target.component, {target.name: value})
            touched[id(target.component)] = target.component
        except (Problem, GameError) as error:
            raise SceneError(f"override {key!r} of {root.name!r}: {error}") from error
    for component in touched.values():
        component.app._lifecycle.validate(component)
