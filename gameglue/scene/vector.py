"""Small immutable values for positions and rotations; PyGLM does the arithmetic.

They are tuples, so an attribute cannot be changed in place: `transform.position.x = 1` fails at once,
where a mutable copy would silently change nothing. `transform.position += (1, 0)` works.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any, NamedTuple, NoReturn, cast, overload

import numpy as np
from pyglm import glm
from pyglm.glm import dquat, dvec3

from gameglue.errors import SceneError

# `dvec3(*numbers)` throughout: `dvec3(numbers)`, and sums with a tuple, go by way of single precision.

# Twice as fast as the class's own constructor, which unpacks its arguments.
_new: Any = tuple.__new__


class Vec3(NamedTuple):
    """A point or direction; `z` is 0 in two dimensions.

    Attributes:
        x: To the right, in world units.
        y: Up, in world units.
        z: Towards the viewer, in world units; 0 in two dimensions.
    """

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0

    @classmethod
    def of(cls, value: Iterable[float] | float, *, z: float = 0.0) -> Vec3:
        """Make a vector from two or three numbers (`z` fills the third), or from one for all three.

        >>> Vec3.of((1, 2))
        Vec3(x=1.0, y=2.0, z=0.0)
        """
        kind = type(value)
        if kind is cls:
            return value  # type: ignore[return-value]
        if kind is tuple:
            return _from_tuple(cast("tuple[float, ...]", value), z)
        if isinstance(value, cls):
            return value
        if isinstance(value, Real):
            return cls(float(value), float(value), float(value))
        if kind is str:
            raise SceneError(f"a vector is made of 2 or 3 numbers, got the text {value!r}")
        return _from_tuple(tuple(float(v) for v in cast("Iterable[float]", value)), z)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        # The habit from Unity, and from libraries whose vectors may be changed.
        raise AttributeError(
            f"a vector cannot be changed, so {name} cannot be set: assign another one, as in "
            "transform.position += (1, 0) or transform.position = (x, y)"
        )

    def __add__(self, other: Iterable[float]) -> Vec3:  # type: ignore[override]
        return _vec3(dvec3(*self) + dvec3(*Vec3.of(other)))

    def __radd__(self, other: Iterable[float]) -> Vec3:
        return self + other

    def __sub__(self, other: Iterable[float]) -> Vec3:
        return _vec3(dvec3(*self) - dvec3(*Vec3.of(other)))

    def __rsub__(self, other: Iterable[float]) -> Vec3:
        return Vec3.of(other) - self

    def __mul__(self, other: Iterable[float] | float) -> Vec3:  # type: ignore[override]
        factor = other if type(other) is float else dvec3(*Vec3.of(other, z=1.0))
        return _vec3(dvec3(*self) * factor)

    def __rmul__(self, other: Iterable[float] | float) -> Vec3:  # type: ignore[override]
        return self * other

    def __truediv__(self, other: float) -> Vec3:
        if other == 0.0:
            raise ZeroDivisionError(f"{self} divided by 0")
        return _vec3(dvec3(*self) / float(other))

    def __neg__(self) -> Vec3:
        return _vec3(-dvec3(*self))

    def dot(self, other: Iterable[float]) -> float:
        """The scalar product."""
        return float(glm.dot(dvec3(*self), dvec3(*Vec3.of(other))))

    def cross(self, other: Iterable[float]) -> Vec3:
        """The cross product."""
        return _vec3(glm.cross(dvec3(*self), dvec3(*Vec3.of(other))))

    def length(self) -> float:
        """The Euclidean length."""
        return float(glm.length(dvec3(*self)))

    @property
    def magnitude(self) -> float:
        """The Euclidean length, as `length()`."""
        return self.length()

    @property
    def sqr_magnitude(self) -> float:
        """The square of the length, for comparing lengths."""
        return self.dot(self)

    def distance(self, other: Iterable[float]) -> float:
        """How far the point `other` is away."""
        return float(glm.distance(dvec3(*self), dvec3(*Vec3.of(other))))

    def normalized(self) -> Vec3:
        """The same direction with length 1; the zero vector stays zero."""
        vector = dvec3(*self)
        length = glm.length(vector)
        return _vec3(vector / length) if length > 0.0 else self

    def lerp(self, other: Iterable[float], t: float) -> Vec3:
        """Interpolate linearly to `other`; `t` from 0 to 1."""
        return _vec3(glm.mix(dvec3(*self), dvec3(*Vec3.of(other)), float(t)))


class Quaternion(NamedTuple):
    """A rotation in three dimensions, of unit length.

    Attributes:
        w: Cosine of half the angle.
        x: x of the axis, times the sine of half the angle.
        y: y of the axis, likewise.
        z: z of the axis, likewise.
    """

    w: float = 1.0
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0

    @classmethod
    def from_axis(cls, degrees: float, axis: Iterable[float] = (0.0, 0.0, 1.0)) -> Quaternion:
        """Turn by `degrees` around `axis`, counter-clockwise when the axis points at the viewer."""
        try:
            radians = math.radians(degrees)
        except TypeError:
            raise SceneError(
                f"a rotation is a number of degrees or a Quaternion, got {degrees!r}; "
                "three angles are given as transform.euler_angles"
            ) from None
        if type(axis) is tuple and axis == (0.0, 0.0, 1.0):
            half = radians / 2
            return cls(math.cos(half), 0.0, 0.0, math.sin(half))
        return _quaternion(glm.angleAxis(radians, dvec3(*Vec3.of(axis).normalized())))

    @classmethod
    def look(cls, direction: Iterable[float], up: Iterable[float] = (0.0, 1.0, 0.0)) -> Quaternion:
        """The rotation whose forward (-z) points along `direction`, with y as close to `up` as can be.

        Along `up` itself, any y will do.

        Raises:
            ValueError: The direction has no length.
        """
        along, above = Vec3.of(direction).normalized(), Vec3.of(up).normalized()
        if along == Vec3():
            raise ValueError("cannot look along a direction of no length")
        if along.cross(above).length() < 1e-9:
            above = Vec3(0.0, 0.0, 1.0) if abs(along.y) > 0.9 else Vec3(0.0, 1.0, 0.0)
        return _quaternion(glm.quatLookAt(dvec3(*along), dvec3(*above)))

    @classmethod
    def from_euler(cls, degrees: Iterable[float]) -> Quaternion:
        """Turn around z, then x, then y (Unity's order), each in degrees."""
        x, y, z = Vec3.of(degrees)
        turn_y, turn_x = cls.from_axis(y, (0, 1, 0)), cls.from_axis(x, (1, 0, 0))
        return turn_y * turn_x * cls.from_axis(z)

    @overload  # type: ignore[override]
    def __mul__(self, other: Quaternion) -> Quaternion: ...

    @overload
    def __mul__(self, other: Vec3) -> Vec3: ...

    def __mul__(self, other: Quaternion | Vec3) -> Quaternion | Vec3:
        """Rotate a vector, or combine with a rotation that is applied first, as in Unity (the product)."""
        if isinstance(other, Quaternion):
            return _quaternion(dquat(*self) * dquat(*other))
        return self.rotate(other) if isinstance(other, Vec3) else NotImplemented

    def inverse(self) -> Quaternion:
        """The opposite rotation."""
        return _quaternion(glm.conjugate(dquat(*self)))

    def slerp(self, other: Quaternion, t: float) -> Quaternion:
        """Interpolate spherically to `other` by the shorter way; `t` from 0 to 1."""
        return _quaternion(glm.slerp(dquat(*self), dquat(*other), float(t)))

    def rotate(self, vector: Iterable[float]) -> Vec3:
        """Rotate `vector`."""
        return _vec3(dquat(*self) * dvec3(*Vec3.of(vector)))

    def matrix(self) -> np.ndarray:
        """The rotation as a (3, 3) float64 matrix, applied to column vectors."""
        return np.array(glm.mat3_cast(dquat(*self)))

    def euler(self) -> Vec3:
        """Degrees around x, y and z, as `from_euler` takes them."""
        m = self.matrix()
        x = math.asin(max(-1.0, min(1.0, -m[1, 2])))
        if abs(m[1, 2]) < 0.9999999:
            y, z = math.atan2(m[0, 2], m[2, 2]), math.atan2(m[1, 0], m[1, 1])
        else:  # Looking straight up or down: y and z turn the same way, so all goes to y.
            y, z = math.atan2(-m[2, 0], m[0, 0]), 0.0
        return Vec3(math.degrees(x), math.degrees(y), math.degrees(z))


def _from_tuple(numbers: tuple[float, ...], z: float) -> Vec3:
    if len(numbers) == 2:
        return _vec3((float(numbers[0]), float(numbers[1]), z))
    if len(numbers) == 3:
        return _vec3((float(numbers[0]), float(numbers[1]), float(numbers[2])))
    raise ValueError(f"a vector needs 2 or 3 numbers, got {len(numbers)}: {numbers}")


def _vec3(vector: Any) -> Vec3:
    made: Vec3 = _new(Vec3, vector)
    return made


def _quaternion(rotation: Any) -> Quaternion:
    made: Quaternion = _new(Quaternion, rotation)
    return made
