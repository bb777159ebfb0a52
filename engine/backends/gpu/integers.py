"""Range checks for GPU backends, which store 64-bit integers in 32 bits."""

from __future__ import annotations

import numpy as np

from engine.base.errors import InputError


def exceeds_32_bits(data: np.ndarray) -> bool:
    """Whether a 64-bit integer tensor holds values that 32 bits cannot."""
    if data.dtype.kind not in "iu" or data.dtype.itemsize < 8 or data.size == 0:
        return False
    info = np.iinfo(np.int32 if data.dtype.kind == "i" else np.uint32)
    return bool(data.max() > info.max or data.min() < info.min)


def check_integers(data: np.ndarray) -> None:
    """Raise `InputError` for an integer tensor with values beyond 32 bits."""
    if exceeds_32_bits(data):
        raise InputError(
            f"an {data.dtype} tensor holds values beyond 32 bits, which GPU backends cannot keep;"
            " use BackendType.CPU"
        )
