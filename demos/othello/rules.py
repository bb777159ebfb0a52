"""Othello rules on bitboards: square 8 * row + column is a bit of a Python integer, row 0 on top."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

_FULL, _INNER = (1 << 64) - 1, 0x7E7E7E7E7E7E7E7E
# Steps along the four directions, with the squares from which a step does not wrap around the edge.
_LINES = ((1, _INNER), (8, _FULL), (7, _INNER), (9, _INNER))


def squares(bits: int) -> list[int]:
    """The numbers of the squares in a set, lowest first."""
    return [square for square in range(64) if bits >> square & 1]


def _rows(start: int, other: int) -> Iterator[tuple[int, int]]:
    """For each of the eight directions, the rows of `other` discs next to the squares `start`, and the
    squares behind those rows.
    """
    for step, mask in _LINES:
        inside = other & mask
        up, down = inside & start << step, inside & start >> step
        for _ in range(5):
            up |= inside & up << step
            down |= inside & down >> step
        yield up, up << step
        yield down, down >> step


def legal_moves(own: int, other: int) -> int:
    """The legal squares of the side with the discs `own`."""
    moves = 0
    for _, behind in _rows(own, other):
        moves |= behind
    return moves & ~(own | other) & _FULL


def turned_by(own: int, other: int, square: int) -> int:
    """The discs that a move turns over."""
    return sum(row for row, behind in _rows(1 << square, other) if behind & own)


class Position:
    """The discs of both sides and the side to move; a side without a legal move passes."""

    def __init__(self, own: int, other: int, black_moves: bool) -> None:
        self.moves = legal_moves(own, other)
        """The legal squares; empty when the game is over."""
        self.passed = not self.moves and legal_moves(other, own) != 0
        if self.passed:
            own, other, black_moves, self.moves = other, own, not black_moves, legal_moves(other, own)
        self.own, self.other, self.black_moves = own, other, black_moves
        self.black, self.white = (own, other) if black_moves else (other, own)
        self.lead = own.bit_count() - other.bit_count()
        """Discs of the mover minus discs of the other side."""

    def play(self, square: int) -> Position:
        """The position after a legal move. Raises ValueError for an illegal one."""
        if not self.moves >> square & 1:
            raise ValueError(f"square {square} is no legal move here; legal: {squares(self.moves)}")
        turned = turned_by(self.own, self.other, square)
        return Position(self.other ^ turned, self.own ^ turned ^ (1 << square), not self.black_moves)


def opening() -> Position:
    """The first position; black moves."""
    return Position(1 << 28 | 1 << 35, 1 << 27 | 1 << 36, True)


def planes(positions: Sequence[Position], rows: int) -> np.ndarray:
    """The network's input, (rows, 3, 8, 8) float32: own discs, other discs, legal squares; zero-padded."""
    sets = np.zeros((rows, 3), np.uint64)
    sets[: len(positions)] = [(p.own, p.other, p.moves) for p in positions]
    bits = np.unpackbits(sets.view(np.uint8).reshape(rows, 3, 8), axis=2, bitorder="little")
    return bits.reshape(rows, 3, 8, 8).astype(np.float32)
