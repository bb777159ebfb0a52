"""The one table of element types: how a tensor stores them, and in which type kernels compute.

Narrow types are storage only. A kernel loads a float16 as float32 and an int8 as int32, computes,
and casts when it stores, so that every printer needs arithmetic on eight types and no more. Floats of
8 bits and fewer are loaded and stored as their codes: operators that move elements move the bits, and
only casts and quantisation know what a code means.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import ml_dtypes
import numpy as np

ArithmeticType = Literal[
    "float32", "float64", "int32", "int64", "uint32", "uint64", "bool", "index", "object"
]
"""Types that kernels compute in. `index` is a position in a tensor: int64 on the CPU, int32 on GPUs.
`object` is text, which only NumPy moves."""

FLOAT32 = np.dtype(np.float32)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
UINT8 = np.dtype(np.uint8)
BOOL = np.dtype(bool)
TEXT = np.dtype(object)
"""Strings are objects to NumPy."""

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
    "int4": "int32",
    "uint4": "int32",
    "int2": "int32",
    "uint2": "int32",
    "float8_e4m3fn": "int32",
    "float8_e4m3fnuz": "int32",
    "float8_e5m2": "int32",
    "float8_e5m2fnuz": "int32",
    "float8_e8m0fnu": "int32",
    "float6_e2m3fn": "int32",
    "float6_e3m2fn": "int32",
    "float4_e2m1fn": "int32",
}

STORAGE_TYPES = tuple(_COMPUTED_AS)
"""Names of the element types that a tensor may hold in a kernel."""

FLOAT_TYPES = frozenset({"float32", "float64", "float16", "bfloat16"})
NARROW_FLOAT_TYPES = frozenset({"float16", "bfloat16"})
"""Floats that are computed as float32 and rounded where they are stored."""

SIGNED_TYPES = frozenset({"int64", "int32", "int16", "int8", "int4", "int2"})
UNSIGNED_TYPES = frozenset({"uint64", "uint32", "uint16", "uint8", "uint4", "uint2"})
INTEGER_TYPES = SIGNED_TYPES | UNSIGNED_TYPES
CODE_TYPES = frozenset(name for name in _COMPUTED_AS if name.startswith(("float8_", "float6_", "float4_")))
"""Floats that kernels see as the numbers 0..2^bits-1 that encode them. Each takes a byte in memory."""

_BITS = {
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float4_e2m1fn": 4,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
    "uint2": 2,
}


@cache
def arithmetic_type(storage: np.dtype | str) -> ArithmeticType:
    """The type in which kernels compute with elements stored as `storage`."""
    name = np.dtype(storage).name
    if name == "object":
        return "object"
    if name not in _COMPUTED_AS:
        raise TypeError(f"kernels cannot hold elements of type {name}; they hold {', '.join(STORAGE_TYPES)}")
    return _COMPUTED_AS[name]


@cache
def as_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a type name, those that `ml_dtypes` adds included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def bits_of(dtype: np.dtype) -> int:
    """Bits of a type's values; types of less than a byte have a byte in memory."""
    return _BITS.get(dtype.name, 8 * dtype.itemsize)


def integer_range(name: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = bits_of(as_dtype(name))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if name in SIGNED_TYPES else (0, (1 << bits) - 1)


def to_numbers(array: np.ndarray) -> np.ndarray:
    """Stored elements as NumPy's own numbers: codes as uint8, integers below a byte as int8 or uint8."""
    if array.dtype.isbuiltin == 1:
        return array  # the name of a type takes microseconds
    name = array.dtype.name
    if name in CODE_TYPES:
        return array.view(np.uint8)
    if name in _BITS:
        return array.astype(np.int8 if name in SIGNED_TYPES else np.uint8)
    return array


def from_numbers(numbers: np.ndarray, dtype: np.dtype, copy: bool = True) -> np.ndarray:
    """Inverse of `to_numbers`, also for computed numbers; integers wrap."""
    if dtype.name not in CODE_TYPES:
        return numbers.astype(dtype, copy=copy)
    return (numbers.astype(np.uint8) & np.uint8((1 << bits_of(dtype)) - 1)).view(dtype)
