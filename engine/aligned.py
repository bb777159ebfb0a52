"""Memory as native kernels want it: on a cache line, and readable a little beyond its end."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

ALIGNMENT = 64

SLACK = 256
"""Bytes behind each buffer that kernels may read (never write), so that no vector is a special case."""


def allocate(size: int) -> np.ndarray:
    """`size` zeroed bytes on a cache line, with readable slack behind them."""
    block = np.zeros(size + ALIGNMENT + SLACK, np.uint8)
    skip = -block.ctypes.data % ALIGNMENT
    return block[skip : skip + size]


def reserve(size: int) -> np.ndarray:
    """As `allocate`, for those who write every byte: only the slack is zeroed."""
    block = np.empty(size + ALIGNMENT + SLACK, np.uint8)
    skip = -block.ctypes.data % ALIGNMENT
    block[skip + size :] = 0
    return block[skip : skip + size]


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A zeroed array that native kernels can read where it lies."""
    return allocate(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def is_readable_in_place(array: np.ndarray) -> bool:
    """Whether native kernels can read an array where it lies, and nobody changes it under them."""
    block = array
    while isinstance(block.base, np.ndarray):
        block = block.base
    plain = array.flags.c_contiguous and block.flags.c_contiguous and array.dtype.isnative
    if array.flags.writeable or not plain:
        return False
    start, begin = (int(x.__array_interface__["data"][0]) for x in (array, block))
    return start % ALIGNMENT == 0 and begin + block.nbytes >= start + array.nbytes + SLACK
