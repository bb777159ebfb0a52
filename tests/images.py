"""Made-up images."""

from __future__ import annotations

import numpy as np


def smooth(shape: tuple[int, ...], seed: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """A few random colours stretched smoothly over (..., H, W); vision networks ignore white noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.random((*shape[:-2], 5, 5))
    for axis, size in ((-2, shape[-2]), (-1, shape[-1])):
        at = np.linspace(0, 4, size)
        left = np.minimum(at.astype(int), 3)
        share = (at - left).reshape([-1 if a == axis % coarse.ndim else 1 for a in range(coarse.ndim)])
        coarse = np.take(coarse, left, axis) * (1 - share) + np.take(coarse, left + 1, axis) * share
    return (low + (high - low) * coarse).astype(np.float32)
