"""The match: who plays what when, and the search that thinks in every frame without holding one up."""

from __future__ import annotations

import time
from typing import NamedTuple

from demos.othello.rules import Position, opening, planes
from demos.othello.search import Search
from gameglue import Brain, InferenceRequest, MonoBehaviour

BATCH, _UNDER_WAY = 8, 2  # positions that are judged at once; batches: the next is gathered meanwhile
_PATIENCE, _HURRY = 4.0, 0.2  # seconds of thinking at most, on whatever machine; where it plays both sides
_TURNING = 0.2  # seconds until discs have turned over
_HINT = 48  # simulations for black: hints for the player, or its move where the network plays both sides


class Strength(NamedTuple):
    """How hard the network thinks, and how much chance there is in its choice (temperature, 0 is none)."""

    name: str
    simulations: int
    temperature: float


STRENGTHS = (Strength("novice", 16, 1.0), Strength("player", 80, 0.25), Strength("master", 300, 0.0))


class Match(MonoBehaviour):
    """The board, whose turn it is, and the tree search that both sides' moves stand on."""

    brain: Brain
    autoplay: bool = False
    strength: int = 1

    def awake(self) -> None:
        """Set up the first game."""
        self.speed = 0.0
        self.new_game()

    def new_game(self) -> None:
        """Begin again; the player has black."""
        self._go_on_from([opening()])

    def undo(self) -> None:
        """Go back to where the player was last to move."""
        blacks = [number for number, position in enumerate(self.history[:-1]) if position.black_moves]
        self._go_on_from(self.history[: max(blacks, default=0) + 1])

    def play(self, square: int) -> None:
        """Play a legal square for whoever's turn it is."""
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
        """What is on the board."""
        return self.history[-1]

    @property
    def networks_turn(self) -> bool:
        """Whether the network is to move with its own discs, the white ones."""
        return bool(self.position.moves) and not self.position.black_moves

    @property
    def wanted(self) -> int:
        """How many simulations this turn gets."""
        return STRENGTHS[self.strength].simulations if self.networks_turn else _HINT

    @property
    def turning(self) -> float:
        """How far the discs of the last move have turned over, from 0 to 1."""
        return min((self.time.time - self._began) / _TURNING, 1.0)

    def update(self) -> None:
        """Send the next leaves to the network, and move when it is time."""
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
            self.brain.ask(board, payload=leaves, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        self.search.receive(request.payload, **request.result(dict))
