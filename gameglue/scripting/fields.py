"""Serialized fields: the public annotated attributes of a behaviour, with their defaults and types.

    class Door(MonoBehaviour):
        speed: float = 2.0              # a field with a default
        model_asset: ModelAsset         # a field without one: given when the component is added
        _progress: float = 0.0          # private: not a field

Values are checked when they are given, so a wrong one is reported where it was written.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import numpy as np

from engine.base.spelling import near
from gameglue.errors import FieldError
from gameglue.scene.copying import copy_value, may_change


class _Missing:
    def __repr__(self) -> str:
        return "no default"


MISSING = _Missing()


class NotAField:
    """Base class of annotations that are not serialized fields."""


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes, both ends included: `speed: Annotated[float, Range(0, 9, "m/s")]`.

    It holds for each number of a tuple, too.

    Attributes:
        low: The smallest number.
        high: The largest number.
        unit: The unit, for messages, the inspector and the documentation: `Range(unit="degrees")` alone
            limits nothing.
        exclusive: Whether the ends themselves are left out.
    """

    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    exclusive: bool = False

    def __contains__(self, value: Any) -> bool:
        if self.exclusive:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def __str__(self) -> str:
        least, most = ("above", "below") if self.exclusive else ("at least", "at most")
        ends = [f"{least} {self.low}"] * (self.low > -math.inf) + [f"{most} {self.high}"] * (
            self.high < math.inf
        )
        limits = " and ".join(ends) or "any number"
        if len(ends) == 2 and not self.exclusive:
            limits = f"{self.low} to {self.high}"
        return limits + (f" {self.unit}" if self.unit else "")


@dataclass(frozen=True)
class Named:
    """A named value type, as `Annotated[str, Named("Key", check)]`: not every str is a key.

    Attributes:
        name: The type's name, for messages and the inspector.
        check: Raises `ValueError` for a value that means nothing.
    """

    name: str
    check: Callable[[Any], object]


class Unset:
    """Placeholder in the class for an attribute without a value, which explains how to set it."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __get__(self, instance: object, owner: type) -> object:
        """Always raises `AttributeError`: once an instance has a value of its own, that is found first."""
        raise AttributeError(self._message.format(kind=owner.__name__))


class Field:
    """One serialized field of a behaviour class."""

    def __init__(self, owner: type, name: str, annotation: object, default: object) -> None:
        self.owner = owner
        self.name = name
        self.annotation = annotation
        self.default = default
        self.range: Range | None = None
        if get_origin(annotation) is Annotated:
            kind, *notes = get_args(annotation)
            self.range = next((note for note in notes if isinstance(note, Range)), None)
            if _meaning_of(annotation) is None:
                self.annotation = kind

    @property
    def type_name(self) -> str:
        """The type as the game wrote it."""
        return type_name(self.annotation)

    def check(self, cls: type, value: object) -> None:
        """Raise `FieldError` unless `value` has the declared type."""
        if not matches(value, self.annotation):
            raise FieldError(
                f"{cls.__name__}.{self.name} must be {self.type_name}, got {type(value).__name__}: {value!r}"
            )
        try:
            for meaning, part in _meanings(value, self.annotation):
                meaning.check(part)
        except ValueError as error:
            raise FieldError(f"{cls.__name__}.{self.name}: {error}") from None
        if self.range is not None:
            numbers = value if isinstance(value, tuple) else (value,)
            if any(isinstance(n, int | float | np.number) and n not in self.range for n in numbers):
                raise FieldError(f"{cls.__name__}.{self.name} must be {self.range}, got {value!r}")


def fields_of(cls: type) -> dict[str, Field]:
    """The serialized fields of a behaviour class, base classes first."""
    known: dict[str, Field] | None = cls.__dict__.get("_known_fields")
    if known is None:
        known = _find_fields(cls)
        # Only now: while the class is being made, its annotations may name what its module defines later.
        cls._known_fields = known  # type: ignore[attr-defined]
    return known


def _find_fields(cls: type) -> dict[str, Field]:
    found: dict[str, Field] = {}
    for owner in reversed(cls.__mro__):
        if owner.__dict__.get("_declares_no_fields", owner is object):
            continue
        for name, written in _annotations(owner).items():
            if name.startswith("_"):
                continue
            annotation = _resolve(written, owner)
            if get_origin(annotation) is ClassVar or annotation is ClassVar:
                continue
            default = getattr(cls, name, MISSING)
            if not isinstance(default, NotAField):
                found[name] = Field(owner, name, annotation, default)
    return found


def mark_unset_fields(cls: type) -> None:
    """Make reading a field without a default or value explain how to set it."""
    for name, field in _find_fields(cls).items():
        if field.owner is cls and field.default is MISSING:
            way = f"pass it as add_component({{kind}}, {name}=...), or set it in awake()"
            setattr(cls, name, Unset(f"{{kind}}.{name} has no value: {way}"))


def apply_fields(component: object, values: Mapping[str, object]) -> None:
    """Set `component`'s fields: checked ones from `values`, copies of mutable defaults."""
    set_fields(component, values)
    for name, field in fields_of(type(component)).items():
        if name not in values and may_change(field.default):
            setattr(component, name, copy_value(field.default, {}))


