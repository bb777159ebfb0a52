"""Memory of the CPU backend."""

from __future__ import annotations

from functools import cache
from math import prod

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
        made.elements, made._array = elements, self.array[:elements]
        return made

    def block(self) -> tuple[int, int]:
        """The block's address and size."""
        return self.address, 0 if self._array is None else self._block_bytes

    @property
    def array(self) -> np.ndarray:
        """The elements, 1-D; changes when work in the stream writes them."""
        if self._array is None:
            raise DisposedError("this buffer was released")
        return self._array

    def view(self, shape: tuple[int, ...]) -> np.ndarray:
        """The first elements in a shape."""
        if self._array is None:
            raise DisposedError("this buffer was released")
        return self._array[: prod(shape)].reshape(shape)

    def release(self) -> None:
        """Drop the memory; enqueued work keeps it as long as needed."""
        self._array = None


class SizedBuffer(CPUBuffer):
    """The first elements of another buffer: as many as a word says, which native code writes."""

    __slots__ = ("_place", "_row", "_rows", "_words")

    def __init__(self, whole: CPUBuffer, words: memoryview, place: int) -> None:
        self.dtype, self.address, self._block_bytes = whole.dtype, whole.address, whole._block_bytes
        self._array, self._words, self._place = whole.array, words, place
        # The whole buffer in the first shape of several axes, apart from the first axis.
        self._row: tuple[int, ...] | None = None
        self._rows = self._array

    @property
    def elements(self) -> int:  # type: ignore[override]
        """How many elements it has now."""
        return self._words[self._place] or 1

    @property
    def array(self) -> np.ndarray:
        """The elements that it has now, 1-D."""
        return self.view((self.elements,))

    def view(self, shape: tuple[int, ...]) -> np.ndarray:
        """The first elements in a shape; sizes often differ in its first axis alone."""
        if shape[1:] == self._row:
            return self._rows[: shape[0]]
        if self._row is None and len(shape) > 1 and (row := prod(shape[1:])):
            whole = self._rows[: len(self._rows) // row * row]
            self._row, self._rows = shape[1:], whole.reshape(-1, *shape[1:])
        return super().view(shape)

    def release(self) -> None:
        """Drop the memory; enqueued work keeps it as long as needed."""
        super().release()
        self._row, self._rows = None, np.empty(0, self.dtype)


@cache
def native_type(dtype: np.dtype) -> np.dtype:
    """A type in native byte order."""
    return as_dtype(np.dtype(dtype).name)
