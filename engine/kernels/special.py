"""Functions that NumPy lacks, for NumPy evaluation; printers have their own source of these."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> np.ndarray:
    """The error function, elementwise, in the dtype of `x`."""
    x = np.asarray(x)
    return np.asarray(_erf(x)).astype(x.dtype)
