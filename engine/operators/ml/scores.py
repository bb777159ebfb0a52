"""Classification scores: transforms to probabilities, and labels, for ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi

import numpy as np

from engine.base.dtypes import INT64, TEXT
from engine.kernels.expr import Expr, cast, eq, lit, reduce, select, unary
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.elementwise import sigmoid
from engine.operators.normalization import softmax_over
from engine.operators.reductions import position_of_extreme

SMALL = 1e-7
"""Scores up to this size count as 0 for SOFTMAX_ZERO."""


def probit(x: Expr) -> Expr:
    """The normal distribution's quantile, by Winitzki's formula (2008) for the inverse of erf."""
    a = 0.147
    y = 2.0 * x - 1.0
    log = unary("log", (1.0 - y) * (1.0 + y))
    v = log * 0.5 + 2.0 / (pi * a)
    size = unary("sqrt", unary("sqrt", v * v - log * (1.0 / a)) - v) * 2.0**0.5
    return select(y < 0.0, -size, size)


def softmax_zero(k: Builder, scores: Value) -> Value:
    """Softmax in which zero scores stay 0; all 0.5 if no score is left."""
    count = scores.shape[1]
    top = k.compute((scores.shape[0],), scores.dtype, lambda r: reduce("max", count, lambda c: scores[r, c]))

    def power(r: Expr, c: Expr) -> Expr:
        e = scores[r, c]
        return select(unary("abs", e) > SMALL, unary("exp", e - top[r]), e * unary("exp", -top[r]))

    total = k.compute((scores.shape[0],), scores.dtype, lambda r: reduce("sum", count, lambda c: power(r, c)))

    def formula(r: Expr, c: Expr) -> Expr:
        whole = total[r]
        none = eq(whole, lit(0.0, whole.dtype))
        return select(none, lit(0.5, whole.dtype), power(r, c) / select(none, lit(1.0, whole.dtype), whole))

    return k.compute(scores.shape, scores.dtype, formula)


TRANSFORMS: dict[str, Callable[[Builder, Value], Value]] = {
    "NONE": lambda k, scores: scores,
    "SOFTMAX": lambda k, scores: softmax_over(k, scores, 1, 2),
    "LOGISTIC": lambda k, scores: k.elementwise(sigmoid, scores),
    "SOFTMAX_ZERO": softmax_zero,
    "PROBIT": lambda k, scores: k.elementwise(probit, scores),
}
"""In the order of their numbers."""


def transformed(k: Builder, scores: Value, name: str) -> Value:
    """Rows of scores after the transform that an attribute names."""
    k.one_of("post_transform", name, TRANSFORMS)
    return TRANSFORMS[name](k, scores)


def winner(k: Builder, scores: Value, two: bool) -> Value:
    """The position of each row's largest score; with `two` classes and one score, whether it is above 0."""
    if scores.shape[1] == 1 and two:
        column = k.alias(scores, (scores.shape[0],))
        return k.elementwise(lambda e: cast(e > lit(0.0, e.dtype), "int64"), column, dtype=INT64)
    return position_of_extreme(k, scores, 1, 0, 0, largest=True)


def both_sides(k: Builder, scores: Value) -> Value:
    """The scores of two classes from one column: its opposite, and itself."""

    def formula(r: Expr, c: Expr) -> Expr:
        e = scores[r, lit(0)]
        return select(eq(c, lit(0)), -e, e)

    return k.compute((scores.shape[0], 2), scores.dtype, formula)


def classified(
    k: Builder, chosen: Value, scores: Value, numbers: Sequence[int], names: Sequence[str]
) -> tuple[Entry, Value]:
    """A class's label for each row, and the scores.

    `chosen` (rows) int64 is a position among the labels, which are numbers or names.
    """
    if names:
        return k.text(chosen, np.array(names, TEXT)), scores
    table = k.constant(np.array(numbers, INT64))
    return k.elementwise(lambda i: table[cast(i, "index")], chosen), scores
