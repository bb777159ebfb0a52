"""What a pen writes in each frame, at 60 frames a second: the digits 0 to 9, each in a turn of its own."""

from __future__ import annotations

from itertools import pairwise

from demos.digits.canvas import Point
from demos.digits.strokes import pen_strokes

TURN = 150
"""Frames for a digit: it is written, and then stands for a moment."""

_STROKES = [pen_strokes(digit) for digit in range(10)]


def pen_lines(frame: int) -> list[tuple[Point, Point]]:
    """The lines that are drawn in a frame; a new digit begins on an empty sheet, every `TURN` frames."""
    digit, step = divmod(frame, TURN)
    strokes = [stroke.between(step / 60, (step + 1) / 60).tolist() for stroke in _STROKES[digit % 10]]
    return [line for stroke in strokes for line in pairwise(stroke)]
