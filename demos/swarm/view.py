"""Draws the sea."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from demos.swarm.shoal import Shoal
from demos.swarm.world import CELL, SIZE
from gameglue import Gui, MonoBehaviour, Palette

_CALM, _AFRAID, _EATING = np.array(((0.36, 0.72, 0.92), (1.0, 0.42, 0.34), (0.72, 0.92, 0.42)))
_AROUND = np.array(list(product((-1, 0, 1), repeat=2))) * SIZE
_FISH = 0.0145  # length of one of 4,096, in heights of the sea


def drawn(outline: Callable[[np.ndarray], np.ndarray], length: int) -> np.ndarray:
    """A white image (length / 2, length, 4) uint8 with the width `outline` from tail (0) to head (1)."""
    height = length // 2
    y, x = np.mgrid[0:height, 0:length] + 0.5
    ink = np.clip((outline(x / length) - np.abs(y / height * 2 - 1)) * height / 2 + 0.5, 0, 1)
    white = np.full((height, length, 3), 255)
    return np.dstack((white, ink * 255)).astype(np.uint8)


def fish_outline(x: np.ndarray) -> np.ndarray:
    """A body and a tail."""
    body = 0.75 * np.sqrt(np.clip(1 - ((x - 0.62) / 0.38) ** 2, 0, 1))
    return np.maximum(body, np.where(x < 0.34, 0.95 - 2.5 * x, 0.0))


def shark_outline(x: np.ndarray) -> np.ndarray:
    """A long body with fins and a tail."""
    body = 0.42 * np.sqrt(np.clip(1 - ((x - 0.56) / 0.44) ** 2, 0, 1))
    fins = np.where((x > 0.46) & (x < 0.66), 0.3 + 3.2 * (0.66 - x), 0.0)
    return np.maximum.reduce((body, fins, np.where(x < 0.15, 0.9 - 5.0 * x, 0.0)))


class SeaView(MonoBehaviour):
    """Draws food, fish and sharks. `hand`: where the player feeds or frightens."""

    shoal: Shoal
    hand: tuple[float, float] | None = None

    def awake(self) -> None:
        """Create the textures."""
        self.fish = self.app.graphics.texture(drawn(fish_outline, 32))
        self.shark = self.app.graphics.texture(drawn(shark_outline, 96))
        self.app.graphics.background = "#071722"

    @property
    def unit(self) -> float:
        """Height of the sea in pixels; the sea fills the window."""
        return float(max(self.app.size / SIZE))

    def to_sea(self, x: float, y: float) -> tuple[float, float]:
        """Convert a pixel to a place in the sea."""
        return x / self.unit % float(SIZE[0]), y / self.unit % float(SIZE[1])

    def on_gui(self) -> None:
        """Draw everything, each type in one call."""
        gui, sea, unit = self.app.gui, self.shoal.sea, self.unit
        self._draw_food(gui)
        self._draw_fish(gui)
        # Nine of each, as the sea wraps around.
        places = (sea.shark_place[:, None] + _AROUND).reshape(-1, 2) * unit
        size = np.broadcast_to(np.array((0.1, 0.05)) * unit, places.shape)
        headings = np.repeat(np.degrees(sea.shark_heading), len(_AROUND))
        gui.sprites(self.shark, places, size, rotations=headings, colors="#e9f0f6")
        if self.hand is not None:
            x, y = self.hand[0] * unit, self.hand[1] * unit
            color = Palette.GOOD if sea.ghost is None else Palette.BAD
            gui.circle(x, y, 0.04 * unit, color, border=2.0)

    def _draw_food(self, gui: Gui) -> None:
        food = self.shoal.sea.food
        rows, columns = np.nonzero(food > 0.08)
        places = (np.column_stack((columns, rows)) + 0.5) * CELL * self.unit
        green = np.tile((0.2, 0.62, 0.36), (len(rows), 1))
        colors = np.column_stack((green, 0.4 * food[rows, columns]))
        gui.circles(places, 1.5 * CELL * self.unit, colors, softness=1.0)

    def _draw_fish(self, gui: Gui) -> None:
        sea = self.shoal.sea
        colors = _CALM + (_EATING - _CALM) * sea.eating[:, None]
        colors += (_AFRAID - colors) * np.minimum(sea.fear * 1.6, 1)[:, None]
        length = _FISH * self.unit * (4096 / sea.count) ** 0.4
        size = np.broadcast_to((length, length / 2), (sea.count, 2))
        headings = np.degrees(sea.heading)
        gui.sprites(self.fish, sea.place * self.unit, size, rotations=headings, colors=colors)
