"""Losses against NumPy, over any number of places, with weights and with places to ignore."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement


def log_softmax(x: np.ndarray) -> np.ndarray:
    """Along axis 1."""
    x = x.astype(np.float64) - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def loss(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray | None, ignored: int | None, reduction: str
) -> np.ndarray:
    """Place by place, as the operator's text tells it."""
    losses, weights = np.zeros(target.shape), np.zeros(target.shape)
    for at in np.ndindex(*target.shape):
        c = int(target[at])
        if c != ignored:
            weights[at] = 1.0 if weight is None else weight[c]
            losses[at] = -weights[at] * x[(at[0], c, *at[1:])]
    if reduction == "none":
        return losses
    return np.asarray(losses.sum() / (weights.sum() if reduction == "mean" else 1.0))


def drawn(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores (N, C, ...), classes and weights."""
    x = rng.normal(size=shape).astype(np.float32)
    target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    return x, target, rng.uniform(0.5, 2.0, shape[1]).astype(np.float32)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (2, 3, 2, 1, 3)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1, -7])
def test_reductions(
    reduction: str, shape: tuple[int, ...], weighted: bool, ignored: int | None, rng: np.random.Generator
) -> None:
    x, target, weight = drawn(rng, *shape)
    if ignored is not None:
        target[rng.random(target.shape) < 0.3] = ignored
        target.reshape(-1)[0] = 0
    attributes = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    inputs = [x, target] + ([weight] if weighted else [])
    own = weight if weighted else None
    (found,) = run("NegativeLogLikelihoodLoss", inputs, attributes)
    assert disagreement(found, loss(x, target, own, ignored, reduction)) < 1e-5
    found, log_prob = run("SoftmaxCrossEntropyLoss", inputs, attributes, outputs=2)
    assert disagreement(log_prob, log_softmax(x)) < 1e-5
    assert disagreement(found, loss(log_softmax(x), target, own, ignored, reduction)) < 1e-5


@pytest.mark.spread
def test_any_sizes_on_every_backend(channel: str, make_worker: MakeWorker) -> None:
    example = drawn(np.random.default_rng(0), 2, 3, 5)
    attributes = {"ignore_index": -1}
    model = one_layer("SoftmaxCrossEntropyLoss", example, attributes, outputs=2, dynamic=(0, 1, 2))
    worker = make_worker(model, channel)
    bound = 1e-5 if channel == "cpu" else 1e-4

    @settings(max_examples=8)
    @given(st.tuples(*[st.integers(1, 9)] * 3), st.integers(0, 99))
    def check(shape: tuple[int, int, int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        x, target, weight = drawn(rng, *shape)
        target[rng.random(target.shape) < 0.3] = -1
        target.reshape(-1)[0] = 0
        log_prob = log_softmax(x)
        right = loss(log_prob, target, weight, -1, "mean"), log_prob
        for a, b in zip(answers(worker, x0=x, x1=target, x2=weight), right, strict=True):
            assert disagreement(a, b) < bound

    check()


def test_half_precision_sums_in_single(rng: np.random.Generator) -> None:
    """4000 losses of about 20 are more than a float16 can count."""
    x, target, _ = drawn(rng, 4000, 3)
    x = (x - 20).astype(np.float16)
    (found,) = run("NegativeLogLikelihoodLoss", [x, target])
    assert found.dtype == np.float16
    assert disagreement(found, loss(x, target, None, None, "mean")) < 2e-3 * 20


def test_nothing_counted_is_not_a_number() -> None:
    x, target = np.zeros((2, 3), np.float32), np.full(2, 5)
    (found,) = run("NegativeLogLikelihoodLoss", [x, target], {"ignore_index": 5})
    assert np.isnan(found)


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ([(2, 3), (3,)], {}, "classes of shape"),
        ([(2, 3, 4), (2, 3)], {}, "classes of shape"),
        ([(2,), (2,)], {}, r"N, C|classes of shape"),
        ([(2, 3), (2,), (2,)], {}, "each of the 3 classes"),
        ([(2, 0), (2,)], {}, "have no classes"),
        ([(2, 3), (2,)], {"reduction": "max"}, "one of none, sum, mean"),
    ],
)
@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_wrong_use(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    arrays = [np.zeros(s, np.int64 if i == 1 else np.float32) for i, s in enumerate(shapes)]
    with pytest.raises(ShapeError, match=message):
        run(op_type, arrays, attributes)
