"""Draws the board with the network's policy as a heat map, and the panels; reads mouse and keys."""

from __future__ import annotations

from demos.othello.match import BATCH, STRENGTHS, Match
from demos.othello.rules import squares
from gameglue import LEFT, MonoBehaviour, Page, Palette, Rect

BOARD = Rect(40, 62, 520, 520)
SQUARES = BOARD.grid(8, 8)
BUTTONS = Rect(592, 508, 338, 50).grid(len(STRENGTHS), gap=10)
_X, _WIDE = 580, 358  # of the panels beside the board
_BLACK, _WHITE = ("#2a303c", "#05070a"), ("#f4f6fa", "#b9c2d2")
_GREENS, _FRAME, _LETTERS = ("#205246", "#1c4a3e"), "#10241f", "#7fa595"
_KEYS = {"click": "play", "1 2 3": "strength", "H": "heat map", "U": "undo"}
_KEYS |= {"N": "new game", "F3": "profiler", "Esc": "quit"}


class View(MonoBehaviour):
    """Draws everything. A click plays a square or chooses a strength."""

    match: Match
    heat: bool = True
    _share: float = 0.5

    def update(self) -> None:
        """Read mouse and keys."""
        match, keys = self.match, self.input
        for key, act in {"escape": self.app.quit, "n": match.new_game, "u": match.undo}.items():
            if keys.get_key_down(key):
                act()
        self.heat ^= keys.get_key_down("h")
        place = Page(self.app.gui).from_window(*keys.mouse_position)
        is_click = keys.get_mouse_button_down(LEFT)
        match.autoplay &= not is_click
        for number, button in enumerate(BUTTONS):
            if keys.get_key_down(str(number + 1)) or (is_click and button.contains(*place)):
                match.strength = number
        for number in match.search.root.moves if is_click and match.position.black_moves else []:
            if SQUARES[number].contains(*place):
                match.play(number)

    def on_gui(self) -> None:
        """Draw the board and the panels."""
        page = Page(self.app.gui)
        page.heading("othello", "you against a network that looks ahead", self.match.brain.label)
        page.keys(_KEYS)
        self._draw_board(page)
        self._draw_discs(page)
        self._draw_sides(page)
        self._draw_search(page)
        self._draw_strengths(page)

    def _draw_board(self, page: Page) -> None:
        page.rect(BOARD.x - 18, BOARD.y - 8, BOARD.width + 26, BOARD.height + 26, _FRAME, 10)
        for i in range(8):
            page.text("abcdefgh"[i], SQUARES[i].center[0], BOARD.bottom + 8, 12, _LETTERS, "center")
            page.text(str(i + 1), BOARD.x - 9, SQUARES[8 * i].center[1], 12, _LETTERS, "center")
        for number, box in enumerate(SQUARES):
            page.rect(*box.inset(0.5), _GREENS[(number + number // 8) % 2], 3)
        root = self.match.search.root
        tried = root.visits / max(root.visits.sum(), 1.0)
        for move, number in enumerate(root.moves):
            box = SQUARES[number]
            if self.heat and root.prior is not None:
                prior, bar = float(root.prior[move]), (box.x + 8, box.bottom - 12, box.width - 16, 4)
                page.rect(*box.inset(2), (1.0, 0.62, 0.2, 0.85 * prior**0.6), 5)
                page.text(f"{prior:.0%}", box.right - 6, box.y + 12, 12, "#fff3dd", "right")
                page.progress_bar(*bar, tried[move], back="#00000050")
            if root.position.black_moves:
                page.circle(*box.center, 9, "#0a0d12c0", border=2.5)

    def _draw_discs(self, page: Page) -> None:
        before, now = self.match.history[-2:][0], self.match.position
        turned = before.black & now.white | before.white & now.black
        for number in squares(now.black | now.white):
            x, y = SQUARES[number].center
            turn = self.match.turning if turned >> number & 1 else 1.0
            top, bottom = _BLACK if (now.black >> number & 1) == (turn > 0.5) else _WHITE
            width = max(50 * abs(2 * turn - 1), 4)
            page.rect(x - width / 2, y - 21.5, width, 50, "#00000060", 25)
            page.rect(x - width / 2, y - 25.5, width, 50, top, 25, color2=bottom)
        for number in squares((now.black | now.white) & ~(before.black | before.white)):
            page.circle(*SQUARES[number].center, 4, Palette.ACCENT)

    def _draw_sides(self, page: Page) -> None:
        position, black = self.match.position, "network" if self.match.autoplay else "you"
        page.card(_X, 58, _WIDE, 118, self._news())
        for row, (name, discs) in enumerate(((black, position.black), ("network", position.white))):
            y = 112 + 36 * row
            if position.moves and position.black_moves == (row == 0):
                page.rect(_X + 8, y - 16, _WIDE - 16, 32, Palette.ACCENT, 8, border=2)
            page.circle(_X + 34, y, 11, Palette.MUTED)
            page.circle(_X + 34, y, 10, (_BLACK[1], _WHITE[0])[row])
            page.text(name, _X + 56, y, 17)
            page.text(str(discs.bit_count()), _X + _WIDE - 24, y, 22, align="right")
        self._share = share = self.time.damp(self._share, 0.5 + self.match.search.expectation / 2, 0.15)
        told = f"black {share:.0%}" if share >= 0.5 else f"white {1.0 - share:.0%}"
        page.card(_X, 186, _WIDE, 86, "the network expects", told)
        page.progress_bar(_X + 16, 228, _WIDE - 32, 24, share, _BLACK[1], _WHITE[0])
        page.rect(_X + _WIDE / 2 - 1, 223, 2, 34, Palette.MUTED)
        page.text("even", _X + _WIDE / 2, 263, 11, Palette.MUTED, "center")

    def _news(self) -> str:
        match, position = self.match, self.match.position
        if not position.moves:
            lead = position.black.bit_count() - position.white.bit_count()
            who = "nobody has" if lead == 0 else "black has" if lead > 0 else "the network has"
            return f"{who} won: N for another game"
        if match.autoplay:
            return "the network plays both sides: click to take over"
        told = "the network thinks" if match.networks_turn else "your turn: click a ringed square"
        side = "black" if match.networks_turn else "white"
        return f"{side} has no move; {told}" if position.passed else told

    def _draw_search(self, page: Page) -> None:
        match = self.match
        title = "thinking" if match.networks_turn or match.autoplay else "hints for you"
        page.card(_X, 280, _WIDE, 180, "tree search", title)
        page.progress_bar(_X + 16, 318, _WIDE - 32, 8, match.search.done / match.wanted)
        lines = {
            "simulations": f"{match.search.done}",
            "simulations a second": f"{match.speed:.0f}",
            "thinking": f"{match.spent:.2f} s",
            f"{BATCH} positions evaluated in": f"{match.brain.latency_ms:.1f} ms",
        }
        page.rows(_X + 16, 345, _WIDE - 32, lines)

    def _draw_strengths(self, page: Page) -> None:
        page.card(_X, 470, _WIDE, 124, "strength")
        for number, (strength, button) in enumerate(zip(STRENGTHS, BUTTONS, strict=True)):
            name, note = f"{number + 1}  {strength.name}", f"{strength.simulations} simulations"
            page.button(*button, name, note, highlighted=number == self.match.strength)
        page.text("orange: policy; blue bar: visits; blue dot: last move", _X + 16, 575, 11, Palette.MUTED)
