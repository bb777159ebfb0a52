"""Range checks for GPU backends, which store 64-bit integers in 32 bits."""

from __future__ import annotations

import numpy as np

from engine.base.errors import InputError


def beyond_32_bits(array: np.ndarray) -> int | None:
    """An element of a 64-bit integer array that 32 bits cannot hold, or None."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8 or not array.size:
        return None
    least, most = (-(1 << 31), (1 << 31) - 1) if array.dtype.kind == "i" else (0, (1 << 32) - 1)
    # As methods, but without their detour through Python.
    low, high = int(np.minimum.reduce(array, axis=None)), int(np.maximum.reduce(array, axis=None))
    return low if low < least else high if high > most else None


def check_integers(array: np.ndarray, subject: str = "a tensor", backend: str = "GPU backends") -> None:
    """Raise `InputError` for an input or constant with values that do not fit 32 bits."""
    if (found := beyond_32_bits(array)) is not None:
        raise InputError(
            f"{subject} holds {found}, beyond the 32-bit integers of {backend}; use BackendType.CPU"
        )
