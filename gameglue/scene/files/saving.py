"""Serializes objects: only differences from new objects, class defaults or prefabs are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gameglue.errors import SceneError
from gameglue.host.resources import Resources
from gameglue.scene.copying import CopyMap, copy_value
from gameglue.scene.files.component_types import Problem, class_name
from gameglue.scene.files.locations import VERSION, name_of
from gameglue.scene.files.paths import children_of, name_component, paths_below
from gameglue.scene.files.properties import properties_of
from gameglue.scene.files.text import dump
from gameglue.scene.files.values import same, write_value
from gameglue.scene.game_object import GameObject
from gameglue.scene.transform import Transform
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import MISSING, fields_of

DEEPEST = 64
"""Levels of objects under each other that a file holds."""

_WAY_OUT = (
    "keep it in an attribute whose name begins with _, give it by file name, or leave such fields out with "
    "save(..., strict=False)"
)


def scene_text(name: str, roots: Sequence[GameObject], resources: Resources, *, strict: bool) -> str:
    """Serialize a scene. Raises `SceneError` for unsupported values if `strict`."""
    writer = ObjectWriter(roots, resources, strict)
    data = {"scene": name, "version": VERSION, "objects": [writer.write(root) for root in writer.roots]}
    writer.check()
    return dump(data)


def prefab_text(root: GameObject, resources: Resources, *, strict: bool) -> str:
    """Serialize a prefab."""
    writer = ObjectWriter([root], resources, strict)
    data = {"prefab": root.name, "version": VERSION, "object": writer.write(root)}
    writer.check()
    return dump(data)


class ObjectWriter:
    """Writes some objects with all below them; also the `ReferenceWriter` of their values."""

    def __init__(self, roots: Sequence[GameObject], resources: Resources, strict: bool) -> None:
        self.roots = [root for root in roots if root.is_saved]
        self._resources = resources
        self._strict = strict
        self._left_out: list[str] = []
        self._component: MonoBehaviour | None = None
        self._field = ""
        # The names of siblings tell them apart by number, so objects that are not saved must not count.
        self._paths = {id(owner): path for owner, path in paths_below(self.roots, only_saved=True)}

    def check(self) -> None:
        """Raise `SceneError` with all that could not be written."""
        if self._left_out and self._strict:
            raise SceneError("\n".join((*self._left_out, _WAY_OUT)))

    def write(self, owner: GameObject, level: int = 1) -> dict[str, Any]:
        """The data of one object and of all below it."""
        if level > DEEPEST:
            raise SceneError(f"{owner.name!r} is more than {DEEPEST} levels deep, the limit of a file")
        parts = _matching(owner)
        if parts is not None:
            return self._instance(owner, parts, level)
        data = properties_of(owner)
        self._add_rest(data, owner.components, _saved_children(owner), level)
        return data

    def _add_rest(
        self,
        data: dict[str, Any],
        components: Sequence[MonoBehaviour],
        children: Sequence[GameObject],
        level: int,
    ) -> None:
        written = [self._entry(component) for component in components if not component.is_destroyed]
        if written:
            data["components"] = written
        if children:
            data["children"] = [self.write(child, level + 1) for child in children]

    # -- instances of prefabs -------------------------------------------------------------------

    def _instance(
        self, owner: GameObject, parts: list[tuple[GameObject, GameObject]], level: int
    ) -> dict[str, Any]:
        prefab = owner.prefab
        assert prefab is not None
        twins: CopyMap = {}
        for part, shown in parts:
            twins[id(shown)], twins[id(shown.transform)] = (shown, part), (shown.transform, part.transform)
            twins.update({id(b): (b, a) for a, b in zip(part.components, shown.components, strict=False)})
        data: dict[str, Any] = {"prefab": prefab.name, **properties_of(owner, prefab.template)}
        overrides: dict[str, Any] = {}
        paths = {id(shown): path + "/" for shown, path in paths_below(children_of(prefab.template))}
        for part, shown in parts:
            below = paths.get(id(shown), "")
            if part is not owner:
                changed = properties_of(part, shown)
                if part.name == shown.name:
                    del changed["name"]
                overrides.update({below + key: value for key, value in changed.items()})
            for component, original in zip(part.components, shown.components, strict=False):
                overrides.update(self._changes(below + name_component(component), component, original, twins))
        if overrides:
            data["overrides"] = overrides
        shown_children = {id(part) for part, _ in parts}
        more = [child for child in _saved_children(owner) if id(child) not in shown_children]
        self._add_rest(data, owner.components[len(prefab.template.components) :], more, level)
        return data

    def _changes(
        self, key: str, component: MonoBehaviour, original: MonoBehaviour, twins: CopyMap
    ) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        if component._enabled != original._enabled:
            changed[f"{key}.enabled"] = component._enabled
        for name in fields_of(type(component)):
            if name in component.__dict__:
                before = original.__dict__.get(name, fields_of(type(component))[name].default)
                if not same(copy_value(before, twins), component.__dict__[name]):
                    self._write_field(changed, f"{key}.{name}", component, name)
        self._write_state(changed, f"{key}.$state", component)
        return changed

    # -- components -----------------------------------------------------------------------------

    def _entry(self, component: MonoBehaviour) -> Any:
        kind = type(component)
        fields: dict[str, Any] = {}
        for name, field in fields_of(kind).items():
            if name in component.__dict__:
                value = component.__dict__[name]
                if field.default is MISSING or not same(value, field.default):
                    self._write_field(fields, name, component, name)
                    # A reference to what was destroyed is none.
                    if field.default is None and fields.get(name, MISSING) is None:
                        del fields[name]
        try:
            named = class_name(kind)
        except Problem as error:
            raise SceneError(f"object {component.game_object.path!r}: {error}") from error
        more: dict[str, Any] = {}
        if not component._enabled:
            more["enabled"] = False
        self._write_state(more, "state", component)
        return named if not fields and not more else {named: fields or None, **more}

    def _write_field(self, data: dict[str, Any], key: str, component: MonoBehaviour, name: str) -> None:
        field = fields_of(type(component))[name]
        self._component, self._field = component, name
        value = component.__dict__[name]
        try:
            data[key] = write_value(value, field.annotation, self)
        except Problem as error:
            what = f"{type(component).__name__}.{name}"
            self._left_out.append(f"object {component.game_object.path!r}: {what} cannot be saved: {error}")

    def _write_state(self, data: dict[str, Any], key: str, component: MonoBehaviour) -> None:
        on_save = getattr(component, "on_save", None)
        if on_save is None:
            return
        self._component, self._field = None, ""
        try:
            data[key] = write_value(on_save(), Any, self)
        except Problem as error:
            what = f"what {type(component).__name__}.on_save returned"
            self._left_out.append(f"object {component.game_object.path!r}: {what} cannot be saved: {error}")

    # -- what values ask for --------------------------------------------------------------------

    def path_of(self, target: object, kind: type | None) -> str:
        """The path of an object, a transform or a component of this file."""
        owner = target if isinstance(target, GameObject) else getattr(target, "game_object", None)
        if getattr(target, "is_destroyed", False) or owner is None or owner.is_destroyed:
            raise Problem("refers to what was destroyed; set it to None")
        path = self._paths.get(id(owner))
        if path is None:
            raise Problem(f"refers to {owner.path!r}, which is not saved in this file")
        if target is owner or (isinstance(target, Transform) and kind is Transform):
            return path
        if isinstance(target, Transform):
            return f"{path}:Transform"
        assert isinstance(target, MonoBehaviour)
        first = next((c for c in owner.components if kind is not None and isinstance(c, kind)), None)
        return path if first is target else f"{path}:{name_component(target)}"

    def file_name(self, value: object) -> str | None:
        """The name of this component's resource, or the path of its model."""
        if self._component is not None:
            for name, loaded in self._component._file_names.get(self._field, ()):
                if loaded is value:
                    return name
        if not self._resources.has_loader(type(value)):
            return None
        # Models tell their file, meshes what they were made of.
        path, source = getattr(value, "path", None), getattr(value, "source", None)
        if isinstance(path, Path):
            return name_of(self._resources, path)
        return source if isinstance(source, str) else None


