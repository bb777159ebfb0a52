"""The wand: where mouse or script have moved it, and what the network makes of that."""

from __future__ import annotations

import numpy as np

from demos.gesture.strokes import GESTURES, SIGNS
from demos.gesture.trail import WINDOW, features
from gameglue import LEFT, InferenceRequest, MonoBehaviour, MouseButton, MouseMoved, Page, Rect, Worker

FIELD = Rect(22.0, 58.0, 590.0, 536.0)
_SURE = 0.6  # a spell needs this probability


class Wand(MonoBehaviour):
    """Follows the pointer, has the network read the trail in every frame, and casts at the stroke's end."""

    execution_order = -1
    worker: Worker

    def awake(self) -> None:
        """Nothing drawn, nothing read."""
        self.points: list[tuple[float, float, float]] = []
        self.drawing = self.reading = False
        self.probabilities = np.zeros(len(GESTURES))
        self.cast: str | None = None
        """The spell that was read in this frame; "none" for a stroke that is no spell."""
        self.answers, self.answer_ms = 0, 0.0
        self._next: str | None = None

    def begin(self, x: float, y: float) -> None:
        """Touch down at a place of the page."""
        self.points, self.drawing = [(self.time.time, x, y)], True

    def move(self, x: float, y: float) -> None:
        """Draw on to a place."""
        if self.drawing:
            self.points.append((self.time.time, x, y))

    def end(self) -> None:
        """Lift: the whole trail is read once more, and casts its spell."""
        if self.drawing:
            self.drawing, self.reading = False, True
            self._ask("cast")

    def update(self) -> None:
        """Follow the mouse, and ask about the trail as it is now."""
        self.cast, self._next = self._next, None
        page = Page(self.app.gui)
        for event in self.input.events:
            match event:
                case MouseButton(button, True, x, y) if button == LEFT:
                    x, y = page.from_window(x, y)
                    if FIELD.contains(x, y):
                        self.begin(x, y)
                case MouseMoved(x, y):
                    self.move(*page.from_window(x, y))
                case MouseButton(button, False) if button == LEFT:
                    self.end()
        if self.drawing and not self.reading:
            self._ask("live")

    def _ask(self, why: str) -> None:
        movement = features(np.array(self.points), self.time.time)[None]
        # A newer look takes the place of one that has not begun; the last one of whatever is on its way.
        self.app.inference.submit(
            self.worker,
            movement,
            latest_only=True,
            cancel_running=why == "cast",
            payload=why,
            callback=self._take,
        )

    def _take(self, request: InferenceRequest) -> None:
        self.probabilities = request.result()[0]
        self.answers += 1
        self.answer_ms += (request.age_ms - self.answer_ms) * (0.1 if self.answer_ms else 1.0)
        if request.payload == "cast":
            best = int(self.probabilities.argmax())
            self._next = GESTURES[best] if self.probabilities[best] > _SURE else "none"
            self.reading = False

    @property
    def trail(self) -> np.ndarray:
        """What is still seen of the stroke: (n, 3) seconds ago, x and y."""
        points = np.array(self.points).reshape(-1, 3)
        points[:, 0] = self.time.time - points[:, 0]
        return points[points[:, 0] < WINDOW]

    def on_destroy(self) -> None:
        """Free what the worker holds."""
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()


class AutoWand(MonoBehaviour):
    """Draws what the battle asks for, until the player takes the mouse."""

    execution_order = -2
    wand: Wand

    def awake(self) -> None:
        """Rest a moment."""
        self._stroke, self._at, self._began = np.zeros((0, 3)), 0, 0.3

    def draw(self, gesture: str, x: float, y: float) -> None:
        """Begin a gesture around a place, a little different every time."""
        random, path = self.app.random, SIGNS[gesture]
        far = np.r_[0.0, np.cumsum(np.hypot(*np.diff(path, axis=0).T))]
        seconds = (0.25 + 0.26 * far[-1]) * random.uniform(0.9, 1.1)
        bends = np.sin(far[:, None] * random.uniform(1.0, 5.0, 2)) * random.normal(0.0, 0.02, 2)
        places = (path + bends) * random.uniform(190.0, 270.0, 2) + (x, y)
        self._stroke = np.column_stack((far / far[-1] * seconds, places))
        self._began, self._at = self.time.time, 0

    def is_free(self) -> bool:
        """Whether the last gesture is drawn and read, and a breath was taken."""
        return not (self.wand.drawing or self.wand.reading) and self.time.time > self._began

    def update(self) -> None:
        """Move as far as the hand is by now."""
        if self.input.get_mouse_button_down(LEFT):
            self.enabled = False
        stroke = self._stroke
        while self._at < len(stroke) and stroke[self._at, 0] <= self.time.time - self._began:
            (self.wand.move if self._at else self.wand.begin)(*stroke[self._at, 1:].tolist())
            self._at += 1
        if self._at and self._at == len(stroke):
            self.wand.end()
            self._stroke, self._at, self._began = stroke[:0], 0, self.time.time + 0.25
