"""Preprocessing: from pointer positions to the network's input."""

from __future__ import annotations

import numpy as np

WINDOW = 1.5  # seconds that the network looks back
STEPS = 48
_SMALLEST = 60.0  # pixels of a 640 pixels high page; smaller movements are not scaled up further


def features(points: np.ndarray, now: float) -> np.ndarray:
    """Points (n, 3) of seconds, x and y, as the network's input (STEPS, 3) float32, the latest step last.

    Each step has the movement in x and in y, relative to the size of the whole movement, and 1 while
    drawing. Steps before the stroke are zeros.
    """
    steps = np.zeros((STEPS, 3), np.float32)
    points = points[points[:, 0] >= now - WINDOW]
    if len(points) < 2:
        return steps
    times = now + (np.arange(STEPS + 1) - STEPS) * (WINDOW / STEPS)
    at = np.stack([np.interp(times, points[:, 0], points[:, axis]) for axis in (1, 2)], axis=1)
    size = max(float(np.ptp(points[:, 1:], axis=0).max()), _SMALLEST)
    steps[:, :2] = np.diff(at, axis=0) * (10.0 / size)
    steps[:, 2] = (times[1:] >= points[0, 0]) & (times[1:] <= points[-1, 0] + WINDOW / STEPS)
    return steps
