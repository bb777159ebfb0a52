"""From a drawing of any size to the picture that the digit network was trained on.

The network sees 28 x 28 pixels in which the digit's longer side measures 20 and its ink is balanced on the
middle. The game and the training script both call `prepare`, so that the two cannot drift apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

INPUT_SIDE = 28
"""Side of the network's input, in pixels."""

DIGIT_SIDE = 20
"""Length of the digit's longer side inside the input, in pixels."""

INK_THRESHOLD = 0.15
"""What is fainter than this does not count as ink when the digit's box is measured."""

# OpenBLAS spreads larger matrix products over threads of its own. Beside job threads and a busy game these
# wait for each other: 0.04 ms of work took 50 ms on two busy cores.
_ONE_THREAD = 200_000  # multiplications

_MARGIN = 1.0  # pixels kept free at the border when a lopsided digit is balanced


def _span(has_ink: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """First and last + 1 index that is true; the caller has checked that there is one."""
    indices = np.flatnonzero(has_ink)
    return int(indices[0]), int(indices[-1]) + 1


def _middle(ink_per_line: npt.NDArray[np.float32], start: int, stop: int, scale: float) -> float:
    """The source coordinate for the middle of the input: the ink's balance point, moved so the span fits."""
    lines = np.arange(ink_per_line.shape[0], dtype=np.float32) + 0.5
    balance = float(np.dot(lines, ink_per_line) / ink_per_line.sum())
    reach = (INPUT_SIDE / 2 - _MARGIN) / scale
    return float(np.clip(balance, stop - reach, start + reach))


def _resampling_weights(length: int, middle: float, scale: float) -> npt.NDArray[np.float32]:
    """The (28, length) matrix that resamples one axis with a triangle filter, widened when shrinking."""
    wanted = (np.arange(INPUT_SIDE, dtype=np.float32) + 0.5 - INPUT_SIDE / 2) / scale + middle
    there = np.arange(length, dtype=np.float32) + 0.5
    slope = min(1.0, scale)
    weights = np.maximum(0.0, 1.0 - np.abs(wanted[:, None] - there[None, :]) * slope) * slope
    return weights.astype(np.float32)


def prepare(drawing: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Crop, scale and centre a drawing for the network.

    drawing: (height, width), 0 is background and 1 is ink. Returns (1, 1, 28, 28) float32 from 0 to 1; all
    zeros when there is no ink. Raises ValueError for anything but a two-dimensional array.
    """
    if drawing.ndim != 2:
        raise ValueError(f"a drawing has two dimensions (height, width), got shape {drawing.shape}")
    source = np.asarray(drawing, dtype=np.float32)
    has_ink = source > INK_THRESHOLD
    rows, columns = np.any(has_ink, axis=1), np.any(has_ink, axis=0)
    if not rows.any():
        return np.zeros((1, 1, INPUT_SIDE, INPUT_SIDE), np.float32)
    (top, bottom), (left, right) = _span(rows), _span(columns)
    scale = DIGIT_SIDE / max(bottom - top, right - left)
    middle_y = _middle(source.sum(axis=1), top, bottom, scale)
    middle_x = _middle(source.sum(axis=0), left, right, scale)
    vertical = _resampling_weights(source.shape[0], middle_y, scale)
    horizontal = _resampling_weights(source.shape[1], middle_x, scale)
    columns = max(1, _ONE_THREAD // vertical.size)
    blocks = [vertical @ source[:, i : i + columns] for i in range(0, source.shape[1], columns)]
    picture = np.concatenate(blocks, axis=1) @ horizontal.T
    return np.asarray(np.clip(picture, 0.0, 1.0)[None, None], dtype=np.float32)
