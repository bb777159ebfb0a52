"""The sheet to draw on: the ink that the network is shown, and the strokes that the player sees."""

from __future__ import annotations

import functools
import math

import numpy as np

from demos.digits.canvas import Canvas, Point
from demos.digits.layout import Layout
from gameglue import MonoBehaviour, Palette, Rect

_INK = np.array((0.93, 0.95, 1.0))
_FRESH = np.array((0.30, 0.76, 1.0))
_STEP = 0.012  # of the sheet's side, between the points of a stroke as it is shown
_DRYING = 0.6  # seconds until fresh ink has the colour of old


class Sheet(MonoBehaviour):
    """A sheet of paper. `drawing` counts the drawings: it goes up with each `wipe`.

    written: the digit that a script has finished writing; `None` before, and for a player's drawings.
    """

    hint: str = "draw a digit here"

    def awake(self) -> None:
        """Begin with an empty sheet."""
        self.ink = Canvas()
        self.drawing = 0
        self.written: int | None = None
        self.pen: Point | None = None
        self._strokes: list[list[tuple[float, float, float]]] = []

    def draw_line(self, start: Point, end: Point) -> None:
        """Draw from `start` to `end`, positions from 0 to 1; a dot if they are the same."""
        self.ink.stroke(start, end)
        now = self.time.time
        if not self._strokes or self._strokes[-1][-1][:2] != start:
            self._strokes.append([(*start, now)])
        stroke = self._strokes[-1]
        # Points that lie close together would be many thick segments over each other.
        if len(stroke) > 2 and math.dist(stroke[-2][:2], stroke[-1][:2]) < _STEP:
            stroke.pop()
        stroke.append((*end, now))

    def wipe(self) -> None:
        """Begin a new drawing."""
        self.ink.clear()
        self._strokes.clear()
        self.written = None
        self.drawing += 1

    def on_gui(self) -> None:
        """Draw the sheet and what is on it."""
        gui, layout = self.app.gui, Layout.of(self.app.size)
        box, unit = layout.sheet, layout.unit
        # An outline of lines, as a filled sheet would shade 0.3 million pixels: 5 ms on a software renderer.
        gui.polyline(_outline(box, 14 * unit), Palette.LINE, width=max(1.0, 1.5 * unit), closed=True)
        for share in (0.25, 0.5, 0.75):
            gui.line(
                box.x + 16,
                box.y + share * box.height,
                box.right - 16,
                box.y + share * box.height,
                "#ffffff08",
            )
            gui.line(
                box.x + share * box.width, box.y + 16, box.x + share * box.width, box.bottom - 16, "#ffffff08"
            )
        if self.ink.is_empty:
            x, y = box.center
            gui.text(
                self.hint, x, y, size=layout.text(20), color=Palette.MUTED, align="center", valign="center"
            )
        width = 2 * self.ink.brush_radius * box.width
        for stroke in self._strokes:
            points = np.asarray(stroke)
            age = np.clip((self.time.time - points[1:, 2:]) / _DRYING, 0.0, 1.0)
            path = points[:, :2] * box.width + (box.x, box.y)
            gui.polyline(path, _FRESH + (_INK - _FRESH) * age, width=width)
        if self.pen is not None:
            x, y = self.pen[0] * box.width + box.x, self.pen[1] * box.height + box.y
            gui.circle(x, y, width * 0.75, Palette.ACCENT, border=max(1.5, 2 * unit))


@functools.lru_cache(maxsize=2)
def _outline(box: Rect, radius: float) -> np.ndarray:
    """The edge of a box with round corners, (n, 2) pixels."""
    corners = []
    for turn, (right, low) in enumerate(((1, 1), (0, 1), (0, 0), (1, 0))):
        angles = np.radians(np.linspace(0.0, 90.0, 8) + 90.0 * turn)
        middle = (
            box.x + radius + right * (box.width - 2 * radius),
            box.y + radius + low * (box.height - 2 * radius),
        )
        corners.append(np.stack((np.cos(angles), np.sin(angles)), axis=1) * radius + middle)
    return np.concatenate(corners)
