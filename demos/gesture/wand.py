"""The wand: where mouse, camera or script have moved it, and what the network makes of that."""

from __future__ import annotations

import numpy as np

from demos.gesture.strokes import GESTURES
from demos.gesture.trail import features
from gameglue import LEFT, Brain, Event, InferenceRequest, Page, Rect

FIELD = Rect(22.0, 58.0, 590.0, 536.0)
_SURE = 0.6  # a spell needs this probability


class Wand(Brain):
    """Follows the pointer, has the network read the trail in every frame, and casts at the stroke's end."""

    execution_order = -1
    on_cast = Event[[str]]()
    """The spell that was read; "none" for a stroke that is no spell."""

    def awake(self) -> None:
        """Nothing drawn, nothing read."""
        self.points: list[tuple[float, float, float]] = []
        self.drawing = self.reading = False
        self.probabilities = np.zeros(len(GESTURES))

    def draw_to(self, x: float, y: float) -> None:
        """Draw on to a place of the page, or touch down there."""
        if not self.drawing:
            self.points, self.drawing = [], True
        self.points.append((self.time.time, x, y))

    def lift(self) -> None:
        """The whole trail is read once more, and casts its spell."""
        if self.drawing:
            self.drawing, self.reading = False, True
            self._read(casts=True)

    def update(self) -> None:
        """Follow the mouse, and ask about the trail as it is now."""
        page = Page(self.app.gui)
        here = page.from_window(*self.input.mouse_position)
        for place in self.input.mouse_path if self.drawing else ():
            self.draw_to(*page.from_window(*place))
        if self.input.get_mouse_button_down(LEFT) and FIELD.contains(*here):
            self.draw_to(*here)
        if self.input.get_mouse_button_up(LEFT):
            self.lift()
        if self.drawing and not self.reading:
            self._read(casts=False)

    def _read(self, casts: bool) -> None:
        now = self.points[-1][0] if casts else self.time.time  # a rest at its end is no part of a sign
        movement = features(np.array(self.points), now)[None]
        # A newer look takes the place of one that has not begun; the last one of whatever is on its way.
        self.ask(movement, callback=self._take, latest_only=True, cancel_running=casts, payload=casts)

    def _take(self, request: InferenceRequest) -> None:
        self.probabilities = request.result()[0]
        if request.payload:
            self.reading = False
            best = int(self.probabilities.argmax())
            self.on_cast.emit(GESTURES[best] if self.probabilities[best] > _SURE else "none")
