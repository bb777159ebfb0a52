"""Transformers and recurrent networks of the sizes that games run, with seeded random weights."""

from __future__ import annotations

from functools import cache

import numpy as np

from tests.graphs import Declared
from tests.maker import Maker

WIDTH, HEADS, INNER, LAYERS = 256, 8, 1024, 4
HEAD = WIDTH // HEADS
TOKENS = 64
VOCABULARY = 1024
CACHED = range(16, 80)
"""How many tokens a decoder's cache holds, step after step."""


def _layer_norm(make: Maker, x: str, *, written_out: bool = False) -> str:
    """Over the last axis: the operator of opset 17, or the nine that older exporters write."""
    scale, shift = make.uniform(WIDTH), make.normal(WIDTH, scale=0.1)
    if not written_out:
        return make.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)
    centred = make.add("Sub", x, make.add("ReduceMean", x, axes=[-1], keepdims=1))
    square = make.add("Pow", centred, make.constant(2.0))
    variance = make.add("ReduceMean", square, axes=[-1], keepdims=1)
    deviation = make.add("Sqrt", make.add("Add", variance, make.constant(1e-5)))
    normal = make.add("Div", centred, deviation)
    return make.add("Add", make.add("Mul", normal, scale), shift)


def _gelu(make: Maker, x: str) -> str:
    """x / 2 * (1 + erf(x / sqrt(2))), as exporters write it."""
    bell = make.add("Erf", make.add("Div", x, make.constant(np.sqrt(2))))
    product = make.add("Mul", x, make.add("Add", bell, make.constant(1.0)))
    return make.add("Mul", product, make.constant(0.5))


def _heads(make: Maker, x: str, *, transposed: bool = False) -> str:
    """(batch, tokens, width) -> (batch, heads, tokens, head), or with the last two axes exchanged."""
    split = make.add("Reshape", x, make.integers(0, 0, HEADS, HEAD))
    return make.add("Transpose", split, perm=[0, 2, 3, 1] if transposed else [0, 2, 1, 3])


def _attend(make: Maker, query: str, keys: str, values: str) -> str:
    """Attention and its projection; keys (batch, heads, head, tokens). -> (batch, tokens, width)."""
    scores = make.add("Div", make.add("MatMul", query, keys), make.constant(np.sqrt(HEAD)))
    mixed = make.add("MatMul", make.add("Softmax", scores, axis=-1), values)
    joined = make.add("Reshape", make.add("Transpose", mixed, perm=[0, 2, 1, 3]), make.integers(0, 0, WIDTH))
    return make.linear(joined, WIDTH, WIDTH)


def _feed_forward(make: Maker, x: str) -> str:
    return make.linear(_gelu(make, make.linear(x, WIDTH, INNER)), INNER, WIDTH)


@cache
def encoder(written_out: bool = False) -> bytes:
    """A transformer encoder with the norms after the sums. x (1, 64, 256) -> y of the same shape.

    written_out: layer norms as their parts, and batch and tokens symbolic, as exported with dynamic axes;
    else opset 17's operator and fixed sizes.
    """
    make = Maker(21)
    x = "x"
    for _ in range(LAYERS):
        query, keys, values = (make.linear(x, WIDTH, WIDTH) for _ in range(3))
        mixed = _attend(make, _heads(make, query), _heads(make, keys, transposed=True), _heads(make, values))
        x = _layer_norm(make, make.add("Add", x, mixed), written_out=written_out)
        x = _layer_norm(make, make.add("Add", x, _feed_forward(make, x)), written_out=written_out)
    make.rename(x, "y")
    dims: list[int | str | None] = ["batch", "tokens", WIDTH] if written_out else [1, TOKENS, WIDTH]
    shape: Declared = {"x": ("float32", dims)}
    return make.file(shape, {"y": shape["x"]}, opset=13 if written_out else 17)


@cache
def decoder(past: int | None = None) -> bytes:
    """One step of a decoder: a token, and the keys and values of those before it.

    token (1, 1, 256), past_key_i and past_value_i (1, 8, past, 32) -> logits (1, 1, 1024), key_i and value_i
    (1, 8, past + 1, 32), or of the last `past` tokens if that is given.
    """
    make = Maker(22)
    inputs: dict[str, tuple[str, list[int | str | None]]] = {"token": ("float32", [1, 1, WIDTH])}
    outputs: dict[str, tuple[str, list[int | str | None]]] = {"logits": ("float32", [1, 1, VOCABULARY])}
    x = "token"
    for i in range(LAYERS):
        normal = _layer_norm(make, x)
        query = _heads(make, make.linear(normal, WIDTH, WIDTH))
        cached = {}
        for name in ("key", "value"):
            new = _heads(make, make.linear(normal, WIDTH, WIDTH))
            cached[name] = kept = make.add("Concat", f"past_{name}_{i}", new, axis=2)
            if past is None:
                cached[name] = f"{name}_{i}"
            else:
                kept = make.add("Slice", kept, *(make.integers(n) for n in (1, past + 1, 2)))
            make.rename(kept, f"{name}_{i}")
            inputs[f"past_{name}_{i}"] = ("float32", [1, HEADS, past or "past", HEAD])
            outputs[f"{name}_{i}"] = ("float32", [1, HEADS, past or "present", HEAD])
        keys = make.add("Transpose", cached["key"], perm=[0, 1, 3, 2])
        x = make.add("Add", x, _attend(make, query, keys, cached["value"]))
        x = make.add("Add", x, _feed_forward(make, _layer_norm(make, x)))
    head = make.normal(WIDTH, VOCABULARY, scale=WIDTH**-0.5)
    make.rename(make.add("MatMul", _layer_norm(make, x), head), "logits")
    return make.file(inputs, outputs, opset=17)


def decoder_inputs(seed: int, past: int) -> dict[str, np.ndarray]:
    """A token, and a cache of `past` tokens."""
    rng = np.random.default_rng(seed)
    feeds = {"token": rng.normal(size=(1, 1, WIDTH)).astype(np.float32)}
    for i in range(LAYERS):
        for name in ("key", "value"):
            feeds[f"past_{name}_{i}"] = rng.normal(size=(1, HEADS, past, HEAD)).astype(np.float32)
    return feeds


@cache
def lstm() -> bytes:
    """Two LSTM layers of 128 over 50 steps of 64 features. x (50, 1, 64) -> y (50, 1, 128), hidden, cell."""
    make = Maker(23)
    steps, entering, hidden, layers = 50, 64, 128, 2
    x = "x"
    states: dict[str, list[str]] = {"hidden": [], "cell": []}
    for _ in range(layers):
        weights = [
            make.normal(1, 4 * hidden, entering, scale=entering**-0.5),
            make.normal(1, 4 * hidden, hidden, scale=hidden**-0.5),
            make.normal(1, 8 * hidden, scale=0.1),
        ]
        every, last, cell = make.add_many("LSTM", [x, *weights], 3, hidden_size=hidden)
        x, entering = make.add("Squeeze", every, make.integers(1)), hidden
        states["hidden"].append(last)
        states["cell"].append(cell)
    make.rename(x, "y")
    outputs: dict[str, tuple[str, list[int | str | None]]] = {"y": ("float32", [steps, 1, hidden])}
    for name, values in states.items():
        make.rename(make.add("Concat", *values, axis=0), name)
        outputs[name] = ("float32", [layers, 1, hidden])
    return make.file({"x": ("float32", [steps, 1, 64])}, outputs, opset=17)
