"""What stands beside the board: players, the network's expectation, its search, strengths, keys."""

from __future__ import annotations

import math
import time

import numpy as np

from demos.othello.board import BUTTONS
from demos.othello.match import BATCH, STRENGTHS, Match
from gameglue import MonoBehaviour, Page, Palette

_X, _WIDE = 580, 358
_KEYS = {"click": "play", "1 2 3": "strength", "H": "heat", "U": "undo"}
_KEYS |= {"N": "new game", "F3": "profiler", "Esc": "quit"}
_DARK, _LIGHT = "#05070a", "#f4f6fa"


class Panels(MonoBehaviour):
    """Everything beside the board."""

    match: Match
    label: str = ""

    def awake(self) -> None:
        """No expectation yet."""
        self.shown, self.spent = 0.0, 0.0

    def update(self) -> None:
        """Let the bar glide, and the clock run while somebody thinks."""
        step = 1.0 - math.exp(-self.time.unscaled_delta_time / 0.15)
        self.shown += (self.match.search.expectation - self.shown) * step
        if self.match.search.done < self.match.wanted:
            self.spent = time.perf_counter() - self.match.thinking_since

    def on_gui(self) -> None:
        """Draw all panels."""
        page = Page(self.app.gui)
        page.heading("othello", "you against a network that looks ahead", self.label)
        page.keys(_KEYS)
        self._players(page)
        self._expectation(page)
        self._search(page)
        self._strengths(page)

    def _players(self, page: Page) -> None:
        position, you = self.match.position, "script" if self.match.autoplay else "you"
        page.card(_X, 58, _WIDE, 118, self._news())
        for row, (name, discs) in enumerate(((you, position.black), ("network", position.white))):
            y = 112 + 36 * row
            if position.moves and position.black_moves == (row == 0):
                page.rect(_X + 8, y - 16, _WIDE - 16, 32, Palette.RAISED, 8)
                page.rect(_X + 8, y - 16, 4, 32, Palette.ACCENT, 2)
            page.circle(_X + 34, y, 11, Palette.MUTED)
            page.circle(_X + 34, y, 10, _LIGHT if row else _DARK)
            page.text(name, _X + 56, y, 17)
            page.text(str(discs.bit_count()), _X + _WIDE - 24, y, 22, align="right")

    def _news(self) -> str:
        match, position = self.match, self.match.position
        if not position.moves:
            lead = position.black.bit_count() - position.white.bit_count()
            who = "nobody has" if lead == 0 else "black has" if lead > 0 else "the network has"
            return f"{who} won: N for another game"
        if match.networks_turn:
            return "black has no move; the network thinks" if match.passed else "the network thinks"
        if match.autoplay:
            return "a script plays black: click to take over"
        return "network has no move; yours again" if match.passed else "your turn: click a ringed square"

    def _expectation(self, page: Page) -> None:
        share = 0.5 + 0.5 * self.shown
        who, sure = ("black", share) if share >= 0.5 else ("white", 1.0 - share)
        page.card(_X, 186, _WIDE, 84, "the network expects", f"{who} {sure * 100:.0f} %")
        page.rect(_X + 15, 227, _WIDE - 30, 26, Palette.LINE, 8)
        page.rect(_X + 16, 228, _WIDE - 32, 24, _LIGHT, 7)
        page.rect(_X + 16, 228, max((_WIDE - 32) * share, 14), 24, _DARK, 7)
        page.rect(_X + _WIDE / 2 - 1, 223, 2, 34, Palette.ACCENT)

    def _search(self, page: Page) -> None:
        match, work = self.match, self.app.profiler.work.latest(60) * 1e3
        page.card(_X, 280, _WIDE, 180, "tree search", "thinking" if match.networks_turn else "hints for you")
        page.meter(_X + 16, 318, _WIDE - 32, 8, match.search.done / match.wanted)
        facts = {
            "simulations": f"{match.search.done}",
            "simulations a second": f"{match.speed:.0f}",
            "thinking": f"{self.spent:.2f} s",
            f"{BATCH} positions judged in": f"{match.answer_ms:.1f} ms",
            "frame time meanwhile": f"{np.median(work) if len(work) else 0.0:.1f} ms",
        }
        page.rows(_X + 16, 345, _WIDE - 32, facts)

    def _strengths(self, page: Page) -> None:
        page.card(_X, 470, _WIDE, 124, "strength")
        for number, (strength, (x, y, w, h)) in enumerate(zip(STRENGTHS, BUTTONS, strict=True)):
            chosen = number == self.match.strength
            page.rect(x, y, w, h, Palette.ACCENT if chosen else Palette.RAISED, 8)
            ink = "#0b1017" if chosen else Palette.TEXT
            page.text(f"{number + 1}  {strength.name}", x + w / 2, y + 17, 15, ink, "center")
            page.text(f"{strength.simulations} simulations", x + w / 2, y + 36, 11, ink, "center")
        about = "orange: the policy's first thought; blue: where the search looks"
        page.text(about, _X + 16, 575, 11, Palette.MUTED)
