"""Results take memory that nobody holds any more, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from engine.base.memory.aligned import ALIGNMENT, address_in_place, address_of
from engine.base.memory.results import LEAST, MOST, MOST_BLOCKS, MOST_KEPT, OutputPool, ResultMemory

F32 = np.dtype(np.float32)
SHAPE = (3, LEAST // 8)


def test_a_block_is_used_again_once_nobody_holds_an_array_in_it() -> None:
    results = ResultMemory()
    first = results.array(SHAPE, F32)
    place = address_of(first)
    assert place % ALIGNMENT == 0
    assert address_in_place(first) == place
    part, seen = first[1:, ::2], memoryview(first[2])
    del first
    assert address_of(results.array(SHAPE, F32)) != place
    del part
    other = results.array(SHAPE, F32)
    assert address_of(other) != place
    seen.release()
    del seen
    assert address_of(results.array((SHAPE[1], 3), np.dtype(np.int32))) == place


def test_of_several_blocks_the_latest_is_used_again() -> None:
    """It may still be in the caches."""
    results = ResultMemory()
    first, second = results.array(SHAPE, F32), results.array(SHAPE, F32)
    place = address_of(second)
    del first, second
    assert [address_of(results.array(SHAPE, F32)) for _ in range(3)] == [place] * 3


def test_results_that_are_held_never_change() -> None:
    results = ResultMemory()
    rng = np.random.default_rng(1)
    held: list[tuple[np.ndarray, float]] = []
    for step in range(200):
        rows = int(rng.integers(1, 4))
        made = results.copy(np.full((rows, SHAPE[1] * 2), step, np.float32)[:, ::2])
        held.append((made[rng.integers(rows) :], step))
        for _ in range(int(rng.integers(0, 3))):
            if held:
                held.pop(int(rng.integers(len(held))))
        for array, value in held:
            assert (array == value).all()


def test_few_blocks_are_kept() -> None:
    """However many results are held, and of however many sizes."""
    results = ResultMemory()
    for count in (MOST_BLOCKS + 3, 2):
        held = [results.array((SHAPE[0] * 2**k, SHAPE[1]), F32) for k in range(count)]
        assert len(results._pieces) == MOST_BLOCKS
        assert len({address_of(array) for array in held}) == count


def test_few_bytes_are_kept() -> None:
    results = ResultMemory()
    held = [results.array((MOST,), np.dtype(np.uint8)) for _ in range(MOST_BLOCKS)]
    assert len(results._pieces) == MOST_KEPT // MOST < len(held)


def test_outputs_take_the_memory_of_those_before_in_turn() -> None:
    memory, places = OutputPool(), []
    held: list[np.ndarray] = []
    for turn in range(9):
        array, place, is_new = memory.elements(4000 + 8 * turn, F32, 3)
        assert is_new == (turn < 3)
        assert array.shape == (1000 + 2 * turn,)
        assert address_in_place(array) == address_of(array) == place
        places.append(place)
        held = [*held[-1:], array]
        del array
    assert places == places[:3] * 3


def test_outputs_take_the_latest_memory_that_nobody_holds() -> None:
    memory = OutputPool()
    first, second = memory.elements(4000, F32, 3), memory.elements(4000, F32, 3)
    places = first[1], second[1]
    del first, second
    assert [memory.elements(4000, F32, 3)[1:] for _ in range(3)] == [(places[1], False)] * 3


def test_several_outputs_take_the_memory_of_those_before() -> None:
    """Although few of the blocks that may be kept are there at first."""
    memory, held = OutputPool(), list[np.ndarray]()
    for turn in range(5):
        found = [memory.elements(4000, F32, 6) for _ in range(2)]
        assert [is_new for _, _, is_new in found] == [turn < 2] * 2
        held = [array for array, _, _ in found]
        del found
    assert len(held) == 2


def test_outputs_take_no_memory_that_is_held_or_of_another_size() -> None:
    memory = OutputPool()
    held = [memory.elements(4000, F32, 3) for _ in range(7)]
    assert len({address for _, address, _ in held}) == 7
    assert len(memory._pieces) == 3
    held.clear()
    for size in (1000, 8000, 2 * LEAST, LEAST // 2):
        assert len(memory.elements(size, F32, 3)[0]) == size // 4
    assert sorted(len(piece) for piece, _ in memory._pieces) == [10_000, 5 * LEAST // 8, 5 * LEAST // 2]
    held = [memory.elements(LEAST, F32, 3) for _ in range(2)]
    assert sorted(len(piece) for piece, _ in memory._pieces) == [5 * LEAST // 8, *[5 * LEAST // 4] * 2]
    for _ in range(3):
        memory.elements(MOST_KEPT // 2, F32, 3)
    assert len(memory._pieces) == 2


@pytest.mark.parametrize("size", [1, LEAST - 4, MOST + 4])
def test_small_and_huge_results_are_not_kept(size: int) -> None:
    results = ResultMemory()
    assert results.array((size // 4,), F32).base is None
    assert not results._pieces


def test_a_block_is_not_much_larger_than_its_result() -> None:
    results = ResultMemory()
    place = address_of(results.array((LEAST,), F32))
    assert address_of(results.array((LEAST // 2,), F32)) != place
    assert address_of(results.array((LEAST - LEAST // 8,), F32)) == place
