"""How a tensor's elements lie in OpenCL memory, and how arrays get into that form and out of it.

Narrow integers, float16, bfloat16 and float64 keep their own size. int64 and uint64 are kept as 32-bit
words (computed values wrap), bool as one byte of 0 or 1.
"""

from __future__ import annotations

import numpy as np

from engine.dtypes import as_dtype

WORDS: dict[str, str] = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bfloat16": "ushort",
    "int64": "int",
    "int32": "int",
    "int16": "short",
    "int8": "char",
    "uint64": "uint",
    "uint32": "uint",
    "uint16": "ushort",
    "uint8": "uchar",
    "bool": "uchar",
}
"""Storage type -> OpenCL C type of an element in memory."""

_DEVICE_TYPES = {"int64": "int32", "uint64": "uint32", "bool": "uint8"}


def device_dtype(dtype: np.dtype | str) -> np.dtype:
    """The NumPy type of an element as it lies in device memory."""
    name = np.dtype(dtype).name
    return as_dtype(_DEVICE_TYPES.get(name, name))


def to_device(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values as they lie in device memory, 1-D. Integers beyond 32 bits wrap (see `check_integers`)."""
    flat = np.ascontiguousarray(data).reshape(-1)
    return flat.astype(dtype, copy=False).astype(device_dtype(dtype), copy=False)


def from_device(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values read back, as a new array in the type that the user sees."""
    return data.astype(dtype)
