"""Transforms against matrices multiplied by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gameglue import Quaternion, Transform, Vec3


def rotation_matrix(degrees: float) -> np.ndarray:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])


def test_position_rotation_and_scale_make_the_matrix() -> None:
    transform = Transform()
    transform.position = (3, 4)
    transform.angle = 30
    transform.local_scale = (2, 5)
    expected = rotation_matrix(30) @ np.diag([2, 5, 1, 1.0])
    expected[:3, 3] = (3, 4, 0)
    assert np.allclose(transform.matrix, expected)
    with pytest.raises(ValueError, match="read-only"):
        transform.matrix[0, 0] = 1.0


def test_children_move_with_their_parents_at_any_depth() -> None:
    chain = [Transform() for _ in range(3)]
    expected = np.identity(4)
    for i, transform in enumerate(chain):
        if i:
            transform.set_parent(chain[i - 1], keep_world=False)
        transform.local_position = (1, 0, 0)
        transform.local_rotation = 90
        step = rotation_matrix(90)
        step[0, 3] = 1.0
        expected = expected @ step
    assert np.allclose(chain[2].matrix, expected)
    assert chain[2].position == pytest.approx((1 + 0 - 1, 1, 0))
    assert chain[2].angle == pytest.approx(-90)
    chain[0].position += (5, 0)
    assert chain[2].position == pytest.approx((5, 1, 0)), "a cached matrix must follow its parents"
    chain[1].local_scale = 3.0
    assert chain[2].lossy_scale == pytest.approx((3, 3, 3))


def test_a_new_parent_keeps_the_place_in_the_world() -> None:
    parent, child = Transform(), Transform()
    parent.position, parent.angle, parent.local_scale = (10, 5), 90, 2.0
    child.position, child.angle = (1, 2), 30
    child.parent = parent
    assert child.position == pytest.approx((1, 2, 0))
    assert child.angle == pytest.approx(30)
    assert child.lossy_scale == pytest.approx((1, 1, 1))
    assert child.local_position != pytest.approx((1, 2, 0))
    child.parent = None
    assert child.position == pytest.approx((1, 2, 0))
    assert parent.children == ()


def test_points_to_and_fro() -> None:
    parent, child = Transform(), Transform()
    parent.position, parent.angle = (1, 0), 90
    child.set_parent(parent, keep_world=False)
    child.local_position, child.local_scale = (2, 0), 0.5
    assert child.to_world((2, 0)) == pytest.approx((1, 3, 0))
    assert child.to_local((1, 3)) == pytest.approx((2, 0, 0))
    child.local_scale = 0.0
    with pytest.raises(ValueError, match="has no inverse"):
        child.to_local((1, 3))


def test_setting_the_world_position_of_a_child() -> None:
    parent, child = Transform(), Transform()
    parent.position, parent.angle, parent.local_scale = (1, 1), 45, 2.0
    child.set_parent(parent, keep_world=False)
    child.position = (7, -3)
    assert child.position == pytest.approx((7, -3, 0))


def test_turning() -> None:
    transform = Transform()
    transform.rotate(30)
    transform.rotate(30)
    assert transform.angle == pytest.approx(60)
    transform.look_at((0, -5))
    assert transform.angle == pytest.approx(-90)
    assert transform.right == pytest.approx((0, -1, 0))
    assert transform.up == pytest.approx((1, 0, 0))
    assert transform.forward == pytest.approx((0, 0, -1))
    transform.translate((1, 1))
    assert transform.position == pytest.approx((1, 1, 0))


@pytest.mark.parametrize("degrees", [(10, 20, 30), (-80, 170, -120), (0, 0, 90), (89, 5, 0)])
def test_euler_angles_come_back(degrees: tuple[float, float, float]) -> None:
    assert Quaternion.from_euler(degrees).euler() == pytest.approx(degrees)


def test_euler_order_is_z_then_x_then_y() -> None:
    turned = Quaternion.from_euler((90, 90, 0)).rotate((0, 1, 0))
    # Around x first: y becomes z. Then around y: z becomes x.
    assert turned == pytest.approx((1, 0, 0))


def test_a_quaternion_matches_the_axis_formula() -> None:
    """Rodrigues' formula, written out."""
    axis, degrees, v = np.array([1.0, 2.0, -0.5]), 77.0, np.array([0.3, -1.0, 2.0])
    k, a = axis / np.linalg.norm(axis), math.radians(degrees)
    expected = v * math.cos(a) + np.cross(k, v) * math.sin(a) + k * np.dot(k, v) * (1 - math.cos(a))
    rotation = Quaternion.from_axis(degrees, axis)
    assert rotation.rotate(v) == pytest.approx(tuple(expected))
    assert rotation.inverse().rotate(expected) == pytest.approx(tuple(v))
    assert rotation * Vec3(*v) == rotation.rotate(v)
    assert (rotation.inverse() * rotation).rotate(v) == pytest.approx(tuple(v))
    for wrong in (2, (1.0, 2.0, 3.0)):
        with pytest.raises(TypeError):
            rotation * wrong  # type: ignore[operator]


