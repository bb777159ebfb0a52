"""The strokes of the training drawings: straight bars, rings on their ellipse."""

from __future__ import annotations

import numpy as np

from assets.digits.templates import bar, ring
from gameglue import Route


def test_bars_are_straight_with_sharp_corners() -> None:
    path = Route.smooth(bar("0,0 100,0 100,100")).points
    on_a_line = np.isclose(path[:, 1], 0.0) | np.isclose(path[:, 0], 1.0)
    assert on_a_line.all()
    assert [1.0, 0.0] in path.tolist()


def test_ring_lies_on_its_ellipse() -> None:
    points = np.array(ring((0.5, 0.4), (0.3, 0.2), -90, 360, 13))
    np.testing.assert_allclose((((points - (0.5, 0.4)) / (0.3, 0.2)) ** 2).sum(axis=1), 1.0)
    np.testing.assert_allclose(points[0], (0.5, 0.2))
    np.testing.assert_allclose(points[0], points[-1])
