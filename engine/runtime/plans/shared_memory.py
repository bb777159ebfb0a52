"""Memory shared by plans of all sizes: requirements, and allocation on another thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.backends.base import Backend, DeviceBuffer
from engine.backends.growable_memory import ALLOCATION_ERRORS, GrowableBlock, GrowableMemory
from engine.backends.host import HostBuffer
from engine.base.generators import Offload, SmallSteps
from engine.base.memory.out_of_memory import LARGE, MOST_BYTES

Allocated = list[tuple[GrowableMemory[Any, Any], Any, Any]]
"""Memory that was allocated: what it is for, its size, and the new memory."""


LEAST_TOUCHED = 1 << 16
"""Bytes of a buffer on the CPU from which it is allocated ahead: the system gives the pages of new memory one
by one as they are first written, which takes ten times as long as writing them.
"""


class SharedBuffer(GrowableBlock[DeviceBuffer]):
    """The buffer of an input or output, in elements.

    is_input: Whether it is written from the host rather than read back.
    """

    def __init__(self, backend: Backend, dtype: np.dtype, is_input: bool) -> None:
        super().__init__(backend.element_dtype(dtype).itemsize, MOST_BYTES)
        self.backend = backend
        self.dtype = dtype
        self._is_input = is_input
        self.is_noted = is_input and backend.is_host
        """Whether `Recorder.share` notes its sizes; otherwise `allocating` does."""

    def allocate(self, size: int) -> DeviceBuffer:
        """A new buffer; on any thread within `Backend.background_compilation`."""
        self.backend.preallocate_transfers(size, self.dtype, self._is_input)
        return self.backend.create_unset(size, self.dtype)

    def allocate_touched(self, size: int) -> DeviceBuffer:
        """As `allocate`, and touch all pages on the CPU so that the next writer need not wait for them."""
        memory = self.allocate(size)
        if isinstance(memory, HostBuffer):
            memory.array[...] = 0
        return memory

    def needs_growth(self, size: int) -> bool:
        """Whether a step is to be allocated ahead: on the CPU, of large buffers only."""
        if not super().needs_growth(size):
            return False
        return not self.backend.is_host or self.nbytes(size) >= LEAST_TOUCHED

    def adopt(self, size: int, memory: DeviceBuffer) -> None:
        """Use new memory, unless the current one is as large. Plans hold the previous memory."""
        before = self.memory
        super().adopt(size, memory)
        for buffer in (before, memory):
            if buffer is not None and buffer is not self.memory:
                buffer.release()

    def drop(self) -> None:
        """Free the memory."""
        if self.memory is not None:
            self.memory.release()
        super().drop()


@dataclass(frozen=True, slots=True)
class MemoryRequirement:
    """Shared memory that a plan needs.

    Attributes:
        backend: The backend that it belongs to.
        memory: What it is, and the size of each.
        naming: Makes a block that raises `OutOfMemoryError` with a tensor's name.
    """

    backend: Backend
    memory: Sequence[tuple[GrowableMemory[Any, Any], Any]]
    naming: Callable[[], AbstractContextManager[None]]


def allocating(needs: Sequence[MemoryRequirement]) -> SmallSteps[list[GrowableMemory[Any, Any]]]:
    """Allocate missing memory, on another thread if the caller has one.

    Returns what is to be allocated ahead, as the sizes come near to what there is.
    """
    missing = []
    sizes: dict[GrowableMemory[Any, Any], Any] = {}
    for need in needs:
        steps = []
        for memory, size in need.memory:
            memory.record_use(size)
            # Segments may share it.
            known = sizes.get(memory)
            if not memory.fits(size) and (known is None or not memory.covers(known, size)):
                steps.append((memory, size))
                sizes[memory] = size
        if steps:
            missing.append((need, steps))
    if missing:
        work = Offload(lambda: [item for need, steps in missing for item in _allocated(need, steps)])
        yield work
        for memory, size, made in work.result():
            memory.adopt(size, made)
            yield None
    return [memory for need in needs for memory, size in need.memory if memory.needs_growth(size)]


def _allocated(need: MemoryRequirement, steps: Sequence[tuple[GrowableMemory[Any, Any], Any]]) -> Allocated:
    with need.naming():
        found = [(memory, *memory.allocate_for(size)) for memory, size in steps]
        if sum(memory.nbytes(size) for memory, size, _ in found) >= LARGE:
            need.backend.check_memory()
    return found


def allocating_ahead(wanted: Sequence[GrowableMemory[Any, Any]], backend: Backend) -> SmallSteps[None]:
    """Allocate some memory ahead of need; without memory for it, nothing changes."""
    steps = [(memory, size) for memory in wanted if (size := memory.next_size()) is not None]

    def made() -> Allocated:
        found: Allocated = []
        with suppress(*ALLOCATION_ERRORS):
            for memory, size in steps:
                new = memory.allocate_touched(size)
                if memory.nbytes(size) >= LARGE:
                    backend.check_memory()
                found.append((memory, size, new))
        return found

    if steps:
        work = Offload(made)
        yield work
        for memory, size, new in work.result():
            memory.adopt(size, new)
            yield None
