"""What the window shows beside the sheet: digit, probabilities, what the network sees, times."""

from __future__ import annotations

import itertools
import math

import numpy as np

from demos.digits.layout import Layout
from demos.digits.preprocess import INPUT_SIDE
from demos.digits.reader import DigitReader
from demos.digits.sheet import Sheet
from gameglue import MonoBehaviour, Palette, Rect

_SMOOTHING = 0.07  # seconds in which a bar covers two thirds of its way
_FRAMES = 180
_LETTERS = "0123456789. ms,"
_LETTER_SIZES = (11, 13, 14)
_SEEN = (0.75, 0.88, 0.95)  # red, green, blue of full ink in the network's picture
_SCALES = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)  # milliseconds at the top of the frame-time curve
_KEYS = (("drag", "draw"), ("C", "clear"), ("B", "backend"), ("F3", "profiler"), ("Esc", "quit"))


class Panel(MonoBehaviour):
    """A titled card; the ones below draw on it."""

    def card(self, box: Rect, title: str, value: str = "") -> Rect:
        """Draw the card, and return the room under its title."""
        gui, layout = self.app.gui, Layout.of(self.app.size)
        unit, size = layout.unit, layout.text(14)
        gui.rect(box.x, box.y, box.width, box.height, Palette.PANEL, radius=12 * unit)
        inset, top = 16 * unit, box.y + 12 * unit
        gui.text(title, box.x + inset, top, size=size, color=Palette.MUTED)
        if value:
            gui.text(value, box.right - inset, top, size=size, color=Palette.TEXT, align="right")
        below = top + size + 10 * unit
        return Rect(box.x + inset, below, box.width - 2 * inset, box.bottom - 14 * unit - below)


class Bars(Panel):
    """The ten probabilities, as bars that glide, and the likeliest digit, large."""

    reader: DigitReader
    sheet: Sheet

    def awake(self) -> None:
        """Begin with all bars down."""
        self.shown = np.zeros(10)

    def update(self) -> None:
        """Move the bars towards the latest answer, or down where the sheet is empty."""
        answer = self.reader.answer
        current = answer is not None and not answer.is_blank and answer.drawing == self.sheet.drawing
        wanted = answer.probabilities if answer is not None and current else np.zeros(10)
        self.shown += (wanted - self.shown) * (1.0 - math.exp(-self.time.unscaled_delta_time / _SMOOTHING))

    def on_gui(self) -> None:
        """Draw both cards."""
        layout = Layout.of(self.app.size)
        best = int(self.shown.argmax())
        sure = float(self.shown[best])
        color = Palette.ACCENT if sure > 0.8 else Palette.WARN if sure > 0.5 else Palette.MUTED
        self._draw_answer(layout, best, sure, color)
        self._draw_bars(layout, best, color)

    def _draw_answer(self, layout: Layout, best: int, sure: float, color: str) -> None:
        gui = self.app.gui
        known = sure > 0.05
        room = self.card(layout.answer, "reads", f"{sure * 100:.0f} %" if known else "")
        x, y = room.center
        size = min(room.height * 1.05, room.width)
        gui.measure("-0123456789", size=size)
        text = str(best) if known else "-"
        # Nothing of a digit is below its line, so the middle of the ink is above that of the text.
        gui.text(text, x, y + 0.05 * size, size=size, color=color, align="center", valign="center")

    def _draw_bars(self, layout: Layout, best: int, color: str) -> None:
        gui, unit, size = self.app.gui, layout.unit, layout.text(14)
        room = self.card(layout.bars, "probability")
        step, number = room.width / 10, layout.text(11)
        thick = min(step * 0.62, 40 * unit)
        base = room.bottom - size - 6 * unit
        tallest = base - room.y - number - 4 * unit
        for digit, share in enumerate(self.shown.tolist()):
            middle = room.x + (digit + 0.5) * step
            chosen = digit == best and share > 0.05
            left, tip = middle - thick / 2, max(share * tallest, 2.0)
            gui.rect(left, base - tallest, thick, tallest, "#ffffff09", radius=4 * unit)
            gui.rect(
                left, base - tip, thick, tip, color if chosen else "#4a5670", radius=min(4 * unit, tip / 2)
            )
            if share >= 0.01:
                ink = Palette.TEXT if chosen else Palette.MUTED
                above = base - tip - 3 * unit
                text = f"{share * 100:.0f}"
                gui.text(text, middle, above, size=number, color=ink, align="center", valign="bottom")
            ink = Palette.TEXT if chosen else Palette.MUTED
            gui.text(str(digit), middle, room.bottom, size=size, color=ink, align="center", valign="bottom")


