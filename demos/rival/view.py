"""What the window shows: the court, and what the rival has learned. It reads pointer and keys, too."""

from __future__ import annotations

import numpy as np

from demos.rival.brain import HIDDEN, parts
from demos.rival.court import HALF, LINE, RADIUS, WIDTH
from demos.rival.match import Match
from gameglue import MonoBehaviour, Palette

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

    def _place(self) -> None:
        """Left, top and pixels a unit of the court."""
        width, height = self.app.size
        room = height - _HEAD - _FOOT
        self.unit = max(min((width - 2 * _MARGIN - 14 - _COLUMN) / WIDTH, room), 60.0)
        self.left, self.top = float(_MARGIN), _HEAD + (room - self.unit) / 2

    def update(self) -> None:
        """Take what the player asks for."""
        self._place()
        school, match = self.match.school, self.match
        if self.input.mouse_path:
            match.aim = 1.0 - (self.input.mouse_position[1] - self.top) / self.unit
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
        gui = self.app.gui
        width, height = self.app.size
        x, y = self.left, _HEAD / 2
        x += gui.text("rival", x, y, size=26, valign="center") + 14
        told = "a network plays against you, and learns from you as you play"
        gui.text(told, x, y + 3, size=14, color=Palette.MUTED, valign="center")
        waits = self.match.mind.waits
        told = f"{self.backend}: {np.median(waits):.1f} ms an answer" if waits else self.backend
        right, color = width - _MARGIN, Palette.MUTED
        gui.text(told, right, y + 3, size=14, color=color, align="right", valign="center")
        self._draw_court()
        self._draw_lessons()
        x, y = self.left, height - _FOOT / 2 + 2
        for key, meaning in _KEYS.items():
            box = gui.measure(key, size=13)[0] + 14
            gui.rect(x, y - 11, box, 23, Palette.RAISED, radius=5)
            gui.text(key, x + box / 2, y, size=13, align="center", valign="center")
            x += box + 7
            x += gui.text(meaning, x, y, size=13, color=Palette.MUTED, valign="center") + 20

    def _draw_court(self) -> None:
        gui, match, unit = self.app.gui, self.match, self.unit
        # An outline, as a software renderer takes milliseconds for a filled court.
        corners = np.array(((0, 0), (WIDTH, 0), (WIDTH, 1), (0, 1))) * unit + (self.left, self.top)
        gui.polyline(corners, Palette.LINE, width=3, closed=True)
        middle = self.left + WIDTH * unit / 2
        for i in range(15):
            gui.rect(middle - 1.5, self.top + unit * (i + 0.25) / 15, 3, unit / 30, "#ffffff12")
        for side, (name, color) in enumerate(zip(("you", "rival"), _COLORS, strict=True)):
            x, y = middle + (side - 0.5) * 0.6 * unit, self.top + 0.08 * unit
            gui.text(str(match.score[side]), x, y, size=72, color=color + "60", align="center")
            gui.text(name, x, y + 78, size=14, color=color + "b0", align="center")
            self._draw_paddle(side, float(match.court.paddles[0, side]), color, float(match.flash[side]))
        if match.school.rallies:
            self._draw_paddle(0, float(match.double.paddles[0, 0]), _COLORS[0] + "80", border=1.5)
            y = self.top + unit - 24
            gui.text("outline: your double", self.left + 10, y, size=12, color=_COLORS[0] + "b0")
        trail = np.array([*match.trail, match.court.ball[0]]) * unit * (1, -1) + (self.left, self.top + unit)
        for i, (x, y) in enumerate(trail[:-1].tolist()):
            share = (i + 1) / len(trail)
            gui.circle(x, y, RADIUS * unit * (0.3 + 0.6 * share), f"#ffffff{int(70 * share):02x}")
        x, y = trail[-1].tolist()
        gui.circle(x, y, RADIUS * unit, "#ffffff", glow=10)

    def _draw_paddle(self, side: int, at: float, color: str, flash: float = 0.0, border: float = 0.0) -> None:
        gui, unit = self.app.gui, self.unit
        x = self.left + (WIDTH - LINE if side else LINE - _THICK) * unit
        y, tall = self.top + (1 - at - HALF) * unit, 2 * HALF * unit
        if flash > 0.05:
            light = f"{color}{int(90 * flash):02x}"
            gui.rect(x - 5, y - 5, _THICK * unit + 10, tall + 10, light, radius=10)
        gui.rect(x, y, _THICK * unit, tall, color, radius=5, border=border)

    def _card(self, top: float, height: float, title: str, value: str) -> tuple[float, float, float]:
        """Draw a card beside the court; returns left, top and width of the room under its title."""
        gui, left = self.app.gui, self.left + WIDTH * self.unit + 14
        width = self.app.size[0] - _MARGIN - left
        gui.rect(left, top, width, height, Palette.PANEL, radius=12)
        gui.text(title, left + 16, top + 12, size=14, color=Palette.MUTED)
        gui.text(value, left + width - 16, top + 12, size=14, color=_COLORS[1], align="right")
        return left + 16, top + 40, width - 32

    def _draw_lessons(self) -> None:
        gui, school = self.app.gui, self.match.school
        known, y = len(school.rallies), self.top
        upper, lower = 0.24 * self.unit, 0.36 * self.unit
        left, top, width = self._card(y, upper, "generation", _NAMES[school.strength])
        gui.text(str(school.evolution.generation), left, top - 8, size=48)
        rallies = f"{known} rallies" if known > 1 else "rally"
        told = f"learned from your last {rallies}" if known else "knows nothing of you yet"
        told, color = (told, Palette.GOOD) if school.is_open else ("lessons are off", Palette.WARN)
        gui.text(told, left, y + upper - 28, size=13, color=color)
        y += upper + 14
        smooth = np.convolve(np.pad(school.curve or [0.0], (4, 0), "edge"), np.full(5, 0.2), "valid")
        left, top, width = self._card(y, lower, "beats your double", f"{smooth[-1]:.0%}")
        gui.plot(left, top, width, lower - 56, smooth[-120:], low=0.0, high=1.0, color=_COLORS[1])
        y += lower + 14
        tall = self.top + self.unit - y
        self._draw_weights(*self._card(y, tall, "its weights", str(school.evolution.weights.size)), tall - 56)

    def _draw_weights(self, left: float, top: float, width: float, height: float) -> None:
        """One square a weight, warm above 0 and cold below; a block for each layer."""
        p, gap = parts(self.match.school.evolution.weights), np.zeros((HIDDEN, 1))
        table = np.concatenate((p["weight_1"].T, gap, p["weight_2"].T, gap, p["weight_3"]), axis=1)
        cell = min(width / table.shape[1], height / table.shape[0])
        rows, columns = np.indices(table.shape).reshape(2, -1)
        left += (width - cell * table.shape[1]) / 2
        places = np.stack((left + (columns + 0.5) * cell, top + (rows + 0.5) * cell), axis=1)
        none, warm, cold = np.array(((0.106, 0.125, 0.169), (1.0, 0.48, 0.35), (0.3, 0.76, 1.0)))
        strength = np.tanh(table.reshape(-1, 1))
        colors = none + np.where(strength > 0, warm - none, cold - none) * np.abs(strength)
        self.app.gui.sprites(self.app.graphics.white, places, cell - 0.6, colors=colors)
