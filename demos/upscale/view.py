"""What the window shows: the split picture, three magnifying glasses, figures and keys."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from demos.upscale.city import City
from demos.upscale.upscaler import SIZE, Upscaler
from gameglue import MonoBehaviour, Palette, RenderTarget

_KEYS = {
    "drag": "divider",
    "hover": "magnify",
    "W S": "fly",
    "space": "freeze",
    "F3": "profiler",
    "Esc": "quit",
}
_ZOOM = 9.0  # the glasses show a ninth of the picture's width
Region = tuple[float, float, float, float]
Align = Literal["left", "center", "right"]


class View(MonoBehaviour):
    """Left of the divider is bilinear interpolation, right of it the network. By itself it sways."""

    execution_order = 10  # after the upscaler

    upscaler: Upscaler
    city: City
    label: str = ""
    autoplay: bool = False

    def awake(self) -> None:
        """The divider is in the middle."""
        self.split = 0.5
        self._is_held = False

    @property
    def unit(self) -> float:
        """A pixel of a window of 960 x 640, in pixels of this one."""
        return min(self.app.size[0] / 960, self.app.size[1] / 640)

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of the game's picture."""
        unit, (width, height) = self.unit, self.app.size
        left, top = width / 2 - 458 * unit, height / 2 - 246 * unit
        return round(left), round(top), round(SIZE[0] * unit), round(SIZE[1] * unit)

    def update(self) -> None:
        """Follow mouse and keys."""
        left, _, width, _ = self.box
        if self.input.get_key_down("escape"):
            self.app.quit()
        if self.input.get_key_down("space"):
            self.city.moves = not self.city.moves
        if self.input.get_mouse_button_down():
            self._is_held, self.autoplay = self._pointed() is not None, False
        if self._is_held:
            self._is_held = self.input.get_mouse_button()
            self.split = min(max((self.input.mouse_position[0] - left) / width, 0.02), 0.98)
        elif self.autoplay:
            self.split = 0.45 - 0.15 * math.sin(1.1 * self.time.time)

    def _pointed(self) -> tuple[float, float] | None:
        """Where the mouse points in the picture, as fractions of it."""
        left, top, width, height = self.box
        x, y = self.input.mouse_position
        x, y = (x - left) / width, (y - top) / height
        return (x, y) if 0.0 <= x <= 1.0 and 0.0 <= y <= 1.0 else None

    def on_gui(self) -> None:
        """Draw everything."""
        gui, unit, shot, split = self.app.gui, self.unit, self.upscaler.shown, self.split
        left, top, width, height = self.box
        head = top - 32 * unit
        self._say("upscale", left, head - 3 * unit, 26)
        text = "drawn with a quarter of the pixels, made whole by a network"
        self._say(text, left + 108 * unit, head, 15, Palette.MUTED)
        self._say(self.label, left + 916 * unit, head, 14, Palette.MUTED, "right")
        x = left + width * split
        self._put(shot.low, (0.0, 0.0, split, 1.0), left, top, x - left, height)
        self._put(shot.large, (split, 0.0, 1.0, 1.0), x, top, left + width - x, height)
        gui.line(x, top, x, top + height, "white", width=2 * unit)
        gui.circle(x, top + height / 2, 11 * unit, "white")
        self._say("<>", x, top + height / 2, 13, Palette.BACKGROUND, "center")
        self._tag(x - 106 * unit, top + 14 * unit, "bilinear", Palette.WARN)
        self._tag(x + 14 * unit, top + 14 * unit, "network", Palette.GOOD)
        self._draw_glasses(left + width + 14 * unit, top)
        self._draw_foot(left, top + height + 26 * unit)

    def _say(
        self, text: str, x: float, y: float, size: float, color: str = Palette.TEXT, align: Align = "left"
    ) -> float:
        """Write text around the height y; returns its width."""
        return self.app.gui.text(text, x, y, size=size * self.unit, color=color, align=align, valign="center")

    def _put(
        self, picture: RenderTarget, part: Region, x: float, y: float, width: float, height: float
    ) -> None:
        self.app.gui.sprite(picture, x + width / 2, y + height / 2, width, height, region=part)

    def _tag(self, x: float, y: float, text: str, color: str) -> None:
        unit = self.unit
        self.app.gui.rect(x, y, 92 * unit, 28 * unit, "#0c0e13d0", radius=6 * unit)
        self._say(text, x + 46 * unit, y + 14 * unit, 16, color, "center")

    def _draw_glasses(self, x: float, top: float) -> None:
        """The same place three times: where the mouse points, or the taxi."""
        unit, shot = self.unit, self.upscaler.shown
        wide, tall = 262 * unit, 126 * unit
        w, h = 1 / _ZOOM, SIZE[0] / SIZE[1] * tall / wide / _ZOOM
        at_x, at_y = self._pointed() or (0.31, 0.5 - (self.city.height + 0.38) / 10)
        at_x, at_y = min(max(at_x, w / 2), 1 - w / 2), min(max(at_y, h / 2), 1 - h / 2)
        part = (at_x - w / 2, at_y - h / 2, at_x + w / 2, at_y + h / 2)
        told = ["...", "...", "all pixels"]
        if self.upscaler.measured:
            bilinear, network = np.mean(self.upscaler.measured[-4:], axis=0)
            told[:2] = f"{bilinear:.1f} dB", f"{network:.1f} dB, {network - bilinear:+.1f}"
        pictures = {"bilinear": shot.low, "network": shot.large, "native": shot.native}
        colors = (Palette.WARN, Palette.GOOD, Palette.TEXT)
        for (name, picture), value, color in zip(pictures.items(), told, colors, strict=True):
            self.app.gui.rect(x, top, wide, 28 * unit, Palette.PANEL)
            self._say(name, x + 10 * unit, top + 14 * unit, 15, color)
            self._say(value, x + wide - 10 * unit, top + 14 * unit, 15, align="right")
            self._put(picture, part, x, top + 28 * unit, wide, tall)
            top += tall + 37 * unit

    def _draw_foot(self, x: float, y: float) -> None:
        gui, unit, upscaler = self.app.gui, self.unit, self.upscaler
        for key, meaning in _KEYS.items():
            wide = gui.measure(key, size=13 * unit)[0] + 14 * unit
            gui.rect(x, y - 11 * unit, wide, 23 * unit, Palette.RAISED, radius=5 * unit)
            self._say(key, x + wide / 2, y, 13, align="center")
            x += wide + 7 * unit
            x += self._say(meaning, x, y, 13, Palette.MUTED) + 16 * unit
        right = self.box[0] + 916 * unit
        if upscaler.waits:
            ms = float(np.median(upscaler.waits, axis=0)[1])
            text = f"{upscaler.pictures_per_second:.0f} pictures/s, each after {ms:.0f} ms"
            self._say(text, right, y, 13, align="right")
        text = "PSNR against native, measured as you watch: more is better"
        self._say(text, right, y + 24 * unit, 13, Palette.MUTED, "right")