class SeenPicture(Panel):
    """The 28 x 28 picture that the network is shown."""

    reader: DigitReader

    def on_gui(self) -> None:
        """Draw a small square for each pixel that has ink."""
        gui, layout = self.app.gui, Layout.of(self.app.size)
        room = self.card(layout.seen, "it sees", f"{INPUT_SIDE} x {INPUT_SIDE}")
        # A whole number of pixels for each of the picture's: they are meant to be seen.
        cell = max(int(min(room.width, room.height)) // INPUT_SIDE, 1)
        side = cell * INPUT_SIDE
        x, y = room.center
        left, top = round(x - side / 2), round(y - side / 2)
        gui.rect(left - 4, top - 4, side + 8, side + 8, "#0c0e13", radius=5 * layout.unit)
        # Not a texture written anew in each frame: a software renderer waits until the frame before is drawn.
        rows, columns = np.nonzero(self.reader.picture > 0.02)
        if len(rows):
            ink = self.reader.picture[rows, columns]
            places = np.stack((left + (columns + 0.5) * cell, top + (rows + 0.5) * cell), axis=1)
            shades = np.stack((*[ink * channel + 0.05 for channel in _SEEN],), axis=1)
            gui.sprites(self.app.graphics.white, places, cell - (cell > 5), colors=shades)


class Times(Panel):
    """The frame times as a curve, and how long the network's answers take."""

    reader: DigitReader

    def on_gui(self) -> None:
        """Draw the curve, and what the answers took below it."""
        gui, layout = self.app.gui, Layout.of(self.app.size)
        work = self.app.profiler.work.latest(_FRAMES) * 1e3
        latest = work[-30:]
        frame = f"{latest.mean():.1f}" if len(latest) else ""
        waits = self.reader.waits[-30:]
        frames, ms = np.median(waits, axis=0) if waits else (0.0, 0.0)
        later = f"{frames:.0f} frame{'s' if round(frames) != 1 else ''}"
        room = self.card(layout.times, "frame time, ms", frame)
        size = layout.text(13)
        gui.text("answer after", room.x, room.bottom, size=size, color=Palette.MUTED, valign="bottom")
        told = f"{later}, {ms:.1f} ms" if waits else "..."
        gui.text(told, room.right, room.bottom, size=size, align="right", valign="bottom")
        height = room.height - size - 12 * layout.unit
        if height < 20 or len(work) < 2:
            return
        # The first frames hold what is done once; the scale should not follow them.
        peak = float(np.percentile(work, 97))
        scale = next((s for s in _SCALES if s >= peak * 1.15), _SCALES[-1])
        small = layout.text(11)
        width = room.width - 2.6 * small
        for share in (0.0, 0.5):
            y = room.y + share * height
            gui.line(room.x, y, room.x + width, y, "#ffffff10", width=1)
        gui.plot(
            room.x, room.y, width, height, work, low=0.0, high=scale, line_width=max(1.5, 2 * layout.unit)
        )
        for share in (0.0, 0.5):
            mark = f"{scale * (1.0 - share):g}"
            y = room.y + share * height
            gui.text(mark, room.right, y, size=small, color=Palette.MUTED, align="right", valign="center")


class Frame(Panel):
    """The title above and the keys below."""

    reader: DigitReader

    def start(self) -> None:
        """No letters yet."""
        self._lettered: tuple[int, int] | None = None

    def late_update(self) -> None:
        """Have all letters drawn once: a new one later on means a texture written while the GPU reads it."""
        if self._lettered != self.app.size:
            self._lettered = self.app.size
            layout = Layout.of(self.app.size)
            for size, letter in itertools.product(_LETTER_SIZES, _LETTERS):
                # Several of a kind: a letter is drawn anew for each quarter of a pixel at which it may begin.
                self.app.gui.measure(letter * 8, size=layout.text(size))

    def on_gui(self) -> None:
        """Draw them."""
        gui, layout = self.app.gui, Layout.of(self.app.size)
        unit, header, footer = layout.unit, layout.header, layout.footer
        y = header.center[1]
        wide = gui.text("digits", header.x, y, size=layout.text(26), valign="center")
        reader = self.reader
        text = reader.message or f"{reader.choice.label} on {reader.device}"
        color = Palette.WARN if reader.message else Palette.MUTED
        size = layout.text(14)
        text = self._shortened(text, header.width - wide - 40 * unit, size)
        gui.text(text, header.right, y, size=size, color=color, align="right", valign="center")
        gui.circle(header.right - gui.measure(text, size=size)[0] - 14 * unit, y, 4 * unit, color)
        self._draw_keys(footer, layout)

    def _shortened(self, text: str, room: float, size: float) -> str:
        while len(text) > 8 and self.app.gui.measure(text, size=size)[0] > room:
            text = text[:-5] + "..."
        return text

    def _draw_keys(self, footer: Rect, layout: Layout) -> None:
        gui, unit, size = self.app.gui, layout.unit, layout.text(13)
        x, y = footer.x, footer.center[1] + 2 * unit
        for key, meaning in _KEYS:
            wide = gui.measure(key, size=size)[0] + 14 * unit
            tall = size + 10 * unit
            gui.rect(x, y - tall / 2, wide, tall, Palette.RAISED, radius=5 * unit)
            gui.text(key, x + wide / 2, y, size=size, align="center", valign="center")
            x += wide + 7 * unit
            x += gui.text(meaning, x, y, size=size, color=Palette.MUTED, valign="center") + 20 * unit
