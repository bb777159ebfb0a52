"""Support vector machines (domain ai.onnx.ml), as libsvm has them (Chang and Lin, 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.graph.model import ML
from engine.kernels.expr import Expr, arg, binary, cast, clamp, eq, fold, lit, maximum, reduce, select, unary
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.elementwise import sigmoid
from engine.operators.linear import matmul, squared_distances
from engine.operators.ml.linear import linear, rows_of_features
from engine.operators.ml.scores import both_sides, classified, transformed, winner
from engine.operators.registry import operator

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MOST_CLASSES = 16
"""Probabilities of so many classes are found in one kernel, whose text grows with their square."""


def similarity(k: Builder, x: Value, vectors: Value, kind: str, parameters: Sequence[float]) -> Value:
    """The kernel function of each row and support vector: (rows, vectors).

    `parameters` are gamma, coef0 and degree.
    """
    if kind not in KERNELS or len(parameters) not in (0, 3) or vectors.shape[1] != x.shape[1]:
        k.error(
            f"takes {vectors.shape[1]} features, a kernel_type of {', '.join(KERNELS)} and three "
            f"kernel_params, not {list(x.shape)}, {kind!r} and {list(parameters)}"
        )
    gamma, coef, degree = (arg(float(v), "float32") for v in parameters or (0.0, 0.0, 0.0))
    count, features = vectors.shape
    if kind == "RBF":
        return k.elementwise(lambda e: unary("exp", -gamma * e), squared_distances(k, x, vectors))
    sizes = (1, x.shape[0], count, features)
    product = matmul(k, x, vectors, (x.shape[0], count), sizes, (0, features, 1), (0, 1, features))
    if kind == "POLY":
        return k.elementwise(lambda e: binary("pow", e * gamma + coef, degree), product)
    return product if kind == "LINEAR" else k.elementwise(lambda e: unary("tanh", e * gamma + coef), product)


def support_vectors_of(k: Builder, numbers: Sequence[float], count: int) -> Value:
    """The support vectors as a matrix (count, features)."""
    if len(numbers) % count:
        k.error(f"has {len(numbers)} numbers for {count} support vectors")
    return k.constant(np.array(numbers, np.float32).reshape(count, -1))


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    k: Builder, x: Value, *, coefficients: Sequence[float] = (), rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (), n_supports: int = 0, kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] = (), one_class: int = 0, post_transform: str = "NONE",
) -> Value:  # fmt: skip
    """(N, features) -> (N, 1): the weighted similarities to the support vectors; 1 or -1 for `one_class`."""
    rows = rows_of_features(k, x)
    if n_supports > 0:
        vectors = support_vectors_of(k, support_vectors, n_supports)
        rows = similarity(k, rows, vectors, kernel_type, kernel_params)
    scores = linear(k, rows, coefficients, rho[:1], 1)
    if one_class:
        scores = k.elementwise(lambda e: select(e > 0.0, lit(1.0, e.dtype), lit(-1.0, e.dtype)), scores)
    return transformed(k, scores, post_transform)


def pair_weights(coefficients: Sequence[float], members: Sequence[int]) -> np.ndarray:
    """The weight of each support vector for each pair of classes: (pairs, vectors), 0 for other classes.

    The coefficients are libsvm's: (classes - 1, vectors), a vector's own class left out of the first axis.
    """
    total = sum(members)
    given = np.array(coefficients, np.float32).reshape(-1, total)
    owner = np.repeat(np.arange(len(members)), members)
    pairs = [*combinations(range(len(members)), 2)]
    return np.array(
        [np.where(owner == i, given[j - 1], (owner == j) * given[i]) for i, j in pairs], np.float32
    )


def votes_of(k: Builder, scores: Value, classes: int) -> Value:
    """Number of pairs that each class wins; the first of a pair wins if the score is above 0."""
    pairs = [*combinations(range(classes), 2)]
    first, second = (k.constant(np.array(side, np.int32)) for side in zip(*pairs, strict=True))

    def formula(r: Expr, c: Expr) -> Expr:
        def won(p: Expr) -> Expr:
            side = select(scores[r, p] > 0.0, first[p], second[p])
            return cast(eq(cast(side, "index"), c), "float32")

        return reduce("sum", len(pairs), won)

    return k.compute((scores.shape[0], classes), FLOAT32, formula)


def coupled(
    k: Builder, scores: Value, slopes: Sequence[float], shifts: Sequence[float], classes: int
) -> Value:
    """Probabilities of classes from the scores of their pairs (Wu, Lin and Weng, 2004, second method)."""
    if classes > MOST_CLASSES:
        k.error(f"has probabilities of {classes} classes; at most {MOST_CLASSES} are supported")
    a, b = (k.constant(np.array(values, np.float32)) for values in (slopes, shifts))
    likely = k.elementwise(lambda s, p, q: clamp(1.0 - sigmoid(s * p + q), 1e-7, 1.0 - 1e-7), scores, a, b)
    number = {pair: p for p, pair in enumerate(combinations(range(classes), 2))}

    def formula(r: Expr, c: Expr) -> Expr:
        def chance(i: int, j: int) -> Expr:
            """That it is i rather than j."""
            return likely[r, number[i, j]] if i < j else 1.0 - likely[r, number[j, i]]

        every = range(classes)
        q = [[-chance(j, i) * chance(i, j) if i != j else lit(0.0, "float32") for j in every] for i in every]
        for i in every:
            for j in every:
                q[i][i] = q[i][i] + chance(j, i) * chance(j, i) if j != i else q[i][i]
        found = fold(
            max(100, classes), [lit(1.0 / classes, "float32")] * classes, lambda _, *p: refined(q, p)
        )
        result = found[0]
        for i in every[1:]:
            result = select(eq(c, lit(i)), found[i], result)
        return result

    return k.compute((scores.shape[0], classes), FLOAT32, formula)


def refined(q: Sequence[Sequence[Expr]], before: Sequence[Expr]) -> list[Expr]:
    """One iteration of coordinate descent on the probabilities, until they converge."""
    every = range(len(before))
    p = list(before)
    slope = [dot(row, p) for row in q]
    value = dot(p, slope)
    error = unary("abs", slope[0] - value)
    for t in every[1:]:
        error = maximum(error, unary("abs", slope[t] - value))
    close = error < 0.005 / len(before)
    for t in every:
        step = (value - slope[t]) / q[t][t]
        scale = 1.0 / (1.0 + step)
        value = (value + step * (step * q[t][t] + 2.0 * slope[t])) * scale * scale
        p = [(p[i] + step if i == t else p[i]) * scale for i in every]
        slope = [(slope[i] + step * q[t][i]) * scale for i in every]
    return [select(close, old, new) for old, new in zip(before, p, strict=True)]


def dot(a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """The sum of products."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


