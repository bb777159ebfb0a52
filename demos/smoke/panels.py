"""What the window shows: both boxes, and how the two solvers do."""

from __future__ import annotations

from typing import Literal

import numpy as np

from demos.smoke.fluid import COLUMNS, ROWS
from demos.smoke.simulation import Simulation
from gameglue import MonoBehaviour, Palette

_TOP, _TALL = 84.0, 500.0
_WIDE = _TALL * COLUMNS / ROWS
_LEFTS = (22.0, 22.0 + _WIDE + 14.0)
_COLORS = (Palette.ACCENT, Palette.WARN)
_KEYS = (("drag", "smoke"), ("right drag", "move the stone"), ("1 2 3", "Jacobi's iterations"),
         ("V", "show divergence"), ("C", "clear"), ("Esc", "quit"))  # fmt: skip


class Panels(MonoBehaviour):
    """Everything that is drawn, in pixels of a 960 x 640 window times `unit`."""

    simulation: Simulation
    title: str

    def start(self) -> None:
        """Make a texture for each box."""
        blank = np.zeros((ROWS, COLUMNS, 3), np.uint8)
        self._textures = [self.app.graphics.texture(blank) for _ in _LEFTS]
        self._drawn = -1

    def update(self) -> None:
        """Tell the simulation where the pointer is; both boxes mean the same place."""
        u = self.unit = min(self.app.size[0] / 960, self.app.size[1] / 640)
        x, y = (value / u for value in self.input.mouse_position)
        cells = [((x - left) * COLUMNS / _WIDE, (y - _TOP) * ROWS / _TALL) for left in _LEFTS]
        inside = [c for c in cells if 0 <= c[0] < COLUMNS and 0 <= c[1] < ROWS]
        self.simulation.point_at(inside[0] if inside else None)

    def on_gui(self) -> None:
        """Draw the boxes and the panels."""
        gui, u, simulation = self.app.gui, self.unit, self.simulation
        if self._drawn != simulation.steps:
            self._drawn = simulation.steps
            for texture, picture in zip(self._textures, pictures(simulation), strict=True):
                texture.write(picture)
        names = ("pressure by the network", f"Jacobi, {simulation.iterations} iterations")
        for texture, left, name, color in zip(self._textures, _LEFTS, names, _COLORS, strict=True):
            gui.image(texture, left * u, _TOP * u, _WIDE * u, _TALL * u)
            gui.rect(left * u, _TOP * u, _WIDE * u, _TALL * u, color, border=1.5 * u)
            self._text(name, left + 10, _TOP + 16, 14, color)
            if simulation.pointer is not None:
                x, y = simulation.pointer
                x, y = left + x * _WIDE / COLUMNS, _TOP + y * _TALL / ROWS
                gui.circle(x * u, y * u, 14 * u, color, border=2 * u)
        self._text("smoke", 22, 40, 26)
        self._text("the same fluid twice: its pressure must leave no divergence", 118, 43, 14, Palette.MUTED)
        self._text(self.title, 938, 43, 13, Palette.MUTED, "right")
        self._figures()
        x = 22.0
        for key, meaning in _KEYS:
            wide = gui.measure(key, size=13 * u)[0] / u + 14
            gui.rect(x * u, 600 * u, wide * u, 24 * u, Palette.RAISED, radius=5 * u)
            self._text(key, x + 7, 612, 13)
            x += wide + 7
            x += self._text(meaning, x, 612, 13, Palette.MUTED) + 16

    def _text(
        self, text: str, x: float, y: float, size: float, color: str = Palette.TEXT,
        align: Literal["left", "center", "right"] = "left",
    ) -> float:  # fmt: skip
        u, gui = self.unit, self.app.gui
        return gui.text(text, x * u, y * u, size=size * u, color=color, align=align, valign="center") / u

    def _figures(self) -> None:
        simulation, u, gui = self.simulation, self.unit, self.app.gui
        x = _LEFTS[1] + _WIDE + 14.0
        wide = 938.0 - x
        left = np.array(simulation.left or [(0.0, 0.0)])
        frames, ms = np.median(simulation.waits[-30:] or [(0, 0.0)], axis=0)
        times = (simulation.network_ms, float(np.median(simulation.jacobi_ms or [0.0])))
        for number, (name, color) in enumerate(zip(("network", "Jacobi"), _COLORS, strict=True)):
            top = _TOP + 150 * number
            gui.rect(x * u, top * u, wide * u, 138 * u, Palette.PANEL, radius=10 * u)
            self._text(name, x + 14, top + 20, 14, color)
            self._text(f"{times[number]:.2f} ms", x + wide - 14, top + 20, 13, Palette.TEXT, "right")
            share = float(np.median(left[-30:, number]))
            self._text(f"{share * 100:.1f} %", x + 14, top + 52, 26)
            self._text("divergence left", x + 14, top + 74, 11.5, Palette.MUTED)
            room = ((x + 14) * u, (top + 86) * u, (wide - 28) * u, 40 * u)
            gui.plot(*room, left[:, number], low=0.0, high=1.0, color=color)
        top = _TOP + 300
        gui.rect(x * u, top * u, wide * u, 200 * u, Palette.PANEL, radius=10 * u)
        self._text("steps\npressure after", x + 14, top + 34, 12.5, Palette.MUTED)
        told = f"{simulation.steps}\n{frames:.0f} frame{'s' if frames > 1 else ''}, {ms:.0f} ms"
        self._text(told, x + wide - 14, top + 34, 12.5, align="right")
        note, color = "a step in every frame", Palette.GOOD
        if frames > 1:
            note, color = "the smoke waits for its\npressure, the frames do not", Palette.WARN
        self._text(note, x + 14, top + 92, 12.5, color)


def pictures(simulation: Simulation) -> np.ndarray:
    """Both boxes as (2, ROWS, COLUMNS, 3) uint8: smoke and stone, or divergence (red out, blue in)."""
    fluid = simulation.fluid
    light = 1.0 - np.exp(-1.6 * fluid.smoke)
    if simulation.shows_divergence:
        left = np.clip(6.0 * simulation.remaining, -1.0, 1.0)[..., None]
        light = 0.35 * light.mean(axis=3, keepdims=True)
        light = light + np.maximum(left, 0) * (1, 0.3, 0.1) + np.maximum(-left, 0) * (0.1, 0.5, 1)
    light = np.where(fluid.solid[..., None], (0.30, 0.34, 0.42), light + np.array((0.035, 0.043, 0.06)))
    return np.asarray(np.clip(light, 0.0, 1.0) * 255.0, np.uint8)
