"""Objects from the nodes of a file.

First all objects with their components, so that fields may refer to any of them; then the fields, overrides
and saved states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.base.spelling import near
from gameglue.errors import GameError, SceneError
from gameglue.scene.files.component_types import Problem, find_class
from gameglue.scene.files.locations import VERSION
from gameglue.scene.files.overrides import OverriddenProperty, find_override
from gameglue.scene.files.paths import find_target
from gameglue.scene.files.prefab import Prefab
from gameglue.scene.files.properties import PROPERTIES, set_property
from gameglue.scene.files.text import Node
from gameglue.scene.files.values import read_value
from gameglue.scene.game_object import GameObject
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import fields_of, set_fields, unannotated

if TYPE_CHECKING:
    from gameglue.scene.scene import Scene

_TOP = "at the top"
_OBJECT_KEYS = (*PROPERTIES, "components", "children", "prefab", "overrides")


@dataclass
class _Values:
    """What a file says of one component."""

    component: MonoBehaviour
    fields: dict[str, Node]
    state: Node | None
    where: str


def check_head(document: Node, kind: str, content: str, file: str) -> str:
    """Check the header of a "scene" or "prefab" file, and return its name; `content` is its other key."""

    def fail(line: int, message: str) -> SceneError:
        return SceneError(f"{file}, line {line}: {message}")

    head = document.value
    if not isinstance(head, dict) or kind not in head:
        raise fail(document.line, f"a {kind} begins with '{kind}: NAME' and 'version: {VERSION}'")
    known = (kind, "version", content)
    for key, node in head.items():
        if key not in known:
            raise fail(node.line, f"a {kind} has no {key!r}{near(key, known, 'it has')}")
    if not isinstance(head[kind].value, str):
        raise fail(head[kind].line, f"the {kind}'s name must be text, got {head[kind].value!r}")
    version = head["version"].value if "version" in head else None
    if version is None:
        raise fail(head[kind].line, f"the {kind} has no version: write 'version: {VERSION}' in the next line")
    if type(version) is not int or not 1 <= version <= VERSION:
        line = head["version"].line if "version" in head else document.line
        newer = type(version) is int and version > VERSION
        reason = "it was written by a newer gameglue" if newer else f"write 'version: {VERSION}'"
        raise fail(line, f"version {version!r} cannot be read, only 1 to {VERSION}: {reason}")
    return str(head[kind].value)


class ObjectReader:
    """Creates the objects of one file in an unloaded scene; also the `ReferenceReader` of their values."""

    def __init__(self, scene: Scene, file: str, load_prefab: Callable[[str], Prefab]) -> None:
        self.roots: list[GameObject] = []
        self._scene = scene
        self._file = file
        self._load_prefab = load_prefab
        self._values: list[_Values] = []
        self._overrides: list[tuple[OverriddenProperty, Node, str]] = []
        self._loaded: dict[tuple[object, str], Any] = {}
        self._names: list[tuple[str, object]] = []

    def steps(self, objects: Sequence[Node]) -> Iterator[None]:
        """Create all objects; yields after each object and component. Raises `SceneError`."""
        for node in objects:
            yield from self._object(node, None, "")
        for values in self._values:
            # Not before, as what is needed may stand further down in the file.
            values.component.game_object._add_required(type(values.component))
        for values in self._values:
            self._give_fields(values)
            yield
        for target, node, where in self._overrides:
            self._give_override(target, node, where)
        for values in self._values:
            if values.state is not None:
                self._give_state(values.component, values.state, values.where)
        changed = {id(t.component): (t.component, where) for t, _, where in self._overrides}
        changed.update({id(values.component): (values.component, values.where) for values in self._values})
        for component, where in changed.values():
            self._validate(component, where)

    # -- objects --------------------------------------------------------------------------------

    def _object(self, node: Node, parent: GameObject | None, above: str) -> Iterator[None]:
        where = above or _TOP
        data = self._mapping(node, _OBJECT_KEYS, "an object", where)
        name = data["name"].value if "name" in data else None
        # The instance of a prefab may go by the prefab's name.
        shown = data["prefab"].value if name is None and "prefab" in data else name
        path = f"{above}/{shown}" if above else str(shown)
        if "prefab" in data:
            owner = self._instance(data, parent, path)
            path = owner.name if name is None else path
        else:
            if not isinstance(name, str):
                raise self._error(node.line, above or _TOP, f"an object needs a name, got {name!r}")
            if "overrides" in data:
                raise self._error(data["overrides"].line, path, "only the instance of a prefab has overrides")
            owner = GameObject(self._scene, name)
            self._scene._enter(owner)
            owner.transform.set_parent(parent.transform if parent is not None else None, keep_world=False)
        if parent is None:
            self.roots.append(owner)
        for key in PROPERTIES:
            if key in data:
                self._property(owner, key, data[key], path)
        for entry in self._list(data.get("components"), "components", path):
            self._component(owner, entry, path)
        yield
        for child in self._list(data.get("children"), "children", path):
            yield from self._object(child, owner, path)

    def _instance(self, data: Mapping[str, Node], parent: GameObject | None, path: str) -> GameObject:
        name = data["prefab"]
        if not isinstance(name.value, str):
            raise self._error(name.line, path, f"prefab must be the name of a file, got {name.value!r}")
        try:
            prefab = self._load_prefab(name.value)
        except GameError as error:
            raise self._error(name.line, path, str(error)) from error
        above = parent.transform if parent is not None else None
        try:
            made = prefab.place(self._scene, above)
        except Exception as error:
            raise self._error(name.line, path, f"{prefab.name} cannot be used: {error}") from error
        if "overrides" in data:
            self._find_overrides(made, data["overrides"], path)
        return made

    def _property(self, owner: GameObject, key: str, node: Node, path: str) -> None:
        try:
            set_property(owner, key, _bare(node))
        except (Problem, ValueError) as error:
            raise self._error(node.line, path, str(error)) from error

    # -- components -----------------------------------------------------------------------------

    def _component(self, owner: GameObject, entry: Node, path: str) -> None:
        data = entry.value
        if isinstance(data, str):
            data = {data: Node(None, entry.line)}
        named = [key for key in data if key not in ("enabled", "state")] if isinstance(data, dict) else []
        if len(named) != 1 or not isinstance(named[0], str):
            shown = ", ".join(map(str, named)) or repr(data)
            raise self._error(entry.line, path, f"a component is written as 'Class: {{field: value}}', got "
                              f"{shown}")  # fmt: skip
        name = named[0]
        fields = data[name]
        if fields.value is not None and not isinstance(fields.value, dict):
            raise self._error(
                fields.line, path, f"{name} must be followed by its fields, got {fields.value!r}"
            )
        try:
            component = owner._attach(find_class(name))
        except Problem as error:
            raise self._error(entry.line, path, str(error)) from error
        except Exception as error:
            raise self._error(entry.line, path, f"{name} cannot be made: {error!r}") from error
        if "enabled" in data:
            enabled = data["enabled"]
            if not isinstance(enabled.value, bool):
                raise self._error(
                    enabled.line,
                    path,
                    f"enabled must be true or false, got {enabled.value!r}{_as_bool(enabled.value)}",
                )
            component._enabled = enabled.value
        self._values.append(_Values(component, fields.value or {}, data.get("state"), path))

    def _give_fields(self, values: _Values) -> None:
        component = values.component
        declared = fields_of(type(component))
        for name, node in values.fields.items():
            if name not in declared:
                raise self._error(
                    node.line, values.where,
                    f"{type(component).__name__} has no field {name!r}"
                    f"{unannotated(type(component), name) or near(name, declared, 'its fields')}",
                )  # fmt: skip
            self._give_field(component, str(name), node, values.where)

    def _give_field(self, component: MonoBehaviour, name: str, node: Node, where: str) -> None:
        kind = type(component)
        self._names = []
        try:
            set_fields(component, {name: read_value(node, fields_of(kind)[name].annotation, self)})
        except Problem as error:
            message = f"{kind.__name__}.{name}: {error}"
            raise self._error(error.line or node.line, where, message) from error
        except GameError as error:
            hint = _as_bool(node.value) if fields_of(kind)[name].annotation is bool else ""
            raise self._error(node.line, where, f"{error}{hint}") from error
        if self._names:
            component._file_names = {**component._file_names, name: tuple(self._names)}

    def _give_state(self, component: MonoBehaviour, node: Node, where: str) -> None:
        name = type(component).__name__
        try:
            state = read_value(node, Any, self)
        except Problem as error:
            raise self._error(error.line or node.line, where, f"the state of {name}: {error}") from error
        on_load = getattr(component, "on_load", None)
        if on_load is None:
            raise self._error(node.line, where, f"{name} has no on_load(state) to take its state")
        try:
            on_load(state)
        except Exception as error:
            raise self._error(node.line, where, f"{name}.on_load raised {error!r}") from error

    def _validate(self, component: MonoBehaviour | None, where: str) -> None:
        assert component is not None
        try:
            self._scene.app._lifecycle.validate(component)
        except Exception as error:
            name = type(component).__name__
            raise SceneError(f"{self._file}, object {where!r}: {name}.on_validate: {error}") from error

    # -- overrides ------------------------------------------------------------------------------

    def _find_overrides(self, root: GameObject, node: Node, where: str) -> None:
        """Apply overrides of objects now, and keep those of components until all objects are created."""
        found = []
        for key, value in self._mapping(node, None, "overrides", where).items():
            try:
                found.append((find_override(root, key), value))
            except Problem as error:
                raise self._error(value.line, where, f"override {key!r}: {error}") from error
        for target, value in found:
            if target.component is None:
                self._property(target.owner, target.name, value, where)
            else:
                self._overrides.append((target, value, where))

    def _give_override(self, target: OverriddenProperty, node: Node, where: str) -> None:
        assert target.component is not None
        if target.name == "enabled":
            if not isinstance(node.value, bool):
                raise self._error(node.line, where, f"enabled must be true or false, got {node.value!r}")
            target.component.enabled = node.value
        elif target.name == "$state":
            self._give_state(target.component, node, where)
        else:
            self._give_field(target.component, target.name, node, where)

    # -- what values ask for --------------------------------------------------------------------

    def reference(self, text: str, kind: type | None) -> object:
        """The object or component at a path of this file."""
        return find_target(text, kind, self.roots)

    def resource(self, kind: object, name: str) -> object:
        """Load a resource by file name, each once."""
        key = (kind, name)
        if key not in self._loaded:
            try:
                self._loaded[key] = self._scene.app.resources.load_for_type(kind, name)
            except Exception as error:
                raise Problem(str(error) if isinstance(error, GameError) else repr(error)) from error
        value = self._loaded[key]
        if value is not name:
            self._names.append((name, value))
        return value

    def list_of(self, node: Node | None) -> list[Node]:
        """The objects at the top of a scene's file. Raises `SceneError` unless they are a list."""
        return self._list(node, "objects", _TOP)

    def keep(self, kind: object, name: str, value: object) -> None:
        """Use `value` for that resource: it was loaded before."""
        self._loaded[kind, name] = value

    # -- checks ---------------------------------------------------------------------------------

    def _mapping(self, node: Node, known: Sequence[str] | None, what: str, where: str) -> dict[str, Node]:
        data = node.value
        if not isinstance(data, dict):
            raise self._error(node.line, where, f"{what} must be keys with values, got {_bare(node)!r}"[:300])
        for key, value in data.items():
            if not isinstance(key, str) or (known is not None and key not in known):
                hint = near(key, known, "it has") if known is not None else ""
                if known is _OBJECT_KEYS and key == "parent":
                    hint = ": write it in the list 'children' of its parent"
                raise self._error(value.line, where, f"{what} has no {key!r}{hint}")
        return data

    def _list(self, node: Node | None, what: str, where: str) -> list[Node]:
        if node is None or node.value is None:
            return []
        if not isinstance(node.value, list):
            raise self._error(node.line, where, f"{what} must be a list, got {_bare(node)!r}"[:300])
        return node.value

    def _error(self, line: int, where: str, message: str) -> SceneError:
        shown = where if where == _TOP else repr(where)
        return SceneError(f"{self._file}, line {line}, object {shown}: {message}")


def _as_bool(value: object) -> str:
    """Advice for a word that other versions of YAML read as a boolean, such as "yes"; else ""."""
    word = value.lower() if isinstance(value, str) else ""
    return (
        "; write true"
        if word in ("yes", "on", "y")
        else "; write false"
        if word in ("no", "off", "n")
        else ""
    )


def _bare(node: Node) -> Any:
    """The plain data of a node."""
    if isinstance(node.value, list):
        return [_bare(part) for part in node.value]
    if isinstance(node.value, dict):
        return {key: _bare(part) for key, part in node.value.items()}
    return node.value
