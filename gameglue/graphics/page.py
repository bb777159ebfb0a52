"""`Page`: a GUI canvas with a fixed virtual size, scaled to the window; and `Rect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gameglue.errors import GraphicsError
from gameglue.graphics.batch import View
from gameglue.graphics.canvas import Align, VerticalAlign
from gameglue.graphics.colors import Color, Palette
from gameglue.graphics.gui import Gui

Points = np.ndarray | Sequence[tuple[float, float]]
_MARGIN = 22.0  # from the page's left and right edges to title, note and keys
_INSET = 16.0  # from a card's edges to what stands on it


class Rect(NamedTuple):
    """A rectangle: left and top edge, width and height. Unpacks as x, y, width, height.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Width.
        height: Height.
    """

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

    def inset(self, by: float) -> Rect:
        """The rectangle shrunk by this distance on each side; a negative number grows it."""
        return Rect(self.x + by, self.y + by, self.width - 2 * by, self.height - 2 * by)

    def grid(self, columns: int, rows: int = 1, gap: float = 0.0) -> list[Rect]:
        """Divide the rectangle into equal parts: the squares of a board, a row of buttons.

        Args:
            columns: Parts from left to right.
            rows: Parts from top to bottom.
            gap: Space between parts.

        Returns:
            The parts, row by row.
        """
        width = (self.width - gap * (columns - 1)) / columns
        height = (self.height - gap * (rows - 1)) / rows
        return [
            Rect(self.x + column * (width + gap), self.y + row * (height + gap), width, height)
            for row in range(rows)
            for column in range(columns)
        ]

    def contains(self, x: float, y: float) -> bool:
        """Whether a point is inside. The right and the lower edge do not belong to the rectangle."""
        return self.x <= x < self.right and self.y <= y < self.bottom

    def point_to_normalized(self, x: float, y: float) -> tuple[float, float]:
        """Convert a point to normalized coordinates: (0, 0) is top left, (1, 1) bottom right."""
        return (x - self.x) / self.width, (y - self.y) / self.height

    def normalized_to_point(self, x: float, y: float) -> tuple[float, float]:
        """Convert normalized coordinates to a point; inverse of `point_to_normalized`."""
        return self.x + x * self.width, self.y + y * self.height


class Page(Gui):
    """Scales `app.gui` to a fixed virtual resolution, for one layout at any window size.

    The page is scaled to fit into the window and centred. Create one in each `on_gui`; it keeps no state.
    Text is placed around the height y unless `valign` says otherwise.

    Args:
        gui: `self.app.gui`.
        width: Width of the page in units.
        height: Height of the page in units.
        fill: Whether the page takes the whole window and becomes wider or taller if the proportions differ;
            then read `width` and `height`.
        min_text: Smallest font size in pixels of the window, unless the page itself uses smaller ones. See
            `font_size`.

    Raises:
        GraphicsError: The page has no area.

    Attributes:
        gui: What the page draws with.
        left: Left edge of the page in the window, in pixels.
        top: Upper edge of the page in the window, in pixels.
        min_text: Smallest font size, in pixels of the window.
    """

    def __init__(
        self,
        gui: Gui,
        width: float = 960.0,
        height: float = 640.0,
        *,
        fill: bool = False,
        min_text: float = 0.0,
    ) -> None:
        if width <= 0 or height <= 0:
            raise GraphicsError(f"a page needs a width and a height above 0, got {width} x {height}")
        self.gui = gui
        across, down = gui.size
        self.unit = unit = min(across / width, down / height)
        """Pixels of the window in one unit of the page."""
        size = (across / unit, down / unit) if fill else (width, height)
        # On whole pixels, so that a page as large as the window's pixels keeps sharp edges.
        self.left = float(round((across - size[0] * unit) / 2))
        self.top = float(round((down - size[1] * unit) / 2))
        self.min_text = min_text
        rows = (
            (2 * unit / across, 0.0, 2 * self.left / across - 1),
            (0.0, -2 * unit / down, 1 - 2 * self.top / down),
        )
        super().__init__(gui._pipeline, gui._fonts, View(*rows, 1 / unit, False), size, gui._quads)

    def from_window(self, x: float, y: float) -> tuple[float, float]:
        """Convert a window pixel, such as the mouse position, to page units."""
        return (x - self.left) / self.unit, (y - self.top) / self.unit

    def to_window(self, points: Points) -> np.ndarray:
        """Convert page points, (n, 2), to window pixels."""
        return np.reshape(np.asarray(points, np.float64), (-1, 2)) * self.unit + (self.left, self.top)

    # -- text -----------------------------------------------------------------------------------

    def font_size(self, size: float) -> float:
        """The font size to draw with: `size`, or larger if that would be unreadable."""
        return max(size, min(self.min_text, size) / self.unit)

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 14.0,
        color: Color = Palette.TEXT,
        align: Align = "left",
        valign: VerticalAlign = "center",
        *,
        font: Path | None = None,
    ) -> float:
        """Write text.

        Args:
            text: The text.
            x: Its left, centre or right, as `align` says.
            y: Its top, centre or bottom, as `valign` says.
            size: Letter size in units.
            color: Its colour.
            align: "left", "center" or "right".
            valign: "top", "center" or "bottom".
            font: A font file.

        Returns:
            The width of the text in units.
        """
        return super().text(text, x, y, self.font_size(size), color, align, valign, font=font)

    def measure(self, text: str, size: float = 14.0, *, font: Path | None = None) -> tuple[float, float]:
        """Measure text.

        Args:
            text: The text.
            size: Letter size in units.
            font: A font file.

        Returns:
            Width and height in units.
        """
        return super().measure(text, self.font_size(size), font=font)

    def chip(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 13.0,
        color: Color = Palette.RAISED,
        text_color: Color = Palette.TEXT,
    ) -> float:
        """Draw text on a rounded background: a key, a choice.

        Args:
            text: The text.
            x: Left of the background.
            y: Middle of the background.
            size: Letter size in units.
            color: Colour of the background.
            text_color: Colour of the text.

        Returns:
            The width of the background in units.
        """
        unit = self.font_size(size) / 13.0
        wide, tall = self.measure(text, size)[0] + 14.0 * unit, 23.0 * unit
        self.rect(x, y - tall / 2, wide, tall, color, 5.0 * unit)
        self.text(text, x + wide / 2, y, size, text_color, "center")
        return wide

    def button(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str,
        note: str = "",
        *,
        highlighted: bool = False,
    ) -> None:
        """Draw a button. For input, test the pointer with `Rect.contains`.

        Args:
            x: Left of the background.
            y: Top of the background.
            width: Width in units.
            height: Height in units.
            text: Text in its middle.
            note: Smaller text below.
            highlighted: Whether it is highlighted.
        """
        self.rect(x, y, width, height, Palette.ACCENT if highlighted else Palette.RAISED, 8.0)
        text_color = Palette.BACKGROUND if highlighted else Palette.TEXT
        middle = y + height / 2
        self.text(text, x + width / 2, middle - 8.0 * bool(note), 15.0, text_color, "center")
        self.text(note, x + width / 2, middle + 11.0, 11.0, text_color, "center")

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
        """Draw the header: title, subtitle, and a note at the right.

        Args:
            title: The title.
            subtitle: What it is about.
            note: Text at the right, in the room that is left.
            x: Left of the title.
            y: Middle of the line.
            note_color: Colour of the note.
            back: Colour of a background under title and subtitle, for pages over an image.
        """
        if back is not None:
            wide = self.measure(title, 26.0)[0] + 12.0 + self.measure(subtitle)[0]
            self.rect(x - 14.0, y - 20.0, wide + 28.0, 40.0, back, 12.0)
        end = x + self.text(title, x, y - 1.0, 26.0) + 12.0
        end += self.text(subtitle, end, y + 1.0, color=Palette.MUTED)
        note = self.truncated(note, self.width - _MARGIN - end - 12.0)
        self.text(note, self.width - _MARGIN, y, color=note_color, align="right")

    def keys(
        self,
        meanings: Mapping[str, str],
        *,
        x: float = _MARGIN,
        y: float | None = None,
        back: Color | None = None,
    ) -> None:
        """Draw a row of key hints: each key as a button, with its meaning.

        Args:
            meanings: The meaning of each key.
            x: Left of the row.
            y: Middle of the row; by default at the bottom of the page.
            back: Colour of a background under it, for pages over an image.
        """
        middle = self.height - 20.5 if y is None else y
        if back is not None:
            words = (*meanings, *meanings.values())
            wide = sum(self.measure(word, 13.0)[0] for word in words) + 39.0 * len(meanings)
            self.rect(x - 10.0, middle - 18.0, wide + 2.0, 36.0, back, 12.0)
        for key, text in meanings.items():
            x += self.chip(key, x, middle) + 7.0
            x += self.text(text, x, middle, 13.0, Palette.MUTED) + 18.0

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
        """A raised surface with a title.

        Args:
            x: Left.
            y: Top.
            width: Width in units.
            height: Height in units.
            title: Text at the top left.
            value: Text at the top right.
            color: Colour of the surface.
            title_color: Colour of the title.
            value_color: Colour of the value.

        Returns:
            The area below the title.
        """
        self.rect(x, y, width, height, color, 12.0)
        size = self.font_size(14.0)
        middle, below = y + 13.0 + size / 2, 24.0 + size
        self.text(title, x + _INSET, middle, color=title_color)
        self.text(value, x + width - _INSET, middle, color=value_color, align="right")
        return Rect(x + _INSET, y + below, width - 2 * _INSET, max(height - below - 14.0, 0.0))

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
        """Draw a list of names, left-aligned, with their values, right-aligned.

        Args:
            x: Left.
            y: Middle of the first row.
            width: Width in units.
            values: Values by name.
            size: Letter size in units.
            step: Distance from row to row.
        """
        for row, (name, value) in enumerate(values.items()):
            self.text(name, x, y + step * row, size, Palette.MUTED)
            self.text(value, x + width, y + step * row, size, align="right")