@operator("SVMClassifier", domain=ML)
def svm_classifier(
    k: Builder, x: Value, *, coefficients: Sequence[float] = (), rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (), vectors_per_class: Sequence[int] = (), kernel_type: str = "LINEAR",
    kernel_params: Sequence[float] = (), prob_a: Sequence[float] = (), prob_b: Sequence[float] = (),
    classlabels_ints: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
    post_transform: str = "NONE",
) -> tuple[Entry, Value]:  # fmt: skip
    """Labels (N) by vote of the pairs of classes, and scores: of the pairs, or the classes' probabilities.

    Without support vectors the model is linear, with a score for each class.
    """
    rows = rows_of_features(k, x)
    classes = len(classlabels_strings or classlabels_ints or vectors_per_class) or 1
    numbers = classlabels_ints or range(max(2, classes))
    if not sum(vectors_per_class):
        scores = linear(k, rows, coefficients, list(rho[:1]) * classes, classes)
        return classified(
            k,
            winner(k, scores, two=True),
            transformed(k, scores, post_transform),
            numbers,
            classlabels_strings,
        )
    vectors = support_vectors_of(k, support_vectors, sum(vectors_per_class))
    near = similarity(k, rows, vectors, kernel_type, kernel_params)
    weights = pair_weights(coefficients, vectors_per_class)
    scores = linear(k, near, weights.reshape(-1).tolist(), rho, len(weights))
    chosen = winner(k, votes_of(k, scores, classes), two=False)
    if prob_a:
        scores = coupled(k, scores, prob_a, prob_b, classes)
    elif classes == 2:
        scores = both_sides(k, scores)
    return classified(k, chosen, transformed(k, scores, post_transform), numbers, classlabels_strings)
