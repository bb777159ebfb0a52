"""Visual effects of the spells: growing signs, lightning, and sparks with a motion of each spell's own."""

from __future__ import annotations

import numpy as np

from demos.gesture.strokes import GESTURES, SIGNS
from demos.gesture.wand import FIELD
from gameglue import MonoBehaviour, Page, ParticleSystem, with_alpha

COLORS = dict(zip(GESTURES, ("gray", "#5ce69e", "#4dc2ff", "#ff7a40", "yellow", "#bd80ff"), strict=True))
_FALL = {"none": 160.0, "circle": 130.0, "triangle": -330.0, "zigzag": 60.0}  # of sparks, pixels a second^2
_SPARKS = {"rate": 0.0, "speed": (20.0, 320.0), "lifetime": (0.35, 1.1), "drag": 2.0, "sizes": (20.0, 6.0)}
_GLOWS = 0.75  # seconds that a sign is visible


class Effects(MonoBehaviour):
    """A particle system for each spell, and the signs of the latest hits."""

    def awake(self) -> None:
        """Create the particle systems."""
        self.signs: list[tuple[str, float, float, float, np.ndarray]] = []
        self.sparks: dict[str, ParticleSystem] = {}
        for spell, color in COLORS.items():
            look = {"colors": (color, with_alpha(color, 0)), "gravity": -_FALL.get(spell, 0), "softness": 1.0}
            self.sparks[spell] = self.game_object.add_component(ParticleSystem, **_SPARKS, **look)

    def burst(self, spell: str, x: float, y: float, count: int) -> None:
        """Emit `count` sparks at a place."""
        self.transform.position = (x, y)
        self.sparks[spell].emit(count)

    def strike(self, spell: str, x: float, y: float) -> None:
        """Start the effects of a spell that hits a place."""
        jags = np.append(self.app.random.normal(0.0, 20.0, 11) + np.linspace(-70.0, 0.0, 11), 0.0)
        bolt = np.column_stack((np.minimum(x + jags, FIELD.right - 12), np.linspace(FIELD.y + 12, y, 12)))
        self.signs.append((spell, x, y, self.time.time, bolt))
        self.burst(spell, x, y, 90)

    def update(self) -> None:
        """Move the sparks of gale and void, and remove old signs."""
        self.sparks["swipe"].particles["velocity"][:, 0] += 420.0 * self.time.delta_time
        swirl = self.sparks["spiral"].particles["velocity"]
        swirl += 7.0 * self.time.delta_time * np.cross((0.0, 0.0, 1.0), swirl)
        self.signs = [sign for sign in self.signs if self.time.time - sign[3] < _GLOWS]

    def draw(self, page: Page) -> None:
        """Draw signs, lightning and sparks."""
        for spell, x, y, since, bolt in self.signs:
            age = (self.time.time - since) / _GLOWS
            color, left = COLORS[spell], 1.0 - age
            sign = SIGNS[spell] * (50 + 110 * age**0.5) + (x, y)
            page.polyline(sign, color, width=5.0 * left + 1.0, glow=26.0 * left, strength=left)
            if spell == "zigzag" and age < 0.5:
                page.polyline(bolt, color, width=5.0, glow=14.0, strength=1.0 - 2.0 * age)
        for sparks in self.sparks.values():
            sparks.draw(page)
