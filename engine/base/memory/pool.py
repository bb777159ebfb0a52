"""Pool for packed weights: parts of large blocks, which the system can back with large pages.

A product with one row reads each weight once. Scattered over pages of 4 KiB, large weights cost an entry of
the address cache every 4 KiB, and every block of its own begins at a page that the processor has not
fetched ahead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from engine.base.memory.aligned import ALIGNMENT, SLACK, on_cache_line, reserve

LEAST_EXPECTED = 1 << 23
"""Bytes of a model's weights below which a block would rather take memory than time."""

BLOCK = 1 << 22
"""Bytes of a block: from this size on NumPy asks the system for large pages."""

LEAST_PIECE = 1 << 15


class Pool:
    """Allocates from large blocks. A block lives as long as any of its parts."""

    def __init__(self, expected: int) -> None:
        """expected: bytes of all pieces together, roughly."""
        self._is_used = expected >= LEAST_EXPECTED
        self._block = np.empty(0, np.uint8)
        self._taken = 0
        self._lock = threading.Lock()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Context manager: `reserve_lasting` allocates from this pool on this thread."""
        before = getattr(_open, "pool", None)
        _open.pool = self
        try:
            yield
        finally:
            _open.pool = before

    def piece(self, size: int) -> np.ndarray:
        """Allocate uninitialised bytes from the pool."""
        if not self._is_used or not LEAST_PIECE <= size <= BLOCK // 2:
            return reserve(size)
        whole = size + ALIGNMENT + SLACK
        with self._lock:
            if self._taken + whole > len(self._block):
                self._block, self._taken = np.empty(BLOCK, np.uint8), 0
            part = self._block[self._taken : self._taken + whole]
            self._taken += whole
        return on_cache_line(part, size)


_open = threading.local()


def reserve_lasting(size: int) -> np.ndarray:
    """As `reserve`, for long-lived packed weights: from the open pool, if any."""
    pool: Pool | None = getattr(_open, "pool", None)
    return reserve(size) if pool is None else pool.piece(size)
