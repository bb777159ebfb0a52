"""The scripted pen writes digits that can be read, at a human pace and at any frame rate."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demos.digits.canvas import Canvas
from demos.digits.strokes import PenMotion, ScriptedPen, pen_strokes

MODEL = Path(__file__).parents[3] / "assets" / "digits" / "digits.onnx"


def play(pen: ScriptedPen, canvas: Canvas, start: float, end: float, step: float) -> list[PenMotion]:
    """Draw on `canvas` what the pen does from `start` to `end`, as a game would, one step after the other."""
    times = [*np.arange(start, end, step).tolist(), end]
    motions = []
    for before, now in pairwise(times):
        motion = pen.motion(before, now)
        if motion.wiped:
            canvas.clear()
        for line in motion.segments:
            canvas.stroke(*line)
        motions.append(motion)
    return motions


@pytest.fixture(scope="module")
def session() -> Any:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime reads the drawings independently")
    return onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("side", [96, 168, 320])
def test_every_digit_is_read_once_it_is_complete(session: Any, side: int) -> None:
    pen, canvas, before = ScriptedPen(), Canvas(side), 0.0
    for digit, complete in enumerate(pen.finish_times()):
        last = play(pen, canvas, before, complete, 1 / 60)[-1]
        (probabilities,) = session.run(None, {"image": canvas.to_input()})
        assert (last.digit, last.finished) == (digit, True)
        assert probabilities[0].argmax() == digit
        assert probabilities[0].max() > 0.9
        before = complete


@pytest.mark.parametrize("step", [1 / 144, 1 / 7, 0.9])
def test_ink_does_not_depend_on_the_frame_rate(step: float) -> None:
    pen = ScriptedPen((4, 7, 2))
    for complete in pen.finish_times():
        expected, drawn = Canvas(), Canvas()
        play(pen, expected, 0.0, complete, 1 / 60)
        play(pen, drawn, 0.0, complete, step)
        np.testing.assert_allclose(drawn.ink, expected.ink, atol=1e-3)


def test_digits_follow_each_other_for_ever() -> None:
    pen = ScriptedPen((3, 1), hold=0.5)
    motions = play(pen, Canvas(), 0.0, 2.5 * pen.duration, 1 / 60)
    changes = [after.digit for before, after in pairwise(motions) if after.wiped]
    assert motions[0].digit == 3
    assert changes == [1, 3, 1, 3]


def test_hold_keeps_the_digit_with_the_pen_up() -> None:
    pen = ScriptedPen((0, 1), hold=0.6)
    complete = pen.finish_times()[0]
    motion = pen.motion(complete + 0.1, complete + 0.5)
    assert motion.finished
    assert not motion.pen_down
    assert motion.segments == ()
    assert not motion.wiped


@pytest.mark.parametrize("digit", range(10))
def test_pace_is_human(digit: int) -> None:
    strokes = pen_strokes(digit)
    assert 0.4 < strokes[-1].times[-1] < 2.5
    for stroke in strokes:
        assert np.all(np.diff(stroke.times) > 0.0)
        assert stroke.points.min() > 0.1
        assert stroke.points.max() < 0.9
        speed = np.hypot(*np.diff(stroke.points, axis=0).T) / np.diff(stroke.times)
        assert speed[0] < 0.9 * speed.max()
        assert speed[-1] < 0.9 * speed.max()
    for before, after in pairwise(strokes):
        assert after.times[0] > before.times[-1]


def test_pen_lifts_between_the_strokes_of_a_four() -> None:
    pen = ScriptedPen((4,))
    first, second = pen_strokes(4)
    between = (first.times[-1] + second.times[0]) / 2
    motion = pen.motion(float(between), float(between))
    assert not motion.pen_down
    np.testing.assert_allclose(motion.position, (first.points[-1] + second.points[0]) / 2)


def test_wrong_requests_are_named() -> None:
    with pytest.raises(ValueError, match="at least one digit"):
        ScriptedPen(())
    with pytest.raises(ValueError, match="0 to 9, got 12"):
        ScriptedPen((1, 12))
    with pytest.raises(ValueError, match="hold"):
        ScriptedPen(hold=-1.0)
    with pytest.raises(ValueError, match="start <= end"):
        ScriptedPen().motion(2.0, 1.0)
