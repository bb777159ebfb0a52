"""The match: turns, moves, and the search, which runs over many frames."""

from __future__ import annotations

import time
from typing import NamedTuple

from demos.othello.rules import Position, opening, planes
from demos.othello.search import Search
from gameglue import Brain, InferenceRequest, MonoBehaviour

BATCH, _UNDER_WAY = 8, 2  # positions of a batch; batches in flight
_PATIENCE, _HURRY = 4.0, 0.2  # longest search in seconds: against a player, against itself
_TURNING = 0.2  # seconds in which discs turn over
_HINT = 48  # simulations for black: hints for the player, or the move in autoplay


class Strength(NamedTuple):
    """Simulations of a move, and the temperature of its choice (0 takes the best)."""

    name: str
    simulations: int
    temperature: float


STRENGTHS = (Strength("novice", 16, 1.0), Strength("player", 80, 0.25), Strength("master", 300, 0.0))


class Match(MonoBehaviour):
    """The board, whose turn it is, and the tree search."""

    brain: Brain
    autoplay: bool = False
    strength: int = 1

    def awake(self) -> None:
        """Start the first game."""
        self.speed = 0.0
        self.new_game()

    def new_game(self) -> None:
        """Start a new game; the player has black."""
        self._go_on_from([opening()])

    def undo(self) -> None:
        """Go back to the player's last turn."""
        blacks = [number for number, position in enumerate(self.history[:-1]) if position.black_moves]
        self._go_on_from(self.history[: max(blacks, default=0) + 1])

    def play(self, square: int) -> None:
        """Play a legal square for the side to move."""
        self.history.append(self.position.play(square))
        self.search.advance(square)
        self._begin_turn()

    def _go_on_from(self, history: list[Position]) -> None:
        self.history, self.search = history, Search(history[-1])
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._began, self._clock, self.spent = self.time.time, time.perf_counter(), 0.0
        self._known = self.search.done

    @property
    def position(self) -> Position:
        """The current position."""
        return self.history[-1]

    @property
    def networks_turn(self) -> bool:
        """Whether it is white's turn, the network's."""
        return bool(self.position.moves) and not self.position.black_moves

    @property
    def wanted(self) -> int:
        """Simulations of this turn."""
        return STRENGTHS[self.strength].simulations if self.networks_turn else _HINT

    @property
    def turning(self) -> float:
        """Progress of the turning discs, from 0 to 1."""
        return min((self.time.time - self._began) / _TURNING, 1.0)

    def update(self) -> None:
        """Submit the next leaves, and move when the search is done."""
        if self.search.done < self.wanted:
            self._think()
        may_play = self.turning >= 1.0 and (self.networks_turn or self.autoplay)
        is_late = self.time.time - self._began > (_HURRY if self.autoplay else _PATIENCE)
        if may_play and self.search.done >= (1 if is_late else self.wanted):
            if self.position.moves:
                self.play(self.search.choose(STRENGTHS[self.strength].temperature, self.app.random))
            else:
                self.new_game()

    def _think(self) -> None:
        self.spent = time.perf_counter() - self._clock
        if self.search.done > self._known:
            self.speed = (self.search.done - self._known) / self.spent
        while self.brain.pending < _UNDER_WAY and (leaves := self.search.gather(BATCH)):
            board = planes([node.position for _, node in leaves], BATCH)
            self.brain.request(board, payload=leaves, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        self.search.receive(request.payload, **request.result(dict))
