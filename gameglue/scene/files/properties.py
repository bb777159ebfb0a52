"""Properties of an object in files and overrides: name, tag, layer, active, transform."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from engine.base.spelling import near
from gameglue.scene.files.component_types import Problem
from gameglue.scene.game_object import GameObject
from gameglue.scene.vector import Quaternion, Vec3

PROPERTIES = ("name", "tag", "layer", "active", "position", "rotation", "scale")

# How exactly a rotation may be given back in degrees before it is written as a quaternion.
_EXACT = 1e-12


def set_property(owner: GameObject, name: str, value: object) -> None:
    """Set one of `PROPERTIES` of `owner` from plain data. Raises `Problem`.

    Place, rotation and size are relative to the parent. rotation: degrees around z, `[x, y, z]` in degrees,
    or `{w, x, y, z}`. scale: one number for all axes, or two or three.
    """
    if name == "position":
        owner.transform.local_position = _vector(name, value)
    elif name == "rotation":
        owner.transform.local_rotation = _rotation(value)
    elif name == "scale":
        one = isinstance(value, int | float) and not isinstance(value, bool)
        owner.transform.local_scale = _number(name, value) if one else _vector(name, value, z=1.0)
    elif name == "layer":
        owner.layer = _checked(name, value, int, "a whole number")
    elif name == "active":
        owner.active = _checked(name, value, bool, "true or false")
    elif name in ("name", "tag"):
        setattr(owner, name, _checked(name, value, str, "text"))
    else:
        raise Problem(f"an object has no {name!r}{near(name, PROPERTIES, 'it has')}")


def properties_of(owner: GameObject, shown: GameObject | None = None) -> dict[str, Any]:
    """The properties that differ from a new object, or from `shown`; always with the name."""
    plain = shown if shown is not None else _NEW
    transform, other = owner.transform, plain.transform
    found: dict[str, Any] = {"name": owner.name}
    if owner.tag != plain.tag:
        found["tag"] = owner.tag
    if owner.layer != plain.layer:
        found["layer"] = int(owner.layer)
    if owner.active != plain.active:
        found["active"] = owner.active
    if transform.local_position != other.local_position:
        found["position"] = _shortest(transform.local_position, 0.0)
    if transform.local_rotation != other.local_rotation:
        found["rotation"] = _degrees(transform.local_rotation)
    if transform.local_scale != other.local_scale:
        x, y, z = transform.local_scale
        found["scale"] = float(x) if x == y == z else _shortest(transform.local_scale, 1.0)
    return found


# An object as it is made; there is no scene that one could be made in.
_NEW: Any = SimpleNamespace(
    tag="",
    layer=0,
    active=True,
    transform=SimpleNamespace(
        local_position=Vec3(), local_rotation=Quaternion(), local_scale=Vec3(1.0, 1.0, 1.0)
    ),
)


def _checked(name: str, value: object, kind: type, expected: str) -> Any:
    if type(value) is not kind:
        raise Problem(f"{name} must be {expected}, got {type(value).__name__}: {value!r}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(f"{name} must be made of numbers, got {type(value).__name__}: {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Problem(f"{name} must be made of finite numbers, got {number}")
    return number


def _numbers(name: str, value: object) -> list[float]:
    if isinstance(value, list | tuple):
        return [_number(name, part) for part in value]
    raise Problem(f"{name} must be a list of numbers, got {type(value).__name__}: {value!r}")


def _vector(name: str, value: object, *, z: float = 0.0) -> Vec3:
    numbers = _numbers(name, value)
    if len(numbers) not in (2, 3):
        raise Problem(f"{name} needs 2 or 3 numbers, got {len(numbers)}: {numbers}")
    return Vec3.of(numbers, z=z)


def _rotation(value: object) -> Quaternion:
    if isinstance(value, Quaternion):
        return value
    if isinstance(value, Mapping):
        if set(value) != {"w", "x", "y", "z"}:
            raise Problem(f"a rotation is written with w, x, y and z, got {', '.join(map(str, value))}")
        parts = {key: _number("rotation", part) for key, part in value.items()}
        if not 0.999 < math.sqrt(sum(part * part for part in parts.values())) < 1.001:
            raise Problem(f"a rotation has length 1, this one {parts} has not; degrees are written [x, y, z]")
        return Quaternion(**parts)
    if isinstance(value, list | tuple):
        numbers = _numbers("rotation", value)
        if len(numbers) != 3:
            raise Problem(f"rotation is degrees around z or around [x, y, z], got {len(numbers)} numbers")
        return Quaternion.from_euler(numbers)
    return Quaternion.from_axis(_number("rotation", value))


def _shortest(vector: Vec3, z: float) -> list[float]:
    numbers = [float(part) for part in vector]
    return numbers[:2] if numbers[2] == z else numbers


def _degrees(rotation: Quaternion) -> Any:
    """Degrees where they give the rotation back, else the quaternion."""
    x, y, z = (round(float(part), 9) for part in rotation.euler())
    # A turn by 200 degrees and one by -160 end alike, and are different quaternions.
    around = {turn: Quaternion.from_axis(turn) for turn in (z, z + 360.0, z - 360.0)}
    written: Any
    for written, made in (*around.items(), ([x, y, z], Quaternion.from_euler((x, y, z)))):
        if all(abs(a - b) <= _EXACT for a, b in zip(made, rotation, strict=True)):
            return written
    return {axis: float(getattr(rotation, axis)) for axis in "wxyz"}
