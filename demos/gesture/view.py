"""Draws the field with foes, trail and spells, and the spell book with live probabilities."""

from __future__ import annotations

import math

import numpy as np

from demos.gesture.battle import CRYSTAL, HEALTH, Battle, Foe
from demos.gesture.camera import CameraWand
from demos.gesture.effects import COLORS
from demos.gesture.strokes import GESTURES, SIGNS
from demos.gesture.trail import WINDOW
from demos.gesture.wand import FIELD
from gameglue import MonoBehaviour, Page, Palette, with_alpha

_NAMES = dict(zip(GESTURES, ("fizzle", "gale", "frost", "fire", "lightning", "void"), strict=True))
_X, _WIDE, _MIDDLE = 626, 312, FIELD.center[0]
_KEYS = {"hold and draw": "cast a spell", "C": "camera", "N": "new game", "F3": "profiler", "Esc": "quit"}
_RHOMB = np.array([(0, -1), (0.5, 0), (0, 1), (-0.5, 0), (0, -1)])
_HORNS = np.array([(-22, -38), (-12, -22), (12, -22), (22, -38)])


class View(MonoBehaviour):
    """Draws everything."""

    battle: Battle
    camera: CameraWand

    def awake(self) -> None:
        """Start with empty bars."""
        self.wand, self.bars = self.battle.wand, np.zeros(len(GESTURES))
        self.stars = np.random.default_rng(8).uniform(0.02, 0.98, (70, 2)) * FIELD[2:] + FIELD[:2]

    def update(self) -> None:
        """Smooth the bars."""
        busy = self.wand.drawing or self.wand.reading or self.time.time - self.battle.cast_at < 0.9
        self.bars = self.time.damp(self.bars, self.wand.probabilities * busy, 0.06)

    def on_gui(self) -> None:
        """Draw the field, then the panels."""
        page = Page(self.app.gui)
        page.rect(*FIELD, "#171d33", 14, color2="#0b0d18")
        twinkle = 2.0 + np.sin(self.time.time * 2.0 + np.arange(len(self.stars)))
        page.circles(self.stars, twinkle, (1.0, 1.0, 1.0, 0.3), softness=1.0)
        self._draw_crystal(page)
        for foe in self.battle.foes:
            self._draw_foe(page, foe)
        self.battle.effects.draw(page)
        self._draw_trail(page)
        for strip in ((0, 0, 612, 58), (612, 0, 348, 640), (0, 594, 612, 46), (0, 58, 22, 536)):
            page.rect(*strip, Palette.BACKGROUND)  # covers effects that reach beyond the field
        self._draw_news(page)
        self._draw_panels(page)
        page.heading("gesture", "draw the sign of a spell; a network classifies it", self.camera.note)
        page.keys(_KEYS)

    def _draw_crystal(self, page: Page) -> None:
        share = self.battle.health / HEALTH
        glow = (30.0 + 5.0 * math.sin(self.time.time * 3.0)) * (0.2 + 0.8 * share)
        page.polyline(_RHOMB * 22 + CRYSTAL, "#2b6f96" if share else "#39404d", width=20)
        page.polyline(_RHOMB * 42 + CRYSTAL, "#73d9ff", width=2.5, glow=glow, strength=0.35 + 0.6 * share)
        page.polyline(np.array([(0, -42), (-7, 0), (0, 42)]) + CRYSTAL, "#d8f3ff70", width=1.5)

    def _draw_foe(self, page: Page, foe: Foe) -> None:
        color, x, y = COLORS[foe.spell], foe.x, foe.y + 2.0 * math.sin(self.time.time * 6.0 + foe.speed)
        page.polyline(_HORNS + np.array((x, y)), "#3b4260", width=7)
        page.circle(x, y, 31, color, glow=26)
        page.circle(x, y, 28.5, "#0e111c")
        page.circles([(x - 9, y - 16), (x + 9, y - 16)], 3.4)
        page.polyline(SIGNS[foe.spell] * 27 + (x, y + 7), color, width=3.0, glow=6)

    def _draw_trail(self, page: Page) -> None:
        points = np.array(self.wand.points).reshape(-1, 3)
        left = 1.0 - (self.time.time - points[:, 0]) / WINDOW
        fade = np.maximum(left[1:], 0.0) * (1.0 if self.wand.drawing else 0.5)
        color = COLORS[GESTURES[int(self.bars.argmax())]]
        page.polyline(points[:, 1:], color, width=5, glow=14, strength=fade)
        if self.wand.drawing:
            page.circles(points[-1:, 1:], 26, (1.0, 1.0, 1.0, 0.9), softness=1.0)

    def _draw_news(self, page: Page) -> None:
        battle, since = self.battle, self.time.time - self.battle.cast_at
        told = "" if battle.score else "hold the mouse button and draw the sign on a foe"
        if not battle.health:
            page.text("the crystal is broken", _MIDDLE, 300, 34, align="center")
            told = f"{battle.score} points in {battle.wave} waves: N for another try"
        page.text(told, _MIDDLE, 570, 15, Palette.MUTED, "center")
        if since < 0.9:
            color = with_alpha(COLORS[battle.last_spell], 1.0 - since)
            page.text(_NAMES[battle.last_spell] + "!", _MIDDLE, 100 - 14 * since, 30, color, "center")

    def _draw_panels(self, page: Page) -> None:
        battle = self.battle
        page.card(_X, 58, _WIDE, 104, f"wave {battle.wave}", f"best {battle.best}")
        page.text(str(battle.score), _X + 16, 118, 44)
        for life in range(HEALTH):
            shade = Palette.ACCENT if life < battle.health else Palette.RAISED
            page.polyline(_RHOMB * 8 + (_X + _WIDE - 28 - 24 * life, 124), shade, width=6)
        page.card(_X, 174, _WIDE, 310, "spell book", "it reads")
        for row, gesture in enumerate((*GESTURES[1:], GESTURES[0])):
            y, share, color = 226 + 47 * row, float(self.bars[GESTURES.index(gesture)]), COLORS[gesture]
            if gesture in SIGNS:
                page.polyline(SIGNS[gesture] * 30 + (_X + 36, y), color, width=3, glow=4 + 10 * share)
            page.text(_NAMES[gesture], _X + 66, y - 9, 15, Palette.TEXT if share > 0.5 else Palette.MUTED)
            page.text(f"{share * 100:.0f} %", _X + _WIDE - 16, y - 9, 13, align="right")
            page.progress_bar(_X + 66, y + 6, _WIDE - 82, 9, share, with_alpha(color, 0.25 + 0.75 * share))
        room = page.card(_X, 496, _WIDE, 98, f"an LSTM reads the last {WINDOW} s of movement")
        page.rows(room.x, room.y + 12, room.width, {"answer after": self.wand.latency_text})
