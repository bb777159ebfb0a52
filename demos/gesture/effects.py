"""What spells look like: signs of light that grow, bolts, and sparks that each spell moves in its own way."""

from __future__ import annotations

import numpy as np

from demos.gesture.strokes import SIGNS
from demos.gesture.wand import FIELD
from gameglue import MonoBehaviour, Page, Particles, Texture

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
_MOST = 400  # sparks of one spell
_GLOWS = 0.75  # seconds that a sign is seen


class Effects(MonoBehaviour):
    """All sparks, those of each spell together, and the signs of the latest strikes."""

    def awake(self) -> None:
        """An empty sky."""
        self.sparks = {spell: Particles(_MOST) for spell in COLORS}
        self.signs: list[tuple[str, float, float, float, np.ndarray]] = []
        far = np.hypot(*np.meshgrid(*[np.linspace(-1.0, 1.0, 48)] * 2))
        pixels = np.full((48, 48, 4), 255, np.uint8)
        pixels[:, :, 3] = 255 * np.clip(1.0 - far, 0.0, 1.0) ** 2.2
        self.light: Texture = self.app.graphics.texture(pixels)

    def burst(self, spell: str, x: float, y: float, count: int) -> None:
        """Let `count` sparks fly from a place."""
        random, sparks = self.app.random, self.sparks[spell]
        new = sparks.add(count)
        count = new.stop - new.start
        angle, speed = random.uniform(0.0, 6.3, count), random.gamma(2.0, 75.0, count)
        sparks["position"][new, :2] = random.normal((x, y), 8.0, (count, 2))
        sparks["velocity"][new, :2] = np.column_stack((np.cos(angle), np.sin(angle))) * speed[:, None]
        sparks["life"][new] = random.uniform(0.35, 1.1, count)

    def strike(self, spell: str, x: float, y: float) -> None:
        """A spell hits what is at a place."""
        jags = np.append(self.app.random.normal(0.0, 20.0, 11) + np.linspace(70.0, 0.0, 11), 0.0)
        bolt = np.column_stack((x + jags, np.linspace(FIELD.y, y, 12)))
        self.signs.append((spell, x, y, self.time.time, bolt))
        self.burst(spell, x, y, 90)

    def update(self) -> None:
        """Move the sparks, forget what has gone out."""
        step = self.time.delta_time
        for spell, sparks in self.sparks.items():
            aside, down, turning, drag = _FLIGHT[spell]
            cos, sin, flight = np.cos(turning * step), np.sin(turning * step), sparks["velocity"][:, :2]
            flight[:] = flight @ np.array(((cos, sin), (-sin, cos))) + (aside * step, 0.0)
            sparks.step(step, gravity=-down, drag=drag)
        self.signs = [sign for sign in self.signs if self.time.time - sign[3] < _GLOWS]

    def draw(self, page: Page) -> None:
        """Draw what shines."""
        for spell, x, y, since, bolt in self.signs:
            age = (self.time.time - since) / _GLOWS
            color, left = COLORS[spell], 1.0 - age
            page.sprites(self.light, [(x, y)], 150 + 160 * age, (*color, 0.8 * left**2))
            glow(page, SIGNS[spell] * (50 + 110 * age**0.5) + (x, y), color, left, 4.0 * left + 1.0)
            if spell == "zigzag" and age < 0.5:
                glow(page, bolt, color, 1.0 - 2.0 * age, 4.0)
        for spell, sparks in self.sparks.items():
            life = sparks["life"][:, None]  # those that live longer are larger and brighter
            colors = np.hstack((COLORS[spell] + 0.5 * (life - 0.35), (life - sparks["age"][:, None]) * 2.5))
            page.sprites(self.light, sparks["position"][:, :2], 20.0 * life[:, 0], np.minimum(colors, 1.0))


def glow(
    page: Page,
    points: np.ndarray,
    color: tuple[float, float, float],
    strength: float | np.ndarray,
    width: float,
) -> None:
    """A shining line through points (n, 2) of a page; strength: 0 to 1, one number or one a segment."""
    shares = np.broadcast_to(strength, (len(points) - 1,))
    for wide, share, white in ((5.5, 0.10, 0.0), (2.6, 0.30, 0.1), (1.0, 1.0, 0.7)):
        shade = np.array(color) * (1.0 - white) + white
        rgba = np.column_stack((np.tile(shade, (len(shares), 1)), shares * share))
        page.polyline(points, rgba, width=width * wide)
