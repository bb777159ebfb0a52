"""The battle: foes that carry the sign of the spell that defeats them, waves, score and health."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from demos.gesture.effects import Effects
from demos.gesture.strokes import SIGNS
from demos.gesture.wand import Wand
from gameglue import MonoBehaviour, WaitForSeconds, WaitWhile

CRYSTAL, HEALTH = (76.0, 326.0), 5


@dataclass
class Foe:
    """A foe on its way to the crystal."""

    spell: str
    x: float
    y: float
    speed: float


class Battle(MonoBehaviour):
    """Creates the waves, moves the foes, and removes those that a spell hits."""

    wand: Wand
    effects: Effects

    def awake(self) -> None:
        """Start the first game."""
        self.best = 0
        self.wand.on_cast.connect(self.cast)
        self.restart()

    def restart(self) -> None:
        """Start a new game at the first wave."""
        self.foes: list[Foe] = []
        self.score, self.health, self.wave = 0, HEALTH, 0
        self.last_spell, self.cast_at = "", -9.0
        self.stop_all_coroutines()
        self.start_coroutine(self._send_waves())

    def _send_waves(self) -> Iterator[object]:
        """Create waves; each is larger, denser and faster than the previous one."""
        random = self.app.random
        for self.wave in count(1):
            for _ in range(4 + 2 * self.wave):
                yield WaitForSeconds(max(0.9 - 0.05 * self.wave, 0.4))
                spell, speed = str(random.choice(list(SIGNS))), random.uniform(46.0, 62.0)
                self.foes.append(Foe(spell, 592.0, random.uniform(118.0, 534.0), speed + 4.0 * self.wave))
            yield WaitWhile(lambda: bool(self.foes))
            yield WaitForSeconds(1.2)

    def update(self) -> None:
        """Read the keys, move the foes and count hits on the crystal."""
        if self.input.get_key_down("escape"):
            self.app.quit()
        if self.input.get_key_down("n"):
            self.restart()
        for foe in self.foes:
            foe.x -= foe.speed * self.time.delta_time
            foe.y += math.sin(foe.x / 38.0 + foe.speed) * 14.0 * self.time.delta_time
            if foe.x < CRYSTAL[0] + 44.0:
                self.health = max(self.health - 1, 0)
                self.effects.burst("none", foe.x, foe.y, 60 if self.health else 240)
        self.foes = [foe for foe in self.foes if foe.x >= CRYSTAL[0] + 44.0]
        if not self.health:
            self.stop_all_coroutines()
            self.foes.clear()

    def cast(self, spell: str) -> None:
        """Remove every foe with the sign of `spell`; if there is none, the spell fizzles."""
        self.last_spell, self.cast_at = spell, self.time.time
        struck = [foe for foe in self.foes if foe.spell == spell]
        for foe in struck:
            self.foes.remove(foe)
            self.effects.strike(spell, foe.x, foe.y)
        self.score += 10 * self.wave * len(struck)
        self.best = max(self.best, self.score)
        if not struck:
            self.effects.burst("none", *self.wand.points[-1][1:], 16)
