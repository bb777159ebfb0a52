"""The sea keeps its rules, and what a fish senses is what is there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from demos.swarm import world
from demos.swarm.world import SIZE, Sea, shortest


@pytest.fixture
def sea() -> Sea:
    return Sea(300, np.random.default_rng(4))


def test_the_short_way_is_the_shortest_of_all_ways_round() -> None:
    random = np.random.default_rng(0)
    here, there = random.random((2, 50, 2)) * SIZE
    ways = [there - here + np.array(turn) * SIZE for turn in itertools.product((-1, 0, 1), repeat=2)]
    lengths = np.linalg.norm(ways, axis=2)
    x, y = np.array(ways)[lengths.argmin(axis=0), np.arange(50)].T
    np.testing.assert_allclose(shortest(there - here), x + 1j * y, atol=1e-6)


def test_the_nearest_shark_is_sensed_where_it_is(sea: Sea) -> None:
    senses = sea.observe()
    for fish in range(0, 300, 17):
        ways = shortest(sea.shark_place - sea.place[fish])
        nearest = np.abs(ways).argmin()
        way, distance = ways[nearest], abs(ways[nearest])
        closeness = max(1.0 - distance / world.SIGHT, 0.0)
        assert senses[fish, 11] == pytest.approx(closeness, abs=1e-5)
        turn = np.arctan2(way.imag, way.real) - sea.heading[fish]
        expected = np.array((np.cos(turn), np.sin(turn))) * closeness
        np.testing.assert_allclose(senses[fish, [3, 7]], expected, atol=1e-5)
        comes = -np.cos(np.arctan2(way.imag, way.real) - sea.shark_heading[nearest])
        assert senses[fish, 12] == pytest.approx(comes * closeness, abs=1e-5)


def test_a_player_frightens_like_a_shark(sea: Sea) -> None:
    sea.ghost = (float(sea.place[7, 0]), float(sea.place[7, 1]))
    assert sea.observe()[7, 11] == pytest.approx(1.0, abs=1e-3)


def test_senses_turn_with_the_fish(sea: Sea) -> None:
    before = sea.observe()
    sea.heading = (sea.heading + np.pi) % (2 * np.pi)
    after = sea.observe()
    # Not where others swim: this fish and all others have turned.
    for way in (0, 1, 3):
        np.testing.assert_allclose(after[:, [way, way + 4]], -before[:, [way, way + 4]], atol=1e-5)
    np.testing.assert_allclose(after[:, 8:12], before[:, 8:12], atol=1e-5)


def test_scent_leads_to_food() -> None:
    sea = Sea(64, np.random.default_rng(1), sharks=1)
    sea.food[:] = sea.scent[:] = 0.0
    sea.grow((0.75, 0.5))
    for _ in range(60):
        sea.observe()
        sea.step(np.zeros((64, 2), np.float32), 1e-4)
        sea.scent += (sea.food - 0.6 * sea.scent) * 0.2
    sea.place[:2] = (0.62, 0.5125), (0.88, 0.5125)
    sea.heading[:2] = 0.0
    senses = sea.observe()
    assert senses[0, 0] > 0.1
    assert senses[1, 0] < -0.1
    assert abs(senses[0, 4]) < 0.5 * senses[0, 0]


def test_what_is_eaten_is_gone(sea: Sea, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "GROWTH", 0.0)
    before, dt = sea.food.sum(), 1 / 30
    sea.step(np.zeros((300, 2), np.float32), dt)
    portion = world.FOOD_FOR_ALL * dt / 300
    assert 0.0 < sea.eating.sum() < 300
    assert before - sea.food.sum() == pytest.approx(sea.eating.sum() * portion, rel=1e-3)
    assert sea.food.min() >= 0.0


def test_the_caught_are_counted_and_born_elsewhere(sea: Sea) -> None:
    sea.place[5] = sea.shark_place[0]
    sea.observe()
    place, far = sea.place.copy(), sea.to_shark > 0.1
    is_caught = sea.step(np.zeros((300, 2), np.float32), 1 / 30)
    assert is_caught[5]
    assert not is_caught[far].any()
    assert sea.caught == is_caught.sum() >= 1
    moved = np.abs(shortest(sea.place - place))
    assert moved[5] > 0.02
    assert moved[far].max() < 0.02


def test_steering_turns_left_and_speeds_up(sea: Sea) -> None:
    heading = sea.heading.copy()
    for _ in range(30):
        sea.step(np.tile(np.array((0.5, 1.0), np.float32), (300, 1)), 1 / 60)
        sea.observe()
    turned = (sea.heading - heading) % (2 * np.pi)
    np.testing.assert_allclose(turned, 0.5 * world.TURN * 0.5, atol=1e-3)
    assert sea.speed.min() > 0.25


@pytest.mark.parametrize("count", [64, 300, 900])
def test_any_number_of_fish_lives_in_the_same_sea(sea: Sea, count: int) -> None:
    places = sea.place.copy()
    sea.resize(count)
    kept = min(count, 300)
    np.testing.assert_array_equal(sea.place[:kept], places[:kept])
    assert sea.count == count
    assert sea.observe().shape == (count, world.SENSES)
    assert sea.step(np.zeros((count, 2), np.float32), 1 / 60).shape == (count,)
    assert np.all((sea.place >= 0.0) & (sea.place <= SIZE))
