"""`Transform`: position, rotation and scale of an object, relative to a parent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pyglm import glm
from pyglm.glm import dmat3, dquat, dvec3

from engine.base.spelling import answers_spelling
from gameglue.errors import SceneError
from gameglue.scene.vector import Quaternion, Vec3

if TYPE_CHECKING:
    from gameglue.scene.game_object import GameObject

Rotation = Quaternion | float


def _as_quaternion(value: Rotation) -> Quaternion:
    return value if isinstance(value, Quaternion) else Quaternion.from_axis(value)


def _as_position(value: Iterable[float]) -> Vec3:
    """Two or three numbers as a vector. Raises `SceneError` for anything else."""
    kind = type(value)
    if kind is not tuple and kind is not Vec3 and isinstance(value, Real):
        # One number for all axes is a scale.
        raise SceneError(f"position takes two or three numbers, got {value!r}; write ({value!r}, 0)")
    return _as_vector("position", value)


def _as_vector(name: str, value: Iterable[float] | float, z: float = 0.0) -> Vec3:
    try:
        return Vec3.of(value, z=z)
    except (TypeError, ValueError) as error:
        one = "one, " if name == "scale" else ""
        raise SceneError(f"{name} takes {one}two or three numbers, got {value!r}") from error


@answers_spelling
class Transform:
    """Position, rotation and scale of one game object, with its place in the hierarchy.

    Two-dimensional games use x and y, and `angle` in degrees, counter-clockwise. The y axis points up.
    `local_...` is relative to the parent, the plain name is in the world. The world matrix is computed
    on first access and cached until this object or one above it moves.

    Attributes:
        game_object: The object that it belongs to.
    """

    __slots__ = (
        "_array", "_children", "_matrix", "_parent", "_position", "_rotation", "_scale", "game_object",
    )  # fmt: skip

    _parts: ClassVar[tuple[str, ...]] = ("position", "game_object")

    def __init__(self, game_object: GameObject | None = None) -> None:
        self.game_object = game_object
        self._position = Vec3()
        self._rotation = Quaternion()
        self._scale = Vec3(1.0, 1.0, 1.0)
        self._parent: Transform | None = None
        self._children: list[Transform] = []
        # PyGLM's stubs take products of matrices for smaller ones, hence `Any`.
        self._matrix: Any = None
        self._array: np.ndarray | None = None

    # -- relative to the parent ---------------------------------------------------------------

    @property
    def local_position(self) -> Vec3:
        """Offset from the parent, in the parent's units."""
        return self._position

    @local_position.setter
    def local_position(self, value: Iterable[float]) -> None:
        self._position = _as_position(value)
        self._moved()

    @property
    def local_rotation(self) -> Quaternion:
        """Rotation relative to the parent; may be set to a number of degrees around z."""
        return self._rotation

    @local_rotation.setter
    def local_rotation(self, value: Rotation) -> None:
        self._rotation = _as_quaternion(value)
        self._moved()

    @property
    def local_scale(self) -> Vec3:
        """Size relative to the parent; may be set to one number for all axes."""
        return self._scale

    @local_scale.setter
    def local_scale(self, value: Iterable[float] | float) -> None:
        self._scale = _as_vector("scale", value, z=1.0)
        self._moved()

    # -- in the world -------------------------------------------------------------------------

    @property
    def position(self) -> Vec3:
        """Position in the world."""
        if self._parent is None:
            return self._position
        return Vec3(*self.world_matrix()[3].xyz)

    @position.setter
    def position(self, value: Iterable[float]) -> None:
        world = _as_position(value)
        self.local_position = world if self._parent is None else self._parent.to_local(world)

    @property
    def rotation(self) -> Quaternion:
        """Rotation in the world; may be set to a number of degrees around z."""
        if self._parent is None:
            return self._rotation
        return self._parent.rotation * self._rotation

    @rotation.setter
    def rotation(self, value: Rotation) -> None:
        world = _as_quaternion(value)
        self.local_rotation = world if self._parent is None else self._parent.rotation.inverse() * world

    @property
    def angle(self) -> float:
        """Direction of the object's x axis in the world's x-y plane, in degrees from -180 to 180."""
        w, x, y, z = self.rotation
        return math.degrees(math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z)))

    @angle.setter
    def angle(self, degrees: float) -> None:
        self.rotation = Quaternion.from_axis(degrees)

    @property
    def euler_angles(self) -> Vec3:
        """World rotation as degrees around x, y and z."""
        return self.rotation.euler()

    @euler_angles.setter
    def euler_angles(self, degrees: Iterable[float]) -> None:
        self.rotation = Quaternion.from_euler(degrees)

    @property
    def lossy_scale(self) -> Vec3:
        """Size in the world along the object's axes; inexact where rotated parents are scaled unevenly."""
        if self._parent is None:
            return self._scale
        x, y, z, _ = self.world_matrix()
        return Vec3(glm.length(x.xyz), glm.length(y.xyz), glm.length(z.xyz))

    @property
    def right(self) -> Vec3:
        """The object's x axis in the world, length 1."""
        return self.rotation.rotate((1, 0, 0))

    @property
    def up(self) -> Vec3:
        """The object's y axis in the world, length 1."""
        return self.rotation.rotate((0, 1, 0))

    @property
    def forward(self) -> Vec3:
        """The viewing direction of a camera on this object: its negative z axis, length 1."""
        return self.rotation.rotate((0, 0, -1))

    @property
    def matrix(self) -> np.ndarray:
        """Local to world, (4, 4) float64 for column vectors; read-only."""
        if self._array is None:
            self._array = np.array(self.world_matrix())
            self._array.flags.writeable = False
        return self._array

    def world_matrix(self) -> Any:
        """`matrix` as PyGLM has it, a `dmat4`: for the host, which copies many at once. Not to be changed."""
        if self._matrix is None:
            rotated = glm.translate(dvec3(*self._position)) * glm.mat4_cast(dquat(*self._rotation))
            local = glm.scale(rotated, dvec3(*self._scale))
            self._matrix = local if self._parent is None else self._parent.world_matrix() * local
        return self._matrix

    def to_world(self, point: Iterable[float]) -> Vec3:
        """Convert a point from local to world space."""
        return Vec3(*(self.world_matrix() * dvec3(*Vec3.of(point))))

    def to_local(self, point: Iterable[float]) -> Vec3:
        """Convert a point from world to local space.

        Raises:
            ValueError: The scale is 0.
        """
        matrix = self.world_matrix()
        if glm.determinant(dmat3(matrix)) == 0.0:
            raise ValueError(f"an object scaled to {self.lossy_scale} has no inverse")
        return Vec3(*(glm.affineInverse(matrix) * dvec3(*Vec3.of(point))))

    # -- moving -------------------------------------------------------------------------------

    def translate(self, offset: Iterable[float]) -> None:
        """Move by `offset`, in the world's directions."""
        self.position = self.position + Vec3.of(offset)

    def rotate(self, degrees: float, axis: Iterable[float] = (0.0, 0.0, 1.0)) -> None:
        """Turn by `degrees` around one of the object's own axes."""
        self.local_rotation = self._rotation * Quaternion.from_axis(degrees, axis)

    def look_at(self, target: Iterable[float], up: Iterable[float] | None = None) -> None:
        """Turn the object's x axis towards a point in the x-y plane.

        With `up`, in three dimensions, turn `forward` towards the point instead, with y as close to `up` as
        can be: `camera.transform.look_at((0, 0, 0), up=(0, 1, 0))`. An object that is there already stays.
        """
        direction = Vec3.of(target) - self.position
        if up is None:
            self.angle = math.degrees(math.atan2(direction.y, direction.x))
        elif direction != Vec3():
            self.rotation = Quaternion.look(direction, up)

    # -- hierarchy ----------------------------------------------------------------------------

    @property
    def parent(self) -> Transform | None:
        """The parent transform; setting it keeps the world transform."""
        return self._parent

    @parent.setter
    def parent(self, parent: GameObject | Transform | None) -> None:
        self.set_parent(parent)

    @property
    def children(self) -> tuple[Transform, ...]:
        """The transforms that move with this one."""
        return tuple(self._children)

    def set_parent(self, parent: GameObject | Transform | None, *, keep_world: bool = True) -> None:
        """Set the parent; keeps the world transform, or the local one.

        Args:
            parent: An object or its transform; `None` for the top.
            keep_world: Whether it stays at its place in the world.

        Raises:
            SceneError: `parent` is neither, or belongs to another app.
            ValueError: `parent` is this object or below it.
        """
        if parent is not None and not isinstance(parent, Transform):
            # An object, or one of its components, stands for its transform.
            given, parent = parent, getattr(parent, "transform", None)
            if not isinstance(parent, Transform):
                raise SceneError(f"a parent is a game object or its transform, got {given!r}")
        if parent is not None and self.game_object is not None and parent.game_object is not None:
            self.game_object._check_parent(parent.game_object)
        above = parent
        while above is not None:
            if above is self:
                raise ValueError("an object cannot be hung under itself or one of its children")
            above = above._parent
        position, rotation, scale = self.position, self.rotation, self.lossy_scale
        if self._parent is not None:
            self._parent._children.remove(self)
        self._parent = parent
        if parent is not None:
            parent._children.append(self)
        self._moved()
        if keep_world:
            outer = parent.lossy_scale if parent is not None else Vec3(1, 1, 1)
            self._scale = Vec3(*(s / o if o else s for s, o in zip(scale, outer, strict=True)))
            self.rotation = rotation
            self.position = position
        if self.game_object is not None:
            self.game_object._hierarchy_changed()

    def _moved(self) -> None:
        # Where the matrix is unknown, everything below is unknown too: nothing to walk.
        if self._matrix is not None:
            self._matrix = self._array = None
            for child in self._children:
                child._moved()
