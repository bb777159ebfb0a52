"""`Page`: drawing in the units of a page of a fixed size, which is fitted into the window; and `Rect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import Picture
from gameglue.graphics.canvas import Align, VerticalAlign
from gameglue.graphics.colors import Color, Palette
from gameglue.graphics.gui import Gui

Points = np.ndarray | Sequence[tuple[float, float]]
_MARGIN = 22.0  # from the page's left and right edges to title, note and keys
_INSET = 16.0  # from a card's edges to what stands on it


class Rect(NamedTuple):
    """A rectangle: its left and upper edge, and its size. Unpacks where a call wants x, y, width, height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """x of the right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """y of the lower edge."""
        return self.y + self.height

    @property
    def center(self) -> tuple[float, float]:
        """The middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    def contains(self, x: float, y: float) -> bool:
        """Whether a place lies inside; the right and the lower edge do not belong to it."""
        return self.x <= x < self.right and self.y <= y < self.bottom

    def to_share(self, x: float, y: float) -> tuple[float, float]:
        """A place as fractions of width and height: (0, 0) is the left upper corner, (1, 1) the other."""
        return (x - self.x) / self.width, (y - self.y) / self.height


class Page:
    """`app.gui` in the units of a page, 960 x 640 if not told otherwise: a game is laid out once, for that.

    The page is scaled to what fits into the window and lies in the middle of it. With `fill` it takes the
    whole window instead, so that it becomes wider or taller than asked for where the window's proportions are
    others; `width` and `height` tell how large it is. Make one in each `on_gui`; it keeps nothing. Text
    stands around the height y, unless `valign` says otherwise.

    Raises `GraphicsError` for a page without area.
    """

    def __init__(self, gui: Gui, width: float = 960.0, height: float = 640.0, *, fill: bool = False) -> None:
        if width <= 0 or height <= 0:
            raise GraphicsError(f"a page needs a width and a height above 0, got {width} x {height}")
        self.gui = gui
        self.unit = min(gui.width / width, gui.height / height)
        """Pixels of the window in one unit of the page."""
        self.width = gui.width / self.unit if fill else width
        self.height = gui.height / self.unit if fill else height
        # On whole pixels, so that a page as large as the window's pixels keeps sharp edges.
        self.left = float(round((gui.width - self.width * self.unit) / 2))
        self.top = float(round((gui.height - self.height * self.unit) / 2))

    def from_window(self, x: float, y: float) -> tuple[float, float]:
        """A pixel of the window, such as the mouse's, as a place on the page."""
        return (x - self.left) / self.unit, (y - self.top) / self.unit

    def to_window(self, points: Points) -> np.ndarray:
        """Places on the page, (n, 2), as pixels of the window."""
        return np.reshape(np.asarray(points, np.float64), (-1, 2)) * self.unit + (self.left, self.top)

    # -- shapes and pictures, as those of `Gui` -------------------------------------------------

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: Color,
        radius: float = 0.0,
        *,
        color2: Color | None = None,
        border: float = 0.0,
    ) -> None:
        """A rectangle; `color2` at its lower edge, `border` wide if only its outline is wanted."""
        u = self.unit
        left, top = self.left + x * u, self.top + y * u
        self.gui.rect(
            left, top, width * u, height * u, color, color2=color2, radius=radius * u, border=border * u
        )

    def circle(
        self, x: float, y: float, radius: float, color: Color, *, border: float = 0.0, glow: float = 0.0
    ) -> None:
        """A disc around (`x`, `y`), or a ring `border` wide; with a light around it, `glow` wide."""
        u = self.unit
        self.gui.circle(
            self.left + x * u, self.top + y * u, radius * u, color, border=border * u, glow=glow * u
        )

    def circles(
        self,
        points: Points,
        radii: float | np.ndarray,
        colors: Color | np.ndarray = "white",
        *,
        softness: float = 0.0,
        additive: bool = False,
    ) -> None:
        """Many discs around points (n, 2), as `Canvas.circles`: `softness` 1 makes lights of them."""
        radii = np.asarray(radii, np.float32) * np.float32(self.unit)
        self.gui.circles(self.to_window(points), radii, colors, softness=softness, additive=additive)

    def polyline(
        self,
        points: Points,
        color: Color | np.ndarray,
        *,
        width: float = 2.0,
        closed: bool = False,
        glow: float = 0.0,
    ) -> None:
        """Lines from point to point, (n, 2); color: one, or (n - 1, 3 or 4), one row a segment.

        `glow` adds light around them, that wide.
        """
        u = self.unit
        self.gui.polyline(self.to_window(points), color, width=width * u, closed=closed, glow=glow * u)

    def image(
        self,
        picture: Picture,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        region: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
        radius: float = 0.0,
    ) -> None:
        """A picture, or a `region` of it in fractions, with its upper left corner at (`x`, `y`)."""
        u = self.unit
        x, y = self.left + (x + width / 2) * u, self.top + (y + height / 2) * u
        self.gui.sprite(picture, x, y, width * u, height * u, region=region, radius=radius * u)

    def sprites(
        self,
        picture: Picture,
        points: Points,
        sizes: float | np.ndarray,
        colors: Color | np.ndarray = "white",
        *,
        additive: bool = False,
    ) -> None:
        """Many copies of one picture around points (n, 2), as wide and tall as `sizes`: a number, or (n,)."""
        places = self.to_window(points)
        wide = np.broadcast_to(np.asarray(sizes, np.float64), (len(places),))[:, None] * self.unit
        self.gui.sprites(picture, places, np.repeat(wide, 2, axis=1), colors=colors, additive=additive)

    def plot(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        values: Sequence[float] | np.ndarray,
        *,
        low: float | None = None,
        high: float | None = None,
        color: Color = Palette.ACCENT,
    ) -> None:
        """A curve through `values`, oldest on the left, with `low` and `high` at the edges."""
        u = self.unit
        left, top, line = self.left + x * u, self.top + y * u, max(1.5, 2.0 * u)
        self.gui.plot(
            left, top, width * u, height * u, values, low=low, high=high, color=color, line_width=line
        )

    def meter(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        share: float,
        color: Color = Palette.ACCENT,
        back: Color = Palette.RAISED,
    ) -> None:
        """A bar with round ends, filled from the left by `share` (0 to 1)."""
        self.rect(x, y, width, height, back, height / 2)
        self.rect(x, y, max(width * min(share, 1.0), height), height, color, height / 2)

    # -- text -----------------------------------------------------------------------------------

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 14.0,
        color: Color = Palette.TEXT,
        align: Align = "left",
        valign: VerticalAlign = "center",
    ) -> float:
        """Write `text` at (`x`, `y`): its left, center or right, around that height. Returns its width."""
        u = self.unit
        x, y = self.left + x * u, self.top + y * u
        return self.gui.text(text, x, y, size=size * u, color=color, align=align, valign=valign) / u

    def measure(self, text: str, size: float = 14.0) -> tuple[float, float]:
        """Width and height that `text` would have."""
        width, height = self.gui.measure(text, size=size * self.unit)
        return width / self.unit, height / self.unit

    def chip(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 13.0,
        color: Color = Palette.RAISED,
        ink: Color = Palette.TEXT,
    ) -> float:
        """Text on a small plate that begins at x, around the height y: a key, a choice. Returns its width."""
        wide, tall = self.measure(text, size)[0] + 14.0 * size / 13.0, 23.0 * size / 13.0
        self.rect(x, y - tall / 2, wide, tall, color, 5.0 * size / 13.0)
        self.text(text, x + wide / 2, y, size, ink, "center")
        return wide

    # -- the parts of a page --------------------------------------------------------------------

    def heading(
        self,
        title: str,
        subtitle: str = "",
        note: str = "",
        *,
        x: float = _MARGIN,
        y: float = 28.0,
        note_color: Color = Palette.MUTED,
        back: Color | None = None,
    ) -> None:
        """The line at the top: a title, what it is about, and a note at the right.

        `back` is the colour of a plate under title and subtitle, for pages that lie over a picture.
        """
        if back is not None:
            wide = self.measure(title, 26.0)[0] + 12.0 + self.measure(subtitle)[0]
            self.rect(x - 14.0, y - 20.0, wide + 28.0, 40.0, back, 12.0)
        wide = self.text(title, x, y - 1.0, 26.0)
        self.text(subtitle, x + wide + 12.0, y + 1.0, color=Palette.MUTED)
        self.text(note, self.width - _MARGIN, y, color=note_color, align="right")

    def keys(
        self,
        meanings: Mapping[str, str],
        *,
        x: float = _MARGIN,
        y: float | None = None,
        back: Color | None = None,
    ) -> None:
        """The row at the bottom: each key, or what else is done, and what it means.

        `back` is the colour of a plate under it, for pages that lie over a picture.
        """
        middle = self.height - 20.5 if y is None else y
        if back is not None:
            words = (*meanings, *meanings.values())
            wide = sum(self.measure(word, 13.0)[0] for word in words) + 39.0 * len(meanings)
            self.rect(x - 10.0, middle - 18.0, wide + 2.0, 36.0, back, 12.0)
        for key, told in meanings.items():
            x += self.chip(key, x, middle) + 7.0
            x += self.text(told, x, middle, 13.0, Palette.MUTED) + 18.0

    def card(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        title: str = "",
        value: str = "",
        *,
        color: Color = Palette.PANEL,
        title_color: Color = Palette.MUTED,
        value_color: Color = Palette.TEXT,
    ) -> Rect:
        """A surface with a title, and something at its right; returns the room below them."""
        self.rect(x, y, width, height, color, 12.0)
        self.text(title, x + _INSET, y + 20.0, color=title_color)
        self.text(value, x + width - _INSET, y + 20.0, color=value_color, align="right")
        return Rect(x + _INSET, y + 38.0, width - 2 * _INSET, max(height - 52.0, 0.0))

    def rows(
        self,
        x: float,
        y: float,
        width: float,
        values: Mapping[str, str],
        *,
        size: float = 14.0,
        step: float = 23.0,
    ) -> None:
        """Rows of a name at the left and its value at the right; the first around the height y."""
        for row, (name, value) in enumerate(values.items()):
            self.text(name, x, y + step * row, size, Palette.MUTED)
            self.text(value, x + width, y + step * row, size, align="right")
