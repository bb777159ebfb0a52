"""The script that plays in autoplay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from demos.gesture.battle import Battle
from demos.gesture.strokes import SIGNS
from gameglue import LEFT, MonoBehaviour, Route, WaitForSeconds


class Autoplay(MonoBehaviour):
    """Draws the sign of the nearest foe, until the player presses the mouse button."""

    execution_order = -2
    battle: Battle

    def start(self) -> Iterator[object]:
        """Draw one sign after the other; start a new game after a defeat."""
        while True:
            yield WaitForSeconds(0.25)
            if not self.battle.health:
                yield WaitForSeconds(3.0)
                self.battle.restart()
            elif self.battle.foes and not self.battle.wand.reading:
                yield self._draw(min(self.battle.foes, key=lambda foe: foe.x).spell)

    def _draw(self, spell: str) -> Iterator[object]:
        """Draw a sign with random variations."""
        random, sign, began = self.app.random, Route(SIGNS[spell]), self.time.time
        bends = np.sin(sign.times[:, None] * random.uniform(1.0, 5.0, 2)) * random.normal(0.0, 0.02, 2)
        way = Route((sign.points + bends) * random.uniform(190.0, 270.0, 2) + (300.0, 330.0))
        seconds = (0.25 + 0.26 * sign.end) * random.uniform(0.9, 1.1)
        while (share := (self.time.time - began) / seconds) < 1.0:
            self.battle.wand.draw_to(*way.at(share * way.end))
            yield None
        self.battle.wand.lift()

    def update(self) -> None:
        """Stop when the player takes over."""
        if self.input.get_mouse_button_down(LEFT):
            self.stop_all_coroutines()
            self.enabled = self.battle.wand.drawing = False
