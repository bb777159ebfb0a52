"""Draws the panels beside the sheet: digit, probabilities, the network's input, times."""

from __future__ import annotations

import itertools

import numpy as np

from demos.digits.preprocess import INPUT_SIDE
from demos.digits.reader import DigitReader
from demos.digits.sheet import Desk
from gameglue import MonoBehaviour, Palette

_GLIDE = 0.07  # time constant of the bars in seconds
_DIGITS = "0123456789"
_FRAMES = 180
_LARGE = 144.0  # letter size of the digit that was read
_INK, _PAPER = np.array(((0.80, 0.93, 1.0), (0.047, 0.055, 0.075)))  # colours of the network's input
_SCALES = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)  # milliseconds at the top of the frame-time curve
_KEYS = {"drag": "draw", "C": "clear", "B": "backend", "F3": "profiler", "Esc": "quit"}


class Panels(MonoBehaviour):
    """Draws title, cards and keys."""

    reader: DigitReader

    def start(self) -> None:
        """Start with empty bars, and rasterize all letters.

        A new letter later would write to a texture that the GPU reads. Each letter comes at several
        offsets, as it is rasterized for each quarter of a pixel.
        """
        self.shown = np.zeros(10)
        desk = Desk(self.app.gui)
        for size, letter in itertools.product((11, 13, 14), f"{_DIGITS}. ms,"):
            desk.measure(letter * 8, size)
        desk.measure(f"-{_DIGITS}", _LARGE)

    def update(self) -> None:
        """Move the bars towards the latest answer, or to 0 if there is none for this drawing."""
        is_told = self.reader.drawing == self.reader.sheet.drawing
        wanted = self.reader.probabilities if is_told else np.zeros(10)
        self.shown = self.time.damp(self.shown, wanted, _GLIDE)

    def on_gui(self) -> None:
        """Draw title, cards and keys."""
        desk, reader = Desk(self.app.gui), self.reader
        color = Palette.WARN if reader.message else Palette.MUTED
        note, y = desk.truncated(reader.message or reader.label, desk.width - 170), desk.sheet.y - 27
        desk.heading("digits", note=note, y=y, note_color=color)
        desk.circle(desk.width - 36 - desk.measure(note)[0], y, 4, color)
        desk.keys(_KEYS, y=desk.sheet.bottom + 25)
        self._draw_answer(desk)
        self._draw_seen(desk)
        self._draw_times(desk)

    def _draw_answer(self, desk: Desk) -> None:
        """The most likely digit, and the probabilities of all ten as bars."""
        best = int(self.shown.argmax())
        sure = float(self.shown[best])
        color = Palette.ACCENT if sure > 0.8 else Palette.WARN if sure > 0.5 else Palette.MUTED
        digit, told = (str(best), f"{sure * 100:.0f} %") if sure > 0.05 else ("-", "")
        x, y = desk.card(*desk.answer, "reads", told).center
        # Digits have no descenders, so the centre of their ink is above that of the line.
        desk.text(digit, x, y + 7, _LARGE, color, "center")
        texts = [f"{share * 100:.0f}" if share >= 0.01 else "" for share in self.shown]
        room, high = desk.card(*desk.chances, "probability"), best if told else None
        desk.bars(
            *room, self.shown, labels=_DIGITS, numbers=texts, high=1.0, highlight=high, highlight_color=color
        )

    def _draw_seen(self, desk: Desk) -> None:
        """The network's input: a small square for each pixel."""
        room = desk.card(*desk.seen, "input", f"{INPUT_SIDE} x {INPUT_SIDE}")
        # A whole number of the window's pixels for each pixel of the input.
        cell = max(room.height * desk.unit // INPUT_SIDE, 1.0) / desk.unit
        side = cell * INPUT_SIDE
        left, top = (round((middle - side / 2) * desk.unit) / desk.unit for middle in room.center)
        desk.rect(left - 4, top - 4, side + 8, side + 8, "#0c0e13", 5)
        shades = _PAPER + self.reader.picture[:, :, None] * (_INK - _PAPER)
        desk.cells(left, top, side, side, shades, gap=desk.view.pixel if cell * desk.unit > 5 else 0.0)

    def _draw_times(self, desk: Desk) -> None:
        """The frame times as a curve, and the latency of the network's answers."""
        work, reader = self.app.profiler.work.latest(_FRAMES) * 1e3, self.reader
        room = desk.card(*desk.times, "frame time, ms", f"{work[-30:].mean():.1f}" if len(work) else "")
        desk.rows(room.x, room.bottom - 8, room.width, {"answer after": reader.latency_text}, size=13)
        # The scale ignores the first frames, which load and compile.
        peak = float(np.percentile(work, 97)) if len(work) else 0.0
        scale = next((s for s in _SCALES if s >= peak * 1.15), _SCALES[-1])
        tall, marks = room.height - 12 - desk.font_size(13), (scale / 2, scale)
        desk.plot(room.x, room.y, room.width, tall, work, low=0.0, high=scale, marks=marks)
