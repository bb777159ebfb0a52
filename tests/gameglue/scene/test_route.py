"""Routes run through their points, round the smooth ones, turn at the corners, and tell where one is when."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gameglue import GameError, Route


def test_without_times_a_time_is_a_length() -> None:
    route = Route([(0, 0), (3, 4), (3, 10)])
    assert (route.begin, route.end) == (0.0, 11.0)
    assert route.at(2.5).tolist() == [1.5, 2.0]
    assert route.at(7.0).tolist() == [3.0, 6.0]
    assert [route.at(-1.0).tolist(), route.at(99.0).tolist()] == [[0, 0], [3, 10]]


def test_times_say_when_each_point_is_passed() -> None:
    route = Route([(0, 0, 0), (1, 2, 3), (5, 2, 3)], [1.0, 2.0, 2.5])
    assert (route.begin, route.end) == (1.0, 2.5)
    assert route.at(1.5).tolist() == [0.5, 1.0, 1.5]
    assert route.at(2.25).tolist() == [3.0, 2.0, 3.0]


def test_between_gives_both_ends_and_what_lies_between() -> None:
    route = Route([(0, 0), (1, 0), (2, 0), (2, 2)])
    assert route.between(0.5, 3.0).tolist() == [[0.5, 0], [1, 0], [2, 0], [2, 1]]
    assert route.between(-5.0, 0.5).tolist() == [[0, 0], [0.5, 0]]
    assert route.between(3.5, 99.0).tolist() == [[2, 1.5], [2, 2]]
    assert route.between(5.0, 6.0).shape == (0, 2)


@pytest.mark.parametrize("step", [0.07, 0.31, 2.0])
def test_what_is_walked_in_steps_is_the_whole_way(step: float) -> None:
    route = Route.smooth(np.random.default_rng(4).random((5, 2)))
    times = np.append(np.arange(0.0, route.end, step), route.end)
    parts = [route.between(a, b) for a, b in pairwise(times)]
    for before, after in pairwise(parts):
        np.testing.assert_array_equal(before[-1], after[0])
    walked = sum(float(np.linalg.norm(np.diff(part, axis=0), axis=1).sum()) for part in parts)
    assert walked == pytest.approx(route.end)


def test_a_smooth_route_runs_through_every_point() -> None:
    points = np.random.default_rng(1).random((6, 3))
    route = Route.smooth(points, 5)
    assert len(route.points) == 5 * 5 + 1
    np.testing.assert_allclose(route.points[::5], points)


def test_points_given_twice_are_sharp_corners() -> None:
    corners = [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1), (1, 1)]
    path = Route.smooth(corners).points
    on_a_line = np.isclose(path[:, 1], 0.0) | np.isclose(path[:, 0], 1.0)
    assert on_a_line.all()
    assert [1.0, 0.0] in path.tolist()


def test_smooth_points_are_rounded() -> None:
    steps = np.diff(Route.smooth([(0, 0), (1, 0), (1, 1)], 16).points, axis=0)
    headings = np.degrees(np.unwrap(np.arctan2(steps[:, 1], steps[:, 0])))
    assert np.abs(np.diff(headings)).max() < 20.0


def test_a_single_point_is_a_place() -> None:
    route = Route.smooth([(0.3, 0.4)])
    np.testing.assert_array_equal(route.points, [(0.3, 0.4)])
    assert route.between(-1.0, 1.0).tolist() == [[0.3, 0.4], [0.3, 0.4]]


def test_what_is_no_route_is_named() -> None:
    with pytest.raises(GameError, match=r"got shape \(3,\)"):
        Route(np.zeros(3))
    with pytest.raises(GameError, match="at least one"):
        Route.smooth(np.zeros((0, 2)))
    with pytest.raises(GameError, match="2 points needs as many times"):
        Route([(0, 0), (1, 1)], [1.0])
    with pytest.raises(GameError, match="none before the last"):
        Route([(0, 0), (1, 1)], [2.0, 1.0])