def set_fields(component: object, values: Mapping[str, object]) -> None:
    """Change some fields of `component`. Raises `FieldError` for an unknown one or a wrong value."""
    cls = type(component)
    fields = fields_of(cls)
    for name, value in values.items():
        if name not in fields:
            hint = unannotated(cls, name) or near(name, fields, "its fields")
            raise FieldError(f"{cls.__name__} has no field {name!r}{hint}")
        fields[name].check(cls, value)
        setattr(component, name, value)


def unannotated(cls: type, name: str) -> str:
    """Advice for an attribute that lacks an annotation to be a field; else ""."""
    value = inspect.getattr_static(cls, name, None)
    if value is None or name.startswith("_") or callable(value) or hasattr(value, "__get__"):
        return ""
    return f": it has no type; write {name}: {type(value).__name__} = {value!r} in the class"


def matches(value: object, annotation: object) -> bool:
    """True if `value` fits a type as annotations write it; types that cannot be resolved fit anything."""
    if annotation is Any or isinstance(annotation, str):
        return True
    if annotation is None:
        return value is None
    origin = get_origin(annotation)
    if origin is not None:
        return _matches_generic(value, origin, get_args(annotation))
    if annotation is float:
        return isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    return isinstance(value, annotation) if isinstance(annotation, type) else True


def _matches_generic(value: object, origin: object, args: tuple[Any, ...]) -> bool:
    if origin is Annotated:
        return matches(value, args[0])
    if origin in (Union, types.UnionType):
        return any(matches(value, arg) for arg in args)
    if origin is Literal:
        return any(value == arg and type(value) is type(arg) for arg in args)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin):
        return False
    if isinstance(value, tuple) and issubclass(origin, tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return all(matches(v, args[0]) for v in value)
        return len(value) == len(args) and all(matches(v, a) for v, a in zip(value, args, strict=True))
    if isinstance(value, list | tuple | set | frozenset):
        return all(matches(v, args[0]) for v in value)
    if isinstance(value, dict):
        return all(matches(k, args[0]) and matches(v, args[1]) for k, v in value.items())
    return True


def _annotations(owner: type) -> dict[str, object]:
    if sys.version_info >= (3, 14):
        # Only as text: some names may exist for type checkers only.
        import annotationlib  # does not exist before

        return annotationlib.get_annotations(owner, format=annotationlib.Format.STRING)
    return inspect.get_annotations(owner)


def _resolve(written: object, owner: type) -> object:
    if not isinstance(written, str):
        return written
    module = sys.modules.get(owner.__module__)
    try:
        return eval(written, dict(vars(module)) if module else {}, dict(vars(owner)))
    except Exception:  # noqa: BLE001 - a name that only type checkers import; the annotation stays a text
        return written if not written.startswith(("ClassVar", "typing.ClassVar")) else ClassVar


def _meaning_of(annotation: object) -> Named | None:
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((note for note in notes if isinstance(note, Named)), None)


def _meanings(value: object, annotation: object) -> Iterator[tuple[Named, object]]:
    """The `Named` types within an annotation, each with the part of `value` that it checks."""
    origin, args = get_origin(annotation), get_args(annotation)
    meaning = _meaning_of(annotation)
    if meaning is not None:
        yield meaning, value
    elif origin in (Union, types.UnionType):
        yield from _meanings(value, next(arg for arg in args if matches(value, arg)))
    elif isinstance(value, list | tuple) and args:
        same = len(args) == 1 or args[-1] is Ellipsis
        for part, kind in zip(value, args[:1] * len(value) if same else args, strict=True):
            yield from _meanings(part, kind)


def type_name(annotation: object) -> str:
    """Format a type as a game writes it, without modules."""
    meaning = _meaning_of(annotation)
    if meaning is not None:
        return meaning.name
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(args[0])
    if annotation is None or annotation is types.NoneType:
        return "None"
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_name, args))
    if isinstance(origin, type) and args:
        return f"{origin.__name__}[{', '.join(map(type_name, args))}]"
    if annotation is Ellipsis:
        return "..."
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
