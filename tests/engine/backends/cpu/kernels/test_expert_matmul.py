"""Products with the weights of chosen experts, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine import JobSystem, Worker
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.tiles import AVX2, PORTABLE, Tile
from engine.backends.cpu.kernels import expert_matmul
from tests.engine.operators.single import one_layer

MICROSOFT = "com.microsoft"


def mixture(
    x: np.ndarray, scores: np.ndarray, first: np.ndarray, second: np.ndarray, bias: np.ndarray, count: int
) -> np.ndarray:
    """The `count` best experts of each row, weighted by the softmax over all scores."""
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    found = np.zeros((len(x), second.shape[1]))
    for row, chosen in enumerate(np.argsort(-scores, 1, kind="stable")[:, :count]):
        for e in chosen:
            hidden = np.maximum(first[e] @ x[row] + bias[e], 0)
            found[row] += shares[row, e] * (second[e] @ hidden)
    return found


def check(rows: int, count: int, width: int, inner: int, seed: int, chosen: int = 5) -> None:
    """Scores prefer the first `chosen` of 5 experts."""
    rng = np.random.default_rng(seed)
    weights = {
        "a": rng.normal(0, width**-0.5, (5, inner, width)).astype(np.float32),
        "b": rng.normal(0, inner**-0.5, (5, width, inner)).astype(np.float32),
        "c": rng.normal(size=(5, inner)).astype(np.float32),
    }
    x = rng.normal(size=(rows, width)).astype(np.float32)
    scores = rng.normal(size=(rows, 5)).astype(np.float32)
    scores[:, chosen:] -= 20
    given = [x, scores, weights["a"], weights["c"], weights["b"]]
    source = one_layer("MoE", given, {"k": count}, known=[2, 3, 4], domain=MICROSOFT)
    with JobSystem(2) as jobs, Worker(source, jobs=jobs) as worker:
        worker.schedule(x, scores)
        found = worker.peek_output().download_to_array()
        steps = [s for p in worker._plans for segment in p.segments for s in segment.plan.steps]
        kernels = [s.kernel.name for s in steps if isinstance(s.kernel, NativeKernel)]
    assert kernels.count("expert_matmul") == 2
    wanted = mixture(x, scores, weights["a"], weights["b"], weights["c"], count)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))


@pytest.mark.parametrize(
    ("rows", "count", "width", "inner"),
    [(1, 1, 16, 20), (1, 3, 37, 70), (7, 2, 64, 129), (70, 2, 48, 65), (150, 5, 40, 128)],
)
def test_sizes(rows: int, count: int, width: int, inner: int) -> None:
    check(rows, count, width, inner, rows)


def test_more_rows_than_are_listed_at_a_time() -> None:
    check(expert_matmul._ROOM + 70, 1, 32, 36, 1, chosen=1)
    check(2 * expert_matmul._ROOM, 2, 32, 36, 2, chosen=2)


@pytest.mark.long
@pytest.mark.parametrize("tile", [AVX2, PORTABLE])
def test_other_processors(tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expert_matmul, "host_tile", lambda: tile)
    check(33, 2, 40, 67, 3)
