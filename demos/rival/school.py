"""Training during the game: imitation of the player and evolution of the rival, in NumPy.

Inference runs the same network from `rival.onnx`, whose weights are inputs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from demos.rival.court import DT, SENSES, Court, Floats
from gameglue import DenseNetwork, EvolutionStrategy, MonoBehaviour

NETWORK = DenseNetwork(SENSES, 16, 16, 1)
RALLIES, FITTING, STEPS, DOUBLES = 12, 200, 240, 6
"""Rallies kept, steps of imitation, steps of a generation, doubles among the opponents."""


def live(evolution: EvolutionStrategy, opponents: Floats, steps: int) -> Iterator[Floats]:
    """Runs one generation: every variant plays each of the (m, NETWORK.count) opponents for `steps` steps.

    Yields after each step the points (2, m) that the current weights won and lost against each opponent.
    """
    variants = evolution.sample()
    n, m = len(variants), len(opponents)
    court = Court(n * m, evolution.random)
    fitness, points, moves = np.zeros(n), np.zeros((2, m)), np.zeros((n * m, 2))
    for _ in range(steps):
        mine = NETWORK.forward(variants, court.senses(1).reshape(n, m, SENSES))[..., 0]
        seen = court.senses(0).reshape(n, m, SENSES).transpose(1, 0, 2)
        theirs = NETWORK.forward(opponents, seen)[..., 0]
        scored = court.step(moves, DT).reshape(n, m)
        # A move takes effect one step after the decision, as in the game.
        moves = np.stack((theirs.T.ravel(), mine.ravel()), axis=1)
        missed = np.minimum(court.missed.reshape(n, m), 3.0) * (scored < 0)
        hits = court.hits[:, 1].reshape(n, m)
        fitness += (scored - 0.15 * missed + 0.05 * hits - 0.002 * np.abs(mine)).sum(1)
        points += scored[0] > 0, scored[0] < 0
        yield points
    evolution.update(fitness)


class School(MonoBehaviour):
    """Trains for `budget_ms` of each frame: fits your double, a network that imitates you, to your `rallies`,
    and evolves the rival against it. The next request uses the new weights.
    """

    strengths: np.ndarray
    budget_ms: float = 2.0

    def awake(self) -> None:
        """Start with the student's weights."""
        self.is_open = True
        self.rallies: deque[list[Floats]] = deque(maxlen=RALLIES)
        """The latest rallies; a moment is the input and then your move, (SENSES + 1,)."""
        self._random = np.random.default_rng(self.app.random.integers(1 << 32))
        self.double = NETWORK.init_weights(self._random)
        self.begin(1)

    def begin(self, strength: int) -> None:
        """Continue from one of the three `strengths`; keeps your rallies and your double."""
        self.strength = strength
        self.evolution = EvolutionStrategy(self.strengths[strength].astype(np.float64), self._random)
        self.curve: list[float] = []
        """Share of the points that each generation won from your double."""
        self._lessons = self._learn()

    def update(self) -> None:
        """Train until this frame's time budget is spent."""
        end = time.perf_counter() + self.budget_ms / 1e3
        while self.is_open and time.perf_counter() < end:
            next(self._lessons)

    def _learn(self) -> Iterator[None]:
        """Trains one generation after the other, in steps of a fraction of a millisecond."""
        while True:
            moments = np.array([moment for rally in self.rallies for moment in rally])
            if len(moments):
                fits = NETWORK.fit(self.double, moments[:, :-1], moments[:, -1:], self._random)
                for self.double in islice(fits, FITTING):
                    yield
            # Its former selves among the opponents keep it from forgetting how to play others.
            doubles = [self.double if len(moments) else self.evolution.weights] * DOUBLES
            lesson = live(self.evolution, np.stack([*doubles, *self.strengths[1:]]), STEPS)
            for self.points in lesson:
                yield
            if len(moments):
                won, lost = self.points[:, :DOUBLES].sum(axis=1)
                self.curve.append((won + 1) / (won + lost + 2))
