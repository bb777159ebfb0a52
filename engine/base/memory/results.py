"""Memory of results, reused once no array refers to it.

The system zeroes memory page by page when it is first written, which takes longer than copying a result
there. So the producer of results keeps a few blocks, and a result of about the same size takes one that no
array refers to any more.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from engine.base.memory.aligned import address_of, check_size, reserve

LEAST = 1 << 17
"""Bytes of a result below which the C library has memory at hand."""

MOST = 1 << 25
"""Bytes of a result that is too large to be kept."""

MOST_BLOCKS = 4
"""Blocks that are kept, those in use included: a caller often holds a result until it has the next one."""

MOST_KEPT = 1 << 26
"""Bytes of all blocks that are kept."""


class ResultMemory:
    """Allocates result arrays and reuses their memory. Not thread-safe."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        # The latest last; each is a part of a block, to which all arrays in it refer.
        self._pieces: list[np.ndarray] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """An array with elements of any value, aligned for native kernels."""
        size = prod(shape) * dtype.itemsize
        if not LEAST <= size <= MOST:
            check_size(size)
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, self._piece(size))

    def copy(self, array: np.ndarray) -> np.ndarray:
        """A copy in C order."""
        if array.nbytes < LEAST:
            return array.copy()
        made = self.array(array.shape, array.dtype)
        made[...] = array
        return made

    def _piece(self, size: int) -> np.ndarray:
        pieces = self._pieces
        # The latest first, which may still be in the caches.
        for k in reversed(range(len(pieces))):
            piece = pieces[k]
            if size <= len(piece) <= size + size // 4 and _references(piece) == _UNUSED:
                pieces.append(pieces.pop(k))
                return piece
        made = reserve(size)
        pieces.append(made)
        while len(pieces) > MOST_BLOCKS or sum(map(len, pieces)) > MOST_KEPT:
            del pieces[0]
        return made


class OutputPool:
    """Memory for the outputs of the latest runs, reused once nothing refers to it. Not thread-safe."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        # As in `ResultMemory`, each with its address.
        self._pieces: list[tuple[np.ndarray, int]] = []

    def elements(self, size: int, dtype: np.dtype[Any], most: int) -> tuple[np.ndarray, int, bool]:
        """So many bytes as a 1-D array with elements of any value, for native kernels.

        The latest of `most` blocks to which no array refers and which has about that size or is small; else a
        new one.

        Returns:
            The array, its address, and whether the block is new.
        """
        pieces = self._pieces
        for k in reversed(range(len(pieces))):
            piece, address = pieces[k]
            if size <= len(piece) <= max(2 * size, LEAST) and _references(piece) == _UNUSED:
                pieces.append(pieces.pop(k))
                return piece[:size].view(dtype), address, False
        # With room for the next sizes, if they grow.
        piece = reserve(size + size // 4)
        address = address_of(piece)
        del pieces[: max(len(pieces) + 1 - most, 0)]
        if len(piece) * most <= MOST_KEPT:
            pieces.append((piece, address))
        return piece[:size].view(dtype), address, True


def _references(piece: np.ndarray) -> int:
    """How many references there are to the block of a piece: one of each array in it, and this call's."""
    return sys.getrefcount(piece.base)


_UNUSED = _references(reserve(1))
