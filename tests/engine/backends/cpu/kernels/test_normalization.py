"""Softmax and normalisations as one kernel per row, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from engine import BackendType, Model, Worker
from engine.backends.cpu.codegen.tiles import AVX2, AVX512, NEON, PORTABLE, Tile
from engine.backends.cpu.kernels import normalization
from tests.graphs import model, node

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(6).bit_generator.state


EXTENTS = (1, 5, 16, 64, 257, 2048, 5003)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def run(made: Model, steps: int | None = None, **feeds: np.ndarray) -> np.ndarray:
    with Worker(made, BackendType.CPU) as worker:
        worker.schedule(feeds)
        found = worker.peek_output("y").download_to_array()
        if steps is not None:
            assert worker.plan_report().steps == steps
    return found


def softmax(x: np.ndarray) -> np.ndarray:
    shifted = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def one(op_type: str, rank: int = 2, **attributes: int) -> Model:
    dims = [f"n{i}" for i in range(rank)]
    made = node(op_type, ["x"], ["y"], **attributes)
    return model([made], {"x": ("float32", dims)}, {"y": ("float32", dims)})


@pytest.mark.parametrize("extent", EXTENTS)
def test_softmax(extent: int) -> None:
    x = normal(3, extent) * np.float32(10)
    np.testing.assert_allclose(run(one("Softmax"), 1, x=x), softmax(x), atol=1e-6)
    expected = np.log(softmax(x))
    np.testing.assert_allclose(run(one("LogSoftmax"), 1, x=x), expected, atol=1e-5, rtol=1e-6)


def test_softmax_of_infinite_scores() -> None:
    x = normal(4, 20)
    x[0, 3:] = -np.inf
    x[1] = -np.inf
    x[2, 5] = np.inf
    x[3, 7] = np.nan
    found = run(one("Softmax"), x=x)
    np.testing.assert_allclose(found[0], softmax(x[:1])[0], atol=1e-6)
    assert np.isnan(found[1:]).all()


@pytest.mark.parametrize("extent", EXTENTS)
def test_layer_norm_with_scale_and_shift(extent: int) -> None:
    x, scale, shift = normal(2, 3, extent) + np.float32(3), normal(extent), normal(extent)
    made = model(
        [node("LayerNormalization", ["x", "s", "b"], ["y"])],
        {"x": ("float32", ["n", "t", extent])},
        {"y": ("float32", ["n", "t", extent])},
        {"s": scale, "b": shift},
    )
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(run(made, 1, x=x), expected, atol=2e-5 if extent > 1 else 1e-5, rtol=1e-5)


def test_a_sum_before_and_an_activation_behind_a_norm() -> None:
    """The sum is read three times by the formula, and once by the kernel."""
    a, b, scale = normal(6, 40), normal(6, 40), normal(40)
    nodes = [
        node("Add", ["a", "b"], ["x"]),
        node("LayerNormalization", ["x", "s"], ["z"]),
        node("Tanh", ["z"], ["y"]),
    ]
    made = model(nodes, {n: ("float32", [6, 40]) for n in "ab"}, {"y": ("float32", [6, 40])}, {"s": scale})
    x = (a + b).astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    expected = np.tanh(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale)
    np.testing.assert_allclose(run(made, 2, a=a, b=b), expected, atol=1e-5)


def test_the_mean_and_deviation_of_a_layer_norm_are_still_outputs() -> None:
    x, scale = normal(4, 30), normal(30)
    made = model(
        [node("LayerNormalization", ["x", "s"], ["y", "m", "d"])],
        {"x": ("float32", [4, 30])},
        {"y": ("float32", [4, 30]), "m": ("float32", [4, 1]), "d": ("float32", [4, 1])},
        {"s": scale},
    )
    with Worker(made, BackendType.CPU) as worker:
        worker.schedule(x=x)
        mean = worker.peek_output("m").download_to_array()
        inverse = worker.peek_output("d").download_to_array()
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-5)


def test_rms_norm() -> None:
    x, scale = normal(5, 70), normal(70)
    made = model(
        [node("RMSNormalization", ["x", "s"], ["y"])],
        {"x": ("float32", [5, 70])}, {"y": ("float32", [5, 70])}, {"s": scale}, opset=23,
    )  # fmt: skip
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(run(made, 1, x=x), expected, atol=1e-5)


@pytest.mark.parametrize("tile", [AVX512, AVX2, NEON, PORTABLE], ids=["avx512", "avx2", "neon", "portable"])
def test_every_processors_vectors_compute_the_same(tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalization, "host_tile", lambda: tile)
    x = normal(3, 77)
    np.testing.assert_allclose(run(one("Softmax"), 1, x=x), softmax(x), atol=1e-6)
