"""Smooth pen paths through a few given points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Path = npt.NDArray[np.float64]
"""Points along a path: (n, 2), x to the right and y downwards."""

Stroke = list[tuple[float, float]]
"""The points that a pen stroke runs through, from touching down to lifting; one given twice is a corner."""


def curve(text: str) -> Stroke:
    """A stroke from text in percent, such as "20,0 80,0! 40,100"; a "!" makes its point a corner.

    Raises ValueError if a point is not two numbers with a comma between them.
    """
    stroke: Stroke = []
    for word in text.split():
        x, y = word.removesuffix("!").split(",")
        point = (float(x) / 100, float(y) / 100)
        stroke += [point, point] if word.endswith("!") else [point]
    return stroke


def bar(text: str) -> Stroke:
    """A stroke of straight lines, written as in `curve`: every point is a corner."""
    return [point for point in curve(text) for _ in range(2)]


def smooth_path(points: npt.ArrayLike, pieces: int = 8) -> Path:
    """A Catmull-Rom curve through `points`, (n, 2); a point given twice is a corner.

    Each stretch between two different points becomes `pieces` straight pieces. Raises ValueError if `points`
    is no list of at least one point.
    """
    given = np.asarray(points, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] < 1 or given.shape[1] != 2:
        raise ValueError(f"a path is made of points (n, 2) with n at least 1, got shape {given.shape}")
    t = np.arange(pieces)[:, None] / pieces
    # The Hermite weights of both ends and of both tangents.
    start, end = 2 * t**3 - 3 * t**2 + 1, -2 * t**3 + 3 * t**2
    leaving, arriving = t**3 - 2 * t**2 + t, t**3 - t**2
    padded = np.concatenate([given[:1], given, given[-1:]])
    stretches = [
        start * here + end * there + leaving * (there - before) / 2 + arriving * (after - here) / 2
        for before, here, there, after in zip(padded, padded[1:], padded[2:], padded[3:], strict=False)
        if not np.array_equal(here, there)
    ]
    return np.concatenate([*stretches, given[-1:]])


def ring(
    middle: tuple[float, float], radii: tuple[float, float], start: float, sweep: float, points: int = 9
) -> Stroke:
    """Points along an ellipse from the angle `start` over `sweep` (degrees, 0 is right, 90 is down)."""
    angles = np.radians(start + sweep * np.linspace(0.0, 1.0, points))
    x = middle[0] + radii[0] * np.cos(angles)
    y = middle[1] + radii[1] * np.sin(angles)
    return list(zip(x.tolist(), y.tolist(), strict=True))
