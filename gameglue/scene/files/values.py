"""Serialization of field values by their types.

A type says how plain data is read: `[1, 2]` is a `Vec3`, a tuple or a list; "hero/hat" an object, a component
of it, or a file. Where the type leaves it open, a mapping with one marked key decides:
`{$ref: hero/hat:Door}`, `{$tuple: [1, 2]}`, `{$array: float32, shape: [2, 2], values: [1, 2, 3, 4]}`.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import types
import typing
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Annotated, Any, Protocol, Union, get_args, get_origin

import numpy as np

from engine.base.spelling import near
from gameglue.scene.files.component_types import Problem
from gameglue.scene.files.text import Node
from gameglue.scene.game_object import GameObject
from gameglue.scene.transform import Transform
from gameglue.scene.vector import Quaternion, Vec3
from gameglue.scripting.behaviour import MonoBehaviour
from gameglue.scripting.fields import matches, type_name

MAX_LEVELS = 15
"""How deep lists and mappings may lie in each other: what is deeper is most likely in itself."""

MAX_BITS = 3000
"""Longer integers are refused: Python itself refuses to read them from text."""

LONGEST_LIST = 64
"""Arrays with more numbers are written as base64 of their bytes."""

_REFERENCES = (GameObject, Transform, MonoBehaviour)


class ReferenceReader(Protocol):
    """Protocol used to resolve references and resources while reading values."""

    def reference(self, text: str, kind: type | None) -> object:
        """The object or component at a path; `kind` is the class that is expected. Raises `Problem`."""

    def resource(self, kind: object, name: str) -> object:
        """Load a resource, or return `name` if its type has no loader. Raises `Problem`."""


class ReferenceWriter(Protocol):
    """Protocol used to name references and resources while writing values."""

    def path_of(self, target: object, kind: type | None) -> str:
        """The path that `ReferenceReader.reference` resolves. Raises `Problem` for other files' objects."""

    def file_name(self, value: object) -> str | None:
        """The file name of a resource; None for other objects."""


# -- reading ------------------------------------------------------------------------------------


def read_value(node: Node, annotation: object, reader: ReferenceReader) -> Any:
    """The value that `node` means for a field of that type. Raises `Problem`.

    What does not fit the type is handed back as plain data: the field's own check says what is wrong.
    """
    if isinstance(node.value, dict) and _mark(node.value) is not None:
        return _read_marked(node, reader)
    origin = get_origin(annotation)
    if origin is Annotated:
        return read_value(node, get_args(annotation)[0], reader)
    if origin in (Union, types.UnionType):
        return _read_union(node, get_args(annotation), reader)
    if isinstance(origin, type):
        return _read_generic(node, origin, get_args(annotation), reader)
    if isinstance(annotation, type):
        return _read_class(node, annotation, reader)
    return _plain(node, reader)


def _plain(node: Node, reader: ReferenceReader) -> Any:
    if isinstance(node.value, list):
        return [read_value(part, Any, reader) for part in node.value]
    if isinstance(node.value, dict):
        return {key: read_value(part, Any, reader) for key, part in node.value.items()}
    return node.value


def _read_union(node: Node, members: tuple[Any, ...], reader: ReferenceReader) -> Any:
    if node.value is None and (None in members or type(None) in members):
        return None
    others = [member for member in members if member not in (None, type(None))]
    if len(others) == 1:
        return read_value(node, others[0], reader)
    problem: Problem | None = None
    for member in others:
        try:
            value = read_value(node, member, reader)
        except Problem as error:
            problem = error
            continue
        if matches(value, member):
            return value
    if problem is not None:
        raise problem
    return _plain(node, reader)


