"""`Gui`: the canvas of `on_gui`, in pixels, with plots and panels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gameglue.graphics.canvas import Canvas
from gameglue.graphics.colors import Color, Palette, parse_color, parse_colors

_FAINT, _QUIET = "#ffffff0c", "#4a5670"


class Gui(Canvas):
    """Pixels from the top left corner, y down. What `self.app.gui` is."""

    def panel(self, x: float, y: float, width: float, height: float, title: str = "") -> float:
        """A raised surface to put things on; returns the y below its title."""
        self.rect(x, y, width, height, Palette.PANEL, radius=10, shadow=16)
        if not title:
            return y + 12
        self.text(title, x + 16, y + 12, 14, Palette.MUTED, valign="top")
        return y + 12 + 14 + 12

    def truncated(self, text: str, room: float, size: float = 14.0, *, keeps_end: bool = False) -> str:
        """Truncate `text` with dots to at most `room` pixels.

        `keeps_end` leaves out its middle instead, for names that differ at the end.
        """
        shown = text
        for count in range(len(text) - 1, -1, -1):
            if self.measure(shown, size)[0] <= room:
                break
            end = count // 2 if keeps_end else 0
            shown = text[: count - end] + "..." + text[len(text) - end :]
        return shown

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
        fill: bool = True,
        line_width: float = 2.0,
        marks: Sequence[float] = (),
    ) -> None:
        """A curve through `values`, oldest on the left, over the whole width.

        `low` and `high` are the values at the lower and upper edge; without them the curve fills the height.
        Values that are not finite leave a gap. At each of the `marks` a faint line is drawn, and the number
        next to it: the curve leaves them room at the right.
        """
        curve = np.asarray(values, np.float64).ravel()
        finite = np.isfinite(curve)
        right, words = x + width, [f"{mark:g}" for mark in marks]
        if marks:
            width -= max(self.measure(word, 11)[0] for word in words) + 8
        self.line(x, y + height, x + width, y + height, Palette.LINE, width=self.view.pixel)
        if not finite.any():
            return
        bottom = float(curve[finite].min()) if low is None else low
        top = float(curve[finite].max()) if high is None else high
        span = top - bottom if top > bottom else 1.0
        for mark, word in zip(marks, words, strict=True):
            at = y + height * (1.0 - (mark - bottom) / span)
            self.line(x, at, x + width, at, _FAINT, width=self.view.pixel)
            self.text(word, right, at, 11, Palette.MUTED, "right", "center")
        if len(curve) < 2:
            return
        up = np.clip((curve - bottom) / span, 0.0, 1.0) * height
        along = x + np.linspace(0.0, width, len(curve))
        if fill:
            self._fill_below(x, y + height, width, height, along, np.where(finite, up, 0.0), color)
        points = np.stack((along, y + height - up), axis=1)
        for section in np.split(points, np.flatnonzero(~finite)):
            self.polyline(
                section[np.isfinite(section[:, 1])], color, width=max(line_width, 1.5 * self.view.pixel)
            )

    def _fill_below(
        self,
        x: float,
        base: float,
        width: float,
        height: float,
        along: np.ndarray,
        up: np.ndarray,
        color: Color,
    ) -> None:
        # One column a pixel, on whole pixels: neighbouring columns then share no half-covered edge.
        pixel = self.view.pixel
        columns = (np.arange(round(x / pixel), round((x + width) / pixel)) + 0.5) * pixel
        tall = np.interp(columns, along, up)
        quads = self._list.reserve(len(columns))
        quads["center"][:, 0] = columns
        quads["center"][:, 1] = base - tall / 2
        quads["half"][:, 0] = pixel / 2
        quads["half"][:, 1] = tall / 2
        quads["axis"] = (1.0, 0.0)
        quads["uv"] = (0.0, 0.0, 1.0, 1.0)
        quads["shape"] = 0.0
        red, green, blue, alpha = parse_color(color)
        quads["color"] = (red, green, blue, 0)
        quads["color"][:, 3] = alpha * (0.05 + 0.3 * tall / max(height, 1e-6))
        quads["color2"] = (red, green, blue, alpha // 16)

    def cells(
        self, x: float, y: float, width: float, height: float, colors: np.ndarray, *, gap: float = 1.0
    ) -> None:
        """A table of colours as squares, as large as fit, at the top in the middle, `gap` between them.

        colors: (rows, columns, 3 or 4) numbers from 0 to 1. For weights, heat, what a network sees; all of it
        is one call, and no texture is written.
        """
        rows, columns, channels = colors.shape
        side = min(width / columns, height / rows)
        row, column = np.indices((rows, columns)).reshape(2, -1)
        quads = self._list.reserve(rows * columns)
        quads["center"][:, 0] = x + (width - side * columns) / 2 + (column + 0.5) * side
        quads["center"][:, 1] = y + (row + 0.5) * side
        quads["half"] = max(side - gap, side / 2) / 2
        quads["axis"], quads["uv"], quads["shape"] = (1.0, 0.0), (0.0, 0.0, 1.0, 1.0), 0.0
        quads["color"] = quads["color2"] = parse_colors(colors.reshape(-1, channels), rows * columns)

    def bars(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        values: Sequence[float] | np.ndarray,
        *,
        labels: Sequence[str] | None = None,
        numbers: Sequence[str] | None = None,
        high: float | None = None,
        highlight: int | None = None,
        color: Color = _QUIET,
        highlight_color: Color = Palette.ACCENT,
        back: Color = _FAINT,
    ) -> None:
        """Upright bars, one a value from 0 to `high` (the largest value, if not given).

        `labels` stand below the bars, `numbers` on their tops; `highlight` is the number of a bar to stand
        out; `back` is the colour behind each bar, as tall as `high`.
        """
        tall = np.nan_to_num(np.asarray(values, np.float64).ravel())
        if len(tall) == 0:
            return
        top = float(tall.max()) if high is None else high
        below = 0.0 if labels is None else self.measure("0", 14)[1] + 3
        above = 0.0 if numbers is None else self.measure("0", 11)[1]
        room, base = height - below - above, y + height - below
        step = width / len(tall)
        thick = min(step * 0.62, 44.0)
        for i, value in enumerate(tall):
            share = min(max(value / top, 0.0), 1.0) if top > 0.0 else 0.0
            middle, tip = x + step * (i + 0.5), max(room * share, 2.0)
            chosen = i == highlight
            self.rect(middle - thick / 2, base - room, thick, room, back, 4)
            self.rect(middle - thick / 2, base - tip, thick, tip, highlight_color if chosen else color, 4)
            ink = Palette.TEXT if chosen else Palette.MUTED
            if labels is not None:
                self.text(labels[i], middle, base + 4, 14, ink, "center", "top")
            if numbers is not None:
                self.text(numbers[i], middle, base - tip - 1, 11, ink, "center", "bottom")

    def progress_bar(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        share: float,
        color: Color = Palette.ACCENT,
        back: Color = Palette.RAISED,
    ) -> None:
        """Draw a horizontal progress bar, filled from the left by `share`, 0 to 1."""
        self.rect(x, y, width, height, back, height / 2)
        self.rect(x, y, max(width * min(share, 1.0), height), height, color, height / 2)
