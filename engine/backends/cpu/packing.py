"""Known matrices laid as tuned kernels read them: panels of a tile's columns, in memory of their own."""

from __future__ import annotations

import numpy as np

from engine.memory.pool import reserve_lasting
from engine.memory.threaded import in_parts


def pack_panels(matrices: np.ndarray, width: int) -> np.ndarray:
    """(count, k, n) of any strides -> 1-D (count, ceil(n / width), k, width), the last panel zero-filled.

    Kernels can read the result where it lies.
    """
    count, k, n = matrices.shape
    whole, left = divmod(n, width)
    panels = whole + (left > 0)
    packed = reserve_lasting(count * panels * k * width * 4).view(np.float32).reshape(count, panels, k, width)
    batch_step, row_step, column_step = matrices.strides
    steps = (batch_step, width * column_step, row_step, column_step)
    source = np.lib.stride_tricks.as_strided(matrices, (count, whole, k, width), steps)

    def lay(begin: int, end: int) -> None:
        packed[:, begin:end] = source[:, begin:end]

    in_parts(lay, whole, packed.nbytes)
    if left:
        packed[:, whole, :, :left] = matrices[:, :, whole * width :]
        packed[:, whole, :, left:] = 0.0
    return packed.reshape(-1)