def _read_generic(node: Node, origin: type, args: tuple[Any, ...], reader: ReferenceReader) -> Any:
    value = node.value
    if isinstance(value, dict) and issubclass(dict, origin):
        inner = args[1] if len(args) == 2 else Any
        return {key: read_value(part, inner, reader) for key, part in value.items()}
    if not isinstance(value, list):
        return _plain(node, reader)
    if issubclass(origin, tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(read_value(part, args[0], reader) for part in value)
        inner_types = args if len(args) == len(value) else (Any,) * len(value)
        return tuple(read_value(part, kind, reader) for part, kind in zip(value, inner_types, strict=True))
    parts = [read_value(part, args[0] if args else Any, reader) for part in value]
    return _as_set(parts, origin) if origin in (set, frozenset) else parts


def _read_class(node: Node, kind: type, reader: ReferenceReader) -> Any:
    value = node.value
    if isinstance(value, str):
        if issubclass(kind, _REFERENCES):
            return reader.reference(value, kind)
        if issubclass(kind, Enum):
            return _enum_member(kind, value)
        if issubclass(kind, PurePath):
            return Path(value)
        return value if kind in (str, object) else reader.resource(kind, value)
    if kind is Quaternion and isinstance(value, int | float) and not isinstance(value, bool):
        return Quaternion.from_axis(value)
    if isinstance(value, list):
        return _read_list(node, kind, reader)
    if isinstance(value, dict) and dataclasses.is_dataclass(kind):
        return _read_dataclass(node, kind, reader)
    return _plain(node, reader)


def _read_list(node: Node, kind: type, reader: ReferenceReader) -> Any:
    parts = _plain(node, reader)
    if kind in (set, frozenset):
        return _as_set(parts, kind)
    if kind is tuple:
        return tuple(parts)
    try:
        if kind is Vec3:
            return _vector(parts)
        if kind is Quaternion:
            return _quaternion(parts)
        if kind is np.ndarray:
            return _numbers(np.array(parts))
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _named_tuple(node.value, kind, reader)
    except (TypeError, ValueError, OverflowError) as error:
        raise Problem(f"{kind.__name__} cannot be made of {parts!r}: {error}") from error
    return parts


def _all_numbers(parts: list[Any]) -> list[float]:
    wrong = [part for part in parts if isinstance(part, bool) or not isinstance(part, int | float)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no number")
    return [float(part) for part in parts]


def _vector(parts: list[Any]) -> Vec3:
    return Vec3.of(_all_numbers(parts))


def _quaternion(parts: list[Any]) -> Quaternion:
    w, x, y, z = _all_numbers(parts)
    return Quaternion(w, x, y, z)


def _numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise ValueError("an array is made of numbers")
    return array


def _named_tuple(nodes: list[Node], kind: Any, reader: ReferenceReader) -> Any:
    hints = typing.get_type_hints(kind)
    names = kind._fields[: len(nodes)]
    made = kind(*[read_value(n, hints.get(name, Any), reader) for n, name in zip(nodes, names, strict=True)])
    for name in names:
        if not matches(getattr(made, name), hints.get(name, Any)):
            raise ValueError(f"{name} is {getattr(made, name)!r}")
    return made


def _read_dataclass(node: Node, kind: type, reader: ReferenceReader) -> Any:
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    given = {}
    for name, part in node.value.items():
        if name not in names:
            raise Problem(f"{kind.__name__} has no {name!r}{near(name, names, 'it has')}", part.line)
        given[name] = read_value(part, hints[name], reader)
        if not matches(given[name], hints[name]):
            got = type(given[name]).__name__
            raise Problem(
                f"{kind.__name__}.{name} must be {type_name(hints[name])}, got {got}: {given[name]!r}",
                part.line,
            )
    try:
        return kind(**given)
    except Exception as error:
        raise Problem(f"{kind.__name__} cannot be made of {given!r}: {error}") from error


def _enum_member(kind: type[Enum], name: str) -> Enum:
    if name not in kind.__members__:
        raise Problem(f"{kind.__name__} has no {name!r}{near(name, kind.__members__, 'it has')}")
    return kind[name]


def _as_set(parts: Iterable[Any], kind: type) -> Any:
    try:
        return kind(parts)
    except TypeError as error:
        raise Problem(f"a set cannot hold {error}") from error


# -- marked values ------------------------------------------------------------------------------


def _mark(data: dict[Any, Node]) -> str | None:
    first = next(iter(data), None)
    return first if isinstance(first, str) and first.startswith("$") else None


def _read_marked(node: Node, reader: ReferenceReader) -> Any:
    mark = _mark(node.value)
    assert mark is not None
    content: Node = node.value[mark]
    value = content.value
    if mark == "$array":
        return _read_array(node)
    if len(node.value) > 1:
        raise Problem(f"{mark!r} must be the only key")
    if mark == "$ref" and isinstance(value, str):
        return reader.reference(value, None)
    if mark == "$path" and isinstance(value, str):
        return Path(value)
    if mark in _OF_LISTS and isinstance(value, list):
        parts = [read_value(part, Any, reader) for part in value]
        try:
            return _OF_LISTS[mark](parts)
        except (TypeError, ValueError, OverflowError) as error:
            raise Problem(f"{mark} cannot be made of {parts!r}: {error}") from error
    known = ("$ref", "$path", "$array", *_OF_LISTS)
    if mark in known:
        raise Problem(f"{mark} is not followed by {type(value).__name__}: {value!r}"[:200])
    raise Problem(f"unknown mark {mark!r}{near(mark, known, 'there are')}")


_OF_LISTS: dict[str, Any] = {
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": lambda pairs: {key: value for key, value in pairs},  # noqa: C416 - also lists of two
    "$vec3": _vector,
    "$quaternion": _quaternion,
}


def _read_array(node: Node) -> np.ndarray:
    keys = {"$array", "shape", "values", "base64"}
    unknown = next((key for key in node.value if key not in keys), None)
    if unknown is not None:
        raise Problem(f"an array has no {unknown!r}{near(unknown, keys, 'it has')}")
    data: dict[str, Any] = {key: [part.value for part in n.value] if isinstance(n.value, list) else n.value
            for key, n in node.value.items()}  # fmt: skip
    try:
        dtype = np.dtype(data["$array"])
        if dtype.kind not in "biufc":
            raise ValueError(f"no array of {dtype}")
        if "base64" in data:
            content = base64.b64decode(data["base64"], validate=True)
            flat = np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype)
        else:
            flat = np.array(data.get("values", []), dtype)
        return flat.reshape(data.get("shape", [-1]))
    except (TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise Problem(f"this is no array: {error}") from error


# -- writing ------------------------------------------------------------------------------------


def write_value(value: Any, annotation: object, writer: ReferenceWriter, level: int = 0) -> Any:
    """Data from which `read_value` makes an equal value for a field of that type.

    Raises `Problem` for values that cannot be stored.
    """
    if level > MAX_LEVELS:
        raise Problem(f"is more than {MAX_LEVELS} levels deep")
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    plain = _as_plain(value)
    if plain is not _NOT_PLAIN:
        return _writable(plain)
    kinds = _members(annotation)
    if isinstance(value, _REFERENCES):
        if _is_gone(value) and not {None, type(None), Any}.isdisjoint(kinds):
            return None
        return _write_reference(value, kinds, writer)
    name = writer.file_name(value)
    if name is not None:
        return name
    if isinstance(value, Enum) and type(value) in kinds:
        return value.name
    if isinstance(value, PurePath):
        is_path = Path in kinds and str not in kinds
        return str(value) if is_path else {"$path": str(value)}
    if isinstance(value, np.ndarray):
        return _write_array(value)
    fitting = next((kind for kind in kinds if matches(value, kind)), Any)
    if isinstance(value, list | tuple | set | frozenset):
        return _write_sequence(value, fitting, writer, level)
    if isinstance(value, dict):
        return _write_dict(value, fitting, writer, level)
    if dataclasses.is_dataclass(value) and type(value) in kinds:
        hints = typing.get_type_hints(type(value))
        return {
            field.name: write_value(getattr(value, field.name), hints[field.name], writer, level + 1)
            for field in dataclasses.fields(value)
            if field.init
        }
    raise Problem(f"type {type(value).__name__} cannot be stored in a file")


_NOT_PLAIN = object()


def _as_plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item() if not isinstance(value, np.longdouble) else float(value)
    if isinstance(value, Enum):
        return _NOT_PLAIN
    return next((base(value) for base in (int, float, str) if isinstance(value, base)), _NOT_PLAIN)


def _writable(plain: Any) -> Any:
    if isinstance(plain, str):
        try:
            plain.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Problem(f"is no text: {error}") from error
    if isinstance(plain, int) and plain.bit_length() > MAX_BITS:
        raise Problem(f"is a number of {plain.bit_length()} bits")
    return plain


def _members(annotation: object) -> tuple[Any, ...]:
    """The types of a union, or the one type; without notes."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(kind for member in get_args(annotation) for kind in _members(member))
    return (annotation,)


def _write_reference(value: Any, kinds: tuple[Any, ...], writer: ReferenceWriter) -> Any:
    """A path if the annotation is one type of object or component, else `{"$ref": path}`."""
    telling = [k for k in kinds if k not in (None, type(None))]
    if len(telling) == 1 and isinstance(telling[0], type) and issubclass(telling[0], _REFERENCES):
        return writer.path_of(value, telling[0])
    return {"$ref": writer.path_of(value, None)}


def _is_gone(target: Any) -> bool:
    owner = target.game_object if isinstance(target, Transform) else target
    return owner is None or bool(owner.is_destroyed)


def _write_sequence(value: Any, fitting: Any, writer: ReferenceWriter, level: int) -> Any:
    origin, args = get_origin(fitting) or fitting, get_args(fitting)
    inner = args[0] if args else Any
    ordered = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
    if isinstance(value, tuple) and origin is tuple and args and args[-1] is not Ellipsis:
        parts = [write_value(part, kind, writer, level + 1) for part, kind in zip(value, args, strict=True)]
    else:
        parts = [write_value(part, inner, writer, level + 1) for part in ordered]
    if isinstance(value, Vec3 | Quaternion):
        parts = [float(part) for part in value]
    # A list is valid for any sequence type.
    any_sequence = type(value) is tuple and origin in (Sequence, Collection, Iterable)
    if isinstance(value, list) or any_sequence or (isinstance(origin, type) and origin is type(value)):
        return parts
    marked = {Vec3: "$vec3", Quaternion: "$quaternion", set: "$set", frozenset: "$frozenset", tuple: "$tuple"}
    mark = marked.get(type(value))
    if mark is None:
        raise Problem(
            f"type {type(value).__name__} cannot be stored in a file, unless the field is annotated with it"
        )
    return {mark: parts}


def _write_dict(value: dict[Any, Any], fitting: Any, writer: ReferenceWriter, level: int) -> Any:
    args = get_args(fitting)
    inner = args[1] if len(args) == 2 else Any
    words = all(type(key) is str and not key.startswith("$") for key in value)
    if words:
        return {key: write_value(part, inner, writer, level + 1) for key, part in value.items()}
    pairs = [[write_value(part, Any, writer, level + 1) for part in pair] for pair in value.items()]
    return {"$dict": pairs}


def _write_array(value: np.ndarray) -> Any:
    if value.dtype.kind not in "biuf":
        raise Problem(f"an array of dtype {value.dtype} cannot be stored in a file")
    data: dict[str, Any] = {"$array": value.dtype.name, "shape": list(value.shape)}
    if value.size <= LONGEST_LIST and value.dtype.itemsize <= 8:
        return {**data, "values": value.ravel().tolist()}
    content = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
    return {**data, "base64": base64.b64encode(content).decode("ascii")}


# -- comparing ----------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """True if both would be written alike: equal and of one type, containers through and through."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, _REFERENCES):
        return False  # two components that are dataclasses may be equal
    if isinstance(a, np.ndarray):
        nan = a.dtype.kind == "f"
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=nan))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    try:
        return bool(a == b)
    except Exception:  # noqa: BLE001 - a class of the game's whose comparison fails; then it is written
        return False
