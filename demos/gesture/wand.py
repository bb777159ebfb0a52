"""The wand: its positions, and the network's classification of them."""

from __future__ import annotations

import numpy as np

from demos.gesture.strokes import GESTURES
from demos.gesture.trail import features
from gameglue import LEFT, Brain, Event, InferenceRequest, Page, Rect

FIELD = Rect(22.0, 58.0, 590.0, 536.0)
_SURE = 0.6  # a spell needs this probability


class Wand(Brain):
    """Follows the pointer, classifies the trail in every frame, and casts at the end of a stroke."""

    execution_order = -1
    on_cast = Event[[str]]()
    """Called with the recognised spell; "none" for a stroke that is no spell."""

    def awake(self) -> None:
        """Start without a stroke."""
        self.points: list[tuple[float, float, float]] = []
        self.drawing = self.reading = False
        self.probabilities = np.zeros(len(GESTURES))

    def draw_to(self, x: float, y: float) -> None:
        """Continue the stroke at a place of the page, or start one there."""
        if not self.drawing:
            self.points, self.drawing = [], True
        self.points.append((self.time.time, x, y))

    def lift(self) -> None:
        """End the stroke: classify the whole trail once more and cast."""
        if self.drawing:
            self.drawing, self.reading = False, True
            self._read(casts=True)

    def update(self) -> None:
        """Follow the mouse and classify the trail."""
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
        now = self.points[-1][0] if casts else self.time.time  # leaves out a rest at the end
        movement = features(np.array(self.points), now)[None]
        # A newer request replaces one that waits; the final one also cancels the one that runs.
        self.request(movement, callback=self._take, latest_only=True, cancel_running=casts, payload=casts)

    def _take(self, request: InferenceRequest) -> None:
        self.probabilities = request.result()[0]
        if request.payload:
            self.reading = False
            best = int(self.probabilities.argmax())
            self.on_cast.emit(GESTURES[best] if self.probabilities[best] > _SURE else "none")
