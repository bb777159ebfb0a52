"""What lies over the picture: title, slider, styles, the scene as it was, figures and keys."""

from __future__ import annotations

from typing import Literal

import numpy as np

from demos.painter.painter import Painter
from gameglue import MonoBehaviour, Palette

_KEYS = {"drag": "strength", "1 2 3": "style", "space": "unpainted", "R": "resolution", "Esc": "quit"}
_SCALES = (0.25, 0.5, 1.0)
_GLASS = "#12151ce0"
Align = Literal["left", "center", "right"]


class Panel(MonoBehaviour):
    """The mouse and the arrows move the slider. By itself, it fades the painting in and changes styles."""

    execution_order = -10  # what it sets holds for this frame's painting

    painter: Painter
    label: str = ""
    autoplay: bool = False

    def awake(self) -> None:
        """Nothing is held."""
        self.strength = self.painter.strength
        self._is_held = False

    @property
    def unit(self) -> float:
        """A pixel of a window of 960 x 640, in pixels of this one."""
        return min(self.app.size[0] / 960, self.app.size[1] / 640)

    @property
    def slider(self) -> tuple[float, float, float]:
        """Left end, middle height and length."""
        return 112 * self.unit, self.app.size[1] - 76 * self.unit, 230 * self.unit

    def update(self) -> None:
        """Follow mouse and keys."""
        keys, painter, styles = self.input, self.painter, list(self.painter.workers)
        if keys.get_key_down("escape"):
            self.app.quit()
        for number, style in enumerate(styles, start=1):
            if keys.get_key_down(str(number)):
                painter.style, self.autoplay = style, False
        if keys.get_key_down("r"):
            painter.scale = _SCALES[(_SCALES.index(painter.scale) + 1) % len(_SCALES)]
        left, middle, length = self.slider
        x, y = keys.mouse_position
        if keys.get_mouse_button_down():
            self._is_held = abs(y - middle) < 18 * self.unit and left - 16 < x < left + length + 16
            self.autoplay = False
        if self._is_held:
            self._is_held = keys.get_mouse_button()
            self.strength = (x - left) / length
        elif pressed := keys.get_axis("left", "right"):
            self.strength, self.autoplay = self.strength + pressed * self.time.unscaled_delta_time, False
        elif self.autoplay:
            self.strength = self.time.time / 2.0
            painter.style = styles[int(self.time.time / 5.5) % len(styles)]
        self.strength = min(max(self.strength, 0.0), 1.0)
        painter.strength = 0.0 if keys.get_key("space") else self.strength

    def on_gui(self) -> None:
        """Draw everything."""
        gui, unit, (width, height) = self.app.gui, self.unit, self.app.size
        gui.rect(0, height - 106 * unit, width, 106 * unit, _GLASS)
        gui.rect(16 * unit, 14 * unit, 420 * unit, 44 * unit, _GLASS, radius=10 * unit)
        x = 30 * unit + self._say("painter", 30 * unit, 34 * unit, 24)
        self._say("a network paints this scene as it moves", x + 12 * unit, 37 * unit, 15, Palette.MUTED)
        self._draw_slider()
        self._draw_styles(372 * unit, self.slider[1])
        self._draw_figures(width - 22 * unit, height - 30 * unit)
        self._draw_scene(width - 16 * unit, 14 * unit)
        x, y = 22 * unit, height - 30 * unit
        for key, meaning in _KEYS.items():
            x += self._chip(key, x, y, 13, Palette.RAISED, Palette.TEXT) + 7 * unit
            x += self._say(meaning, x, y, 13, Palette.MUTED) + 18 * unit

    def _say(
        self, text: str, x: float, y: float, size: float, color: str = Palette.TEXT, align: Align = "left"
    ) -> float:
        """Write text around the height y; returns its width."""
        size *= self.unit
        return self.app.gui.text(text, x, y, size=size, color=color, align=align, valign="center")

    def _chip(self, text: str, x: float, y: float, size: float, color: str, ink: str) -> float:
        """Text on a small plate; returns its width."""
        wide, tall = self.app.gui.measure(text, size=size * self.unit)[0] + size * self.unit, size * self.unit
        self.app.gui.rect(x, y - 0.9 * tall, wide, 1.8 * tall, color, radius=0.4 * tall)
        self._say(text, x + wide / 2, y, size, ink, "center")
        return wide

    def _draw_slider(self) -> None:
        gui, unit = self.app.gui, self.unit
        left, middle, length = self.slider
        self._say("strength", 22 * unit, middle, 16)
        gui.meter(left, middle - 3 * unit, length, 6 * unit, self.strength)
        gui.circle(left + self.strength * length, middle, 11 * unit, "white")
        gui.circle(left + self.strength * length, middle, 6 * unit, Palette.ACCENT)

    def _draw_styles(self, x: float, y: float) -> None:
        for number, style in enumerate(self.painter.workers, start=1):
            chosen = style == self.painter.style
            colors = (Palette.ACCENT, Palette.BACKGROUND) if chosen else (Palette.RAISED, Palette.TEXT)
            x += self._chip(f"{number}  {style}", x, y, 16, *colors) + 9 * self.unit

    def _draw_figures(self, right: float, y: float) -> None:
        painter = self.painter
        width, height = painter.size
        self._say(f"{width} x {height} on {self.label}", right, y, 13, Palette.MUTED, "right")
        text = "painting the first picture"
        if painter.waits:
            ms = float(np.median(painter.waits, axis=0)[1])
            text = f"{painter.pictures_per_second:.0f} pictures/s, {ms:.0f} ms each"
        self._say(text, right, self.slider[1], 15, align="right")

    def _draw_scene(self, right: float, top: float) -> None:
        """The scene as it was before it was painted, small in the corner."""
        gui, unit, picture = self.app.gui, self.unit, self.painter.scene_picture
        if picture is None:
            return
        wide = 216 * unit
        tall = wide * picture.size[1] / picture.size[0]
        left, edge = right - wide, 3 * unit
        gui.rect(left - edge, top - edge, wide + 2 * edge, tall + 2 * edge, _GLASS, radius=10 * unit)
        gui.image(picture, left, top, wide, tall, radius=8 * unit)
        self._say("the scene", left + 10 * unit, top + tall - 14 * unit, 13)
