"""`Route`: a path through points, with a position for each time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gameglue.errors import GameError

Array = npt.NDArray[np.float64]


class Route:
    """A path through points, with a position for each time: for patrols, cameras or pens.

    points: (n, d), on a page or in the world, with n at least 1; times: (n,), rising, when each is passed.
    Without times it is walked at a speed of 1, so that a time is the length of the way so far:
    `route.at(speed * self.time.time)`.

    Raises:
        GameError: The arrays are no such thing.
    """

    def __init__(self, points: npt.ArrayLike, times: npt.ArrayLike | None = None) -> None:
        self.points = _checked(points)
        """(n, d)"""
        if times is None:
            steps = np.linalg.norm(np.diff(self.points, axis=0), axis=1)
            times = np.concatenate([[0.0], np.cumsum(steps)])
        self.times: Array = np.asarray(times, np.float64)
        """(n,)"""
        if self.times.shape != (len(self.points),) or np.any(np.diff(self.times) < 0.0):
            raise GameError(
                f"a route of {len(self.points)} points needs as many times, none before the last, "
                f"got shape {self.times.shape}"
            )

    @classmethod
    def smooth(cls, points: npt.ArrayLike, pieces: int = 8) -> Route:
        """A smooth path through `points`, (n, d), at a speed of 1; a point given twice in a row is a corner.

        Each segment, a Catmull-Rom curve, is divided into `pieces` straight lines.
        """
        given = _checked(points)
        t = np.arange(pieces)[:, None] / pieces
        # The Hermite weights of both ends and of both tangents.
        start, end = 2 * t**3 - 3 * t**2 + 1, -2 * t**3 + 3 * t**2
        leaving, arriving = t**3 - 2 * t**2 + t, t**3 - t**2
        padded = np.concatenate([given[:1], given, given[-1:]])
        sections = [
            start * here + end * there + leaving * (there - before) / 2 + arriving * (after - here) / 2
            for before, here, there, after in zip(padded, padded[1:], padded[2:], padded[3:], strict=False)
            if not np.array_equal(here, there)
        ]
        return cls(np.concatenate([*sections, given[-1:]]))

    @property
    def begin(self) -> float:
        """The time of its first point."""
        return float(self.times[0])

    @property
    def end(self) -> float:
        """The time of its last point; without times of its own, the length of the path."""
        return float(self.times[-1])

    def at(self, time: float) -> Array:
        """The position at `time`, (d,); the first point before the beginning, the last after the end."""
        return np.array([np.interp(time, self.times, axis) for axis in self.points.T])

    def between(self, start: float, end: float) -> Array:
        """The path from time `start` to `end`, with the points between them: (m, d); (0, d) if empty.

        A game that draws it frame by frame leaves no gap, however long its frames are.
        """
        start, end = max(start, self.begin), min(end, self.end)
        if start > end:
            return self.points[:0]
        inside = self.points[(self.times > start) & (self.times < end)]
        return np.concatenate([[self.at(start)], inside, [self.at(end)]])


def _checked(points: npt.ArrayLike) -> Array:
    given = np.asarray(points, np.float64)
    if given.ndim != 2 or 0 in given.shape:
        raise GameError(f"a route is made of points (n, d), at least one, got shape {given.shape}")
    return given
