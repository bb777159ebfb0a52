"""The network in NumPy, and how it learns: evolution strategies, a little at a time.

The game's own inference runs the same network from `rival.onnx`, whose weights are inputs. A vector of
`COUNT` numbers holds them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from demos.rival.court import DT, SENSES, Court, Floats

HIDDEN = 16
SHAPES = {
    "weight_1": (SENSES, HIDDEN), "bias_1": (HIDDEN,), "weight_2": (HIDDEN, HIDDEN), "bias_2": (HIDDEN,),
    "weight_3": (HIDDEN, 1), "bias_3": (1,),
}  # fmt: skip
COUNT = sum(int(np.prod(shape)) for shape in SHAPES.values())


def parts(weights: Floats) -> dict[str, Floats]:
    """Vectors (..., COUNT) as the network's inputs, by name."""
    found, begin = {}, 0
    for name, shape in SHAPES.items():
        end = begin + int(np.prod(shape))
        found[name] = weights[..., begin:end].reshape(*weights.shape[:-1], *shape)
        begin = end
    return found


def decide(weights: Floats, senses: Floats) -> Floats:
    """What n networks (n, COUNT) do in m games each, (n, m, SENSES) -> (n, m) from -1 to 1."""
    p = parts(weights)
    hidden = np.tanh(senses @ p["weight_1"] + p["bias_1"][:, None])
    hidden = np.tanh(hidden @ p["weight_2"] + p["bias_2"][:, None])
    return np.asarray(np.tanh(hidden @ p["weight_3"] + p["bias_3"][:, None])[..., 0])


def newborn(random: np.random.Generator) -> Floats:
    """Weights that have learned nothing."""
    made = [random.standard_normal(shape) / np.sqrt(shape[0]) * (len(shape) > 1) for shape in SHAPES.values()]
    return np.concatenate([part.ravel() for part in made])


class Adam:
    """Steps along noisy slopes (Kingma and Ba, 2015)."""

    def __init__(self, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.mean, self.square = np.zeros(COUNT), np.zeros(COUNT)

    def step(self, slope: Floats) -> Floats:
        """What to add in order to climb."""
        self.count += 1
        self.mean += 0.1 * (slope - self.mean)
        self.square += 0.01 * (slope**2 - self.square)
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.99**self.count)
        return np.asarray(self.rate * mean / (np.sqrt(square) + 1e-8))


class Evolution:
    """Weights that get better by playing: variants of them play against opponents, and the better a variant
    fares, the more the weights move its way (Salimans et al., 2017).
    """

    def __init__(
        self, weights: Floats, random: np.random.Generator, *, pairs: int = 12, rate: float = 0.02
    ) -> None:
        self.weights, self.random, self.pairs = weights.copy(), random, pairs
        self.spread, self.generation = 0.08, 0
        self.adam = Adam(rate)
        self.points = np.zeros((2, 1))

    def live(self, opponents: Floats, steps: int) -> Iterator[None]:
        """One generation, step by step: every variant plays each of (m, COUNT) opponents for `steps` steps.

        `points` (2, m) are then those that the weights themselves won and lost against each.
        """
        noise = self.random.standard_normal((self.pairs, COUNT))
        shifts = np.concatenate((np.zeros((1, COUNT)), noise, -noise)) * self.spread
        variants = self.weights + shifts
        n, m = len(variants), len(opponents)
        court = Court(n * m, self.random)
        fitness, points = np.zeros(n), np.zeros((2, m))
        moves = np.zeros((n * m, 2))
        for _ in range(steps):
            mine = decide(variants, court.senses(1).reshape(n, m, SENSES))
            theirs = decide(opponents, court.senses(0).reshape(n, m, SENSES).transpose(1, 0, 2))
            scored = court.step(moves, DT).reshape(n, m)
            # As in the game, what is decided now comes about a step later.
            moves = np.stack((theirs.T.ravel(), mine.ravel()), axis=1)
            effort = 0.002 * np.abs(mine)
            missed = np.minimum(court.missed.reshape(n, m), 3.0) * (scored < 0)
            hits = court.hits[:, 1].reshape(n, m)
            fitness += (scored - 0.15 * missed + 0.05 * hits - effort).sum(1)
            points += scored[0] > 0, scored[0] < 0
            yield
        rank = fitness[1:].argsort().argsort() / (n - 2) - 0.5
        slope = (rank[: self.pairs] - rank[self.pairs :]) @ noise / self.pairs
        self.weights = self.weights * 0.9995 + self.adam.step(slope)
        self.generation += 1
        self.points = points


def mistake(weights: Floats, senses: Floats, wanted: Floats) -> tuple[float, Floats]:
    """Half the mean squared error of one network (COUNT,) at n examples, and its slopes by the weights."""
    p = parts(weights)
    one = np.tanh(senses @ p["weight_1"] + p["bias_1"])
    two = np.tanh(one @ p["weight_2"] + p["bias_2"])
    move = np.tanh(two @ p["weight_3"] + p["bias_3"])
    error = move - wanted[:, None]
    third = error * (1 - move**2) / len(wanted)
    second = third @ p["weight_3"].T * (1 - two**2)
    first = second @ p["weight_2"].T * (1 - one**2)
    slopes = (senses.T @ first, first.sum(0), one.T @ second, second.sum(0), two.T @ third, third.sum(0))
    return float((error**2).mean() / 2), np.concatenate([slope.ravel() for slope in slopes])


def imitate(weights: Floats, senses: Floats, moves: Floats, random: np.random.Generator) -> Iterator[Floats]:
    """Fit a network to what somebody did, (n, SENSES) and (n,). Yields its weights after each step."""
    adam = Adam(0.02)
    while True:
        rows = random.integers(len(moves), size=64)
        weights = weights + adam.step(-mistake(weights, senses[rows], moves[rows])[1])
        yield weights
