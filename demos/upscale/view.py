"""Draws the split image, three magnified details, figures and keys."""

from __future__ import annotations

import math

import numpy as np

from demos.upscale.city import City
from demos.upscale.upscaler import Upscaler
from gameglue import MonoBehaviour, Page, Palette, Rect

_KEYS = {"drag": "divider", "hover": "magnify", "W S": "fly", "space": "freeze"}
_KEYS |= {"F3": "profiler", "Esc": "quit"}
_ZOOM = 9.0  # the details show a ninth of the image's width
BOX = Rect(22, 74, 640, 480)  # the game's image on the page


class View(MonoBehaviour):
    """Left of the divider is bilinear interpolation, right of it the network's image."""

    execution_order = 10  # after the upscaler

    upscaler: Upscaler
    city: City
    label: str = ""
    autoplay: bool = False

    def awake(self) -> None:
        """Start with the divider in the middle."""
        self.split, self._is_held = 0.5, False

    def update(self) -> None:
        """Read the mouse and the keys."""
        if self.input.get_key_down("escape"):
            self.app.quit()
        self.city.moves ^= self.input.get_key_down("space")
        x, y = self._pointed()
        if self.input.get_mouse_button_down():
            self._is_held, self.autoplay = BOX.contains(x, y), False
        if self._is_held:
            self._is_held = self.input.get_mouse_button()
            self.split = min(max((x - BOX.x) / BOX.width, 0.02), 0.98)
        elif self.autoplay:
            self.split = 0.45 - 0.15 * math.sin(1.1 * self.time.time)

    def _pointed(self) -> tuple[float, float]:
        """Position of the mouse on the page."""
        return Page(self.app.gui).from_window(*self.input.mouse_position)

    def on_gui(self) -> None:
        """Draw everything."""
        page, shot, split = Page(self.app.gui), self.upscaler.shown, self.split
        told = "drawn with a quarter of the pixels, upscaled by a network"
        page.heading("upscale", told, self.label, y=41)
        x = BOX.x + BOX.width * split
        page.image(shot.low, BOX.x, BOX.y, x - BOX.x, BOX.height, region=(0.0, 0.0, split, 1.0))
        page.image(shot.large, x, BOX.y, BOX.right - x, BOX.height, region=(split, 0.0, 1.0, 1.0))
        page.polyline([(x, BOX.y), (x, BOX.bottom)], "white")
        page.circle(x, BOX.center[1], 11, "white")
        page.text("<>", x, BOX.center[1], 13, Palette.BACKGROUND, "center")
        # At the bottom: the game's own text is at the top.
        for left, name, color in ((x - 106, "bilinear", Palette.WARN), (x + 14, "network", Palette.GOOD)):
            if BOX.x <= left <= BOX.right - 92:
                page.rect(left, BOX.bottom - 42, 92, 28, "#0c0e13d0", 6)
                page.text(name, left + 46, BOX.bottom - 28, 16, color, "center")
        self._draw_details(page, BOX.right + 14)
        page.keys(_KEYS, y=BOX.bottom + 26)
        (width, height), frames = self.upscaler.size, self.upscaler.network.latency_frames
        told = f"{width // 2} x {height // 2} to {width} x {height}, {frames:.0f} frames later"
        page.text(told, page.width - 22, BOX.bottom + 26, 13, align="right")
        told = "dB: PSNR against native resolution, more is better"
        page.text(told, page.width - 22, BOX.bottom + 50, 13, Palette.MUTED, "right")

    def _draw_details(self, page: Page, x: float) -> None:
        """The same detail three times: where the mouse points, or the taxi."""
        shot, top, wide, tall = self.upscaler.shown, BOX.y, 262, 126
        told = ["...", "...", "reference"]
        if self.upscaler.measured:
            bilinear, network = np.mean(self.upscaler.measured[-4:], axis=0)
            told[:2] = f"{bilinear:.1f} dB", f"{network:.1f} dB, {network - bilinear:+.1f}"
        names, pictures = ("bilinear", "network", "native"), (shot.low, shot.large, shot.native)
        colors, part = (Palette.WARN, Palette.GOOD, Palette.TEXT), self._magnified(tall / wide)
        for name, picture, value, color in zip(names, pictures, told, colors, strict=True):
            page.rect(x, top, wide, 28, Palette.PANEL)
            page.text(name, x + 10, top + 14, 15, color)
            page.text(value, x + wide - 10, top + 14, 15, align="right")
            page.image(picture, x, top + 28, wide, tall, region=part)
            top += tall + 37

    def _magnified(self, shape: float) -> tuple[float, float, float, float]:
        """The part of the image that the details show; shape: their height divided by their width."""
        x, y = self._pointed()
        at_x, at_y = BOX.point_to_normalized(x, y)
        if not BOX.contains(x, y):
            at_x, at_y = 0.31, 0.5 - (self.city.height + 0.38) / 10
        w, h = 1 / _ZOOM, BOX.width / BOX.height * shape / _ZOOM
        at_x, at_y = min(max(at_x, w / 2), 1 - w / 2), min(max(at_y, h / 2), 1 - h / 2)
        return at_x - w / 2, at_y - h / 2, at_x + w / 2, at_y + h / 2
