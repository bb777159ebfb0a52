"""What the window shows of the sea."""

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


def drawn(outline: Callable[[np.ndarray], np.ndarray], length: int, height: int) -> np.ndarray:
    """White and as broad as `outline` at each place from tail (0) to head (1), (height, length, 4) uint8."""
    y, x = np.mgrid[0:height, 0:length] + 0.5
    ink = np.clip((outline(x / length) - np.abs(y / height * 2 - 1)) * height / 2 + 0.5, 0, 1)
    picture = np.full((height, length, 4), 255, np.uint8)
    picture[..., 3] = (ink * 255).astype(np.uint8)
    return picture


def fish_outline(x: np.ndarray) -> np.ndarray:
    """A drop and a tail."""
    body = 0.75 * np.sqrt(np.clip(1 - ((x - 0.62) / 0.38) ** 2, 0, 1))
    return np.maximum(body, np.where(x < 0.34, 0.95 - 2.5 * x, 0.0))


def shark_outline(x: np.ndarray) -> np.ndarray:
    """A long body with fins and a tail."""
    body = 0.42 * np.sqrt(np.clip(1 - ((x - 0.56) / 0.44) ** 2, 0, 1))
    fins = np.where((x > 0.46) & (x < 0.66), 0.3 + 3.2 * (0.66 - x), 0.0)
    return np.maximum.reduce((body, fins, np.where(x < 0.15, 0.9 - 5.0 * x, 0.0)))


def glow_picture(side: int = 16) -> np.ndarray:
    """A soft white spot, (side, side, 4) uint8."""
    y, x = (np.mgrid[0:side, 0:side] + 0.5) / side * 2 - 1
    picture = np.full((side, side, 4), 255, np.uint8)
    picture[..., 3] = (255 * np.clip(1 - np.hypot(x, y), 0, 1) ** 0.9).astype(np.uint8)
    return picture


class SeaView(MonoBehaviour):
    """Draws food, fish and sharks over the whole window. `hand`: where the player feeds or frightens."""

    shoal: Shoal
    hand: tuple[float, float] | None = None

    def awake(self) -> None:
        """Paint the pictures."""
        self.picture = self.app.graphics.texture(drawn(fish_outline, 32, 16))
        self.shark = self.app.graphics.texture(drawn(shark_outline, 96, 48))
        self.glow = self.app.graphics.texture(glow_picture())
        self.app.graphics.background = "#071722"

    @property
    def unit(self) -> float:
        """Pixels for the height of the sea, which fills the window."""
        width, height = self.app.size
        return max(width / float(SIZE[0]), float(height))

    def to_sea(self, x: float, y: float) -> tuple[float, float]:
        """A pixel as a place in the sea."""
        return x / self.unit % float(SIZE[0]), y / self.unit % float(SIZE[1])

    def on_gui(self) -> None:
        """Draw them, each kind in one call."""
        gui, sea, unit = self.app.gui, self.shoal.sea, self.unit
        rows, columns = np.nonzero(sea.food > 0.08)
        amount = sea.food[rows, columns][:, None]
        places = (np.stack((columns, rows), axis=1) + 0.5) * CELL * unit
        colors = np.concatenate((np.broadcast_to((0.2, 0.62, 0.36), (len(amount), 3)), 0.6 * amount), axis=1)
        gui.sprites(self.glow, places, 2.0 * CELL * unit, colors=colors)
        self._draw_fish(gui)
        # Nine of each, as the sea goes on at its edges.
        places = (sea.shark_place[:, None] + _AROUND).reshape(-1, 2) * unit
        size = np.broadcast_to(np.array((0.1, 0.05)) * unit, places.shape)
        headings = np.repeat(np.degrees(sea.shark_heading), len(_AROUND))
        gui.sprites(self.shark, places, size, rotations=headings, colors="#e9f0f6")
        if self.hand is not None:
            x, y = self.hand[0] * unit, self.hand[1] * unit
            color = Palette.GOOD if sea.ghost is None else Palette.BAD
            gui.circle(x, y, 0.04 * unit, color, border=2.0)

    def _draw_fish(self, gui: Gui) -> None:
        sea = self.shoal.sea
        fear, eating = np.clip(sea.fear * 1.6, 0, 1)[:, None], np.clip(sea.eating, 0, 1)[:, None]
        colors = _CALM + (_EATING - _CALM) * eating
        colors += (_AFRAID - colors) * fear
        length = _FISH * self.unit * (4096 / sea.count) ** 0.4
        size = np.broadcast_to(np.array((length, length / 2), np.float32), (sea.count, 2))
        gui.sprites(
            self.picture, sea.place * self.unit, size, rotations=np.degrees(sea.heading), colors=colors
        )
