"""The pens: the player's mouse, and a script."""

from __future__ import annotations

import itertools

from demos.digits.canvas import Point
from demos.digits.reader import DigitReader
from demos.digits.sheet import Desk, Sheet
from demos.digits.strokes import pen_strokes
from gameglue import LEFT, RIGHT, MonoBehaviour, MouseButton, MouseMoved

HOLD = 0.7  # seconds that a finished digit stays


class MousePen(MonoBehaviour):
    """Draws while the left button is held; the right one, C or space clears the sheet; escape quits."""

    sheet: Sheet

    def awake(self) -> None:
        """Start with no button held."""
        self._last: Point | None = None

    def update(self) -> None:
        """Read the mouse and the keys."""
        keys, desk = self.input, Desk(self.app.gui)
        if keys.get_key_down("escape"):
            self.app.quit()
        if keys.get_mouse_button_down(RIGHT) or keys.get_key_down("c") or keys.get_key_down("space"):
            self.sheet.wipe()
        # Events instead of this frame's position: the mouse moves several times between two frames.
        for event in keys.events:
            if not isinstance(event, MouseButton | MouseMoved):
                continue
            here = desk.sheet.point_to_normalized(*desk.from_window(event.x, event.y))
            if isinstance(event, MouseButton) and event.button == LEFT:
                touches = event.down and 0.0 <= min(here) <= max(here) < 1.0
                self._last = here if touches else None
            if self._last is not None:
                self.sheet.draw_line(self._last, here)
                self._last = here


class AutoPen(MonoBehaviour):
    """Writes one digit after the other, until the player presses the mouse button.

    A finished digit stays at least until the network has classified it.
    """

    execution_order = -1  # before MousePen, so that the player's first stroke starts on an empty sheet

    sheet: Sheet
    reader: DigitReader
    digits: tuple[int, ...] = tuple(range(10))

    def start(self) -> None:
        """Start the first digit."""
        self._coming = itertools.cycle(self.digits)
        self._begin()

    def _begin(self) -> None:
        self._digit, self._drawing, self._clock = next(self._coming), self.sheet.drawing, 0.0
        self._strokes = pen_strokes(self._digit)

    def update(self) -> None:
        """Draw this frame's part of the strokes."""
        if self.input.get_mouse_button_down(LEFT):
            self.enabled = False
            return
        sheet, before = self.sheet, self._clock
        sheet.pen, self._clock = None, before + self.time.delta_time
        for stroke in self._strokes:
            for start, end in itertools.pairwise(stroke.between(before, self._clock).tolist()):
                sheet.draw_line(start, end)
                sheet.pen = end
        # A digit that the player cleared is not complete.
        is_whole, rest = sheet.drawing == self._drawing, self._clock - self._strokes[-1].end
        sheet.written = self._digit if is_whole and rest >= 0.0 else None
        if rest > HOLD and (self._drawing in self.reader.read or not is_whole):
            sheet.wipe()
            self._begin()

    def on_disable(self) -> None:
        """Clear the sheet for the player."""
        self.sheet.wipe()
        self.sheet.pen = None
