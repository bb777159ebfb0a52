"""Memory of the CPU backend."""

from __future__ import annotations

from functools import cache

import numpy as np

from engine.backends.host import HostBuffer
from engine.base.dtypes import as_dtype
from engine.base.errors import DisposedError
from engine.base.memory.aligned import address_of, allocate


class CPUBuffer(HostBuffer):
    """Native memory as a NumPy array. `address` is its first byte's."""

    __slots__ = ("_array", "_block_bytes", "address", "dtype", "elements")

    def __init__(self, elements: int, dtype: np.dtype, memory: np.ndarray | None = None) -> None:
        """A buffer of its own, or over an array.

        Args:
            elements: How many elements it has.
            dtype: Their type.
            memory: The array to take as it is; see `engine.base.memory.aligned.is_readable_in_place`.
        """
        self.elements = elements
        self.dtype = native_type(dtype)
        if memory is None:
            memory = allocate(elements * self.dtype.itemsize).view(self.dtype)
        self._array: np.ndarray | None = memory
        self.address = address_of(memory)
        # Of the block whose beginning this is.
        self._block_bytes = memory.nbytes

    def first(self, elements: int) -> CPUBuffer:
        """A buffer over its first elements."""
        made = CPUBuffer.__new__(CPUBuffer)
        made.dtype, made.address, made._block_bytes = self.dtype, self.address, self._block_bytes
        made.resize(elements, self)
        return made

    def resize(self, elements: int, whole: CPUBuffer) -> None:
        """Become a view of the first `elements` elements of `whole`, which this already views."""
        self.elements, self._array = elements, whole.array[:elements]

    def block(self) -> tuple[int, int]:
        """The block's address and size."""
        return self.address, 0 if self._array is None else self._block_bytes

    @property
    def array(self) -> np.ndarray:
        """The elements, 1-D; changes when work in the stream writes them."""
        if self._array is None:
            raise DisposedError("this buffer was released")
        return self._array

    def release(self) -> None:
        """Drop the memory; enqueued work keeps it as long as needed."""
        self._array = None


@cache
def native_type(dtype: np.dtype) -> np.dtype:
    """A type in native byte order."""
    return as_dtype(np.dtype(dtype).name)
