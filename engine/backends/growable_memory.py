"""`GrowableMemory`: memory shared by the programs of all sizes, allocated in steps and ahead of need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, TypeVar

from engine.backends.tensor_data import Changes
from engine.base.errors import OutOfMemoryError

Size = TypeVar("Size")
Memory = TypeVar("Memory")

ALLOCATION_ERRORS = (OutOfMemoryError, MemoryError, ValueError)
"""What `GrowableMemory.allocate` raises for more than the device has, or than it allows."""

replacements = Changes()
"""Of all memory that grew or was given back."""

_WORTH = 1 << 20
"""Bytes below which memory is never given back for being too large."""

_UNUSED = 64
"""After so many sizes in a row that would do with a third of the memory, it is given back; at most after
twice as many.
"""


class GrowableMemory(ABC, Generic[Size, Memory]):
    """Shared memory for programs that run in turn: large enough for every size so far.

    It grows by half of what a size needs. Once sizes vary, `needs_growth` tells when they come near to what
    there is, so that the next step is allocated before it is needed. Programs that were recorded before keep
    the memory that they know. Used on the worker's thread, apart from `allocate`.

    Attributes:
        memory: What there is; None before the first size.
    """

    memory: Memory | None = None
    _capacity: Size
    _near: Size | None = None
    """The largest size that is not near to the capacity; None if nothing is to be allocated ahead."""
    _latest: Size | None = None
    _varies = False
    _most: Size | None = None
    """The union of the last sizes, and that of those before: of `_UNUSED` sizes each."""
    _most_before: Size | None = None
    _count = 0

    @abstractmethod
    def allocate(self, size: Size) -> Memory:
        """Allocate; on any thread, within `Backend.background_compilation` there."""

    def allocate_touched(self, size: Size) -> Memory:
        """As `allocate`, and touch all pages on another thread than the frame's."""
        return self.allocate(size)

    @abstractmethod
    def nbytes(self, size: Size) -> int:
        """Bytes of memory of a size."""

    @abstractmethod
    def covers(self, larger: Size, size: Size) -> bool:
        """Whether memory of one size is large enough for another."""

    @abstractmethod
    def union(self, a: Size, b: Size) -> Size:
        """The smallest size that covers both."""

    @abstractmethod
    def grown_size(self, size: Size) -> Size:
        """A size one growth step larger, within the device's limits."""

    @abstractmethod
    def shrunk_size(self, size: Size) -> Size:
        """The size after shrinking by half a growth step."""

    def fits(self, size: Size) -> bool:
        """Whether there is memory for a size."""
        return self.memory is not None and self.covers(self._capacity, size)

    def record_use(self, size: Size) -> None:
        """Record the size of the next program. Frees memory far larger than any recent size."""
        if self._latest is not None and size != self._latest:
            self._varies = True
        self._latest = size
        self._most = size if self._most is None else self.union(self._most, size)
        self._count += 1
        if self._count < _UNUSED:
            return
        most, before = self._most, self._most_before
        self._most_before, self._most, self._count = most, None, 0
        if before is None or self.memory is None or self.nbytes(self._capacity) < _WORTH:
            return
        if self.covers(
            self._capacity, self.grown_size(self.grown_size(self.grown_size(self.union(most, before))))
        ):
            self.drop()

    def expect_varying_sizes(self) -> None:
        """Expect sizes that vary from the first one on."""
        self._varies = True

    def allocate_for(self, size: Size) -> tuple[Size, Memory]:
        """Allocate for a size that does not fit, with a growth step if sizes vary; also returns the size.

        On any thread, as `allocate`.
        """
        if self._varies or self.memory is not None:
            larger = self.grown_size(size)
            with suppress(*ALLOCATION_ERRORS):
                return larger, self.allocate(larger)
        return size, self.allocate(size)

    def needs_growth(self, size: Size) -> bool:
        """Whether to allocate a growth step ahead, as a size comes close to the limit."""
        return self._varies and self._near is not None and not self.covers(self._near, size)

    def next_size(self) -> Size | None:
        """The size to preallocate; None at the device's limit."""
        if self._latest is None or self.memory is None or not self.needs_growth(self._latest):
            return None
        size = self.grown_size(self._capacity)
        # Tried once for this capacity, even if it fails.
        self._near = None
        return None if self.covers(self._capacity, size) else size

    def adopt(self, size: Size, memory: Memory) -> None:
        """Use the result of `allocate`, unless the current memory is as large."""
        if not self.fits(size):
            self.memory, self._capacity, self._near = memory, size, self.shrunk_size(size)
            replacements.add()

    def reserve(self, size: Size) -> Memory:
        """The memory, for a size; allocated here if it is missing."""
        if not self.fits(size):
            self.adopt(*self.allocate_for(size))
        assert self.memory is not None
        return self.memory

    def drop(self) -> None:
        """Drop the memory; programs may still hold it."""
        self.memory = self._near = None
        replacements.add()

    def held_bytes(self) -> int:
        """Bytes of the memory that there is."""
        return 0 if self.memory is None else self.nbytes(self._capacity)


class GrowableBlock(GrowableMemory[int, Memory]):
    """Growable memory whose size is one number: bytes or elements.

    Args:
        unit: Bytes of one.
        limit: The most that the device allows.
    """

    def __init__(self, unit: int, limit: int) -> None:
        self._unit = unit
        self._limit = limit

    def nbytes(self, size: int) -> int:
        return size * self._unit

    def covers(self, larger: int, size: int) -> bool:
        return larger >= size

    def union(self, a: int, b: int) -> int:
        return max(a, b)

    def grown_size(self, size: int) -> int:
        """Half as much again."""
        return max(size, min(size + max(size // 2, 1), self._limit))

    def shrunk_size(self, size: int) -> int:
        """Four fifths."""
        return size * 4 // 5
