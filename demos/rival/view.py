"""What the window shows: the court, and what the rival has learned. It reads pointer and keys, too."""

from __future__ import annotations

import numpy as np

from demos.rival.brain import HIDDEN, parts
from demos.rival.court import HALF, LINE, RADIUS, WIDTH
from demos.rival.match import Match
from gameglue import MonoBehaviour, Page, Palette, Rect

_KEYS = {"mouse": "move", "1 2 3": "newborn, student, champion", "L": "lessons"}
_KEYS |= {"F3": "profiler", "Esc": "quit"}
_NAMES = ("newborn", "student", "champion")
_COLORS = ("#4cc2ff", "#ff7a59")
_COLUMN, _MARGIN, _HEAD, _FOOT, _THICK = 226, 22, 54, 46, 0.02


class View(MonoBehaviour):
    """Draws everything, and hands the player's wishes on."""

    match: Match
    backend: str

    def awake(self) -> None:
        """Know where things are before the first picture."""
        self._place()

    def _place(self) -> Page:
        """The page, and left, top and length of a unit of the court on it."""
        page = Page(self.app.gui, fill=True)
        room = page.height - _HEAD - _FOOT
        self.unit = min((page.width - 2 * _MARGIN - 14 - _COLUMN) / WIDTH, room)
        self.left, self.top = float(_MARGIN), _HEAD + (room - self.unit) / 2
        return page

    def update(self) -> None:
        """Take what the player asks for."""
        page, school, match = self._place(), self.match.school, self.match
        if self.input.mouse_path:
            match.aim = 1.0 - (page.from_window(*self.input.mouse_position)[1] - self.top) / self.unit
        for strength, key in enumerate("123"):
            if self.input.get_key_down(key):
                school.begin(strength)
                match.score = [0, 0]
        if self.input.get_key_down("l"):
            school.is_open = not school.is_open
        if self.input.get_key_down("escape"):
            self.app.quit()

    def on_gui(self) -> None:
        """Draw title, court, cards and keys."""
        page, waits = self._place(), self.match.mind.waits
        note = f"{self.backend}: {np.median(waits):.1f} ms an answer" if waits else self.backend
        page.heading("rival", "a network plays against you, and learns from you as you play", note)
        page.keys(_KEYS)
        self._draw_court(page)
        self._draw_lessons(page)

    def _draw_court(self, page: Page) -> None:
        match, unit = self.match, self.unit
        # An outline, as a software renderer takes milliseconds for a filled court.
        corners = np.array(((0, 0), (WIDTH, 0), (WIDTH, 1), (0, 1))) * unit + (self.left, self.top)
        page.polyline(corners, Palette.LINE, width=3, closed=True)
        middle = self.left + WIDTH * unit / 2
        for i in range(15):
            page.rect(middle - 1.5, self.top + unit * (i + 0.25) / 15, 3, unit / 30, "#ffffff12")
        for side, (name, color) in enumerate(zip(("you", "rival"), _COLORS, strict=True)):
            x, y = middle + (side - 0.5) * 0.6 * unit, self.top + 0.08 * unit
            page.text(str(match.score[side]), x, y, 72, color + "60", "center", "top")
            page.text(name, x, y + 78, 14, color + "b0", "center", "top")
            self._draw_paddle(
                page, side, float(match.court.paddles[0, side]), color, float(match.flash[side])
            )
        if match.school.rallies:
            self._draw_paddle(page, 0, float(match.double.paddles[0, 0]), _COLORS[0] + "80", border=1.5)
            page.text("outline: your double", self.left + 10, self.top + unit - 17, 12, _COLORS[0] + "b0")
        trail = np.array([*match.trail, match.court.ball[0]]) * unit * (1, -1) + (self.left, self.top + unit)
        for i, (x, y) in enumerate(trail[:-1].tolist()):
            share = (i + 1) / len(trail)
            page.circle(x, y, RADIUS * unit * (0.3 + 0.6 * share), f"#ffffff{int(70 * share):02x}")
        x, y = trail[-1].tolist()
        page.circle(x, y, RADIUS * unit, "#ffffff", glow=10)

    def _draw_paddle(
        self, page: Page, side: int, at: float, color: str, flash: float = 0.0, border: float = 0.0
    ) -> None:
        unit = self.unit
        x = self.left + (WIDTH - LINE if side else LINE - _THICK) * unit
        y, tall = self.top + (1 - at - HALF) * unit, 2 * HALF * unit
        if flash > 0.05:
            light = f"{color}{int(90 * flash):02x}"
            page.rect(x - 5, y - 5, _THICK * unit + 10, tall + 10, light, 10)
        page.rect(x, y, _THICK * unit, tall, color, 5, border=border)

    def _draw_lessons(self, page: Page) -> None:
        school, unit = self.match.school, self.unit
        known, upper, lower = len(school.rallies), 0.24 * unit, 0.36 * unit
        x, y = self.left + WIDTH * unit + 14, self.top
        width = page.width - _MARGIN - x
        color = _COLORS[1]
        room = page.card(x, y, width, upper, "generation", _NAMES[school.strength], value_color=color)
        page.text(str(school.evolution.generation), room.x, y + 32, 48, valign="top")
        rallies = f"{known} rallies" if known > 1 else "rally"
        told = f"learned from your last {rallies}" if known else "knows nothing of you yet"
        told, ink = (told, Palette.GOOD) if school.is_open else ("lessons are off", Palette.WARN)
        page.text(told, room.x, y + upper - 21, 13, ink)
        y += upper + 14
        smooth = np.convolve(np.pad(school.curve or [0.0], (4, 0), "edge"), np.full(5, 0.2), "valid")
        room = page.card(x, y, width, lower, "beats your double", f"{smooth[-1]:.0%}", value_color=color)
        page.plot(*room, smooth[-120:], low=0.0, high=1.0, color=color)
        y += lower + 14
        count, tall = str(school.evolution.weights.size), self.top + unit - y
        self._draw_weights(page, page.card(x, y, width, tall, "its weights", count, value_color=color))

    def _draw_weights(self, page: Page, room: Rect) -> None:
        """One square a weight, warm above 0 and cold below; a block for each layer."""
        p, gap = parts(self.match.school.evolution.weights), np.zeros((HIDDEN, 1))
        table = np.concatenate((p["weight_1"].T, gap, p["weight_2"].T, gap, p["weight_3"]), axis=1)
        cell = min(room.width / table.shape[1], room.height / table.shape[0])
        rows, columns = np.indices(table.shape).reshape(2, -1)
        left = room.center[0] - cell * table.shape[1] / 2
        places = np.stack((left + (columns + 0.5) * cell, room.y + (rows + 0.5) * cell), axis=1)
        none, warm, cold = np.array(((0.106, 0.125, 0.169), (1.0, 0.48, 0.35), (0.3, 0.76, 1.0)))
        strength = np.tanh(table.reshape(-1, 1))
        colors = none + np.where(strength > 0, warm - none, cold - none) * np.abs(strength)
        page.sprites(self.app.graphics.white, places, cell - 0.6, colors)
