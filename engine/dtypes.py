"""The one table of element types: how a tensor stores them, and in which type kernels compute.

Narrow types are storage only. A kernel loads a float16 as float32 and an int8 as int32, computes,
and casts when it stores, so that every printer needs arithmetic on eight types and no more.
"""

from __future__ import annotations

from typing import Literal

import ml_dtypes
import numpy as np

ArithmeticType = Literal["float32", "float64", "int32", "int64", "uint32", "uint64", "bool", "index"]
"""Types that kernels compute in. `index` is a position in a tensor: int64 on the CPU, int32 on GPUs."""

_COMPUTED_AS: dict[str, ArithmeticType] = {
    "float32": "float32",
    "float64": "float64",
    "float16": "float32",
    "bfloat16": "float32",
    "int64": "int64",
    "int32": "int32",
    "int16": "int32",
    "int8": "int32",
    "uint64": "uint64",
    "uint32": "uint32",
    "uint16": "int32",
    "uint8": "int32",
    "bool": "bool",
}

STORAGE_TYPES = tuple(_COMPUTED_AS)
"""Names of the element types that a tensor may hold in a kernel."""

FLOAT_TYPES = frozenset({"float32", "float64", "float16", "bfloat16"})
SIGNED_TYPES = frozenset({"int64", "int32", "int16", "int8"})
UNSIGNED_TYPES = frozenset({"uint64", "uint32", "uint16", "uint8"})
INTEGER_TYPES = SIGNED_TYPES | UNSIGNED_TYPES


def arithmetic_type(storage: np.dtype | str) -> ArithmeticType:
    """The type in which kernels compute with elements stored as `storage`."""
    name = np.dtype(storage).name
    if name not in _COMPUTED_AS:
        raise TypeError(f"kernels cannot hold elements of type {name}; they hold {', '.join(STORAGE_TYPES)}")
    return _COMPUTED_AS[name]


def as_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a type name, `bfloat16` included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
