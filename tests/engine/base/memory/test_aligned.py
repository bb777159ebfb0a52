"""Which memory native kernels may read where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.base.memory.aligned import (
    ALIGNMENT,
    SLACK,
    address_in_place,
    aligned,
    allocate,
    is_readable_in_place,
    machine_memory,
    reserve,
    reserve_together,
)


def fixed(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def test_only_memory_with_room_behind_it_that_nobody_writes_is_read_in_place() -> None:
    whole = aligned((100, 16), np.dtype(np.float32))
    assert whole.ctypes.data % ALIGNMENT == 0
    assert not is_readable_in_place(whole)
    fixed(whole)
    assert is_readable_in_place(whole)
    assert is_readable_in_place(whole.reshape(-1))
    assert is_readable_in_place(whole[1:])
    assert not is_readable_in_place(whole.T)
    assert not is_readable_in_place(whole.reshape(-1)[1:])
    assert not is_readable_in_place(whole.view(">f4"))
    plain = np.zeros(1000 + ALIGNMENT, np.uint8)
    skip = -plain.ctypes.data % ALIGNMENT
    assert not is_readable_in_place(fixed(plain[skip:]))
    assert is_readable_in_place(fixed(plain[skip : 1000 + ALIGNMENT - SLACK]))


def test_pieces_of_one_block_are_read_in_place() -> None:
    pieces = reserve_together([100, 0, 64, 1])
    assert [piece.nbytes for piece in pieces] == [100, 0, 64, 1]
    for number, piece in enumerate(pieces):
        piece[...] = number
    assert [set(piece.tolist()) for piece in pieces] == [{0}, set(), {2}, {3}]
    assert all(is_readable_in_place(fixed(piece)) for piece in pieces)


def test_the_processor_reads_such_constants_where_they_lie_and_copies_others() -> None:
    backend = CPUBackend()
    there, other = fixed(aligned((4, 8), np.dtype(np.float32))), fixed(np.zeros(3, np.float32)[1:])
    assert np.shares_memory(backend.constant(there).array, there)
    assert not np.shares_memory(backend.constant(other).array, other)
    assert not np.shares_memory(backend.create(32, there.dtype, there).array, there)
    backend.dispose()


def test_memory_that_may_change_later_is_read_in_place_up_to_the_end_of_its_page() -> None:
    whole = aligned((100, 16), np.dtype(np.float32))
    assert address_in_place(whole) == whole.ctypes.data
    assert address_in_place(whole[1:]) == whole[1:].ctypes.data
    assert address_in_place(whole.T) == 0
    assert address_in_place(whole.view(">f4")) == 0
    assert address_in_place(np.array(["a"], object)) == 0
    block = np.zeros(3 * 4096, np.uint8)
    page = block[-block.ctypes.data % 4096 :][: 2 * 4096]
    inside = page[: 4096 - SLACK]
    assert address_in_place(inside) == inside.ctypes.data
    # Views know of the whole block; an array of its own ends where its memory does.
    assert address_in_place(np.frombuffer(page[: 4096 - SLACK].data, np.uint8)) == inside.ctypes.data
    assert address_in_place(np.frombuffer(page[: 4096 - SLACK + 1].data, np.uint8)) == 0
    assert address_in_place(np.frombuffer(page[:4096].data, np.uint8)) == 0
    assert address_in_place(np.frombuffer(page[:4096].data, np.uint8), is_exact=True) == page.ctypes.data
    assert address_in_place(np.frombuffer(page[1:401].data, np.float32)) == 0


@pytest.mark.skipif(not Path("/proc/meminfo").is_file(), reason="only Linux may promise what is not there")
def test_more_than_the_machine_has_is_refused_whatever_the_system_promises() -> None:
    assert 1 << 28 < machine_memory() < 1 << 50
    for make in (allocate, reserve):
        with pytest.raises(MemoryError, match="this machine has"):
            make(machine_memory() + 1)
