"""Rotary embedding against the product of complex numbers that it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement


def turned(x: np.ndarray, angles: np.ndarray, width: int, interleaved: bool) -> np.ndarray:
    """x (batch, length, heads, size) with its first columns as complex numbers, times exp(i * angle)."""
    first, second = (
        (x[..., 0:width:2], x[..., 1:width:2])
        if interleaved
        else (x[..., : width // 2], x[..., width // 2 : width])
    )
    found = (first + 1j * second) * np.exp(1j * angles[:, :, None, :])
    y = x.astype(np.float64)
    if interleaved:
        y[..., 0:width:2], y[..., 1:width:2] = found.real, found.imag
    else:
        y[..., : width // 2], y[..., width // 2 : width] = found.real, found.imag
    return y


def tables(rows: int, pairs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Angles, their cosines and their sines."""
    angles = np.arange(rows)[:, None] * 0.3 ** np.arange(pairs)
    return angles, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@pytest.mark.spread
@pytest.mark.parametrize(("interleaved", "width"), [(False, 4), (False, 6), (True, 4)])
def test_any_sizes_on_every_backend(
    interleaved: bool, width: int, channel: str, make_worker: MakeWorker
) -> None:
    """Two heads of 6 columns side by side, of which the first ones or all are turned."""
    angles, cos, sin = tables(9, width // 2)
    example = np.zeros((2, 3, 12), np.float32), np.zeros((2, 3), np.int64)
    model = one_layer(
        "RotaryEmbedding",
        [example[0], cos, sin, example[1]],
        {"num_heads": 2, "rotary_embedding_dim": width, "interleaved": int(interleaved)},
        known=(1, 2),
        dynamic=(0, 3),
    )
    worker = make_worker(model, channel)

    @settings(max_examples=8)
    @given(st.integers(1, 3), st.integers(0, 5), st.integers(0, 99))
    def check(batch: int, rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(batch, rows, 12)).astype(np.float32)
        at = rng.integers(0, 9, (batch, rows))
        worker.schedule(x0=x, x3=at)
        right = turned(x.reshape(batch, rows, 2, 6), angles[at], width, interleaved).reshape(x.shape)
        found = worker.peek_output().download_to_array()
        assert disagreement(found, right) < (1e-5 if channel == "cpu" else 1e-4)

    check()


@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("listed", [False, True])
def test_heads_first(width: int, interleaved: int, listed: bool, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 5, 8)).astype(np.float32)
    angles, cos, sin = tables(7, (width or 8) // 2)
    at = rng.integers(0, 7, (2, 5))
    given_tables = [cos, sin, at] if listed else [cos[at], sin[at]]
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": width}
    (found,) = run("RotaryEmbedding", [x, *given_tables], attributes)
    right = turned(x.transpose(0, 2, 1, 3), angles[at], width or 8, bool(interleaved)).transpose(0, 2, 1, 3)
    assert disagreement(found, right) < 1e-5


@pytest.mark.parametrize(
    ("shape", "pairs", "attributes", "message"),
    [
        ((2, 3, 12), 3, {}, "divide into 0 heads"),
        ((2, 3, 12), 3, {"num_heads": 5}, "divide into 5 heads"),
        ((2, 3, 12), 2, {"num_heads": 2}, "each of the 3 pairs"),
        ((2, 3, 10), 2, {"num_heads": 2}, "cannot turn 5"),
        ((2, 3, 12), 4, {"num_heads": 2, "rotary_embedding_dim": 8}, "cannot turn 8"),
        ((2, 12), 3, {"num_heads": 2}, r"not \[2, 12\]"),
        ((2, 4, 12), 3, {"num_heads": 2}, "do not fit"),
    ],
)
def test_wrong_use(shape: tuple[int, ...], pairs: int, attributes: dict[str, Any], message: str) -> None:
    table = np.zeros((2, 3, pairs), np.float32)
    with pytest.raises(ShapeError, match=message):
        run("RotaryEmbedding", [np.zeros(shape, np.float32), table, table], attributes)
