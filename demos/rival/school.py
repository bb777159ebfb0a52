"""The rival's mind: its answers come from the engine, its lessons are taken beside the frames."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

import numpy as np

from demos.rival.brain import Evolution, imitate, newborn, parts
from demos.rival.court import Floats
from gameglue import InferenceRequest, MonoBehaviour, Worker

RALLIES, FITTING, STEPS, DOUBLES = 12, 200, 240, 6
"""Rallies it remembers, steps of fitting a double, steps of a generation, doubles among the opponents."""


class Mind(MonoBehaviour):
    """Asks the network what to do. Its weights go along with every question, so new ones cost nothing."""

    worker: Worker

    def awake(self) -> None:
        """Begin at rest."""
        self.move = 0.0
        self.answered = 0
        self.waits: deque[float] = deque(maxlen=60)

    def take_weights(self, weights: Floats) -> None:
        """Play with other weights from the next question on."""
        self._inputs = {name: part.astype(np.float32) for name, part in parts(weights).items()}

    def ask(self, senses: Floats) -> None:
        """What to do about (1, SENSES)? `move` is the latest answer."""
        inputs = {"senses": senses.astype(np.float32), **self._inputs}
        self.app.inference.submit(self.worker, inputs, latest_only=True, callback=self._take)

    def _take(self, request: InferenceRequest) -> None:
        self.move = float(request.result()[0, 0])
        self.answered += 1
        self.waits.append(request.age_ms)

    def on_destroy(self) -> None:
        """Free what the worker holds."""
        self.app.inference.cancel_all(self.worker)
        self.worker.dispose()


class School(MonoBehaviour):
    """Learns from how you play, for `budget_ms` of each frame: fits a double of you to your latest rallies,
    lets variants of the rival play against it, and hands better weights to the mind.
    """

    mind: Mind
    strengths: np.ndarray
    budget_ms: float = 2.0

    def awake(self) -> None:
        """Begin as a student."""
        self.is_open = True
        self.rallies: deque[tuple[Floats, Floats]] = deque(maxlen=RALLIES)
        self._is_over = True
        self._random = np.random.default_rng(self.app.random.integers(1 << 32))
        self.double: Floats = newborn(self._random)
        self.begin(1)

    def begin(self, strength: int) -> None:
        """Go on with one of the three `strengths`; what is known about you stays."""
        self.strength = strength
        self.evolution = Evolution(self.strengths[strength].astype(np.float64), self._random)
        self.mind.take_weights(self.evolution.weights)
        self.curve: list[float] = []
        """Share of points that each generation won of your double."""
        self._lessons = self._learn()

    def remember(self, senses: Floats, moves: Floats, is_over: bool) -> None:
        """You play a rally: what you saw (n, SENSES) and did (n,) in it until now."""
        if not self._is_over:
            self.rallies.pop()
        self.rallies.append((senses, moves))
        self._is_over = is_over

    def update(self) -> None:
        """Take lessons until this frame's time for them is over."""
        end = time.perf_counter() + self.budget_ms / 1e3
        while self.is_open and time.perf_counter() < end:
            next(self._lessons)

    def _learn(self) -> Iterator[None]:
        """One generation after the other, in steps of a fraction of a millisecond."""
        while True:
            knows_you = bool(self.rallies)
            if knows_you:
                senses, moves = (np.concatenate(part) for part in zip(*self.rallies, strict=True))
                for double in islice(imitate(self.double, senses, moves, self._random), FITTING):
                    self.double = double
                    yield
            # Former selves keep it from forgetting how to play anybody else.
            former = self.strengths[[1, 2]].astype(np.float64)
            doubles = [self.double if knows_you else self.evolution.weights] * DOUBLES
            yield from self.evolution.live(np.stack([*doubles, *former]), STEPS)
            self.mind.take_weights(self.evolution.weights)
            if knows_you:
                won, lost = self.evolution.points[:, :DOUBLES].sum(axis=1)
                self.curve.append((won + 1) / (won + lost + 2))
