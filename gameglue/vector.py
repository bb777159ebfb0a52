"""Small immutable values for positions and rotations.

They are tuples, so an attribute cannot be changed in place: `transform.position.x = 1` fails at once,
where a mutable copy would silently change nothing. `transform.position += (1, 0)` works.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import NamedTuple, cast

import numpy as np


class Vec3(NamedTuple):
    """A point or direction; `z` is 0 in two dimensions."""

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0

    @classmethod
    def of(cls, value: Iterable[float] | float, *, z: float = 0.0) -> Vec3:
        """Make a vector from two or three numbers (`z` fills the third), or from one for all three.

        >>> Vec3.of((1, 2))
        Vec3(x=1.0, y=2.0, z=0.0)
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, Real):
            return cls(float(value), float(value), float(value))
        numbers = [float(v) for v in cast("Iterable[float]", value)]
        if len(numbers) == 2:
            return cls(numbers[0], numbers[1], z)
        if len(numbers) == 3:
            return cls(*numbers)
        raise ValueError(f"a vector needs 2 or 3 numbers, got {len(numbers)}: {numbers}")

    def __add__(self, other: Iterable[float]) -> Vec3:  # type: ignore[override]
        b = Vec3.of(other)
        return Vec3(self.x + b.x, self.y + b.y, self.z + b.z)

    def __radd__(self, other: Iterable[float]) -> Vec3:
        return self + other

    def __sub__(self, other: Iterable[float]) -> Vec3:
        b = Vec3.of(other)
        return Vec3(self.x - b.x, self.y - b.y, self.z - b.z)

    def __rsub__(self, other: Iterable[float]) -> Vec3:
        return Vec3.of(other) - self

    def __mul__(self, other: Iterable[float] | float) -> Vec3:  # type: ignore[override]
        b = Vec3.of(other, z=1.0)
        return Vec3(self.x * b.x, self.y * b.y, self.z * b.z)

    def __rmul__(self, other: Iterable[float] | float) -> Vec3:  # type: ignore[override]
        return self * other

    def __truediv__(self, other: float) -> Vec3:
        return Vec3(self.x / other, self.y / other, self.z / other)

    def __neg__(self) -> Vec3:
        return Vec3(-self.x, -self.y, -self.z)

    def dot(self, other: Iterable[float]) -> float:
        """The scalar product."""
        b = Vec3.of(other)
        return self.x * b.x + self.y * b.y + self.z * b.z

    def length(self) -> float:
        """The Euclidean length."""
        return math.sqrt(self.dot(self))

    def normalized(self) -> Vec3:
        """The same direction with length 1; the zero vector stays zero."""
        length = self.length()
        return self / length if length > 0.0 else self

    def lerp(self, other: Iterable[float], t: float) -> Vec3:
        """The point at fraction `t` of the way to `other`."""
        return self + (Vec3.of(other) - self) * t


class Quaternion(NamedTuple):
    """A rotation in three dimensions, of unit length."""

    w: float = 1.0
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0

    @classmethod
    def from_axis(cls, degrees: float, axis: Iterable[float] = (0.0, 0.0, 1.0)) -> Quaternion:
        """Turn by `degrees` around `axis`, counter-clockwise when the axis points at the viewer."""
        direction = Vec3.of(axis).normalized()
        half = math.radians(degrees) / 2
        s = math.sin(half)
        return cls(math.cos(half), direction.x * s, direction.y * s, direction.z * s)

    @classmethod
    def from_euler(cls, degrees: Iterable[float]) -> Quaternion:
        """Turn around z, then x, then y (Unity's order), each in degrees."""
        x, y, z = Vec3.of(degrees)
        turn_y, turn_x = cls.from_axis(y, (0, 1, 0)), cls.from_axis(x, (1, 0, 0))
        return turn_y.then_local(turn_x).then_local(cls.from_axis(z))

    def then_local(self, other: Quaternion) -> Quaternion:
        """The rotation that applies `other` first, in this rotation's own frame (the product)."""
        w, x, y, z = self
        a, b, c, d = other
        return Quaternion(
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        )

    def inverse(self) -> Quaternion:
        """The opposite rotation."""
        return Quaternion(self.w, -self.x, -self.y, -self.z)

    def rotate(self, vector: Iterable[float]) -> Vec3:
        """`vector` after this rotation."""
        rotated = self.matrix() @ np.asarray(Vec3.of(vector))
        return Vec3(*cast("list[float]", rotated.tolist()))

    def matrix(self) -> np.ndarray:
        """The rotation as a (3, 3) float64 matrix, applied to column vectors."""
        w, x, y, z = self
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    def euler(self) -> Vec3:
        """Degrees around x, y and z, as `from_euler` takes them."""
        m = self.matrix()
        x = math.asin(max(-1.0, min(1.0, -m[1, 2])))
        if abs(m[1, 2]) < 0.9999999:
            y, z = math.atan2(m[0, 2], m[2, 2]), math.atan2(m[1, 0], m[1, 1])
        else:  # Looking straight up or down: y and z turn the same way, so all goes to y.
            y, z = math.atan2(-m[2, 0], m[0, 0]), 0.0
        return Vec3(math.degrees(x), math.degrees(y), math.degrees(z))
