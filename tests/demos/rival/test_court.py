"""The court keeps its rules, is the same from both sides, and is foreseen rightly."""

from __future__ import annotations

import numpy as np
import pytest

from demos.rival import court as rules
from demos.rival.court import Court


def rally(seed: int, games: int = 40) -> Court:
    """Rallies under way, with paddles anywhere."""
    random = np.random.default_rng(seed)
    court = Court(games, random)
    court.paddles = random.uniform(rules.HALF, 1 - rules.HALF, (games, 2))
    court.ball[:, 0] = random.uniform(0.2, rules.WIDTH - 0.2, games)
    return court


def test_arrival_is_foreseen_as_small_steps_find_it() -> None:
    court = rally(1)
    senses, paddles = court.senses(1), court.paddles[:, 1].copy()
    # Without a radius in play, walls mirror at 0 and 1: followed here in steps of a thousandth of a second.
    for game in np.flatnonzero(senses[:, 5] > 0.0):
        x, y = court.ball[game]
        along, up = court.velocity[game]
        time = 0.0
        while x < rules.WIDTH - rules.LINE:
            x, y, time = x + along * 1e-4, y + up * 1e-4, time + 1e-4
            if not 0.0 <= y <= 1.0:
                up = -up
        assert senses[game, 4] / 4 + paddles[game] == pytest.approx(y, abs=2e-3)
        assert senses[game, 5] == pytest.approx(min(time, 2.0), abs=2e-3)


def test_both_sides_see_the_same_in_a_mirror() -> None:
    court, mirror = rally(2), rally(2)
    mirror.ball[:, 0] = rules.WIDTH - mirror.ball[:, 0]
    mirror.velocity[:, 0] *= -1
    mirror.paddles = mirror.paddles[:, ::-1].copy()
    np.testing.assert_allclose(mirror.senses(0), court.senses(1), atol=1e-12)
    moves = np.random.default_rng(3).uniform(-1, 1, (40, 2))
    for _ in range(8):
        here = court.step(moves, 1 / 60)
        there = mirror.step(moves[:, ::-1], 1 / 60)
        going = (here == 0) & (there == 0)
        np.testing.assert_array_equal(here, -there)
        np.testing.assert_allclose(mirror.senses(0)[going], court.senses(1)[going], atol=1e-9)


def test_a_paddle_in_the_way_returns_the_ball_faster() -> None:
    court = Court(1, np.random.default_rng(0))
    court.ball[:], court.velocity[:] = (rules.WIDTH - rules.LINE - 0.01, 0.5), (1.0, 0.0)
    assert court.step(np.zeros((1, 2)), 1 / 30)[0] == 0
    assert court.hits.tolist() == [[False, True]]
    assert court.velocity[0] == pytest.approx((-rules.FASTER, 0.0), abs=1e-9)
    # What it flew on beyond the line, it flies back.
    assert court.ball[0, 0] == pytest.approx(rules.WIDTH - rules.LINE - (1 / 30 - 0.01), abs=1e-9)


@pytest.mark.parametrize(("offset", "up"), [(0.9, 1), (-0.9, -1)])
def test_the_edge_of_a_paddle_makes_the_ball_steep(offset: float, up: int) -> None:
    court = Court(1, np.random.default_rng(0))
    height = 0.5 + offset * rules.REACH
    court.ball[:], court.velocity[:] = (rules.LINE + 0.01, height), (-1.0, 0.0)
    court.step(np.zeros((1, 2)), 1 / 30)
    angle = np.degrees(np.arctan2(court.velocity[0, 1], court.velocity[0, 0]))
    assert 35 < up * angle < 60


def test_a_miss_scores_and_serves() -> None:
    court = Court(2, np.random.default_rng(0))
    court.ball[:] = (rules.LINE + 0.01, 0.9), (rules.WIDTH / 2, 0.5)
    court.velocity[:] = (-1.0, 0.0)
    assert court.step(np.zeros((2, 2)), 1 / 30).tolist() == [1, 0]
    assert court.missed[0] == pytest.approx(0.4 / rules.REACH - 1.0)
    assert court.ball[0, 0] == rules.WIDTH / 2
    assert np.hypot(*court.velocity[0]) == pytest.approx(rules.SERVE_SPEED)


def test_the_ball_never_leaves_the_court() -> None:
    court = rally(5)
    random = np.random.default_rng(6)
    for _ in range(400):
        court.step(random.uniform(-1, 1, (40, 2)), 1 / 30)
        assert court.ball[:, 1].min() >= 0.0
        assert court.ball[:, 1].max() <= 1.0
        assert np.hypot(*court.velocity.T).max() <= rules.FASTEST + 1e-9
        assert court.paddles.min() >= rules.HALF
        assert court.paddles.max() <= 1 - rules.HALF
