"""Pen paths run through their points, round the smooth ones and turn sharply at the corners."""

from __future__ import annotations

import numpy as np
import pytest

from demos.digits.curves import bar, curve, ring, smooth_path


def test_text_in_percent_becomes_points() -> None:
    assert curve("20,0 80,5! 40,100") == [(0.2, 0.0), (0.8, 0.05), (0.8, 0.05), (0.4, 1.0)]
    with pytest.raises(ValueError, match="not enough values"):
        curve("20 30")


def test_path_runs_through_every_point() -> None:
    points = np.random.default_rng(1).random((6, 2))
    path = smooth_path(points, 5)
    assert len(path) == 5 * 5 + 1
    np.testing.assert_allclose(path[::5], points)


def test_bars_are_straight_with_sharp_corners() -> None:
    path = smooth_path(bar("0,0 100,0 100,100"))
    on_a_line = np.isclose(path[:, 1], 0.0) | np.isclose(path[:, 0], 1.0)
    assert on_a_line.all()
    assert [1.0, 0.0] in path.tolist()


def test_smooth_points_are_rounded() -> None:
    path = smooth_path(curve("0,0 100,0 100,100"), 16)
    steps = np.diff(path, axis=0)
    headings = np.degrees(np.unwrap(np.arctan2(steps[:, 1], steps[:, 0])))
    assert np.abs(np.diff(headings)).max() < 20.0


def test_a_single_point_is_a_dot() -> None:
    np.testing.assert_array_equal(smooth_path([(0.3, 0.4)]), [(0.3, 0.4)])


def test_ring_lies_on_its_ellipse() -> None:
    points = np.array(ring((0.5, 0.4), (0.3, 0.2), -90, 360, 13))
    np.testing.assert_allclose((((points - (0.5, 0.4)) / (0.3, 0.2)) ** 2).sum(axis=1), 1.0)
    np.testing.assert_allclose(points[0], (0.5, 0.2))
    np.testing.assert_allclose(points[0], points[-1])


def test_shape_of_points_is_checked() -> None:
    with pytest.raises(ValueError, match="got shape"):
        smooth_path(np.zeros((3, 3)))
