"""Memory layout of NumPy's array objects, whose address, type and shape native code reads.

NumPy's C interface fixes the fields of an array, and CPython's those of an object, unless it was built in a
special way: with other fields before them, nothing is read so.
"""

from __future__ import annotations

import sys
from ctypes import c_int32, c_int64
from functools import cache

import numpy as np

OBJECT_TYPE, DATA, RANK, SHAPE, ELEMENT_TYPE, FLAGS = 1, 2, 3, 4, 7, 8
"""Which word, of 8 bytes, has an array's class, its address, the number of its axes (32 bits), the address of
its shape, its `dtype`, and its flags (32 bits).
"""

IN_ORDER = 1
"""The flag of arrays whose elements are in C order, without gaps."""


@cache
def are_readable() -> bool:
    """Whether these are the words of arrays here."""
    if sys.implementation.name != "cpython" or np.ndarray.__basicsize__ < 8 * FLAGS + 4:
        return False
    for array in (np.zeros((3, 5, 7), np.float32), np.zeros((11, 13), np.int64)[:, ::2]):
        words = (c_int64 * (FLAGS + 1)).from_address(id(array))
        found = words[OBJECT_TYPE], words[DATA], words[ELEMENT_TYPE], _half(words, RANK)
        if found != (id(np.ndarray), array.ctypes.data, id(array.dtype), array.ndim):
            return False
        if (c_int64 * array.ndim).from_address(words[SHAPE])[:] != [*array.shape]:
            return False
        if bool(_half(words, FLAGS) & IN_ORDER) != array.flags.c_contiguous:
            return False
    return True


def _half(words: object, place: int) -> int:
    """The 32 bits at a word."""
    return c_int32.from_buffer(words, 8 * place).value  # type: ignore[arg-type]
