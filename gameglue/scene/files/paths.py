"""Names of objects and components within a file: `hero/left hand/Sword.damage`.

A path gives the names from the top down. `[2]` after one: the third of its name among its siblings;
`%2F`, `%3A`, `%5B` and `%25` stand for `/ : [ %` in a name. `path:Door` is the first component of class
`Door` there, `path:Door[1]` the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote

from engine.base.spelling import near
from gameglue.scene.files.component_types import Problem, find_class
from gameglue.scene.game_object import GameObject
from gameglue.scene.transform import Transform
from gameglue.scripting.behaviour import MonoBehaviour

_INDEXED = re.compile(r"(.*)\[(\d{1,9})\]", re.DOTALL)
_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in "/:[%"})


def children_of(owner: GameObject) -> list[GameObject]:
    """The objects right below `owner`."""
    return [child.game_object for child in owner.transform.children if child.game_object is not None]


def paths_below(roots: Sequence[GameObject], *, only_saved: bool = False) -> Iterator[tuple[GameObject, str]]:
    """All objects below `roots`, or only saved ones, with their paths for `find_object`."""
    counts: dict[tuple[str, str], int] = {}
    stack = [(owner, "") for owner in reversed(roots)]
    while stack:
        owner, above = stack.pop()
        number = counts[above, owner.name] = counts.get((above, owner.name), -1) + 1
        path = above + owner.name.translate(_ESCAPES) + (f"[{number}]" if number else "")
        yield owner, path
        below = reversed(children_of(owner))
        stack.extend((child, path + "/") for child in below if child.is_saved or not only_saved)


def find_object(path: str, roots: Sequence[GameObject]) -> GameObject:
    """The object at `path`, which begins with the name of one of `roots`. Raises `Problem`."""
    level: Sequence[GameObject] = roots
    found: GameObject | None = None
    for part in path.split("/"):
        found = _among(part, level)
        if found is None:
            known = [known_path for _, known_path in paths_below(roots)]
            raise Problem(f"there is no object {path!r}{near(path, known, 'objects here are')}")
        level = children_of(found)
    assert found is not None
    return found


def find_target(text: str, kind: type | None, roots: Sequence[GameObject]) -> object:
    """The object, transform or component named by `text`, of class `kind`. Raises `Problem`."""
    path, colon, named = text.partition(":")
    owner = find_object(path, roots)
    if named == Transform.__name__ or (not colon and kind is Transform):
        return owner.transform
    if colon:
        return find_component(owner, named)
    if kind is None or kind is GameObject:
        return owner
    component = next((c for c in owner.components if isinstance(c, kind)), None)
    if component is None:
        has = ", ".join(type(c).__name__ for c in owner.components) or "none"
        raise Problem(f"object {path!r} has no {kind.__name__}; its components: {has}")
    return component


def find_component(owner: GameObject, named: str) -> MonoBehaviour:
    """The component that `Door`, `game.doors:Door` or `Door[1]` means on `owner`. Raises `Problem`."""
    word, number = _numbered(named)
    found = [c for c in owner.components if type(c).__name__ == word]
    if not found:
        has = [type(c).__name__ for c in owner.components]
        # A base class, or a class by its full name, will do, too.
        kind = find_class(word) if ":" in word or word not in has else MonoBehaviour
        found = [c for c in owner.components if isinstance(c, kind)]
        if not found:
            raise Problem(f"object {owner.name!r} has no {word}{near(word, has, 'its components')}")
    if number >= len(found):
        raise Problem(f"object {owner.name!r} has {len(found)} {word}, so there is no [{number}]")
    return found[number]


def name_component(component: MonoBehaviour) -> str:
    """The name by which `find_component` finds `component`."""
    name = type(component).__name__
    alike = [c for c in component.game_object.components if type(c).__name__ == name]
    number = next(i for i, c in enumerate(alike) if c is component)
    return name + (f"[{number}]" if number else "")


def _among(part: str, level: Iterable[GameObject]) -> GameObject | None:
    name, number = _numbered(part)
    found = [owner for owner in level if owner.name == unquote(name)]
    return found[number] if number < len(found) else None


def _numbered(text: str) -> tuple[str, int]:
    match = _INDEXED.fullmatch(text)
    return (match[1], int(match[2])) if match is not None else (text, 0)
