"""Aligned arrays: they start on a cache line and are readable a little beyond their end."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import addressof, c_char
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

ALIGNMENT = 64

SLACK = 256
"""Bytes behind each buffer that kernels may read (never write), so that no vector is a special case."""


_SMALLEST_PAGE = 4096

_ALWAYS_TRIED = 1 << 30
"""Bytes up to which the system is asked without a look at what it has."""


def allocate(size: int) -> np.ndarray:
    """`size` zeroed bytes on a cache line, followed by readable slack. Raises `MemoryError`."""
    check_size(size)
    return on_cache_line(np.zeros(size + ALIGNMENT + SLACK, np.uint8), size)


def reserve(size: int) -> np.ndarray:
    """As `allocate`, but uninitialized except for the slack."""
    check_size(size)
    return on_cache_line(np.empty(size + ALIGNMENT + SLACK, np.uint8), size)


def check_size(size: int) -> None:
    """Raise `MemoryError` for more bytes than the machine has.

    Linux may be set to promise any amount, and then ends the process that writes to what is not there.
    """
    if size > _ALWAYS_TRIED and size > machine_memory():
        raise MemoryError(f"this machine has {machine_memory():,} bytes")


@cache
def machine_memory() -> int:
    """Bytes of memory and swap space; where the system does not say, more than any process can address."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = [line.split() for line in file]
        return sum(int(line[1]) << 10 for line in lines if line[0] in ("MemTotal:", "SwapTotal:"))
    except (OSError, ValueError, IndexError):
        return 1 << 62


def on_cache_line(block: np.ndarray, size: int) -> np.ndarray:
    """Return `size` bytes of a block, aligned to a cache line and followed by zeros."""
    skip = -address_of(block) % ALIGNMENT
    block[skip + size :] = 0
    return block[skip : skip + size]


def reserve_together(sizes: Sequence[int]) -> list[np.ndarray]:
    """As `reserve` for several sizes, in one block that the system may back with large pages."""
    starts = [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    block = reserve(starts[-1])
    return [block[start : start + size] for start, size in zip(starts, sizes, strict=False)]


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """A zeroed array that native kernels can read without a copy."""
    return allocate(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def is_readable_in_place(array: np.ndarray) -> bool:
    """Whether native kernels can read an array without a copy, and it cannot change."""
    if array.flags.writeable or not _is_plain(array):
        return False
    start = address_of(array)
    return start % ALIGNMENT == 0 and _has_slack(array, start)


def address_in_place(array: np.ndarray, is_exact: bool = False) -> int:
    """The address at which native kernels can read an array that may change later; 0 if they cannot.

    `is_exact`: they read nothing beyond its end.
    """
    if not _is_plain(array):
        return 0
    start = address_of(array)
    # What follows the last byte within its page can be read, regardless of its owner.
    readable = is_exact or -(start + array.nbytes) % _SMALLEST_PAGE >= SLACK or _has_slack(array, start)
    return start if readable and start % array.dtype.itemsize == 0 else 0


def _is_plain(array: np.ndarray) -> bool:
    return array.flags.c_contiguous and array.dtype.isnative and array.dtype != object


def address_of(array: np.ndarray) -> int:
    """The address of an array's first element, mostly in a third of the time of `array.ctypes`."""
    if array.flags.writeable:
        try:
            return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
        except (TypeError, ValueError, BufferError):
            pass  # empty, not contiguous, or of a type that buffers lack
    return int(array.__array_interface__["data"][0])


def _has_slack(array: np.ndarray, start: int) -> bool:
    block = array
    while isinstance(block.base, np.ndarray):
        block = block.base
    return block.flags.c_contiguous and address_of(block) + block.nbytes >= start + array.nbytes + SLACK
