"""Memory of the CPU backend: blocks that start on a cache line and may be read a little beyond their end."""

from __future__ import annotations

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.dtypes import as_dtype
from engine.errors import DisposedError

ALIGNMENT = 64

SLACK = 256
"""Bytes behind each buffer that kernels may read (never write), so that no vector is a special case."""


def allocate(size: int) -> np.ndarray:
    """`size` zeroed bytes on a cache line, with readable slack behind them."""
    block = np.zeros(size + ALIGNMENT + SLACK, np.uint8)
    skip = -block.ctypes.data % ALIGNMENT
    return block[skip : skip + size]


class CPUBuffer(DeviceBuffer):
    """Native memory as a NumPy array. `address` is its first byte's."""

    __slots__ = ("_array", "address", "dtype", "elements")

    def __init__(self, elements: int, dtype: np.dtype) -> None:
        self.elements = elements
        self.dtype = as_dtype(np.dtype(dtype).name)
        self._array: np.ndarray | None = allocate(elements * self.dtype.itemsize).view(self.dtype)
        self.address = int(self._array.ctypes.data)

    @property
    def array(self) -> np.ndarray:
        """The elements, 1-D; changes when work in the stream writes them."""
        if self._array is None:
            raise DisposedError("this buffer was released")
        return self._array

    def release(self) -> None:
        """Let go of the memory; work that was enqueued holds it for as long as it needs it."""
        self._array = None
