"""Small NumPy networks that learn in a running game, by imitation or evolution strategies.

Both continue in steps of a fraction of a millisecond, of which a game takes as many as a frame has room for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import onnx

from gameglue.errors import GameError

Floats = npt.NDArray[np.floating]

_OPSET, _IR_VERSION = 18, 9


class DenseNetwork:
    """Dense layers, each followed by tanh. All weights together are one vector of `count` numbers.

    The network holds none: one object serves every vector, and what learns is the vector. `to_onnx` gives a
    model whose weights are inputs. A worker of it is asked with `inputs(weights)`, so that weights change
    from one question to the next, and nothing is loaded for that:

        network = DenseNetwork(8, 16, 1)
        worker = Worker(ModelLoader.load(network.to_onnx()))
        worker.schedule(x=senses, **network.inputs(weights))

    Raises:
        GameError: There are fewer than two sizes, or one is below 1.

    Attributes:
        sizes: Numbers of the inputs, of each hidden layer's neurons, and of the outputs.
        count: Length of a weight vector.
    """

    def __init__(self, *sizes: int) -> None:
        """Sizes: how many inputs, how many outputs of each hidden layer, how many outputs."""
        if len(sizes) < 2 or min(sizes) < 1:
            raise GameError(f"a network has two sizes or more (inputs, outputs), each from 1; got {sizes}")
        self.sizes = sizes
        self.shapes: dict[str, tuple[int, ...]] = {}
        """The parts of such a vector, in order: `weight_1` (inputs, outputs), `bias_1`, `weight_2` ..."""
        for number, (before, after) in enumerate(pairwise(sizes), start=1):
            self.shapes[f"weight_{number}"] = before, after
            self.shapes[f"bias_{number}"] = (after,)
        self.count = sum(int(np.prod(shape)) for shape in self.shapes.values())

    def init_weights(self, random: np.random.Generator) -> Floats:
        """Random initial weights, (count,), scaled so that signals keep their size."""
        made = [
            random.standard_normal(shape) / np.sqrt(shape[0]) * (len(shape) > 1)
            for shape in self.shapes.values()
        ]
        return np.concatenate([part.ravel() for part in made])

    def parts(self, weights: Floats) -> dict[str, Floats]:
        """Split weight vectors (..., count) into arrays by name, each with the leading axes first."""
        found, begin = {}, 0
        for name, shape in self.shapes.items():
            end = begin + int(np.prod(shape))
            found[name] = weights[..., begin:end].reshape(*weights.shape[:-1], *shape)
            begin = end
        return found

    def inputs(self, weights: Floats) -> dict[str, npt.NDArray[np.float32]]:
        """Weights (count,) as the inputs of a worker that runs `to_onnx()`."""
        return {name: part.astype(np.float32) for name, part in self.parts(weights).items()}

    def forward(self, weights: Floats, x: Floats) -> Floats:
        """Outputs (..., n, outputs) from -1 to 1, for weights (..., count) and x (..., n, inputs).

        With leading axes, so many networks answer at once, each its own n questions.
        """
        return self._signals(weights, x)[-1]

    def loss_and_gradient(self, weights: Floats, x: Floats, wanted: Floats) -> tuple[float, Floats]:
        """Half the mean squared error and its gradient.

        Args:
            weights: All weights, (count,).
            x: Inputs of the examples, (n, inputs).
            wanted: Outputs of the examples, (n, outputs).

        Returns:
            The error, and its gradient with respect to the weights, (count,).
        """
        signals, parts = self._signals(weights, x), self.parts(weights)
        error = signals[-1] - wanted
        slopes: list[Floats] = []
        back = error * (1 - signals[-1] ** 2) / len(wanted)
        for number in range(len(self.sizes) - 1, 0, -1):
            before = signals[number - 1]
            slopes[:0] = [(before.T @ back).ravel(), back.sum(0)]
            back = back @ parts[f"weight_{number}"].T * (1 - before**2)
        return float((error**2).sum(1).mean() / 2), np.concatenate(slopes)

    def fit(
        self,
        weights: Floats,
        x: Floats,
        wanted: Floats,
        random: np.random.Generator,
        *,
        rate: float = 0.02,
        batch: int = 64,
    ) -> Iterator[Floats]:
        """Fit weights to examples by gradient steps, for as long as the caller iterates.

        Args:
            weights: All weights to begin with, (count,).
            x: Inputs of the examples, (n, inputs).
            wanted: Outputs of the examples, (n, outputs).
            random: Chooses the examples of each step.
            rate: Learning rate.
            batch: Examples per step.

        Yields:
            The weights after each step, (count,).
        """
        adam = Adam(rate)
        while True:
            rows = random.integers(len(wanted), size=batch)
            weights = weights + adam.step(-self.loss_and_gradient(weights, x[rows], wanted[rows])[1])
            yield weights

    def to_onnx(self, name: str = "network", *, input_name: str = "x", output_name: str = "y") -> bytes:
        """The network as ONNX, with its weights as inputs, named as in `shapes`.

        Args:
            name: Name of the graph.
            input_name: Name of the input, float32 (batch, inputs).
            output_name: Name of the output, float32 (batch, outputs).
        """
        nodes, value = [], input_name
        for i in range(1, len(self.sizes)):
            names = [value, f"weight_{i}", f"bias_{i}"]
            nodes.append(onnx.helper.make_node("Gemm", names, [f"sum_{i}"], f"layer_{i}"))
            value = output_name if i == len(self.sizes) - 1 else f"hidden_{i}"
            nodes.append(onnx.helper.make_node("Tanh", [f"sum_{i}"], [value], f"tanh_{i}"))

        def kind(name: str, shape: tuple[int | str, ...]) -> onnx.ValueInfoProto:
            return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

        inputs = [
            kind(input_name, ("batch", self.sizes[0])),
            *(kind(part, shape) for part, shape in self.shapes.items()),
        ]
        graph = onnx.helper.make_graph(nodes, name, inputs, [kind(output_name, ("batch", self.sizes[-1]))])
        opset = [onnx.helper.make_opsetid("", _OPSET)]
        return onnx.helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION).SerializeToString()

    def _signals(self, weights: Floats, x: Floats) -> list[Floats]:
        """The input, and the output of each layer."""
        parts, signals = self.parts(weights), [x]
        for i in range(1, len(self.sizes)):
            bias = parts[f"bias_{i}"][..., None, :]
            signals.append(np.asarray(np.tanh(signals[-1] @ parts[f"weight_{i}"] + bias)))
        return signals


class Adam:
    """The Adam optimizer (Kingma and Ba, 2015) with betas 0.9 and 0.99, for short runs."""

    def __init__(self, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.mean: Floats = np.zeros(())
        self.square: Floats = np.zeros(())

    def step(self, slope: Floats) -> Floats:
        """Return the step for gradient ascent."""
        self.count += 1
        self.mean = self.mean + 0.1 * (slope - self.mean)
        self.square = self.square + 0.01 * (slope**2 - self.square)
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.99**self.count)
        return np.asarray(self.rate * mean / (np.sqrt(square) + 1e-8))


class EvolutionStrategy:
    """Improves a weight vector by trial: an evolution strategy (Salimans et al., 2017).

    Each generation, random variants of the weights play; the weights move towards the variants with the
    higher scores. No gradient is needed, so any score can be maximised.

        variants = evolution.sample()         # one row of weights per player
        evolution.update(points)              # the score of each row

    Attributes:
        weights: The current weights (count,).
        random: The generator of the variants.
        pairs: Pairs of variants per generation.
        spread: Standard deviation of the variants around the weights, above 0.
        decay: Share of every weight that is lost in a generation, 0 to 1.
        generation: Generations so far.
    """

    def __init__(
        self,
        weights: Floats,
        random: np.random.Generator,
        *,
        pairs: int = 12,
        rate: float = 0.02,
        spread: float = 0.08,
        decay: float = 0.0005,
    ) -> None:
        """Create a strategy that starts from `weights`.

        Args:
            weights: (count,), to begin with.
            random: where the variants come from.
            pairs: of variants a generation; the two of a pair differ from the weights in opposite ways.
            rate: how far a generation moves each weight, about.
            spread: how far variants are from the weights, as a standard deviation.
            decay: the share of every weight that is lost in a generation, which keeps them small.
        """
        self.weights, self.random = weights.copy(), random
        self.pairs, self.spread, self.decay = pairs, spread, decay
        self.generation = 0
        self._adam = Adam(rate)
        self._noise: Floats | None = None

    @property
    def rate(self) -> float:
        """How far a generation moves each weight, about; may be changed."""
        return self._adam.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._adam.rate = rate

    def sample(self) -> Floats:
        """The current weights and the candidates to evaluate: (1 + 2 * pairs, count)."""
        self._noise = noise = self.random.standard_normal((self.pairs, len(self.weights)))
        shifts = np.concatenate((np.zeros((1, len(self.weights))), noise, -noise)) * self.spread
        return np.asarray(self.weights + shifts)

    def update(self, fitness: Floats) -> None:
        """Update from the `fitness` (1 + 2 * pairs,) of the latest candidates.

        Only the order counts, and not how the weights themselves fared.

        Raises:
            GameError: There is another number of them, or there are no new variants.
        """
        if self._noise is None or len(fitness) != 1 + 2 * self.pairs:
            wanted = "variants() comes before learn()" if self._noise is None else f"1 + 2 * {self.pairs}"
            raise GameError(f"update() takes the fitness of each variant: got {len(fitness)}, {wanted}")
        rank = fitness[1:].argsort().argsort() / (2 * self.pairs - 1) - 0.5
        slope = (rank[: self.pairs] - rank[self.pairs :]) @ self._noise / self.pairs
        self.weights = self.weights * (1.0 - self.decay) + self._adam.step(slope)
        self._noise = None
        self.generation += 1
