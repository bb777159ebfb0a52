"""The tree search, led by networks whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from demos.othello.rules import Position, opening, planes, squares
from demos.othello.search import Search


def think(search: Search, simulations: int, batch: int = 8) -> None:
    """Search with a network that knows nothing: all moves alike, no value."""
    while search.done < simulations:
        leaves = search.gather(batch)
        if leaves:
            search.receive(leaves, np.full((len(leaves), 64), 1 / 64), np.zeros((len(leaves), 1)))


def late_position(empties: int, seed: int) -> Position:
    """A position of a game of random moves with at most so many empty squares."""
    random = np.random.default_rng(seed)
    while True:
        position = opening()
        while position.moves:
            if 64 - (position.own | position.other).bit_count() <= empties:
                return position
            position = position.play(int(random.choice(squares(position.moves))))


def solve(position: Position) -> int:
    """The difference in discs for the mover with best play, by looking at all games."""
    if not position.moves:
        return position.lead
    best = -64
    for square in squares(position.moves):
        after = position.play(square)
        best = max(best, solve(after) * (1 if after.black_moves == position.black_moves else -1))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_a_winning_move_without_any_knowledge(seed: int) -> None:
    position = late_position(5, seed)
    search = Search(position)
    think(search, 600)
    square = search.choose(0.0, np.random.default_rng(0))
    after = position.play(square)
    reached = solve(after) * (1 if after.black_moves == position.black_moves else -1)
    assert np.sign(reached) == np.sign(solve(position))


def test_every_simulation_is_counted_once_and_no_loss_is_left_behind() -> None:
    search = Search(opening())
    think(search, 300)
    # All but the first one, which judged the root itself, went through a move.
    assert search.root.visits.sum() == search.done - 1
    assert np.abs(search.root.total).max() < 1e-9  # all values were 0


def test_a_batch_holds_different_positions_that_nobody_waits_for() -> None:
    search = Search(opening())
    think(search, 60)
    first, second = search.gather(8), search.gather(8)
    nodes = [id(node) for _, node in first + second]
    assert len(nodes) == len(set(nodes)) > 8
    search.receive(second, np.full((8, 64), 1 / 64), np.zeros((8, 1)))
    search.receive(first, np.full((8, 64), 1 / 64), np.zeros((8, 1)))
    assert np.abs(search.root.total).max() < 1e-9


def test_answers_to_what_was_asked_before_a_move_do_not_count_twice() -> None:
    search = Search(opening())
    think(search, 60)
    asked = search.gather(8)
    search.advance(search.choose(0.0, np.random.default_rng(0)))
    known = search.done
    search.receive(asked, np.full((len(asked), 64), 1 / 64), np.zeros((len(asked), 1)))
    assert search.done == known == int(search.root.visits.sum())
    think(search, known + 40)
    assert search.root.visits.sum() == search.done
    assert np.abs(search.root.total).max() < 1e-9


def test_values_are_seen_from_the_mover() -> None:
    """A network that loves white: black expects to lose, whoever's turn it is."""
    search = Search(opening())
    while search.done < 100:
        leaves = search.gather(8)
        values = np.array([[-0.8 if node.position.black_moves else 0.8] for _, node in leaves])
        search.receive(leaves, np.full((len(leaves), 64), 1 / 64), values)
    assert search.expectation == pytest.approx(-0.8, abs=0.05)
    search.advance(search.root.moves[0])
    assert search.expectation == pytest.approx(-0.8, abs=0.05)


def test_the_policy_leads_and_what_was_learned_is_kept() -> None:
    search = Search(opening())
    wanted = search.root.moves[2]
    while search.done < 80:
        leaves = search.gather(4)
        policies = np.full((len(leaves), 64), 1e-3)
        policies[:, wanted] = 1.0
        search.receive(leaves, policies, np.zeros((len(leaves), 1)))
    assert search.choose(0.0, np.random.default_rng(0)) == wanted
    child = search.root.children[search.root.moves.index(wanted)]
    search.advance(wanted)
    assert search.root is child
    assert search.done == int(search.root.visits.sum()) > 20


def test_chance_has_its_part_where_the_temperature_is_high() -> None:
    search = Search(opening())
    think(search, 100)
    random = np.random.default_rng(1)
    assert len({search.choose(1.0, random) for _ in range(60)}) == 4
    assert planes([search.root.position], 1).shape == (1, 3, 8, 8)
