"""What spells look like: signs of light that grow, bolts, and sparks that each spell moves in its own way."""

from __future__ import annotations

import numpy as np

from demos.gesture.page import Page
from demos.gesture.strokes import SIGNS
from demos.gesture.wand import FIELD
from gameglue import MonoBehaviour, Texture

COLORS = {
    "none": (0.56, 0.6, 0.7),
    "swipe": (0.36, 0.9, 0.62),
    "circle": (0.3, 0.76, 1.0),
    "triangle": (1.0, 0.48, 0.25),
    "zigzag": (1.0, 0.85, 0.36),
    "spiral": (0.74, 0.5, 1.0),
}
# Push to the right and down, turning (radians a second), drag: how a spell's sparks fly.
_FLIGHT = {
    "none": (0.0, 160.0, 0.0, 2.0),
    "swipe": (420.0, 0.0, 0.0, 1.5),
    "circle": (0.0, 130.0, 0.0, 3.0),
    "triangle": (0.0, -330.0, 0.0, 2.0),
    "zigzag": (0.0, 60.0, 0.0, 4.0),
    "spiral": (0.0, 0.0, 7.0, 1.0),
}
_MOST = 900
_GLOWS = 0.75  # seconds that a sign is seen


class Effects(MonoBehaviour):
    """All sparks, in arrays, and the signs of the latest strikes."""

    def awake(self) -> None:
        """An empty sky."""
        # A spark: x, y, speed in x and y, seconds left, size; push in x and y, turning, drag; its colour.
        self.sparks = np.zeros((0, 13))
        self.signs: list[tuple[str, float, float, float, np.ndarray]] = []
        far = np.hypot(*np.meshgrid(*[np.linspace(-1.0, 1.0, 48)] * 2))
        pixels = np.full((48, 48, 4), 255, np.uint8)
        pixels[:, :, 3] = 255 * np.clip(1.0 - far, 0.0, 1.0) ** 2.2
        self.light: Texture = self.app.graphics.texture(pixels)

    def burst(self, spell: str, x: float, y: float, count: int) -> None:
        """Let `count` sparks fly from a place."""
        random, new = self.app.random, np.zeros((count, 13))
        angle, speed = random.uniform(0.0, 6.3, (2, count)), random.gamma(2.0, 75.0, count)
        new[:, :2] = random.normal((x, y), 8.0, (count, 2))
        new[:, 2], new[:, 3] = np.cos(angle[0]) * speed, np.sin(angle[0]) * speed
        new[:, 4], new[:, 5] = random.uniform(0.35, 1.1, count), random.uniform(7.0, 22.0, count)
        new[:, 6:10] = _FLIGHT[spell]
        new[:, 10:] = np.array(COLORS[spell]) + random.uniform(0.0, 0.4, (count, 1))
        self.sparks = np.vstack((self.sparks, new))[-_MOST:]

    def strike(self, spell: str, x: float, y: float) -> None:
        """A spell hits what is at a place."""
        jags = np.append(self.app.random.normal(0.0, 20.0, 11) + np.linspace(70.0, 0.0, 11), 0.0)
        bolt = np.column_stack((x + jags, np.linspace(FIELD[1], y, 12)))
        self.signs.append((spell, x, y, self.time.time, bolt))
        self.burst(spell, x, y, 90)

    def update(self) -> None:
        """Move the sparks, forget what has gone out."""
        step, sparks = self.time.delta_time, self.sparks
        x, y, turn, fade = sparks[:, 2], sparks[:, 3], sparks[:, 8] * step, np.exp(-sparks[:, 9] * step)
        cos, sin = np.cos(turn) * fade, np.sin(turn) * fade
        sparks[:, 2:4] = np.column_stack((x * cos - y * sin, x * sin + y * cos)) + sparks[:, 6:8] * step
        sparks[:, :2] += sparks[:, 2:4] * step
        sparks[:, 4] -= step
        self.sparks = sparks[sparks[:, 4] > 0.0]
        self.signs = [sign for sign in self.signs if self.time.time - sign[3] < _GLOWS]

    def draw(self, page: Page) -> None:
        """Draw what shines."""
        for spell, x, y, since, bolt in self.signs:
            age = (self.time.time - since) / _GLOWS
            color, left = COLORS[spell], 1.0 - age
            page.lights(self.light, (x, y), 150 + 160 * age, (*color, 0.8 * left**2))
            page.glow(SIGNS[spell] * (50 + 110 * age**0.5) + (x, y), color, left, 4.0 * left + 1.0)
            if spell == "zigzag" and age < 0.5:
                page.glow(bolt, color, 1.0 - 2.0 * age, 4.0)
        colors = np.column_stack((self.sparks[:, 10:], np.minimum(self.sparks[:, 4] * 2.5, 1.0)))
        if len(colors):
            page.lights(self.light, self.sparks[:, :2], self.sparks[:, 5], colors)
