"""Drawing in the units of a 960 x 640 page that is fitted into the window."""

from __future__ import annotations

from typing import Any

from gameglue import App, Palette


class Page:
    """The app's gui, scaled: lengths are pixels of a 960 x 640 window."""

    def __init__(self, app: App) -> None:
        self.gui = app.gui
        self.unit = min(app.size[0] / 960, app.size[1] / 640)
        self.left = (app.size[0] - 960 * self.unit) / 2
        self.top = (app.size[1] - 640 * self.unit) / 2

    def from_window(self, x: float, y: float) -> tuple[float, float]:
        """A pixel of the window as a place on the page."""
        return (x - self.left) / self.unit, (y - self.top) / self.unit

    def rect(
        self, x: float, y: float, w: float, h: float, color: Any, radius: float = 0, **more: Any
    ) -> None:
        """A rectangle; `more` as for `Gui.rect`."""
        u = self.unit
        self.gui.rect(self.left + x * u, self.top + y * u, w * u, h * u, color, radius=radius * u, **more)

    def bar(self, x: float, y: float, w: float, h: float, share: float, color: Any, back: Any) -> None:
        """A bar that is filled to a share, 0 to 1."""
        self.rect(x, y, w, h, back, h / 2)
        self.rect(x, y, max(w * min(share, 1.0), h), h, color, h / 2)

    def circle(self, x: float, y: float, radius: float, color: Any, border: float = 0) -> None:
        """A disc, or a ring."""
        u = self.unit
        self.gui.circle(self.left + x * u, self.top + y * u, radius * u, color, border=border * u)

    def text(
        self, text: str, x: float, y: float, size: float = 14, color: Any = Palette.TEXT, at: Any = "left"
    ) -> float:
        """Letters around the height y, and how wide they are; x is their left, center or right."""
        u = self.unit
        x, y = self.left + x * u, self.top + y * u
        return self.gui.text(text, x, y, size=size * u, color=color, align=at, valign="center") / u

    def card(self, x: float, y: float, w: float, h: float, title: str, value: str = "") -> None:
        """A panel with a title, and something at its right."""
        self.rect(x, y, w, h, Palette.PANEL, 12)
        self.text(title, x + 16, y + 20, color=Palette.MUTED)
        self.text(value, x + w - 16, y + 20, at="right")

    def head(self, title: str, words: str, label: str, keys: str) -> None:
        """The title above, and below what each key does: "N: new game, Esc: quit"."""
        x = 34 + self.text(title, 22, 27, 26)
        self.text(words, x, 29, color=Palette.MUTED)
        self.text(label, 938, 28, color=Palette.MUTED, at="right")
        x = 22
        for entry in keys.split(", "):
            key, meaning = entry.split(": ")
            wide = self.gui.measure(key, size=13 * self.unit)[0] / self.unit + 14
            self.rect(x, 608, wide, 23, Palette.RAISED, 5)
            self.text(key, x + wide / 2, 619.5, 13, at="center")
            x += wide + 25 + self.text(meaning, x + wide + 7, 619.5, 13, Palette.MUTED)
