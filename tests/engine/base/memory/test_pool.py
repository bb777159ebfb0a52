"""Pieces of large blocks: where kernels can read them, apart from each other, and only where it pays."""

from __future__ import annotations

import threading

import numpy as np

from engine.base.memory.aligned import is_readable_in_place
from engine.base.memory.pool import BLOCK, LEAST_EXPECTED, LEAST_PIECE, Pool, reserve_lasting


def owner(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def test_pieces_share_blocks_and_do_not_overlap() -> None:
    pool = Pool(LEAST_EXPECTED)
    with pool.open():
        pieces = [reserve_lasting(LEAST_PIECE + 1000 * i) for i in range(200)]
    assert len({id(owner(piece)) for piece in pieces}) < 12
    for number, piece in enumerate(pieces):
        piece[:] = number
    for number, piece in enumerate(pieces):
        assert len(piece) == LEAST_PIECE + 1000 * number
        assert (piece == number).all()
        piece.flags.writeable = False
        assert is_readable_in_place(piece)


def test_small_and_very_large_pieces_and_small_models_have_memory_of_their_own() -> None:
    for pool, size in ((Pool(LEAST_EXPECTED), 100), (Pool(LEAST_EXPECTED), BLOCK), (Pool(1000), LEAST_PIECE)):
        with pool.open():
            piece = reserve_lasting(size)
        assert len(piece) == size
        assert len(owner(piece)) < size + 1000


def test_a_pool_is_open_on_its_thread_and_within_its_block_only() -> None:
    outer, inner = Pool(LEAST_EXPECTED), Pool(LEAST_EXPECTED)
    others: list[np.ndarray] = []
    with outer.open():
        first = reserve_lasting(LEAST_PIECE)
        with inner.open():
            second = reserve_lasting(LEAST_PIECE)
        third = reserve_lasting(LEAST_PIECE)
        thread = threading.Thread(target=lambda: others.append(reserve_lasting(LEAST_PIECE)))
        thread.start()
        thread.join()
    assert owner(first) is owner(third)
    assert owner(second) is not owner(first)
    assert len(owner(others[0])) < BLOCK
    assert len(owner(reserve_lasting(LEAST_PIECE))) < BLOCK
