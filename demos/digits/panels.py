"""What the window shows beside the sheet: the digit, its probabilities, what the network sees, and the times."""

from __future__ import annotations

import math

import numpy as np

from demos.digits.layout import Box, Layout
from demos.digits.preprocess import INPUT_SIDE
from demos.digits.reader import DigitReader
from demos.digits.sheet import Sheet
from gameglue import MonoBehaviour, Palette

_SMOOTHING = 0.07  # seconds in which a bar covers two thirds of its way
_FRAMES = 180
_SCALES = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)  # milliseconds at the top of the frame-time curve
_KEYS = (("drag", "draw"), ("C", "clear"), ("B", "backend"), ("F3", "profiler"), ("Esc", "quit"))


class Panel(MonoBehaviour):
    """A titled card; the ones below draw on it."""

    def card(self, box: Box, title: str, value: str = "") -> Box:
        """Draw the card, and return the room under its title."""
        gui, layout = self.app.gui, Layout.of(self.app.size)
        unit, size = layout.unit, layout.text(14)
        gui.rect(box.x, box.y, box.width, box.height, Palette.PANEL, radius=12 * unit, shadow=14 * unit)
        inset, top = 16 * unit, box.y + 12 * unit
        gui.text(title, box.x + inset, top, size=size, color=Palette.MUTED)
        if value:
            gui.text(value, box.right - inset, top, size=size, color=Palette.TEXT, align="right")
        below = top + size + 10 * unit
        return Box(box.x + inset, below, box.width - 2 * inset, box.bottom - 14 * unit - below)


class Bars(Panel):
    """The ten probabilities, as bars that glide, and the likeliest digit, large."""

    reader: DigitReader
    sheet: Sheet

    def awake(self) -> None:
        self.shown = np.zeros(10)

    def update(self) -> None:
        answer = self.reader.answer
        current = answer is not None and not answer.is_blank and answer.drawing == self.sheet.drawing
        wanted = answer.probabilities if answer is not None and current else np.zeros(10)
        self.shown += (wanted - self.shown) * (1.0 - math.exp(-self.time.unscaled_delta_time / _SMOOTHING))

    def on_gui(self) -> None:
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
        text = str(best) if known else "-"
        gui.text(
            text, x, y, size=min(room.height * 1.05, room.width), color=color, align="center", valign="center"
        )

    def _draw_bars(self, layout: Layout, best: int, color: str) -> None:
        gui, unit, size = self.app.gui, layout.unit, layout.text(14)
        room = self.card(layout.bars, "probability of each digit")
        step, number = room.width / 10, layout.text(11)
        thick = min(step * 0.62, 40 * unit)
        base = room.bottom - size - 6 * unit
        tallest = base - room.y - number - 4 * unit
        for digit, share in enumerate(self.shown.tolist()):
            middle = room.x + (digit + 0.5) * step
            chosen = digit == best and share > 0.05
            left, tip = middle - thick / 2, max(share * tallest, 2.0)
            gui.rect(left, base - tallest, thick, tallest, "#ffffff09", radius=4 * unit)
            gui.rect(left, base - tip, thick, tip, color if chosen else "#4a5670", radius=min(4 * unit, tip / 2))
            if share >= 0.01:
                ink = Palette.TEXT if chosen else Palette.MUTED
                gui.text(
                    f"{share * 100:.0f}", middle, base - tip - 3 * unit, size=number, color=ink, align="center",
                    valign="bottom",
                )  # fmt: skip
            ink = Palette.TEXT if chosen else Palette.MUTED
            gui.text(str(digit), middle, room.bottom, size=size, color=ink, align="center", valign="bottom")


class SeenPicture(Panel):
    """The 28 x 28 picture that the network is shown."""

    reader: DigitReader

    def awake(self) -> None:
        blank = np.zeros((INPUT_SIDE, INPUT_SIDE), np.float32)
        self._texture = self.app.graphics.texture(blank, smooth=False)
        self._uploaded = blank

    def on_gui(self) -> None:
        if self._uploaded is not self.reader.picture:
            self._uploaded = self.reader.picture
            self._texture.write(self._uploaded)
        room = self.card(Layout.of(self.app.size).seen, "the network sees", "28 x 28")
        # A whole number of pixels for each of the picture's: they are meant to be seen.
        side = max(int(min(room.width, room.height)) // INPUT_SIDE, 1) * INPUT_SIDE
        x, y = room.center
        left, top = round(x - side / 2), round(y - side / 2)
        self.app.gui.rect(left - 1, top - 1, side + 2, side + 2, Palette.LINE, border=1)
        self.app.gui.image(self._texture, left, top, side, side)


class Times(Panel):
    """The frame times as a curve, and how long the network's answers take."""

    reader: DigitReader

    def on_gui(self) -> None:
        gui, layout = self.app.gui, Layout.of(self.app.size)
        work = self.app.profiler.work.latest(_FRAMES) * 1e3
        latest = work[-30:]
        frame = f"{latest.mean():.1f} ms" if len(latest) else ""
        waits = self.reader.waits[-30:]
        frames, ms = np.median(waits, axis=0) if waits else (0.0, 0.0)
        later = f"{frames:.0f} frame{'s' if round(frames) != 1 else ''}"
        room = self.card(layout.times, "frame time", frame)
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
        for share in (0.0, 0.5):
            y = room.y + share * height
            gui.line(room.x, y, room.right, y, "#ffffff10", width=1)
        gui.plot(room.x, room.y, room.width, height, work, low=0.0, high=scale, line_width=max(1.5, 2 * layout.unit))
        gui.text(f"{scale:.0f} ms", room.right, room.y + 2, size=small, color=Palette.MUTED, align="right")


class Frame(Panel):
    """The title above and the keys below."""

    reader: DigitReader

    def on_gui(self) -> None:
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
            text = text[: -5] + "..."
        return text

    def _draw_keys(self, footer: Box, layout: Layout) -> None:
        gui, unit, size = self.app.gui, layout.unit, layout.text(13)
        x, y = footer.x, footer.center[1] + 2 * unit
        for key, meaning in _KEYS:
            wide = gui.measure(key, size=size)[0] + 14 * unit
            tall = size + 10 * unit
            gui.rect(x, y - tall / 2, wide, tall, Palette.RAISED, radius=5 * unit)
            gui.text(key, x + wide / 2, y, size=size, align="center", valign="center")
            x += wide + 7 * unit
            x += gui.text(meaning, x, y, size=size, color=Palette.MUTED, valign="center") + 20 * unit
