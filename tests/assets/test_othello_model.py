"""The othello model plays as its card says, and the teacher's rules are those of the demo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from demos.othello.rules import Position, legal_moves, opening, planes, squares, turned_by
from tests.peer import open_session

FOLDER = Path(__file__).parents[2] / "assets" / "othello"
MODEL = FOLDER / "othello.onnx"


def stated(player: str) -> list[float]:
    """A player's shares of points in the card's table, from 0 to 1, one an opponent."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(player)} \|(.*)\|$", card, re.MULTILINE)
    assert found is not None, f"the card has no row {player!r}"
    return [float(share) / 100 for share in re.findall(r"([\d.]+)%", found[1])]


@pytest.fixture(scope="module")
def session() -> Any:
    return open_session(MODEL)


def random_positions(count: int, seed: int) -> list[Position]:
    random, position = np.random.default_rng(seed), opening()
    found: list[Position] = []
    while len(found) < count:
        position = position.play(int(random.choice(squares(position.moves)))) if position.moves else opening()
        if position.moves:
            found.append(position)
    return found


def test_policy_alone_beats_random_moves_as_the_card_says(session: Any) -> None:
    """Sixty games side by side, each move of all in one batch."""
    random = np.random.default_rng(0)
    games = [opening() for _ in range(60)]
    while any(game.moves for game in games):
        policy, _ = session.run(None, {"planes": planes(games, len(games))})
        for number, game in enumerate(games):
            if game.moves:
                moves = squares(game.moves)
                best = moves[int(policy[number, moves].argmax())]
                mine = game.black_moves == (number % 2 == 0)
                games[number] = game.play(best if mine else int(random.choice(moves)))
    leads = [game.black.bit_count() - game.white.bit_count() for game in games]
    points = [0.5 + 0.5 * np.sign(lead if number % 2 == 0 else -lead) for number, lead in enumerate(leads)]
    assert float(np.mean(points)) == pytest.approx(stated("policy alone")[0], abs=0.08)


def test_the_card_states_what_makes_the_strengths_differ() -> None:
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+ \(\d+ simulations\)) \|", card, re.MULTILINE)
    assert len(rows) == 3
    novice, player, master = (stated(row) for row in rows)
    assert all(len(shares) == 4 for shares in (novice, player, master))
    assert min(master[:2]) >= 0.9
    assert player[0] >= 0.95
    assert novice[2] <= master[2]


def test_outputs_are_a_distribution_over_legal_moves_and_a_value(session: Any) -> None:
    positions = random_positions(40, 3)
    policy, value = session.run(["policy", "value"], {"planes": planes(positions, 40)})
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, atol=1e-5)
    for row, position in zip(policy, positions, strict=True):
        assert row[squares(position.moves)].sum() > 0.999
    assert value.shape == (40, 1)
    assert np.abs(value).max() <= 1.0


def test_value_tells_who_wins_near_the_end(session: Any) -> None:
    positions = [
        p for p in random_positions(4000, 9) if (p.own | p.other).bit_count() >= 58 and abs(p.lead) > 12
    ]
    _, value = session.run(None, {"planes": planes(positions, len(positions))})
    assert np.mean(np.sign(value[:, 0]) == np.sign([p.lead for p in positions])) > 0.7


def test_the_teacher_has_the_same_rules() -> None:
    teacher = pytest.importorskip("assets.othello.teacher")
    for position in random_positions(60, 5):
        own, other = np.uint64(position.own), np.uint64(position.other)
        assert int(teacher.legal.py_func(own, other)) == legal_moves(position.own, position.other)
        square = squares(position.moves)[0]
        turned = teacher.flipped.py_func(own, other, np.uint64(1 << square))
        assert int(turned) == turned_by(position.own, position.other, square)


def test_file_is_small_and_says_nothing_about_the_machine_that_made_it() -> None:
    assert MODEL.stat().st_size < 500_000
    model = onnx.load(MODEL, load_external_data=False)
    (x,) = model.graph.input
    assert [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] == ["batch", 3, 8, 8]
    assert [output.name for output in model.graph.output] == ["policy", "value"]
    things = [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer]
    assert not any(thing.doc_string or len(thing.metadata_props) for thing in things)
