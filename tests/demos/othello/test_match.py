"""The demo as it is played: clicks, keys, both sides by the network, and one that takes its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from demos.othello.main import build
from demos.othello.match import STRENGTHS, Match
from demos.othello.view import BUTTONS, SQUARES
from gameglue import InputScript
from tests.demos.playing import Demo, Play, part

Start = Callable[..., tuple[Demo, Match]]


@pytest.fixture
def play(play_undrawn: Play) -> Start:
    """`play(script, **options)`: the demo and its match, with answers after so many frames."""

    def start(script: InputScript | None = None, **options: Any) -> tuple[Demo, Match]:
        app = play_undrawn(build, script, **{"deterministic": True, **options})
        return app, part(app, Match)

    return start


def click(script: InputScript, square: int, at: float) -> InputScript:
    return script.click(*SQUARES[square].center, at=at)


def test_a_click_plays_and_the_network_answers(play: Start) -> None:
    app, match = play(click(InputScript(), 19, 0.2))
    app.run(frames=20)
    assert match.position.black >> 19 & 1
    assert match.networks_turn
    assert match.position.black.bit_count() == 4
    app.run(frames=60)
    assert len(match.history) == 3
    assert match.position.black_moves
    assert match.speed > 0


def test_clicks_that_are_no_moves_do_nothing(play: Start) -> None:
    script = click(click(InputScript(), 0, 0.1), 27, 0.2).click(5, 5, at=0.3)
    app, match = play(script)
    app.run(frames=30)
    assert len(match.history) == 1


def test_strengths_by_key_and_by_click(play: Start) -> None:
    app, match = play(InputScript().press("3", at=0.1).click(*BUTTONS[0].center, at=0.5))
    app.run(frames=15)
    assert STRENGTHS[match.strength].name == "master"
    app.run(frames=30)
    assert STRENGTHS[match.strength].name == "novice"


def test_undo_and_new_game(play: Start) -> None:
    app, match = play(click(InputScript(), 19, 0.1).press("u", at=1.5).press("n", at=2.0))
    app.run(frames=80)
    assert len(match.history) == 3
    app.run(frames=20)
    assert len(match.history) == 1
    app.run(frames=30)
    assert len(match.history) == 1


def test_the_board_goes_on_while_the_network_does_not_answer(play: Start) -> None:
    app, match = play(click(InputScript(), 19, 0.1), deterministic=False)
    app.inference.paused = True
    app.run(frames=400)
    assert app.time.frame_count == 400
    assert match.networks_turn
    assert match.brain.result_count == 0


def test_the_network_plays_a_whole_game_against_itself(play: Start) -> None:
    app, match = play(autoplay=True)
    match.strength = 0
    app.run(frames=300)
    assert 20 <= len(match.history) - 1 <= 50
    for _ in range(700):
        app.step()
        if not match.position.moves:
            break
    assert not match.position.moves
    discs = match.position.black.bit_count() + match.position.white.bit_count()
    assert discs == len(match.history) + 3
    app.run(frames=30)
    assert len(match.history) < 5


def test_a_click_takes_over_from_the_network(play: Start) -> None:
    app, match = play(InputScript().click(5, 5, at=0.3), autoplay=True)
    app.run(frames=60)
    assert not match.autoplay
    assert match.position.black_moves
    known = len(match.history)
    app.run(frames=20)
    assert len(match.history) == known


def test_what_was_asked_before_a_new_game_does_no_harm(play: Start) -> None:
    app, match = play(click(InputScript(), 19, 0.1).press("n", at=0.15))
    app.run(frames=60)
    assert len(match.history) == 1
    assert match.search.done >= match.wanted
    assert match.search.root.visits.sum() == match.search.done - 1
    assert match.brain.pending == 0
