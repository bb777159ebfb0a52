"""Functions that neither NumPy nor GLSL have, as NumPy sees them; printers carry their own text of these."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> np.ndarray:
    """The error function, elementwise, in the dtype of `x`."""
    x = np.asarray(x)
    return np.asarray(_erf(x)).astype(x.dtype)
