"""The match: who plays what when, and the search that thinks in every frame without holding one up."""

from __future__ import annotations

import time
from dataclasses import dataclass

from demos.othello.rules import Position, careful_move, opening, planes
from demos.othello.search import Leaf, Search
from gameglue import InferenceRequest, MonoBehaviour, Worker

BATCH = 8
_UNDER_WAY = 2  # batches: while one is judged, the next is gathered
_PATIENCE, _HURRY = 4.0, 0.2  # seconds of thinking at most, on whatever machine; against a script
_TURNING = 0.2  # seconds until discs have turned over
_HINT = 48  # simulations that go into the hints for the player


@dataclass(frozen=True)
class Strength:
    """How hard the network thinks, and how much chance there is in its choice (temperature, 0 is none)."""

    name: str
    simulations: int
    temperature: float


STRENGTHS = (Strength("novice", 16, 1.0), Strength("player", 80, 0.25), Strength("master", 300, 0.0))


class Match(MonoBehaviour):
    """The board, whose turn it is, and the tree search that both sides' moves stand on."""

    worker: Worker
    autoplay: bool = False
    strength: int = 1

    def awake(self) -> None:
        """Set up the first game."""
        self.answer_ms, self.speed, self.answers = 0.0, 0.0, 0
        self.new_game()

    def new_game(self) -> None:
        """Begin again; the player has black."""
        self.history: list[Position] = [opening()]
        self._restart()

    def _restart(self) -> None:
        self.position = self.history[-1]
        self.search = Search(self.position)
        self.last: int | None = None
        self.turned, self.changed_at, self.passed = 0, -1.0, False
        self._open = 0
        self._begin_turn()

    def _begin_turn(self) -> None:
        self.thinking_since = time.perf_counter()
        self._turn_began = self.time.time
        self._first_done = self.search.done

    @property
    def networks_turn(self) -> bool:
        """Whether the network is to move; it has white."""
        return bool(self.position.moves) and not self.position.black_moves

    @property
    def wanted(self) -> int:
        """How many simulations this turn gets."""
        return STRENGTHS[self.strength].simulations if self.networks_turn else _HINT

    @property
    def turning(self) -> float:
        """How far the discs of the last move have turned over, from 0 to 1."""
        return min((self.time.time - self.changed_at) / _TURNING, 1.0)

    def play(self, square: int) -> None:
        """Play a legal square for whoever's turn it is."""
        before, self.position = self.position, self.position.play(square)
        self.search.advance(square)
        mine = before.black if before.black_moves else before.white
        now = self.position.black if before.black_moves else self.position.white
        self.turned, self.last, self.changed_at = now & ~mine & ~(1 << square), square, self.time.time
        self.passed = bool(self.position.moves) and self.position.black_moves == before.black_moves
        self.history.append(self.position)
        self._begin_turn()

    def undo(self) -> None:
        """Go back to where the player was last to move."""
        while len(self.history) > 1:
            self.history.pop()
            if self.history[-1].black_moves:
                break
        self._restart()

    def update(self) -> None:
        """Send the next leaves to the network, and move when it is time."""
        if not self.position.moves:
            return
        waited = self.time.time - self._turn_began
        if self.search.done < self.wanted:
            self._think()
        if self.search.root.prior is None or self.turning < 1.0:
            return
        if self.networks_turn:
            if self.search.done >= self.wanted or waited > (_HURRY if self.autoplay else _PATIENCE):
                self.play(self.search.choose(STRENGTHS[self.strength].temperature, self.app.random))
        elif self.autoplay:
            self.play(careful_move(self.position, self.app.random))

    def _think(self) -> None:
        while self._open < _UNDER_WAY:
            leaves = self.search.gather(BATCH)
            if not leaves:
                return
            board = planes([node.position for _, node in leaves], BATCH)
            self._open += 1
            payload = self.search, leaves
            self.app.inference.submit(self.worker, board, payload=payload, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        asked: tuple[Search, list[Leaf]] = request.payload  # type: ignore[assignment]
        search, leaves = asked
        answer = request.result()
        search.receive(leaves, answer["policy"], answer["value"])
        if search is not self.search:  # of a game that was given up
            return
        self._open -= 1
        self.answers += 1
        self.answer_ms += (request.age_ms - self.answer_ms) * (0.1 if self.answer_ms else 1.0)
        if search.done > self._first_done:
            seconds = time.perf_counter() - self.thinking_since
            self.speed = (search.done - self._first_done) / max(seconds, 1e-3)

    def on_destroy(self) -> None:
        """Free what the worker holds."""
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()
