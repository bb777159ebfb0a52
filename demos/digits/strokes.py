"""A scripted pen that writes digits at a human pace, for playing without a display.

`ScriptedPen.motion(start, end)` says what the pen did between two moments. It keeps no state, so a game may
run at any frame rate, skip frames or start anywhere, and still leaves the same ink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from demos.digits.canvas import Point
from demos.digits.curves import Path, Stroke, bar, curve, smooth_path

Times = npt.NDArray[np.float64]

PEN_SPEED = 1.5  # canvas sides per second on a straight line
LIFTED_SPEED = 2.0  # the same, between two strokes
_ROUNDING = 1e-9  # seconds; a sum of begin and duration may come out a little short
LIFT_TIME = 0.08  # seconds for lifting the pen and putting it down again

# Percent of the canvas. Not the strokes of the training drawings, so that reading them proves something.
_STROKES: tuple[list[Stroke], ...] = (
    [curve("55,21 42,24 34,38 33,56 40,74 52,79 63,71 68,53 66,34 57,22 51,22")],
    [curve("40,35 48,28 54,19! 53,48 52,80")],
    [curve("35,33 40,22 51,19 62,24 64,36 57,50 46,64 34,79! 50,78 67,79")],
    [curve("37,24 49,19 61,24 61,37 53,46 46,48! 59,52 65,64 58,76 46,80 35,73")],
    [bar("42,20 33,56 67,55"), bar("59,37 57,80")],
    [curve("41,22 38,45! 50,43 62,51 63,67 53,78 42,79 34,74"), bar("41,22 63,21")],
    [curve("59,20 46,32 38,49 36,66 43,78 55,79 64,70 61,58 50,54 40,61 37,68")],
    [curve("34,23 49,22 66,20! 57,41 50,60 47,80")],
    [curve("61,29 53,20 42,22 38,32 45,43 57,53 64,66 58,77 46,80 37,71 41,58 53,47 62,37 61,28")],
    [curve("63,33 58,22 46,20 37,29 40,43 51,47 60,41 63,31! 62,52 60,80")],
)


@dataclass(frozen=True)
class PenStroke:
    """One stroke with the pen down.

    points: (n, 2) on the canvas, from 0 to 1. times: (n,), when the pen is at each, in seconds since the
    digit was begun.
    """

    points: Path
    times: Times

    def between(self, start: float, end: float) -> Path:
        """The path from `start` to `end` seconds, (m, 2), with the points between; (0, 2) if none."""
        start, end = max(start, float(self.times[0])), min(end, float(self.times[-1]))
        if start > end:
            return np.empty((0, 2))
        inside = self.points[(self.times > start) & (self.times < end)]
        return np.concatenate([[self.at(start)], inside, [self.at(end)]])

    def at(self, time: float) -> Point:
        """Where the pen is at `time`; before and after the stroke, its ends."""
        x, y = (float(np.interp(time, self.times, self.points[:, axis])) for axis in range(2))
        return x, y


@dataclass(frozen=True)
class PenMotion:
    """What the pen did between two moments.

    wiped: the canvas is to be cleared before `segments`, lines from point to point, are drawn. position: of
    the pen at the end. finished: the whole of `digit` is on the canvas.
    """

    digit: int
    wiped: bool
    segments: tuple[tuple[Point, Point], ...]
    position: Point
    pen_down: bool
    finished: bool


def _pace(points: Path) -> Times:
    """When a hand passes each point of a stroke, in seconds from 0: slowly at both ends and in bends."""
    steps = np.diff(points, axis=0)
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    done = np.cumsum(lengths) - lengths / 2
    ends = 0.35 + 0.65 * np.sqrt(np.sin(np.pi * done / lengths.sum()))
    headings = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
    turning = np.abs(np.gradient(headings)) / lengths if len(lengths) > 1 else np.zeros_like(lengths)
    # Hands slow down with the cube root of the curvature (the two-thirds power law of drawing).
    bends = np.clip((np.maximum(turning, 1e-9) / 4.0) ** (-1.0 / 3.0), 0.35, 1.0)
    return np.concatenate([[0.0], np.cumsum(lengths / (PEN_SPEED * ends * bends))])


def pen_strokes(digit: int) -> tuple[PenStroke, ...]:
    """The timed strokes that write `digit`. Raises ValueError unless it is 0 to 9."""
    if not 0 <= digit < len(_STROKES):
        raise ValueError(f"a digit is 0 to 9, got {digit}")
    timed: list[PenStroke] = []
    for stroke in _STROKES[digit]:
        points = smooth_path(stroke)
        begin = 0.0
        if timed:
            last = timed[-1]
            way = float(np.hypot(*(points[0] - last.points[-1])))
            begin = float(last.times[-1]) + LIFT_TIME + way / LIFTED_SPEED
        timed.append(PenStroke(points, begin + _pace(points)))
    return tuple(timed)


class ScriptedPen:
    """Writes `digits` one after the other, for ever; each stays for `hold` seconds before it is wiped away.

    Raises ValueError without digits, for one that is not 0 to 9, and for a negative `hold`.
    """

    def __init__(self, digits: Sequence[int] = tuple(range(10)), *, hold: float = 0.7) -> None:
        if len(digits) == 0:
            raise ValueError("a scripted pen needs at least one digit to write")
        if hold < 0.0:
            raise ValueError(f"hold is a time in seconds, at least 0, got {hold}")
        self.digits = tuple(digits)
        self._strokes = tuple(pen_strokes(digit) for digit in self.digits)
        lengths = [float(strokes[-1].times[-1]) + hold for strokes in self._strokes]
        self._begins = np.concatenate([[0.0], np.cumsum(lengths)])
        # Where the pen is at any time: between two strokes it travels in a straight line.
        self._travels = tuple(
            PenStroke(np.concatenate([s.points for s in strokes]), np.concatenate([s.times for s in strokes]))
            for strokes in self._strokes
        )

    @property
    def duration(self) -> float:
        """Seconds for one round through all digits."""
        return float(self._begins[-1])

    def finish_times(self) -> tuple[float, ...]:
        """When each digit of the first round is complete, in seconds."""
        ends = [float(strokes[-1].times[-1]) for strokes in self._strokes]
        return tuple(float(begin) + end for begin, end in zip(self._begins[:-1], ends, strict=True))

    def motion(self, start: float, end: float) -> PenMotion:
        """What happens from `start` to `end` seconds, counted from the first touch.

        Of an interval that spans several digits only the last one's ink is given, as the others have been
        wiped by then. Raises ValueError unless 0 <= start <= end.
        """
        if not 0.0 <= start <= end:
            raise ValueError(f"a motion needs 0 <= start <= end, got {start} and {end}")
        first, last = self._turn(start), self._turn(end)
        wiped = first != last
        turn, index = last
        begin = turn * self.duration + float(self._begins[index])
        now = end - begin
        before = 0.0 if wiped else start - begin
        strokes = self._strokes[index]
        segments = [
            (_point(here), _point(there))
            for stroke in strokes
            for path in [stroke.between(before, now)]
            for here, there in pairwise(path)
        ]
        return PenMotion(
            digit=self.digits[index],
            wiped=wiped,
            segments=tuple(segments),
            position=self._travels[index].at(now),
            pen_down=any(stroke.times[0] <= now <= stroke.times[-1] for stroke in strokes),
            finished=bool(now >= strokes[-1].times[-1] - _ROUNDING),
        )

    def _turn(self, time: float) -> tuple[int, int]:
        """Which round, and which digit of it, is being written at `time`."""
        turn = int(time // self.duration)
        rest = time - turn * self.duration
        index = int(np.searchsorted(self._begins, rest, side="right")) - 1
        return turn, min(max(index, 0), len(self.digits) - 1)


def _point(point: npt.NDArray[np.float64]) -> Point:
    return float(point[0]), float(point[1])
