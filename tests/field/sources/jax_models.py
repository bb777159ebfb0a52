"""JAX functions and Flax networks with random weights, through jax2onnx.

    python -m tests.field.sources.jax_models FOLDER

Needs the packages of requirements/jax.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from flax import nnx
from jax import lax
from jax2onnx import to_onnx

from tests.field.feeds import write_feeds
from tests.field.sources.exporting import export_all
from tests.field.sources.inputs import channels_last, normal

WIDTH, WORDS, PATCH = 32, 50, 8


class Convolutions(nnx.Module):
    """Convolutions with channels last, normalised by statistics and by groups."""

    def __init__(self, rngs: Any) -> None:
        self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.statistics = nnx.BatchNorm(16, use_running_average=True, rngs=rngs)
        self.grouped = nnx.Conv(16, 32, (3, 3), strides=2, feature_group_count=4, rngs=rngs)
        self.groups = nnx.GroupNorm(32, num_groups=8, rngs=rngs)
        self.last = nnx.Linear(32, 7, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.silu(self.statistics(self.first(x)))
        return self.last(nnx.relu(self.groups(self.grouped(x))).mean((1, 2)))


class Block(nnx.Module):
    """Attention and a perceptron."""

    def __init__(self, rngs: Any) -> None:
        self.before = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, WIDTH, decode=False, rngs=rngs)
        self.between = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, 64, rngs=rngs), nnx.Linear(64, WIDTH, rngs=rngs)

    def __call__(self, x: Any, mask: Any = None) -> Any:
        x = x + self.attention(self.before(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.between(x))))


class VisionTransformer(nnx.Module):
    """Patches of 32 x 32 pixels, two blocks."""

    def __init__(self, rngs: Any) -> None:
        self.patches = nnx.Conv(3, WIDTH, (PATCH, PATCH), strides=(PATCH, PATCH), rngs=rngs)
        self.places = nnx.Param(0.02 * jax.random.normal(jax.random.key(1), (1, 16, WIDTH)))
        self.first, self.second = Block(rngs), Block(rngs)
        self.last = nnx.Linear(WIDTH, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.patches(x)
        x = x.reshape(x.shape[0], -1, WIDTH) + self.places[...]
        return self.last(self.second(self.first(x)).mean(1))


class LanguageModel(nnx.Module):
    """Words that see those before them."""

    def __init__(self, rngs: Any) -> None:
        self.words = nnx.Embed(WORDS, WIDTH, rngs=rngs)
        self.block = Block(rngs)
        self.last = nnx.Linear(WIDTH, WORDS, rngs=rngs)

    def __call__(self, words: Any) -> Any:
        return self.last(self.block(self.words(words), nnx.make_causal_mask(words)))


def spectrum(x: Any) -> Any:
    """Powers of frequencies."""
    return jnp.abs(jnp.fft.rfft(x)) ** 2


def filtered(x: Any) -> Any:
    """A recurrence over as many steps as there are."""

    def step(state: Any, here: Any) -> tuple[Any, Any]:
        state = jnp.tanh(0.5 * state + here)
        return state, 2 * state

    return lax.scan(step, jnp.zeros(x.shape[1:]), x)


def repeated(x: Any) -> Any:
    """Loops that a counter and a condition end, and a branch."""
    x = lax.fori_loop(0, 7, lambda i, v: v + jnp.cos(v * i), x)
    x = lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, 1.1 * s[1] + jnp.sin(s[1])), (0, x))[1]
    return lax.cond(x.sum() > 0, lambda v: 2 * v, lambda v: v - 1, x)


def ordered(x: Any) -> Any:
    """Orders, sums so far, medians."""
    largest = lax.top_k(x, 3)[0]
    return jnp.sort(x, axis=-1), jnp.argsort(x, axis=-1), largest, jnp.cumsum(x, axis=-1), jnp.median(x, -1)


def updated(x: Any) -> Any:
    """Columns and a part of a row replaced, added to and multiplied."""
    return x.at[:, 2].set(1.0).at[:, 0].add(x[:, 1]).at[0, 1:4].multiply(3.0)


def smoothed(x: Any) -> Any:
    """A function of one row mapped over all of them."""
    return jax.vmap(lambda row: jnp.convolve(row, jnp.array([0.2, 0.5, 0.3]), mode="same"))(x)


def matrices(x: Any) -> Any:
    """Linear algebra."""
    a = x @ x.T + 3 * jnp.eye(x.shape[0])
    return jnp.linalg.norm(a), jnp.trace(a), jnp.tril(a), jnp.outer(x[0], x[1])


def sliced(x: Any, start: Any) -> Any:
    """Slices whose start is computed, and clamped where it is too large."""
    return lax.dynamic_slice(x, (start, 0), (2, 4)), lax.dynamic_update_slice(x, jnp.ones((1, 2)), (start, 1))


INTEGERS = jax.ShapeDtypeStruct
Network = tuple[Callable[[], Any], Sequence[Any], Sequence[Sequence[np.ndarray]]]
"""What makes the network, its inputs as jax2onnx wants them, and sets of inputs."""


def rows(width: int, *counts: int) -> list[list[np.ndarray]]:
    """Sets of one input, (count, width)."""
    return [[normal(np.random.default_rng(n), count, width)] for n, count in enumerate(counts)]


def images(*counts: int) -> list[list[np.ndarray]]:
    """Sets of images."""
    return [[channels_last("x", count, 32, 32, 3, low=-1)["x"]] for count in counts]


ROWS = normal(np.random.default_rng(0), 6, 8)
NETWORKS: Mapping[str, Network] = {
    "convolutions": (lambda: Convolutions(nnx.Rngs(0)), [("B", 32, 32, 3)], images(1, 2)),
    "vision_transformer": (lambda: VisionTransformer(nnx.Rngs(0)), [("B", 32, 32, 3)], images(1, 3)),
    "language_model": (
        lambda: LanguageModel(nnx.Rngs(0)),
        [INTEGERS((2, 12), jnp.int32)],
        [[np.arange(24, dtype=np.int32).reshape(2, 12)]],
    ),
    "spectrum": (lambda: spectrum, [(2, 64)], rows(64, 2)),
    "filtered": (lambda: filtered, [("T", 4)], rows(4, 11, 3)),
    "repeated": (lambda: repeated, [("B", 4)], rows(4, 2, 5)),
    "ordered": (lambda: ordered, [("B", 9)], rows(9, 2, 4)),
    "updated": (lambda: updated, [("B", 9)], rows(9, 2, 5)),
    "smoothed": (lambda: smoothed, [("B", 20)], rows(20, 2, 3)),
    "matrices": (lambda: matrices, [(5, 8)], rows(8, 5)),
    "sliced": (
        lambda: sliced,
        [(6, 8), INTEGERS((), jnp.int32)],
        [[ROWS, np.array(start, np.int32)] for start in (2, 9)],
    ),
}


def write(name: str, target: Path) -> None:
    """Export a network. Raises what the exporter raises."""
    make, inputs, sets = NETWORKS[name]
    model = to_onnx(make(), inputs=inputs)
    onnx.save(model, target)
    names = [item.name for item in model.graph.input]
    write_feeds(target, [dict(zip(names, arrays, strict=True)) for arrays in sets])


def main(argv: Sequence[str] | None = None) -> None:
    """Export them all."""
    export_all("jax_models", __doc__, NETWORKS, write, argv)


if __name__ == "__main__":
    main()
