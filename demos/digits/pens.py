"""Who draws: the player's mouse, or a script."""

from __future__ import annotations

from demos.digits.canvas import Point
from demos.digits.layout import Layout
from demos.digits.reader import DigitReader
from demos.digits.sheet import Sheet
from demos.digits.strokes import ScriptedPen
from gameglue import LEFT, RIGHT, MonoBehaviour, MouseButton, MouseMoved


class MousePen(MonoBehaviour):
    """Draws where the left button is held; the right one, C or space wipes the sheet; escape leaves."""

    sheet: Sheet

    def awake(self) -> None:
        """No button is held."""
        self._last: Point | None = None

    def update(self) -> None:
        """Follow the mouse and the keys."""
        keys = self.input
        if keys.get_key_down("escape"):
            self.app.quit()
        if keys.get_mouse_button_down(RIGHT) or keys.get_key_down("c") or keys.get_key_down("space"):
            self.sheet.wipe()
        box = Layout.of(self.app.size).sheet
        # By event, not by position in this frame: a fast hand makes several moves between two frames.
        for event in keys.events:
            match event:
                case MouseButton(button, True, x, y) if button == LEFT and box.contains(x, y):
                    self._last = box.to_share(x, y)
                    self.sheet.draw_line(self._last, self._last)
                case MouseButton(button, False) if button == LEFT:
                    self._last = None
                case MouseMoved(x, y) if self._last is not None:
                    here = box.to_share(x, y)
                    self.sheet.draw_line(self._last, here)
                    self._last = here


class AutoPen(MonoBehaviour):
    """Writes digits one after the other, until the player takes the mouse.

    A finished digit stays at least until the network has read it, however slow the backend.
    """

    execution_order = -1  # before MousePen, so that the player's first touch falls on an empty sheet

    sheet: Sheet
    reader: DigitReader
    digits: tuple[int, ...] = tuple(range(10))

    def awake(self) -> None:
        """Take up the pen."""
        self._pen = ScriptedPen(self.digits)
        self._clock = 0.0
        self._drawing = 0

    def update(self) -> None:
        """Write as much as fits into this frame."""
        if self.input.get_mouse_button_down(LEFT):
            self.enabled = False
            return
        end = self._clock + self.time.delta_time
        motion = self._pen.motion(self._clock, end)
        # A digit that was wiped under the pen is not what the script has written.
        whole = self.sheet.drawing == self._drawing
        if motion.wiped and whole and not self.reader.has_read(self._drawing):
            return
        self._clock = end
        if motion.wiped:
            self.sheet.wipe()
            self._drawing, whole = self.sheet.drawing, True
        for start, stop in motion.segments:
            self.sheet.draw_line(start, stop)
        self.sheet.pen = motion.position if motion.pen_down else None
        self.sheet.written = motion.digit if motion.finished and whole else None

    def on_disable(self) -> None:
        """Leave an empty sheet to the player."""
        self.sheet.wipe()
        self.sheet.pen = None
