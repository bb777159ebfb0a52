"""Linear models of the domain ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.graph.model import ML
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.casting import convert
from engine.operators.linear import matmul
from engine.operators.ml.scores import both_sides, classified, transformed, winner
from engine.operators.registry import operator


def rows_of_features(k: Builder, x: Value) -> Value:
    """x as (rows, features) float32; a tensor of rank 1 is one row."""
    if x.rank not in (1, 2):
        k.error(f"takes features of shape [C] or [N, C], not {list(x.shape)}")
    return convert(k, x if x.rank == 2 else k.alias(x, (1, x.size)), FLOAT32)


def linear(
    k: Builder, x: Value, coefficients: Sequence[float], intercepts: Sequence[float], outputs: int
) -> Value:
    """x times the transposed coefficients (outputs, features), plus an intercept for each output."""
    rows, features = x.shape
    if len(coefficients) != outputs * features or len(intercepts) not in (0, outputs):
        k.error(
            f"has {len(coefficients)} coefficients and {len(intercepts)} intercepts for {outputs} outputs "
            f"from {features} features"
        )
    weights = k.constant(np.array(coefficients, np.float32).reshape(outputs, features))
    sizes = (1, rows, outputs, features)
    scores = matmul(k, x, weights, (rows, outputs), sizes, (0, features, 1), (0, 1, features))
    if not intercepts:
        return scores
    return k.elementwise(lambda e, b: e + b, scores, k.constant(np.array(intercepts, np.float32)))


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    k: Builder, x: Value, *, coefficients: Sequence[float] = (), intercepts: Sequence[float] = (),
    post_transform: str = "NONE", targets: int = 1,
) -> Value:  # fmt: skip
    """(N, features) -> (N, targets)."""
    scores = linear(k, rows_of_features(k, x), coefficients, intercepts, targets)
    return transformed(k, scores, post_transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    k: Builder, x: Value, *, coefficients: Sequence[float], intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (), multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Entry, Value]:  # fmt: skip
    """Labels (N) and scores (N, classes) of the class with the largest score."""
    rows = rows_of_features(k, x)
    count = len(coefficients) // max(1, rows.shape[1])
    labels = classlabels_strings or classlabels_ints
    numbers = classlabels_ints or range(max(2, count))
    if count < 1 or (labels and len(labels) != max(2, count)):
        k.error(f"has {len(labels)} labels for {count} columns of scores")
    scores = linear(k, rows, coefficients, intercepts, count)
    chosen = winner(k, scores, two=True)
    if count == 1 and labels:
        scores = both_sides(k, scores)
    return classified(k, chosen, transformed(k, scores, post_transform), numbers, classlabels_strings)
