"""The drawing surface lays ink where the pen went, and nowhere else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from demos.digits.canvas import Canvas
from demos.digits.preprocess import prepare


def test_dot_covers_the_brush_area() -> None:
    canvas = Canvas(200, brush_radius=0.1)
    canvas.stroke((0.5, 0.5), (0.5, 0.5))
    # A linear fade around the radius adds a twelfth of its width squared to r².
    assert canvas.ink.sum() == pytest.approx(np.pi * (20**2 + 8**2 / 12), rel=0.01)
    assert canvas.ink.max() == 1.0


def test_edge_is_soft() -> None:
    canvas = Canvas(100, brush_radius=0.1, softness=0.5)
    canvas.stroke((0.5, 0.5), (0.5, 0.5))
    across = canvas.ink[50, 50:70]
    assert np.all(np.diff(across) <= 0.0)
    assert ((across > 0.0) & (across < 1.0)).sum() >= 4


def test_stroke_matches_the_distance_to_the_line() -> None:
    canvas = Canvas(64, brush_radius=0.06)
    start, end = np.array([0.2, 0.8]), np.array([0.9, 0.3])
    canvas.stroke((0.2, 0.8), (0.9, 0.3))
    along = start + np.linspace(0.0, 1.0, 2001)[:, None] * (end - start)
    for row, column in np.random.default_rng(0).integers(64, size=(300, 2)):
        centre = (np.array([column, row]) + 0.5) / 64
        distance = np.hypot(*(along - centre).T).min() * 64
        radius = 0.06 * 64
        expected = np.clip((radius + 0.5 * 0.4 * radius - distance) / (0.4 * radius), 0.0, 1.0)
        assert canvas.ink[row, column] == pytest.approx(expected, abs=2e-3)


def test_one_line_or_many_short_ones_leave_the_same_ink() -> None:
    whole, pieces = Canvas(), Canvas()
    whole.stroke((0.1, 0.2), (0.8, 0.6))
    ends = np.array([0.1, 0.2]) + np.linspace(0.0, 1.0, 14)[:, None] * np.array([0.7, 0.4])
    for (x0, y0), (x1, y1) in pairwise(ends):
        pieces.stroke((x0, y0), (x1, y1))
    np.testing.assert_allclose(pieces.ink, whole.ink, atol=1e-4)


def test_strokes_add_up_and_clear_wipes_them() -> None:
    canvas = Canvas(50)
    canvas.stroke((0.2, 0.2), (0.8, 0.2))
    first = canvas.ink.copy()
    canvas.stroke((0.2, 0.8), (0.8, 0.8))
    assert np.all(canvas.ink >= first)
    assert canvas.ink.sum() == pytest.approx(2 * first.sum(), rel=0.01)
    canvas.clear()
    assert not canvas.ink.any()
    assert not canvas.to_input().any()


def test_parts_outside_are_cut() -> None:
    canvas = Canvas(50)
    canvas.stroke((-3.0, -3.0), (-2.0, -3.0))
    assert not canvas.ink.any()
    canvas.stroke((-1.0, 0.5), (2.0, 0.5))
    np.testing.assert_allclose(canvas.ink[:, 0], canvas.ink[:, -1])
    assert canvas.ink[25].min() == 1.0


def test_input_is_the_prepared_ink() -> None:
    canvas = Canvas()
    canvas.stroke((0.1, 0.9), (0.4, 0.4))
    np.testing.assert_array_equal(canvas.to_input(), prepare(canvas.ink))
