"""The board on the screen: discs that turn over, legal moves, and the policy as heat on the squares."""

from __future__ import annotations

from demos.othello.match import STRENGTHS, Match
from demos.othello.rules import squares
from gameglue import LEFT, MonoBehaviour, Page, Palette, Rect

LEFT_EDGE, TOP_EDGE, SQUARE = 40, 62, 65
BUTTONS = [Rect(592 + 116 * i, 508, 106, 50) for i in range(len(STRENGTHS))]
_BLACK, _WHITE = ("#2a303c", "#05070a"), ("#f4f6fa", "#b9c2d2")
_GREENS, _FRAME, _LETTERS = ("#205246", "#1c4a3e"), "#10241f", "#7fa595"


class Board(MonoBehaviour):
    """Draws the board; a click plays a square or chooses a strength, keys do the rest."""

    match: Match

    def awake(self) -> None:
        """Heat is shown from the start."""
        self.heat = True

    def update(self) -> None:
        """Follow mouse and keys."""
        match, keys = self.match, self.input
        if keys.get_key_down("escape"):
            self.app.quit()
        if keys.get_key_down("n") or (not match.position.moves and match.autoplay and match.turning >= 1.0):
            match.new_game()
        if keys.get_key_down("u"):
            match.undo()
        self.heat ^= keys.get_key_down("h")
        for number in range(len(STRENGTHS)):
            if keys.get_key_down(str(number + 1)):
                match.strength = number
        if keys.get_mouse_button_down(LEFT):
            match.autoplay = False
            self._click(*Page(self.app.gui).from_window(*keys.mouse_position))

    def _click(self, x: float, y: float) -> None:
        for number, button in enumerate(BUTTONS):
            if button.contains(x, y):
                self.match.strength = number
        column, row = int((x - LEFT_EDGE) // SQUARE), int((y - TOP_EDGE) // SQUARE)
        legal = squares(self.match.position.moves) if self.match.position.black_moves else []
        if 0 <= column < 8 and 8 * row + column in legal:
            self.match.play(8 * row + column)

    def on_gui(self) -> None:
        """Draw the wood, the heat and the discs."""
        page, match, side = Page(self.app.gui), self.match, 8 * SQUARE
        page.rect(LEFT_EDGE - 18, TOP_EDGE - 8, side + 26, side + 26, _FRAME, 10)
        for i in range(8):
            middle = (i + 0.5) * SQUARE
            page.text("abcdefgh"[i], LEFT_EDGE + middle, TOP_EDGE + side + 8, 12, _LETTERS, "center")
            page.text(str(i + 1), LEFT_EDGE - 9, TOP_EDGE + middle, 12, _LETTERS, "center")
        for square in range(64):
            x, y = self._corner(square)
            page.rect(x + 0.5, y + 0.5, SQUARE - 1, SQUARE - 1, _GREENS[(square + square // 8) % 2], 3)
        self._draw_moves(page)
        for square in squares(match.position.black | match.position.white):
            is_black = match.position.black >> square & 1
            turn = match.turning if match.turned >> square & 1 else 1.0
            x, y = self._corner(square)
            top, bottom = _BLACK if is_black == (turn > 0.5) else _WHITE
            width = max(50 * abs(2 * turn - 1), 4)
            page.rect(x + (SQUARE - width) / 2, y + 11, width, 50, "#00000060", 25)
            page.rect(x + (SQUARE - width) / 2, y + 7, width, 50, top, 25, color2=bottom)
        if match.last is not None:
            x, y = self._corner(match.last)
            page.circle(x + SQUARE / 2, y + SQUARE / 2, 4, Palette.ACCENT)

    def _corner(self, square: int) -> tuple[float, float]:
        return LEFT_EDGE + square % 8 * SQUARE, TOP_EDGE + square // 8 * SQUARE

    def _draw_moves(self, page: Page) -> None:
        root = self.match.search.root
        tried = max(float(root.visits.sum()), 1.0)
        for number, square in enumerate(root.moves):
            x, y = self._corner(square)
            if self.heat and root.prior is not None:
                prior = float(root.prior[number])
                page.rect(x + 2, y + 2, SQUARE - 4, SQUARE - 4, (1.0, 0.62, 0.2, 0.85 * prior**0.6), 5)
                page.text(f"{prior * 100:.0f}%", x + SQUARE - 6, y + 12, 12, "#fff3dd", "right")
                share = float(root.visits[number]) / tried
                page.meter(x + 8, y + SQUARE - 12, SQUARE - 16, 4, share, Palette.ACCENT, "#00000050")
            if root.position.black_moves:
                page.circle(x + SQUARE / 2, y + SQUARE / 2, 9, "#0a0d12c0", border=2.5)
