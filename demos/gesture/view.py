"""What is seen: the field with foes, trail and spells, and the spell book with live probabilities."""

from __future__ import annotations

import math

import numpy as np

from demos.gesture.battle import CRYSTAL, HEALTH, Battle, Foe
from demos.gesture.camera import CameraWand
from demos.gesture.effects import COLORS, Effects, glow
from demos.gesture.strokes import GESTURES, SIGNS
from demos.gesture.trail import WINDOW
from demos.gesture.wand import FIELD, Wand
from gameglue import MonoBehaviour, Page, Palette

_NAMES = dict(zip(GESTURES, ("no spell", "gale", "frost", "fire", "lightning", "void"), strict=True))
_X, _WIDE, _MIDDLE = 626, 312, FIELD.center[0]
_KEYS = {"hold and draw": "cast a spell", "C": "camera", "N": "new game", "F3": "profiler", "Esc": "quit"}
_RHOMB = np.array([(0, -1), (0.5, 0), (0, 1), (-0.5, 0), (0, -1)])
_STARS = 70


class View(MonoBehaviour):
    """Draws everything."""

    wand: Wand
    camera: CameraWand
    battle: Battle
    effects: Effects
    label: str = ""

    def awake(self) -> None:
        """Bars down, stars out."""
        self.bars = np.zeros(len(GESTURES))
        random = np.random.default_rng(8)
        self.stars = random.uniform(0.02, 0.98, (_STARS, 2)) * FIELD[2:] + FIELD[:2]
        self.star_sizes = random.gamma(2.0, 2.2, _STARS) + 3.0

    def update(self) -> None:
        """Let the bars glide."""
        busy = self.wand.drawing or self.wand.reading or self.time.time - self.battle.cast_at < 0.9
        wanted = self.wand.probabilities if busy else np.zeros(len(GESTURES))
        self.bars += (wanted - self.bars) * (1.0 - math.exp(-self.time.unscaled_delta_time / 0.06))

    def on_gui(self) -> None:
        """Draw the field, then the panels."""
        page = Page(self.app.gui)
        page.rect(*FIELD, "#171d33", 14, color2="#0b0d18")
        twinkle = 0.25 + 0.2 * np.sin(self.time.time * 2.0 + np.arange(_STARS))
        colors = np.column_stack((np.ones((_STARS, 3)), twinkle))
        page.sprites(self.effects.light, self.stars, self.star_sizes, colors)
        self._draw_crystal(page)
        for foe in self.battle.foes:
            self._draw_foe(page, foe)
        self.effects.draw(page)
        self._draw_trail(page)
        self._draw_news(page)
        note = self.camera.message or self.label
        page.heading("gesture", "draw spells; a network reads your hand", note)
        page.keys(_KEYS)
        self._draw_panels(page)

    def _draw_crystal(self, page: Page) -> None:
        share = max(self.battle.health, 0) / HEALTH
        pulse = (0.5 + 0.08 * math.sin(self.time.time * 3.0)) * (0.3 + 0.7 * share)
        page.sprites(self.effects.light, [CRYSTAL], 190.0, (0.35, 0.8, 1.0, pulse))
        for size in np.linspace(42.0, 4.0, 12):  # a filled rhomb, of lines
            page.polyline(_RHOMB * size + CRYSTAL, "#2b6f96" if share else "#39404d", width=3.4)
        glow(page, _RHOMB * 42 + CRYSTAL, (0.45, 0.85, 1.0), 0.35 + 0.6 * share, 2.2)
        page.polyline(np.array([(0, -42), (-7, 0), (0, 42)]) + CRYSTAL, "#d8f3ff70", width=1.5)

    def _draw_foe(self, page: Page, foe: Foe) -> None:
        color, x, y = COLORS[foe.spell], foe.x, foe.y + 2.0 * math.sin(self.time.time * 6.0 + foe.sways)
        page.sprites(self.effects.light, [(x, y)], 130.0, (*color, 0.55))
        for side in (-1, 1):  # horns
            page.polyline([(x + side * 12, y - 22), (x + side * 22, y - 38)], "#3b4260", width=7)
        page.circle(x, y, 31, "#0e111c")
        page.circle(x, y, 31, (*color, 0.9), border=2.5)
        for side in (-1, 1):
            page.circle(x + side * 9, y - 16, 3.4, "white")
        glow(page, SIGNS[foe.spell] * 27 + (x, y + 7), color, 1.0, 2.2)

    def _draw_trail(self, page: Page) -> None:
        trail = self.wand.trail
        if len(trail) < 2:
            return
        fade = (1.0 - trail[1:, 0] / WINDOW) * (1.0 if self.wand.drawing else 0.5)
        glow(page, trail[:, 1:], COLORS[GESTURES[int(self.bars.argmax())]], fade, 5.0)
        if self.wand.drawing:
            page.sprites(self.effects.light, trail[-1, 1:], 70.0, (1.0, 1.0, 1.0, 0.9))

    def _draw_news(self, page: Page) -> None:
        battle, since = self.battle, self.time.time - self.battle.cast_at
        if battle.is_over:
            page.text("the crystal is broken", _MIDDLE, 300, 34, align="center")
            told = f"{battle.score} points in {battle.wave} waves: N for another try"
            page.text(told, _MIDDLE, 336, 16, Palette.MUTED, "center")
        elif not battle.score:
            help_ = "hold the mouse button and draw the sign that a foe bears"
            page.text(help_, _MIDDLE, 570, 15, Palette.MUTED, "center")
        if since < 0.9:
            told = "fizzle" if battle.last_spell == "none" else f"{_NAMES[battle.last_spell]}!"
            color = (*COLORS[battle.last_spell], 1.0 - since)
            page.text(told, _MIDDLE, 100 - 14 * since, 30, color, "center")

    def _draw_panels(self, page: Page) -> None:
        battle, work = self.battle, self.app.profiler.work.latest(60) * 1e3
        page.card(_X, 58, _WIDE, 104, f"wave {battle.wave}", f"best {battle.best}")
        page.text(str(battle.score), _X + 16, 118, 44)
        for life in range(HEALTH):
            color = Palette.ACCENT if life < battle.health else Palette.RAISED
            page.polyline(_RHOMB * 8 + (_X + _WIDE - 28 - 24 * life, 124), color, width=6)
        page.card(_X, 174, _WIDE, 330, "spell book", "it reads")
        for row, gesture in enumerate((*GESTURES[1:], GESTURES[0])):
            self._draw_spell(page, gesture, 228 + 50 * row)
        page.card(_X, 516, _WIDE, 78, f"an LSTM reads the last {WINDOW} s of movement")
        facts = {"answer after": self.wand.answer_ms, "frame time": np.median(work) if len(work) else 0.0}
        for column, (name, value) in enumerate(facts.items()):
            page.text(name, _X + 16 + 152 * column, 566, 13, Palette.MUTED)
            page.text(f"{value:.1f} ms", _X + 98 + 152 * column, 566, 13)

    def _draw_spell(self, page: Page, gesture: str, y: float) -> None:
        share, color = float(self.bars[GESTURES.index(gesture)]), COLORS[gesture]
        if gesture in SIGNS:
            glow(page, SIGNS[gesture] * 30 + (_X + 36, y), color, 0.55 + 0.45 * share, 2.0)
        page.text(_NAMES[gesture], _X + 66, y - 9, 15, Palette.TEXT if share > 0.5 else Palette.MUTED)
        page.text(f"{share * 100:.0f} %", _X + _WIDE - 16, y - 9, 13, align="right")
        page.meter(_X + 66, y + 6, _WIDE - 82, 9, share, (*color, 0.25 + 0.75 * share), Palette.RAISED)
