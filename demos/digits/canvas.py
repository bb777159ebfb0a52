"""A drawing surface: ink in a NumPy array, put there by a round brush with a soft edge."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demos.digits.preprocess import prepare

Point = tuple[float, float]
"""A position on the canvas: x to the right and y downwards, both from 0 to 1."""


class Canvas:
    """A square sheet that a pen draws on.

    side: pixels along one edge. brush_radius: as a fraction of the edge; its ink fades over the outermost
    `softness` (a fraction of the radius). Raises ValueError for sizes that leave nothing to draw with.
    """

    def __init__(self, side: int = 168, *, brush_radius: float = 0.035, softness: float = 0.4) -> None:
        if side < 1:
            raise ValueError(f"a canvas has a side of at least 1 pixel, got {side}")
        if not 0.0 < brush_radius <= 1.0:
            raise ValueError(f"brush_radius is a fraction of the side in (0, 1], got {brush_radius}")
        if not 0.0 <= softness <= 1.0:
            raise ValueError(f"softness is a fraction of the brush radius from 0 to 1, got {softness}")
        self.side = side
        self.brush_radius = brush_radius
        self.softness = softness
        self._ink = np.zeros((side, side), np.float32)

    @property
    def ink(self) -> npt.NDArray[np.float32]:
        """The (side, side) float32 sheet, 0 is background and 1 is ink; a view that cannot be written to."""
        view = self._ink.view()
        view.flags.writeable = False
        return view

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been drawn since the canvas was made or cleared."""
        return not self._ink.any()

    def clear(self) -> None:
        """Wipe all ink away."""
        self._ink.fill(0.0)

    def stroke(self, start: Point, end: Point) -> None:
        """Draw a straight line from `start` to `end`; a dot if they are the same. Parts outside are cut."""
        # The edge is at least one pixel wide, or a small brush would show stairs.
        radius = self.brush_radius * self.side
        fade = max(1.0, radius * self.softness)
        outer = max(radius, 0.5) + 0.5 * fade
        (x0, y0), (x1, y1) = ((x * self.side, y * self.side) for x, y in (start, end))
        left, right = self._pixels(min(x0, x1) - outer, max(x0, x1) + outer)
        top, bottom = self._pixels(min(y0, y1) - outer, max(y0, y1) + outer)
        if left >= right or top >= bottom:
            return
        x = np.arange(left, right, dtype=np.float32)[None, :] + np.float32(0.5 - x0)
        y = np.arange(top, bottom, dtype=np.float32)[:, None] + np.float32(0.5 - y0)
        dx, dy = x1 - x0, y1 - y0
        length_squared = dx * dx + dy * dy
        if length_squared > 0.0:
            along = np.clip((x * dx + y * dy) / length_squared, 0.0, 1.0)
            x, y = x - along * dx, y - along * dy
        coverage = np.clip((outer - np.sqrt(x * x + y * y)) / fade, 0.0, 1.0)
        area = self._ink[top:bottom, left:right]
        np.maximum(area, coverage, out=area, casting="same_kind")

    def to_input(self) -> npt.NDArray[np.float32]:
        """The drawing as the network's input: (1, 1, 28, 28) float32, all zeros while the canvas is empty."""
        return prepare(self._ink)

    def _pixels(self, low: float, high: float) -> tuple[int, int]:
        """The range of pixels between two coordinates, cut to the sheet."""
        return max(0, int(np.floor(low))), min(self.side, int(np.ceil(high)))