def _saved_children(owner: GameObject) -> list[GameObject]:
    return [child for child in children_of(owner) if child.is_saved]


def _matching(owner: GameObject) -> list[tuple[GameObject, GameObject]] | None:
    """Pairs of instance and prefab objects; None if parts were removed, or added below the root."""
    if owner.prefab is None:
        return None
    pairs = list(_pairs(owner, owner.prefab.template, owner.prefab.template, is_root=True))
    return None if any(pair is None for pair in pairs) else [pair for pair in pairs if pair is not None]


def _pairs(
    part: GameObject, shown: GameObject, template: GameObject, *, is_root: bool
) -> Iterator[tuple[GameObject, GameObject] | None]:
    if _origin_below(part, template) is not shown:
        yield None
        return
    yield part, shown
    mine, theirs = _saved_children(part), children_of(shown)
    added = [c for c in part.components[len(shown.components) :] if not c.is_destroyed]
    known = [type(c) for c in part.components[: len(shown.components)]] == [type(c) for c in shown.components]
    if not known or len(mine) < len(theirs) or (not is_root and (added or len(mine) > len(theirs))):
        yield None
        return
    for child, shown_child in zip(mine, theirs, strict=False):
        yield from _pairs(child, shown_child, template, is_root=False)


def _origin_below(part: GameObject, template: GameObject) -> GameObject | None:
    """The object of `template` that `part` was copied from, maybe by way of other prefabs."""
    origin = part._origin
    while (
        origin is not None and next(iter(reversed(list(origin.self_and_ancestors()))), None) is not template
    ):
        origin = origin._origin
    return origin
