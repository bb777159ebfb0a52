"""Checks of the arguments of `scene.create`, before anything is created."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from engine.base.spelling import near
from gameglue.errors import FieldError, SceneError
from gameglue.scene.game_object import GameObject
from gameglue.scene.transform import Transform
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import fields_of

_OWN = ("position", "rotation", "scale", "parent", "tag", "layer")


def check_arguments(name: str, components: Sequence[object], parent: object, unknown: Iterable[str]) -> None:
    """Raise `FieldError` for arguments of the wrong type or of unknown names, `SceneError` for the parent."""
    kinds = [kind for kind in components if isinstance(kind, type) and issubclass(kind, MonoBehaviour)]
    for kind in components:
        if kind not in kinds:
            raise FieldError(f"create takes classes derived from MonoBehaviour after the name, got {kind!r}")
    for argument in unknown:
        raise FieldError(f"create has no argument {argument!r}{_meant(name, kinds, argument)}")
    if not isinstance(parent, GameObject | Transform | None):
        raise SceneError(f"a parent is a GameObject or a Transform, got {parent!r}; see scene.find")


def _meant(name: str, kinds: Sequence[type[MonoBehaviour]], argument: str) -> str:
    owners = {field: kind.__name__ for kind in kinds for field in fields_of(kind)}
    close = difflib.get_close_matches(argument, (*_OWN, *owners), n=1)
    meant = argument if argument in owners or not close else close[0]
    if meant in owners:
        return f"; fields are given as create({name!r}).add_component({owners[meant]}, {meant}=...)"
    hint = near(argument, _OWN, "its arguments")
    return hint + "".join(f"; fields of {kind.__name__}: {', '.join(fields_of(kind))}" for kind in kinds)
