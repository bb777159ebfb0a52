"""The layout of the window, and the sheet: ink for the network, strokes for the player."""

from __future__ import annotations

import math

import numpy as np

from demos.digits.canvas import Canvas, Point
from gameglue import Gui, MonoBehaviour, Page, Palette, Rect

_INK = np.array((0.93, 0.95, 1.0))
_FRESH = np.array((0.30, 0.76, 1.0))
_STEP = 0.012  # distance between the points of a drawn stroke, relative to the sheet
_DRYING = 0.6  # seconds in which fresh ink changes its colour


class Desk(Page):
    """The layout: the sheet on the left, cards in the remaining space."""

    def __init__(self, gui: Gui) -> None:
        super().__init__(gui, fill=True, min_text=12.0)
        top, left = self.height / 2 - 266, 576.0
        wide = self.width - 22 - left
        self.sheet = Rect(22, top, 540, 540)
        self.answer, self.seen = Rect(left, top, wide, 189).grid(2, gap=14)
        self.chances = Rect(left, top + 203, wide, 184)
        self.times = Rect(left, top + 401, wide, 139)


class Sheet(MonoBehaviour):
    """The sheet. `drawing` counts the drawings: each `wipe` starts a new one.

    written: the digit that the script has finished; `None` before that, and for the player's drawings.
    """

    def awake(self) -> None:
        """Start with an empty sheet."""
        self.ink = Canvas()
        self.drawing = 0
        self.written: int | None = None
        self.pen: Point | None = None
        self._strokes: list[list[list[float]]] = []

    def draw_line(self, start: Point, end: Point) -> None:
        """Draw from `start` to `end`, positions from 0 to 1; a dot if they are equal."""
        self.ink.stroke(start, end)
        now = self.time.time
        if not self._strokes or self._strokes[-1][-1][:2] != [*start]:
            self._strokes.append([[*start, now]])
        stroke = self._strokes[-1]
        # Merges points that are close together: each segment costs drawing time.
        if len(stroke) > 2 and math.dist(stroke[-2][:2], stroke[-1][:2]) < _STEP:
            stroke.pop()
        stroke.append([*end, now])

    def wipe(self) -> None:
        """Clear the sheet and start a new drawing."""
        self.ink.clear()
        self._strokes.clear()
        self.written = None
        self.drawing += 1

    def on_gui(self) -> None:
        """Draw the sheet and its strokes."""
        desk = Desk(self.app.gui)
        x, y, side, _ = box = desk.sheet
        desk.rect(*box, Palette.LINE, 14, border=1.5)
        for share in (0.25, 0.5, 0.75):
            desk.line(x + 16, y + share * side, box.right - 16, y + share * side, "#ffffff08")
            desk.line(x + share * side, y + 16, x + share * side, box.bottom - 16, "#ffffff08")
        if not self._strokes:
            desk.text("draw a digit here", *box.center, 20, Palette.MUTED, "center")
        width = 2 * self.ink.brush_radius * side
        for stroke in self._strokes:
            points = np.array(stroke)
            age = np.clip((self.time.time - points[1:, 2:]) / _DRYING, 0.0, 1.0)
            desk.polyline(points[:, :2] * side + (x, y), _FRESH + (_INK - _FRESH) * age, width=width)
        if self.pen is not None:
            desk.circle(*box.normalized_to_point(*self.pen), 0.75 * width, Palette.ACCENT, border=2)
