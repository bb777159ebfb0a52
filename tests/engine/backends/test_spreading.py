"""Reductions to few elements, as graphics cards run them, at sizes that one plan serves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.backends.gl import backend as gl_backend
from engine.backends.opencl import backend as cl_backend
from engine.compiler.split_reduction import GRAPHICS
from tests.graphs import node, proto

PLACES = [
    pytest.param(BackendType.GPU_COMPUTE, "gl", marks=pytest.mark.gl),
    pytest.param(BackendType.GPU_PIXEL, "gl", marks=pytest.mark.gl),
    pytest.param(BackendType.GPU_COMPUTE, "opencl", marks=pytest.mark.opencl),
]


def expected(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The model below, in float64."""
    x = x.astype(np.float64)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale
    powers = np.exp(x - x.max(1, keepdims=True))
    shares = powers / powers.sum(1, keepdims=True)
    return np.asarray(np.log(np.exp(x).sum(1)) + (x * shares).max(1))


@pytest.mark.parametrize(("kind", "device"), PLACES)
@pytest.mark.parametrize("rows", ["open", "fixed"])
def test_rows(kind: BackendType, device: Any, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gl_backend, cl_backend):
        monkeypatch.setattr(module, "SOFTWARE", GRAPHICS)
    draw = np.random.default_rng(5)
    scale = draw.uniform(0.5, 1.5, 700).astype(np.float32)
    count = "n" if rows == "open" else 3
    source = proto(
        [
            node("LayerNormalization", ["x", "scale"], ["n"], axis=-1),
            node("Softmax", ["n"], ["p"], axis=-1),
            node("Mul", ["n", "p"], ["m"]),
            node("ReduceMax", ["m", "axes"], ["top"], keepdims=0),
            node("ReduceLogSumExp", ["n", "axes"], ["sum"], keepdims=0),
            node("Add", ["top", "sum"], ["y"]),
        ],
        {"x": ("float32", [count, 700])},
        {"y": ("float32", [count])},
        {"scale": scale, "axes": np.array([1], np.int64)},
    )
    with Worker(ModelLoader.load(source), kind, device=device, allow_fallback=False) as worker:
        for size in (3, 1, 40) if rows == "open" else (3,):
            x = draw.standard_normal((size, 700)).astype(np.float32) + 1
            worker.schedule({"x": x})
            got = worker.peek_output().download_to_array()
            np.testing.assert_allclose(got, expected(x, scale), rtol=1e-4)
