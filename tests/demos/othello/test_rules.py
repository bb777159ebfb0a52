"""The rules on bits, against walks from square to square, and known counts of games."""

from __future__ import annotations

import numpy as np
import pytest

from demos.othello.rules import (
    Position,
    legal_moves,
    opening,
    planes,
    squares,
    turned_by,
)

STEPS = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if (r, c) != (0, 0)]


def slow_turned(own: set[int], other: set[int], square: int) -> set[int]:
    """What a move turns over, by walking in each direction."""
    if square in own or square in other:
        return set()
    turned: set[int] = set()
    for down, right in STEPS:
        row, column, line = square // 8 + down, square % 8 + right, set()
        while 0 <= row < 8 and 0 <= column < 8 and 8 * row + column in other:
            line.add(8 * row + column)
            row, column = row + down, column + right
        if 0 <= row < 8 and 0 <= column < 8 and 8 * row + column in own:
            turned |= line
    return turned


def bits(numbers: set[int]) -> int:
    return sum(1 << number for number in numbers)


def random_positions(count: int) -> list[Position]:
    """Positions of games of random moves."""
    random, position = np.random.default_rng(5), opening()
    found: list[Position] = []
    while len(found) < count:
        position = position.play(int(random.choice(squares(position.moves)))) if position.moves else opening()
        found.append(position)
    return found


def test_moves_and_turned_discs_are_those_of_a_walk() -> None:
    for position in random_positions(300):
        own, other = set(squares(position.own)), set(squares(position.other))
        expected = {square for square in range(64) if slow_turned(own, other, square)}
        assert set(squares(legal_moves(position.own, position.other))) == expected
        for square in expected:
            assert turned_by(position.own, position.other, square) == bits(slow_turned(own, other, square))


def test_as_many_games_as_are_known() -> None:
    """Games of so many plies from the start; a pass never comes this early."""

    def count(position: Position, plies: int) -> int:
        if plies == 0:
            return 1
        return sum(count(position.play(square), plies - 1) for square in squares(position.moves))

    assert [count(opening(), plies) for plies in range(1, 6)] == [4, 12, 56, 244, 1396]


def test_who_cannot_move_is_passed_over_and_games_end() -> None:
    passed = 0
    for start in range(40):
        random, position = np.random.default_rng(start), opening()
        while position.moves:
            after = position.play(int(random.choice(squares(position.moves))))
            assert after.passed == (after.black_moves == position.black_moves and after.moves != 0)
            assert after.lead == len(squares(after.own)) - len(squares(after.other))
            if after.passed:
                mover, other = (after.own, after.other)
                assert legal_moves(other, mover) == 0
                passed += 1
            position = after
        assert legal_moves(position.own, position.other) == 0
        assert legal_moves(position.other, position.own) == 0
        assert position.black & position.white == 0
    assert passed > 10


def test_an_illegal_move_is_named() -> None:
    with pytest.raises(ValueError, match="square 0 is no legal move here; legal: "):
        opening().play(0)


def test_planes_are_own_other_legal() -> None:
    positions = random_positions(3)
    x = planes(positions, 5)
    assert x.shape == (5, 3, 8, 8)
    assert x.dtype == np.float32
    for row, position in enumerate(positions):
        for plane, expected in enumerate((position.own, position.other, position.moves)):
            assert np.flatnonzero(x[row, plane]).tolist() == squares(expected)
    assert not x[3:].any()
