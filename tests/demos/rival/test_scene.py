"""The demo as it is played, without a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from demos.rival.court import PADDLE_SPEED, SENSES
from demos.rival.main import build
from demos.rival.match import GOAL, Match
from demos.rival.school import School
from gameglue import Brain, InputScript
from tests.demos.playing import Demo, Play, part, until


@pytest.fixture
def play(play_undrawn: Play) -> Play:
    """`play(script, **options)`: the demo in its first frame, with a short time to learn in."""

    def start(script: InputScript | None = None, **options: Any) -> Demo:
        app = play_undrawn(build, script, **options)
        app.step()
        part(app, School).budget_ms = 1.0
        return app

    return start


def test_it_learns_from_rallies_while_it_plays(play: Play) -> None:
    app = play()  # the player stands still, so that points come soon
    match, school, brain = part(app, Match), part(app, School), part(app, Brain)
    school.budget_ms = 3.0
    before = school.evolution.weights.copy()
    for _ in range(4000):
        app.step()
        if len(school.curve) >= 2 and sum(match.score) >= 1:
            break
    assert brain.result_count > 10
    assert 1 <= sum(match.score) <= len(school.rallies)
    assert 2 <= len(school.curve) <= school.evolution.generation
    assert not np.array_equal(school.evolution.weights, before)
    for rally in school.rallies:
        moments = np.array(rally)
        assert len(moments) > 10
        assert moments.shape[1] == SENSES + 1
        assert np.abs(moments[:, -1]).max() <= 1.0


def test_the_scripted_player_plays(play: Play) -> None:
    app = play(autoplay=True)
    match = part(app, Match)
    for _ in range(600):
        app.step()
        if match.court.hits[0, 0]:
            break
    assert match.court.hits[0, 0]
    assert part(app, School).rallies


def test_new_weights_are_asked_with_in_the_same_frame(play: Play) -> None:
    app = play()
    match, school, brain = part(app, Match), part(app, School), part(app, Brain)
    school.is_open = False
    for weights, expected in ((0.0, 0.0), (50.0, 1.0)):
        match.enabled = True
        app.inference.cancel_all(brain.worker)  # what was asked before with others
        vector = np.zeros_like(school.evolution.weights)
        vector[-1] = weights  # the last bias alone
        school.evolution.weights = vector
        answers = brain.result_count
        app.step()
        match.enabled = False  # it has asked once
        until(app, lambda answers=answers: brain.result_count > answers)  # type: ignore[misc]
        assert match.answer == pytest.approx(expected, abs=1e-6)


def test_the_paddle_follows_the_pointer_at_its_own_speed(play: Play) -> None:
    app = play(InputScript().drag([(100, 300), (100, 120)], at=0.1, duration=0.05), autoplay=True)
    match = part(app, Match)
    app.run(frames=10)
    assert not match.plays_itself
    assert match.aim is not None
    assert match.aim > 0.7
    heights = []
    for _ in range(60):
        heights.append(float(match.court.paddles[0, 0]))
        app.step()
    steps = np.diff(heights)
    assert steps.max() <= PADDLE_SPEED / 60 + 1e-9
    assert heights[-1] == pytest.approx(match.aim, abs=1e-6)


def test_keys_choose_the_strength_and_end_lessons(play: Play) -> None:
    app = play(InputScript().press("3", at=0.1).press("l", at=0.2).press("up", at=0.3, hold=0.3))
    school, match = part(app, School), part(app, Match)
    app.run(frames=14)
    assert school.strength == 2
    assert not school.is_open
    generation = school.evolution.generation
    app.run(frames=30)
    assert school.evolution.generation == generation
    assert match.court.paddles[0, 0] > 0.6


def test_escape_leaves(play: Play) -> None:
    app = play(InputScript().press("escape", at=0.1))
    app.run()
    assert app.is_quitting


def test_a_match_ends_at_the_winning_score(play: Play) -> None:
    app = play()
    match = part(app, Match)
    match.score = [0, GOAL - 1]
    until(app, lambda: GOAL in match.score)  # the player stands still
    assert match.score == [0, GOAL]
    app.run(frames=120)
    assert match.score == [0, GOAL], "the final score stays for a moment"
    until(app, lambda: match.score != [0, GOAL])
    assert match.score == [0, 0]
