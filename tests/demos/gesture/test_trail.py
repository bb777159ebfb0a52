"""What the network is shown of a pointer's way, and the hands that training and the script draw with."""

from __future__ import annotations

import numpy as np
import pytest

from demos.gesture.strokes import GESTURES, SIGNS, corners, ring
from demos.gesture.trail import STEPS, WINDOW, features


def line(seconds: float, count: int, length: float = 200.0, start: float = 0.0) -> np.ndarray:
    """An even movement to the right."""
    share = np.linspace(0.0, 1.0, count)
    return np.column_stack((start + seconds * share, 100 + length * share, np.full(count, 50.0)))


def test_an_even_movement_is_even_steps_of_a_known_length() -> None:
    steps = features(line(WINDOW, 200), WINDOW)
    assert steps.shape == (STEPS, 3)
    assert steps.dtype == np.float32
    np.testing.assert_allclose(steps[:, 0], 10.0 / STEPS, atol=1e-3)
    np.testing.assert_allclose(steps[:, 1], 0.0, atol=1e-6)
    assert steps[:, 2].min() == 1.0


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_size_place_and_rate_make_no_difference(scale: float) -> None:
    stroke = np.column_stack((np.linspace(0, 0.8, 91), 200 * ring(1.0, count=91)))
    other = stroke[::2] * (1.0, scale, scale) + (0.0, 300.0, -70.0)
    np.testing.assert_allclose(features(other, stroke[-1, 0]), features(stroke, stroke[-1, 0]), atol=0.09)


def test_a_short_stroke_stands_at_the_end_after_zeros() -> None:
    steps = features(line(0.5, 40, start=7.0), 7.5)
    drawn = round(0.5 / WINDOW * STEPS)
    assert not steps[: STEPS - drawn - 1].any()
    assert steps[STEPS - drawn :, 2].min() == 1.0


def test_what_is_older_than_the_window_is_forgotten() -> None:
    recent = features(line(1.0, 60, start=1.0), 2.0)
    before = np.column_stack((np.linspace(0.0, 0.4, 20), np.linspace(900, 100, 20), np.full(20, 600.0)))
    both = np.vstack((before, line(1.0, 60, start=1.0)))
    np.testing.assert_allclose(features(both, 2.0), recent, atol=1e-6)


def test_a_resting_hand_stays_small_and_nothing_is_nothing() -> None:
    assert np.abs(features(line(0.4, 30, length=2.0), 0.4)[:, :2]).max() < 0.1
    assert not features(np.zeros((0, 3)), 1.0).any()
    assert not features(np.array([[0.9, 5.0, 5.0]]), 1.0).any()


def test_signs_fill_a_square_of_side_1() -> None:
    assert tuple(SIGNS) == GESTURES[1:]
    for path in SIGNS.values():
        assert 0.8 < np.ptp(path, axis=0).max() <= 1.001
        assert np.abs(path).max() <= 0.51
    assert corners((0, 0), (1, 0), (1, 1))[-1].tolist() == [1.0, 1.0]
