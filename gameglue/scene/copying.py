"""Copies of field values: new containers; references inside the copied tree point to the copy."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np

CopyMap = dict[int, tuple[Any, Any]]
"""By the original's id: the original, which keeps the id taken, and its copy."""


def copy_value(value: Any, twins: CopyMap) -> Any:
    """Copy a field value for the copy of an object.

    Lists, tuples, sets, dicts, arrays and dataclasses (those that may change and are compared by value) are
    copied through and through; all else is shared, such as textures and models.
    """
    if id(value) in twins:
        return twins[id(value)][1]
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        copied = copy.copy(value)
        copied.clear()
        copied.update({copy_value(k, twins): copy_value(v, twins) for k, v in value.items()})
        return copied
    if isinstance(value, tuple):
        parts = [copy_value(part, twins) for part in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if isinstance(value, list | set | frozenset):
        return type(value)([copy_value(part, twins) for part in value])
    if _is_changing_dataclass(value):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            setattr(made, field.name, copy_value(getattr(value, field.name), twins))
        return made
    return value


def may_change(value: object) -> bool:
    """True for mutable values, which instances must not share as a field's default."""
    return isinstance(value, list | dict | set | np.ndarray) or _is_changing_dataclass(value)


def _is_changing_dataclass(value: object) -> bool:
    # One that is compared by identity has a life of its own: a component, a running coroutine.
    if not dataclasses.is_dataclass(value) or isinstance(value, type) or hasattr(value, "_game_object"):
        return False
    parameters = type(value).__dataclass_params__  # type: ignore[attr-defined]
    return bool(parameters.eq) and not parameters.frozen
