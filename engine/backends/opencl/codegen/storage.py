"""Layout of tensor elements in OpenCL memory, and conversion of arrays to it and back.

Narrow integers, float16, bfloat16 and float64 keep their own size. int64 and uint64 are kept as 32-bit
words (computed values wrap), bool as one byte of 0 or 1, what has less than a byte, and small floats'
codes, as one byte each.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.base.dtypes import CODE_TYPES, as_dtype, to_numbers

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
    "int4": "char",
    "uint4": "uchar",
    "int2": "char",
    "uint2": "uchar",
    **dict.fromkeys(CODE_TYPES, "uchar"),
}
"""Storage type -> OpenCL C type of an element in memory."""

_DEVICE_TYPES = {
    "int64": "int32",
    "uint64": "uint32",
    "bool": "uint8",
    "int4": "int8",
    "int2": "int8",
    **dict.fromkeys(("uint4", "uint2", *CODE_TYPES), "uint8"),
}

WRAP: dict[str, str] = {
    "int4": "(({0} << 28) >> 28)",
    "uint4": "({0} & 15)",
    "int2": "(({0} << 30) >> 30)",
    "uint2": "({0} & 3)",
}
"""How a computed int is wrapped into a type of less than a byte before it is stored in one."""


@cache
def device_dtype(dtype: np.dtype | str) -> np.dtype:
    """The NumPy type of an element in device memory."""
    name = np.dtype(dtype).name
    return as_dtype(_DEVICE_TYPES.get(name, name))


def to_device(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert values to device memory format, 1-D. Integers beyond 32 bits wrap (see `check_integers`)."""
    flat, memory = np.ascontiguousarray(data).reshape(-1).astype(dtype, copy=False), device_dtype(dtype)
    return flat if flat.dtype == memory else to_numbers(flat).astype(memory, copy=False)
