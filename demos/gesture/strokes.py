"""The paths of the signs."""

from __future__ import annotations

import math

import numpy as np

GESTURES = ("none", "swipe", "circle", "triangle", "zigzag", "spiral")
"""The network's classes, in the order of its output."""


def corners(*points: tuple[float, float]) -> np.ndarray:
    """Straight lines from point to point, (n, 2)."""
    share = np.linspace(0.0, 1.0, 24, endpoint=False)[:, None]
    path = np.array(points, np.float64)
    lines = [path[i] + (path[i + 1] - path[i]) * share for i in range(len(path) - 1)]
    return np.concatenate([*lines, path[-1:]])


def ring(turns: float, start: float = 0.0, inner: float = 1.0, count: int = 96) -> np.ndarray:
    """An arc of `turns` turns from angle `start`, with a radius from `inner` / 2 to 1/2: (count, 2)."""
    share = np.linspace(0.0, 1.0, count)
    angle = start + 2.0 * math.pi * turns * share
    return np.stack((np.cos(angle), np.sin(angle)), axis=1) * (inner + (1.0 - inner) * share)[:, None] / 2.0


SIGNS = {
    "swipe": corners((-0.42, 0.28), (0.42, -0.28)),
    "circle": ring(1.0, -1.57),
    "triangle": corners((-0.5, 0.42), (0.0, -0.45), (0.5, 0.42), (-0.5, 0.42)),
    "zigzag": corners((0.42, -0.5), (-0.3, -0.1), (0.3, 0.1), (-0.42, 0.5)),
    "spiral": ring(2.4, 0.0, 0.05, 160),
}
"""Each spell's sign in a unit square, y down: (n, 2), in drawing order."""
