"""The pen's strokes make digits that can be read, at a human pace and at any frame rate."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demos.digits.canvas import Canvas
from demos.digits.strokes import curve, pen_strokes
from tests.peer import open_session

MODEL = Path(__file__).parents[3] / "assets" / "digits" / "digits.onnx"


def write(digit: int, canvas: Canvas, step: float) -> None:
    """Draw a digit on `canvas` as a game would, one step after the other."""
    strokes = pen_strokes(digit)
    times = [*np.arange(0.0, strokes[-1].end, step).tolist(), strokes[-1].end]
    for before, now in pairwise(times):
        for stroke in strokes:
            for start, end in pairwise(stroke.between(before, now).tolist()):
                canvas.stroke(start, end)


@pytest.fixture(scope="module")
def session() -> Any:
    return open_session(MODEL)


@pytest.mark.parametrize("side", [96, 168, 320])
def test_every_digit_is_read_once_it_is_complete(session: Any, side: int) -> None:
    for digit in range(10):
        canvas = Canvas(side)
        write(digit, canvas, 1 / 60)
        (probabilities,) = session.run(None, {"image": canvas.to_input()})
        assert probabilities[0].argmax() == digit
        assert probabilities[0].max() > 0.9


@pytest.mark.parametrize("step", [1 / 144, 1 / 7, 0.9])
@pytest.mark.parametrize("digit", [4, 7, 2])
def test_ink_does_not_depend_on_the_frame_rate(digit: int, step: float) -> None:
    expected, drawn = Canvas(), Canvas()
    write(digit, expected, 1 / 60)
    write(digit, drawn, step)
    np.testing.assert_allclose(drawn.ink, expected.ink, atol=1e-3)


@pytest.mark.parametrize("digit", range(10))
def test_pace_is_human(digit: int) -> None:
    strokes = pen_strokes(digit)
    assert 0.4 < strokes[-1].end < 2.5
    for stroke in strokes:
        assert np.all(np.diff(stroke.times) > 0.0)
        assert stroke.points.min() > 0.1
        assert stroke.points.max() < 0.9
        speed = np.hypot(*np.diff(stroke.points, axis=0).T) / np.diff(stroke.times)
        assert speed[0] < 0.9 * speed.max()
        assert speed[-1] < 0.9 * speed.max()
    for before, after in pairwise(strokes):
        assert after.begin > before.end


def test_pen_lifts_between_the_strokes_of_a_four() -> None:
    first, second = pen_strokes(4)
    middle = (first.end + second.begin) / 2
    for stroke in (first, second):
        assert len(stroke.between(middle - 0.01, middle + 0.01)) == 0


def test_text_in_percent_becomes_points() -> None:
    assert curve("20,0 80,5! 40,100") == [(0.2, 0.0), (0.8, 0.05), (0.8, 0.05), (0.4, 1.0)]
    with pytest.raises(ValueError, match="not enough values"):
        curve("20 30")
