"""The battle: foes that bear the sign of the spell they fear, waves, score and health."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from demos.gesture.effects import Effects
from demos.gesture.strokes import SIGNS
from demos.gesture.wand import Wand
from gameglue import MonoBehaviour, WaitForSeconds, WaitWhile

CRYSTAL = (76.0, 326.0)
HEALTH = 5


@dataclass
class Foe:
    """One that comes for the crystal."""

    spell: str
    x: float
    y: float
    speed: float


class Battle(MonoBehaviour):
    """Sends the waves, moves the foes, and strikes those that a spell is for."""

    wand: Wand
    effects: Effects

    def awake(self) -> None:
        """Begin the first battle."""
        self.best = 0
        self.wand.on_cast.connect(self.cast)
        self.restart()

    def restart(self) -> None:
        """Begin again from the first wave."""
        self.foes: list[Foe] = []
        self.score, self.health, self.wave = 0, HEALTH, 0
        self.last_spell, self.cast_at = "", -9.0
        self.stop_all_coroutines()
        self.start_coroutine(self._send_waves())

    def _send_waves(self) -> Iterator[object]:
        """Each wave is larger, denser and faster than the one before."""
        random = self.app.random
        for self.wave in count(1):
            for _ in range(4 + 2 * self.wave):
                yield WaitForSeconds(max(0.9 - 0.05 * self.wave, 0.4))
                spell, speed = str(random.choice(list(SIGNS))), random.uniform(46.0, 62.0)
                self.foes.append(Foe(spell, 592.0, random.uniform(118.0, 534.0), speed + 4.0 * self.wave))
            yield WaitWhile(lambda: bool(self.foes))
            yield WaitForSeconds(1.2)

    def update(self) -> None:
        """One moment of the battle."""
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
        """Strike every foe that fears `spell`; without one, or for no spell at all, it fizzles."""
        self.last_spell, self.cast_at = spell, self.time.time
        struck = [foe for foe in self.foes if foe.spell == spell]
        for foe in struck:
            self.foes.remove(foe)
            self.effects.strike(spell, foe.x, foe.y)
        self.score += 10 * self.wave * len(struck)
        self.best = max(self.best, self.score)
        if not struck:
            self.effects.burst("none", *self.wand.points[-1][1:], 16)