def test_an_object_cannot_hang_under_itself() -> None:
    parent, child = Transform(), Transform()
    child.parent = parent
    with pytest.raises(ValueError, match="under itself"):
        parent.parent = child
    with pytest.raises(AttributeError):
        parent.position.x = 3  # type: ignore[misc]
    assert parent.position == Vec3()


def test_rotations_keep_double_precision() -> None:
    """Some ways into PyGLM round to single precision; what is right to 1e-14 takes none of those."""
    rotation = Quaternion()
    for degrees, axis in ((77.0, (1.0, 2.0, -0.5)), (13.0, (0.1, -3.0, 0.7)), (-150.0, (0.0, 0.0, 1.0))):
        rotation = rotation * Quaternion.from_axis(degrees, axis)
    for turned in (
        rotation,
        rotation.inverse(),
        Quaternion.look((1, 2, -3)),
        Quaternion().slerp(rotation, 0.3),
    ):
        matrix = turned.matrix()
        assert np.abs(matrix @ matrix.T - np.identity(3)).max() < 1e-14
    transform = Transform()
    transform.position, transform.local_scale = (0.1, 0.2, 0.3), (0.7, 1.1, 1.3)
    transform.position += (0.1, 0.1, 0.1)
    assert np.abs(transform.matrix[:3, 3] - (0.2, 0.3, 0.4)).max() < 1e-15
    assert np.abs(np.diag(transform.matrix)[:3] - (0.7, 1.1, 1.3)).max() < 1e-15
    assert np.abs(np.subtract(transform.to_world((0.1, 0.2, 0.3)), (0.27, 0.52, 0.79))).max() < 1e-15


@pytest.mark.parametrize("target", [(4, 1, -2), (-3, 0, 5), (0, 9, 0), (0, -9, 1e-14), (0, 0, -7)])
def test_looking_at_a_point_in_space(target: tuple[float, float, float]) -> None:
    above, transform = Transform(), Transform()
    above.position, above.rotation = (1, 2, 3), Quaternion.from_euler((10, 40, 70))
    transform.set_parent(above, keep_world=False)
    transform.position = (0.5, 0.0, 0.25)
    transform.look_at(target, up=(0, 1, 0))
    expected = np.array(target) - (0.5, 0.0, 0.25)
    assert transform.forward == pytest.approx(tuple(expected / np.linalg.norm(expected)))
    assert transform.right.y == pytest.approx(0.0, abs=1e-9), "the horizon stays level"
    assert transform.up.y >= -1e-9


def test_looking_at_itself_changes_nothing() -> None:
    transform = Transform()
    transform.position = (1, 2, 3)
    transform.look_at((1, 2, 3), up=(0, 1, 0))
    assert transform.rotation == Quaternion()
    with pytest.raises(ValueError, match="no length"):
        Quaternion.look((0, 0, 0))
    assert Quaternion.look((0, 1, 0)).rotate((0, 0, -1)) == pytest.approx((0, 1, 0))


def test_vectors_calculate_as_numpy_does() -> None:
    a, b = np.array([1.1, -2.3, 0.7]), np.array([3.3, 0.1, -1.9])
    v, w = Vec3.of(a), Vec3.of(b)
    assert v.cross(w) == pytest.approx(tuple(np.cross(a, b)))
    assert v.dot(w) == pytest.approx(float(a @ b))
    assert v.distance(w) == pytest.approx(float(np.linalg.norm(a - b)))
    assert (v * w, v / 2, -v, v - w) == (tuple(a * b), tuple(a / 2), tuple(-a), tuple(a - b))
    assert Vec3.of(tuple(np.array([0.5, 2.0, 1.0], np.float32))) == (0.5, 2.0, 1.0)
    assert all(type(x) is float for x in (*Vec3.of((1, 2, 3)), *(v + (1, 1)), *(2 * v)))  # noqa: RUF005
    with pytest.raises(ZeroDivisionError):
        v / 0
    for wrong in ((1,), (1, 2, 3, 4), np.zeros(4)):
        with pytest.raises(ValueError, match="2 or 3 numbers"):
            Vec3.of(wrong)


def test_a_rotation_half_way() -> None:
    end = Quaternion.from_axis(90, (0, 1, 0))
    assert Quaternion().slerp(end, 0.5) == pytest.approx(Quaternion.from_axis(45, (0, 1, 0)))
