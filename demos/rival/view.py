"""Draws the court and what the rival has learned; reads the pointer and the keys."""

from __future__ import annotations

import numpy as np

from demos.rival.court import HALF, LINE, RADIUS, WIDTH, Court
from demos.rival.match import GOAL, Match
from demos.rival.school import NETWORK
from gameglue import MonoBehaviour, Page, Palette, Rect

_KEYS = {"mouse": "move", "1 2 3": "newborn, student, champion", "L": "training on, off"}
_KEYS |= {"F3": "profiler", "Esc": "quit"}
_STRENGTHS = ("init_weights", "student", "champion")
_YOU, _RIVAL, _COLUMN, _MARGIN, _HEAD, _FOOT, _THICK = "#4cc2ff", "#ff7a59", 226, 22, 54, 46, 0.02


def court_on(page: Page) -> Rect:
    """Rectangle of the court."""
    room = page.height - _HEAD - _FOOT
    unit = min((page.width - 2 * _MARGIN - 14 - _COLUMN) / WIDTH, room)
    return Rect(_MARGIN, _HEAD + (room - unit) / 2, WIDTH * unit, unit)


def paddle_on(box: Rect, side: int, court: Court) -> Rect:
    """Rectangle of a side's paddle."""
    x, y = WIDTH - LINE if side else LINE - _THICK, 1 - float(court.paddles[0, side]) - HALF
    unit = box.height
    return Rect(box.x + x * unit, box.y + y * unit, _THICK * unit, 2 * HALF * unit)


class View(MonoBehaviour):
    """Draws everything, and passes on what the player asks for."""

    match: Match

    def update(self) -> None:
        """Read the pointer and the keys."""
        match, school, page = self.match, self.match.school, Page(self.app.gui, fill=True)
        if self.input.mouse_path:
            match.aim = (
                1.0 - court_on(page).point_to_normalized(*page.from_window(*self.input.mouse_position))[1]
            )
        for strength, key in enumerate("123"):
            if self.input.get_key_down(key):
                school.begin(strength)
                match.begin()
        school.is_open ^= self.input.get_key_down("l")
        if self.input.get_key_down("escape"):
            self.app.quit()

    def on_gui(self) -> None:
        """Draw the title, the court, the cards and the keys."""
        page = Page(self.app.gui, fill=True)
        page.heading("rival", "a network learns to beat you as you play", self.match.brain.label)
        page.keys(_KEYS)
        box = court_on(page)
        self._draw_court(page, box)
        self._draw_ball(page, box)
        x = box.right + 14
        self._draw_lessons(page, Rect(x, box.y, page.width - _MARGIN - x, box.height))

    def _draw_court(self, page: Page, box: Rect) -> None:
        match, unit, middle = self.match, box.height, box.center[0]
        # An outline, as a software renderer takes milliseconds for a filled court.
        corners = np.array(((0, 0), (WIDTH, 0), (WIDTH, 1), (0, 1))) * unit + box[:2]
        page.polyline(corners, Palette.LINE, width=3, closed=True)
        for i in range(1, 15):  # the first dash would cross the text
            page.rect(middle - 1.5, box.y + unit * (i + 0.25) / 15, 3, unit / 30, "#ffffff12")
        for side, (name, color) in enumerate((("you", _YOU), ("rival", _RIVAL))):
            x, y = middle + (side - 0.5) * 0.6 * unit, box.y + 0.08 * unit
            page.text(str(match.score[side]), x, y, 72, color + "60", "center", "top")
            page.text(name, x, y + 78, 14, color + "b0", "center", "top")
            x, y, wide, tall = paddle = paddle_on(box, side, match.court)
            light = f"{color}{int(90 * match.flash[side]):02x}"
            page.rect(x - 5, y - 5, wide + 10, tall + 10, light, 10)
            page.rect(*paddle, color, 5)
        winner = "you win" if match.score[0] == GOAL else "the rival wins"
        told = f"{winner} the match" if GOAL in match.score else f"first to {GOAL} wins"
        page.text(told, middle, box.y + 0.04 * unit, 14, Palette.MUTED, "center")
        if match.school.rallies:
            page.rect(*paddle_on(box, 0, match.double), _YOU + "80", 5, border=1.5)
            page.text("outline: your double", box.x + 46, box.bottom - 17, 12, _YOU + "b0")

    def _draw_ball(self, page: Page, box: Rect) -> None:
        unit, ball = box.height, self.match.court.ball[0]
        places = np.array([*self.match.trail, ball]) * unit * (1, -1) + (box.x, box.bottom)
        for i, (x, y) in enumerate(places.tolist(), start=1):
            share = i / len(places)
            page.circle(x, y, RADIUS * unit * (0.3 + 0.6 * share), f"#ffffff{int(70 * share):02x}")
        page.circle(x, y, RADIUS * unit, "#ffffff", glow=10)

    def _draw_lessons(self, page: Page, column: Rect) -> None:
        school, known = self.match.school, len(self.match.school.rallies)
        x, y, width, height = column
        upper, lower, name = 0.24 * height, 0.36 * height, _STRENGTHS[school.strength]
        room = page.card(x, y, width, upper, "generation", name, value_color=_RIVAL)
        page.text(str(school.evolution.generation), room.x, y + 32, 48, valign="top")
        told, ink = "trains once you have played", Palette.GOOD
        if known:
            told = f"trains on your last {f'{known} rallies' if known > 1 else 'rally'}"
        if not school.is_open:
            told, ink = "training is off: press L", Palette.WARN
        page.text(told, room.x, y + upper - 21, 13, ink)
        y += upper + 14
        smooth = np.convolve(np.pad(school.curve or [0.0], (4, 0), "edge"), np.full(5, 0.2), "valid")
        room = page.card(x, y, width, lower, "beats your double", f"{smooth[-1]:.0%}", value_color=_RIVAL)
        page.plot(*room, smooth[-120:], low=0.0, high=1.0, color=_RIVAL)
        y += lower + 14
        room = page.card(x, y, width, column.bottom - y, "weights", str(NETWORK.count), value_color=_RIVAL)
        page.cells(*room, self._weight_colors(), gap=0.6)

    def _weight_colors(self) -> np.ndarray:
        """Colours of the weights: warm above 0, cold below; a block for each layer."""
        layers = NETWORK.parts(self.match.school.evolution.weights)
        gap = np.zeros((NETWORK.sizes[1], 1))
        blocks = layers["weight_1"].T, gap, layers["weight_2"].T, gap, layers["weight_3"]
        strength = np.tanh(np.concatenate(blocks, axis=1))[..., None]
        none, warm, cold = np.array(((0.106, 0.125, 0.169), (1.0, 0.48, 0.35), (0.3, 0.76, 1.0)))
        return none + np.where(strength > 0, warm - none, cold - none) * np.abs(strength)
