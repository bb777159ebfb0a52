"""The strokes of handwritten digits, as timed paths; used by autoplay."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gameglue import Route

PEN_SPEED = 1.5  # canvas sides per second on a straight line
LIFTED_SPEED = 2.0  # the same, between two strokes
LIFT_TIME = 0.08  # seconds for lifting the pen and putting it down again

# In percent of the canvas. The training data do not contain these strokes.
_STROKES: tuple[tuple[str, ...], ...] = (
    ("55,21 42,24 34,38 33,56 40,74 52,79 63,71 68,53 66,34 57,22 51,22",),
    ("40,35 48,28 54,19! 53,48 52,80",),
    ("35,33 40,22 51,19 62,24 64,36 57,50 46,64 34,79! 50,78 67,79",),
    ("37,24 49,19 61,24 61,37 53,46 46,48! 59,52 65,64 58,76 46,80 35,73",),
    ("42,20! 33,56! 67,55!", "59,37! 57,80!"),
    ("41,22 38,45! 50,43 62,51 63,67 53,78 42,79 34,74", "41,22! 63,21!"),
    ("59,20 46,32 38,49 36,66 43,78 55,79 64,70 61,58 50,54 40,61 37,68",),
    ("34,23 49,22 66,20! 57,41 50,60 47,80",),
    ("61,29 53,20 42,22 38,32 45,43 57,53 64,66 58,77 46,80 37,71 41,58 53,47 62,37 61,28",),
    ("63,33 58,22 46,20 37,29 40,43 51,47 60,41 63,31! 62,52 60,80",),
)


def curve(text: str) -> list[tuple[float, float]]:
    """Parse the points of a stroke in percent, such as "20,0 80,0! 40,100"; "!" marks a corner.

    A corner is a point given twice, as in `Route.smooth`. Raises ValueError if a point is not two numbers
    with a comma between them.
    """
    stroke: list[tuple[float, float]] = []
    for word in text.split():
        x, y = word.removesuffix("!").split(",")
        stroke += [(float(x) / 100, float(y) / 100)] * (2 if word.endswith("!") else 1)
    return stroke


def _pace(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Times of a stroke's points, in seconds from 0: slow at both ends and in bends."""
    steps = np.diff(points, axis=0)
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    done = np.cumsum(lengths) - lengths / 2
    ends = 0.35 + 0.65 * np.sqrt(np.sin(np.pi * done / lengths.sum()))
    headings = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
    turning = np.abs(np.gradient(headings)) / lengths
    # Hands slow down with the cube root of the curvature (the two-thirds power law of drawing).
    bends = np.clip((np.maximum(turning, 1e-9) / 4.0) ** (-1.0 / 3.0), 0.35, 1.0)
    return np.concatenate([[0.0], np.cumsum(lengths / (PEN_SPEED * ends * bends))])


def pen_strokes(digit: int) -> tuple[Route, ...]:
    """The strokes of `digit`, 0 to 9, on the canvas; times in seconds from its start."""
    begin, timed = 0.0, list[Route]()
    for text in _STROKES[digit]:
        points = Route.smooth(curve(text)).points
        if timed:
            way = math.dist(timed[-1].points[-1], points[0])
            begin = timed[-1].end + LIFT_TIME + way / LIFTED_SPEED
        timed.append(Route(points, begin + _pace(points)))
    return tuple(timed)
