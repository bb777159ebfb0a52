"""Preprocessing: from a drawing of any size to the input of the digit network.

The input has 28 x 28 pixels; the digit's longer side measures 20, and its centre of mass is in the middle.
The game and the training script both call `prepare`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.float32]

INPUT_SIDE = 28
"""Side of the network's input, in pixels."""

DIGIT_SIDE = 20
"""Length of the digit's longer side inside the input, in pixels."""

INK_THRESHOLD = 0.15
"""Fainter pixels do not count for the digit's bounding box."""

# OpenBLAS runs larger matrix products on threads of its own, which compete with the job threads and the game.
_ONE_THREAD = 200_000  # multiplications

_MARGIN = 1.0  # free pixels at the border after centring


def _weights(ink_per_line: Picture, start: int, stop: int, scale: float) -> Picture:
    """The (28, length) matrix that resamples one axis with a triangle filter.

    The input is centred on the centre of mass, moved so that the lines from `start` to `stop` fit.
    """
    there = np.arange(len(ink_per_line), dtype=np.float32) + 0.5
    balance = float(np.dot(there, ink_per_line) / ink_per_line.sum())
    reach = (INPUT_SIDE / 2 - _MARGIN) / scale
    middle = float(np.clip(balance, stop - reach, start + reach))
    wanted = (np.arange(INPUT_SIDE, dtype=np.float32) + 0.5 - INPUT_SIDE / 2) / scale + middle
    slope = min(1.0, scale)
    return (slope * np.maximum(0.0, 1.0 - slope * np.abs(wanted[:, None] - there))).astype(np.float32)


def prepare(drawing: npt.ArrayLike) -> Picture:
    """Crop, scale and centre a drawing for the network.

    drawing: (height, width), 0 is background and 1 is ink. Returns (1, 1, 28, 28) float32 from 0 to 1; all
    zeros when there is no ink.
    """
    source = np.asarray(drawing, dtype=np.float32)
    rows, columns = (np.flatnonzero((source > INK_THRESHOLD).any(axis=axis)).tolist() for axis in (1, 0))
    if not rows:
        return np.zeros((1, 1, INPUT_SIDE, INPUT_SIDE), np.float32)
    scale = DIGIT_SIDE / (max(rows[-1] - rows[0], columns[-1] - columns[0]) + 1)
    vertical = _weights(source.sum(axis=1), rows[0], rows[-1] + 1, scale)
    horizontal = _weights(source.sum(axis=0), columns[0], columns[-1] + 1, scale)
    step = max(1, _ONE_THREAD // vertical.size)
    blocks = [vertical @ source[:, i : i + step] for i in range(0, source.shape[1], step)]
    picture = np.concatenate(blocks, axis=1) @ horizontal.T
    return np.clip(picture, 0.0, 1.0)[None, None]
