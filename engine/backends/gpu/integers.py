"""Range checks for GPU backends, which store 64-bit integers in 32 bits."""

from __future__ import annotations

import numpy as np

from engine.base.errors import InputError


def beyond_32_bits(array: np.ndarray) -> int | None:
    """An element of a 64-bit integer array that 32 bits cannot hold, or None."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8 or not array.size:
        return None
    info = np.iinfo(np.int32 if array.dtype == np.int64 else np.uint32)
    low, high = int(array.min()), int(array.max())
    return low if low < info.min else high if high > info.max else None


def check_integers(array: np.ndarray, subject: str = "a tensor", backend: str = "GPU backends") -> None:
    """Raise `InputError` for an input or constant with values that do not fit 32 bits."""
    if (found := beyond_32_bits(array)) is not None:
        raise InputError(
            f"{subject} holds {found}, beyond the 32-bit integers of {backend}; use BackendType.CPU"
        )
