"""The battle: foes that bear the sign of the spell they fear, waves, score and health."""

from __future__ import annotations

import math
from dataclasses import dataclass

from demos.gesture.effects import Effects
from demos.gesture.strokes import GESTURES
from demos.gesture.wand import AutoWand, Wand
from gameglue import MonoBehaviour

SPELLS = GESTURES[1:]
CRYSTAL = (76.0, 326.0)
HEALTH = 5
_LANES = (118.0, 534.0)
_BREAK = 1.6  # seconds between waves


@dataclass
class Foe:
    """One that comes for the crystal."""

    spell: str
    x: float
    y: float
    speed: float
    sways: float


class Battle(MonoBehaviour):
    """Sends the waves, moves the foes, and strikes those that a spell is for."""

    wand: Wand
    effects: Effects
    auto: AutoWand | None = None

    def awake(self) -> None:
        """Begin the first battle."""
        self.best = self.cast_right = self.cast_wrong = 0
        self.restart()

    def restart(self) -> None:
        """Begin again from the first wave."""
        self.foes: list[Foe] = []
        self.score, self.health, self.wave, self.left = 0, HEALTH, 0, 0
        self.last_spell, self.cast_at = "", -9.0
        self._next_foe = self._next_wave = self.time.time + 0.2

    @property
    def is_over(self) -> bool:
        """Whether the crystal is broken."""
        return self.health <= 0

    def update(self) -> None:
        """One moment of the battle."""
        if self.input.get_key_down("escape"):
            self.app.quit()
        if self.input.get_key_down("n") or (
            self.is_over and self._plays_itself and self.time.time > self._next_wave
        ):
            self.restart()
        if self.wand.cast is not None:
            self.cast(self.wand.cast)
        if self.is_over:
            return
        self._send()
        for foe in self.foes:
            foe.x -= foe.speed * self.time.delta_time
            foe.y += math.sin(foe.x / 38.0 + foe.sways) * 14.0 * self.time.delta_time
            if foe.x < CRYSTAL[0] + 44.0:
                self.health -= 1
                self.effects.burst("none", foe.x, foe.y, 60)
        self.foes = [foe for foe in self.foes if foe.x >= CRYSTAL[0] + 44.0]
        if self.health <= 0:
            self._next_wave, self.foes = self.time.time + 3.0, []
            self.effects.burst("none", *CRYSTAL, 240)
        elif self._plays_itself and self.auto is not None and self.auto.is_free() and self.foes:
            nearest = min(self.foes, key=lambda foe: foe.x)
            self.auto.draw(nearest.spell, 300.0, 330.0)

    @property
    def _plays_itself(self) -> bool:
        return self.auto is not None and self.auto.enabled

    def _send(self) -> None:
        now, random = self.time.time, self.app.random
        if self.left and now >= self._next_foe:
            lane = float(random.uniform(*_LANES))
            speed = float(random.uniform(46.0, 62.0)) + 4.0 * self.wave
            self.foes.append(
                Foe(SPELLS[int(random.integers(len(SPELLS)))], 592.0, lane, speed, 6.3 * random.random())
            )
            self.left -= 1
            self._next_foe = now + max(0.9 - 0.05 * self.wave, 0.4)
            self._next_wave = now + _BREAK
        elif not self.left and not self.foes and now >= self._next_wave:
            self.wave += 1
            self.left, self._next_foe = 4 + 2 * self.wave, now + 0.3

    def cast(self, spell: str) -> None:
        """Strike every foe that fears `spell`; without one, or for no spell at all, it fizzles."""
        self.last_spell, self.cast_at = spell, self.time.time
        struck = [foe for foe in self.foes if foe.spell == spell]
        for foe in struck:
            self.effects.strike(spell, foe.x, foe.y)
            self.score += 10 * self.wave
        self.foes = [foe for foe in self.foes if foe.spell != spell]
        self.cast_right += bool(struck)
        self.cast_wrong += not struck
        self.best = max(self.best, self.score)
        if not struck and len(self.wand.points):
            self.effects.burst("none", *self.wand.points[-1][1:], 16)
