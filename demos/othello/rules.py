"""Othello on bits: square 8 * row + column is a bit of a Python integer, row 0 on top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_FULL, _INNER = (1 << 64) - 1, 0x7E7E7E7E7E7E7E7E
# Steps along the four lines, with the squares that such a step can leave without going round the edge.
_LINES = ((1, _INNER), (8, _FULL), (7, _INNER), (9, _INNER))
CORNERS = 1 | 1 << 7 | 1 << 56 | 1 << 63


def squares(bits: int) -> list[int]:
    """The numbers of the squares in a set, lowest first."""
    found = []
    while bits:
        found.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    return found


def legal_moves(own: int, other: int) -> int:
    """The set of squares that the owner of `own` may play."""
    moves = 0
    for step, mask in _LINES:
        inside = other & mask
        up, down = inside & own << step, inside & own >> step
        for _ in range(5):
            up |= inside & up << step
            down |= inside & down >> step
        moves |= up << step | down >> step
    return moves & ~(own | other) & _FULL


def turned_by(own: int, other: int, square: int) -> int:
    """The set of the other's discs that a move turns over."""
    move, turned = 1 << square, 0
    for step, mask in _LINES:
        inside = other & mask
        up, down = inside & move << step, inside & move >> step
        for _ in range(5):
            up |= inside & up << step
            down |= inside & down >> step
        turned |= (up if up << step & own else 0) | (down if down >> step & own else 0)
    return turned


class Position:
    """Discs of the mover and of the other, and whose turn it is; who cannot move is passed over."""

    __slots__ = ("black_moves", "moves", "other", "own")

    def __init__(self, own: int, other: int, black_moves: bool) -> None:
        self.own, self.other, self.black_moves = own, other, black_moves
        self.moves = legal_moves(own, other)
        """The set of legal squares; empty where the game is over."""
        if not self.moves:
            back = legal_moves(other, own)
            if back:
                self.own, self.other, self.black_moves, self.moves = other, own, not black_moves, back

    @property
    def black(self) -> int:
        """The black discs."""
        return self.own if self.black_moves else self.other

    @property
    def white(self) -> int:
        """The white discs."""
        return self.other if self.black_moves else self.own

    @property
    def lead(self) -> int:
        """How many discs the mover has more than the other."""
        return self.own.bit_count() - self.other.bit_count()

    def play(self, square: int) -> Position:
        """What comes of a legal move. Raises ValueError for any other."""
        if not self.moves >> square & 1:
            raise ValueError(f"square {square} is no legal move here; legal: {squares(self.moves)}")
        turned = turned_by(self.own, self.other, square)
        return Position(self.other ^ turned, self.own ^ turned ^ (1 << square), not self.black_moves)


def opening() -> Position:
    """The first position; black begins."""
    return Position(1 << 28 | 1 << 35, 1 << 27 | 1 << 36, True)


def planes(positions: Sequence[Position], rows: int) -> np.ndarray:
    """The network's input, (rows, 3, 8, 8) float32: own discs, other's, legal squares; zeros fill it up."""
    sets = np.zeros((rows, 3), np.uint64)
    sets[: len(positions)] = [(p.own, p.other, p.moves) for p in positions]
    bits = np.unpackbits(sets.view(np.uint8).reshape(rows, 3, 8), axis=2, bitorder="little")
    return bits.reshape(rows, 3, 8, 8).astype(np.float32)


def greedy_move(position: Position) -> int:
    """The move that turns most discs over."""
    own, other = position.own, position.other
    return max(squares(position.moves), key=lambda square: turned_by(own, other, square).bit_count())


def careful_move(position: Position, random: np.random.Generator) -> int:
    """A corner, or else a move that leaves the other few: how the script plays your side."""

    def merit(square: int) -> float:
        after = position.play(square)
        room = after.moves.bit_count() * (1 if after.black_moves == position.black_moves else -1)
        gives_corner = bool(after.moves & CORNERS) and after.black_moves != position.black_moves
        return room + 20.0 * (CORNERS >> square & 1) - 12.0 * gives_corner + 1.5 * float(random.random())

    return max(squares(position.moves), key=merit)
