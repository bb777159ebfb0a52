"""A drawing surface: ink in a NumPy array, drawn by a round brush with a soft edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from demos.digits.preprocess import prepare

Point = Sequence[float]
"""A position on the canvas: x to the right and y downwards, both from 0 to 1."""


class Canvas:
    """A square image that a brush draws on.

    side: pixels along one edge. brush_radius: as a fraction of the edge; its ink fades over the outermost
    `softness` (a fraction of the radius). `ink` is (side, side) float32, 0 is background and 1 is ink.
    """

    def __init__(self, side: int = 168, *, brush_radius: float = 0.035, softness: float = 0.4) -> None:
        self.side, self.brush_radius, self.softness = side, brush_radius, softness
        self.ink = np.zeros((side, side), np.float32)

    def clear(self) -> None:
        """Remove all ink."""
        self.ink.fill(0.0)

    def stroke(self, start: Point, end: Point) -> None:
        """Draw a straight line from `start` to `end`; a dot if they are equal. Parts outside are clipped."""
        # The edge is at least one pixel wide, or a small brush would show stairs.
        radius = self.brush_radius * self.side
        fade = max(1.0, radius * self.softness)
        outer = max(radius, 0.5) + 0.5 * fade
        (x0, y0), (x1, y1) = ((x * self.side, y * self.side) for x, y in (start, end))
        columns, rows = self._pixels(x0, x1, outer), self._pixels(y0, y1, outer)
        x = np.arange(columns.start, columns.stop, dtype=np.float32)[None, :] + np.float32(0.5 - x0)
        y = np.arange(rows.start, rows.stop, dtype=np.float32)[:, None] + np.float32(0.5 - y0)
        dx, dy = x1 - x0, y1 - y0
        along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-12), 0.0, 1.0)
        distance = np.sqrt((x - along * dx) ** 2 + (y - along * dy) ** 2)
        coverage = np.clip((outer - distance) / fade, 0.0, 1.0)
        area = self.ink[rows, columns]
        np.maximum(area, coverage, out=area, casting="same_kind")

    def to_input(self) -> npt.NDArray[np.float32]:
        """The drawing as the network's input: (1, 1, 28, 28) float32, all zeros while the canvas is empty."""
        return prepare(self.ink)

    def _pixels(self, here: float, there: float, outer: float) -> slice:
        """The range of pixels that a brush of radius `outer` touches between two coordinates."""
        low, high = np.floor(min(here, there) - outer), np.ceil(max(here, there) + outer)
        return slice(*np.clip((low, high), 0, self.side).astype(int).tolist())
