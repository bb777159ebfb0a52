"""The rival's school: a network in NumPy learns from how you play, for a little of each frame.

The game's own inference runs the same network from `rival.onnx`, whose weights are inputs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from demos.rival.court import DT, SENSES, Court, Floats
from gameglue import DenseNetwork, Evolution, MonoBehaviour

NETWORK = DenseNetwork(SENSES, 16, 16, 1)
RALLIES, FITTING, STEPS, DOUBLES = 12, 200, 240, 6
"""Rallies it remembers, steps of fitting a double, steps of a generation, doubles among the opponents."""


def live(evolution: Evolution, opponents: Floats, steps: int) -> Iterator[Floats]:
    """One generation: every variant plays each of (m, NETWORK.count) opponents for so many steps.

    Yields after each step the points (2, m) that the weights themselves won and lost against each.
    """
    variants = evolution.variants()
    n, m = len(variants), len(opponents)
    court = Court(n * m, evolution.random)
    fitness, points, moves = np.zeros(n), np.zeros((2, m)), np.zeros((n * m, 2))
    for _ in range(steps):
        mine = NETWORK.answer(variants, court.senses(1).reshape(n, m, SENSES))[..., 0]
        seen = court.senses(0).reshape(n, m, SENSES).transpose(1, 0, 2)
        theirs = NETWORK.answer(opponents, seen)[..., 0]
        scored = court.step(moves, DT).reshape(n, m)
        # As in the game, what is decided now comes about a step later.
        moves = np.stack((theirs.T.ravel(), mine.ravel()), axis=1)
        missed = np.minimum(court.missed.reshape(n, m), 3.0) * (scored < 0)
        hits = court.hits[:, 1].reshape(n, m)
        fitness += (scored - 0.15 * missed + 0.05 * hits - 0.002 * np.abs(mine)).sum(1)
        points += scored[0] > 0, scored[0] < 0
        yield points
    evolution.learn(fitness)


class School(MonoBehaviour):
    """Learns from your `rallies` for `budget_ms` of each frame: fits a double of you to them, lets variants
    of the rival play against it, and goes on with better weights, with which the next question is asked.
    """

    strengths: np.ndarray
    budget_ms: float = 2.0

    def awake(self) -> None:
        """Begin as a student."""
        self.is_open = True
        self.rallies: deque[list[Floats]] = deque(maxlen=RALLIES)
        """Your latest: for each moment what you saw, and behind it what you did, (SENSES + 1,)."""
        self._random = np.random.default_rng(self.app.random.integers(1 << 32))
        self.double = NETWORK.newborn(self._random)
        self.begin(1)

    def begin(self, strength: int) -> None:
        """Go on with one of the three `strengths`; what is known about you stays."""
        self.strength = strength
        self.evolution = Evolution(self.strengths[strength].astype(np.float64), self._random)
        self.curve: list[float] = []
        """Share of points that each generation won of your double."""
        self._lessons = self._learn()

    def update(self) -> None:
        """Take lessons until this frame's time for them is over."""
        end = time.perf_counter() + self.budget_ms / 1e3
        while self.is_open and time.perf_counter() < end:
            next(self._lessons)

    def _learn(self) -> Iterator[None]:
        """One generation after the other, in steps of a fraction of a millisecond."""
        while True:
            moments = np.array([moment for rally in self.rallies for moment in rally])
            if len(moments):
                fits = NETWORK.imitate(self.double, moments[:, :-1], moments[:, -1:], self._random)
                for self.double in islice(fits, FITTING):
                    yield
            # Former selves keep it from forgetting how to play anybody else.
            doubles = [self.double if len(moments) else self.evolution.weights] * DOUBLES
            lesson = live(self.evolution, np.stack([*doubles, *self.strengths[1:]]), STEPS)
            for self.points in lesson:
                yield
            if len(moments):
                won, lost = self.points[:, :DOUBLES].sum(axis=1)
                self.curve.append((won + 1) / (won + lost + 2))
