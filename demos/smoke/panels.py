"""Draws both boxes and the figures of the two solvers."""

from __future__ import annotations

import numpy as np

from demos.smoke.fluid import COLUMNS, ROWS
from demos.smoke.simulation import Simulation
from gameglue import MonoBehaviour, Page, Palette, Rect

_TOP, _TALL = 84.0, 500.0
_WIDE = _TALL * COLUMNS / ROWS
_BOXES = [Rect(left, _TOP, _WIDE, _TALL) for left in (22.0, 22.0 + _WIDE + 14.0)]
_COLORS = (Palette.ACCENT, Palette.WARN)
_KEYS = {"drag": "smoke", "right drag": "move the stone", "1 2 3": "Jacobi iterations"}
_KEYS |= {"V": "show divergence", "C": "clear", "Esc": "quit"}
_EXPLAINED = """How much more flows out of
a cell than into it. In a real
fluid it is 0. The pressure is
found to make it 0; what
remains is the solver's error."""


class Panels(MonoBehaviour):
    """Draws everything."""

    simulation: Simulation
    title: str

    def start(self) -> None:
        """Create a texture for each box."""
        blank = np.zeros((ROWS, COLUMNS, 3), np.uint8)
        self._textures = [self.app.graphics.texture(blank) for _ in _BOXES]
        self._drawn = -1

    def update(self) -> None:
        """Pass the pointer's position to the simulation; both boxes share it."""
        x, y = Page(self.app.gui).from_window(*self.input.mouse_position)
        cells = [((x - box.x) * COLUMNS / _WIDE, (y - _TOP) * ROWS / _TALL) for box in _BOXES]
        inside = [c for c in cells if 0 <= c[0] < COLUMNS and 0 <= c[1] < ROWS]
        self.simulation.point_at(inside[0] if inside else None)

    def on_gui(self) -> None:
        """Draw the boxes and the panels."""
        page, simulation = Page(self.app.gui), self.simulation
        if self._drawn != simulation.steps:
            self._drawn = simulation.steps
            for texture, picture in zip(self._textures, pictures(simulation), strict=True):
                texture.write(picture)
        names = ("pressure by the network", f"Jacobi, {simulation.iterations} iterations")
        for texture, box, name, color in zip(self._textures, _BOXES, names, _COLORS, strict=True):
            page.image(texture, *box)
            page.rect(*box, color, border=1.5)
            page.text(name, box.x + 10, _TOP + 16, 14, color)
            if simulation.pointer is not None:
                x, y = simulation.pointer
                page.circle(box.x + x * _WIDE / COLUMNS, _TOP + y * _TALL / ROWS, 14, color, border=2)
        told = "the same fluid twice: a network and a classical solver find its pressure"
        page.heading("smoke", told, self.title, y=41)
        page.keys(_KEYS, y=612)
        self._figures(page)

    def _figures(self, page: Page) -> None:
        simulation, x = self.simulation, _BOXES[1].right + 14
        wide = 938.0 - x
        left = np.array(simulation.left or [(0.0, 0.0)])
        frames, ms = np.median(simulation.waits[-30:] or [(0, 0.0)], axis=0)
        times = (simulation.network_ms, float(np.median(simulation.jacobi_ms or [0.0])))
        for number, (name, color) in enumerate(zip(("network", "Jacobi"), _COLORS, strict=True)):
            top = _TOP + 150 * number
            page.card(x, top, wide, 138, name, f"{times[number]:.2f} ms", title_color=color)
            page.text(f"{np.median(left[-30:, number]) * 100:.1f} %", x + 16, top + 52, 26)
            page.text("of the divergence remains", x + 16, top + 74, 11.5, Palette.MUTED)
            page.plot(x + 16, top + 86, wide - 32, 40, left[:, number], low=0.0, high=1.0, color=color)
        room = page.card(x, _TOP + 300, wide, 200, "what divergence is", title_color=Palette.TEXT)
        page.text(_EXPLAINED, room.x, room.y + 44, 12, Palette.MUTED)
        told = f"{frames:.0f} frame{'s' if round(frames) != 1 else ''}, {ms:.0f} ms"
        lines = {"steps": str(simulation.steps), "pressure after": told}
        page.rows(room.x, room.bottom - 28, room.width, lines, size=12.5, step=18)


def pictures(simulation: Simulation) -> np.ndarray:
    """Images of both boxes, (2, ROWS, COLUMNS, 3) uint8: smoke, or divergence (red is out, blue is in)."""
    fluid = simulation.fluid
    light = 1.0 - np.exp(-1.6 * fluid.smoke)
    if simulation.shows_divergence:
        left = np.clip(6.0 * simulation.remaining, -1.0, 1.0)[..., None]
        light = 0.35 * light.mean(axis=3, keepdims=True)
        light = light + np.maximum(left, 0) * (1, 0.3, 0.1) + np.maximum(-left, 0) * (0.1, 0.5, 1)
    light = np.where(fluid.solid[..., None], (0.30, 0.34, 0.42), light + np.array((0.035, 0.043, 0.06)))
    return np.asarray(np.clip(light, 0.0, 1.0) * 255.0, np.uint8)
