"""Losses: negative log-likelihood and softmax cross-entropy."""

from __future__ import annotations

from math import prod

from engine.kernels.expr import Expr, arg, cast, eq, lit, reduce, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.indexing import clamped
from engine.operators.normalization import softmax_over
from engine.operators.reductions import wide
from engine.operators.registry import operator


def total(k: Builder, x: Value) -> Value:
    """The sum of (rows, columns) as a scalar, columns first so that work is shared."""
    rows, columns = x.shape
    by_column = k.compute((columns,), x.dtype, lambda c: reduce("sum", rows, lambda r: x[r, c]))
    return k.compute((), x.dtype, lambda: reduce("sum", columns, lambda c: by_column[c]))


def likelihood_loss(
    k: Builder, scores: Value, target: Value, weight: Value | None, ignored: int | None, reduction: str
) -> Value:
    """-weight[t] * scores[n, t, ...] at the class t of each place, 0 where t is ignored; then `reduction`.

    scores (N, C, ...), target (N, ...), weight (C). The mean divides by the weights that were counted.
    """
    k.one_of("reduction", reduction, ("none", "sum", "mean"))
    if scores.rank < 2 or target.shape != (scores.shape[0], *scores.shape[2:]):
        k.error(f"classes of shape {list(target.shape)} do not fit scores of shape {list(scores.shape)}")
    batch, classes, places = *scores.shape[:2], prod(scores.shape[2:])
    if weight is not None and weight.shape != (classes,):
        k.error(f"takes a weight for each of the {classes} classes, not {list(weight.shape)}")
    if classes == 0 and target.size:
        k.error(f"scores of shape {list(scores.shape)} have no classes")
    rows, chosen = k.alias(scores, (batch, classes, places)), k.alias(target, (batch, places))
    dtype = scores.dtype if reduction == "none" else wide(scores.dtype)

    def weigh(n: Expr, d: Expr) -> Expr:
        found = lit(1.0, scores.arithmetic) if weight is None else weight[clamped(chosen[n, d], classes)]
        if ignored is None:
            return found
        return select(eq(chosen[n, d], arg(ignored, chosen.arithmetic)), 0.0, found)

    def loss(n: Expr, d: Expr) -> Expr:
        w = weigh(n, d)
        # A score of -inf at an ignored place must not become NaN.
        value = select(eq(w, lit(0.0, w.dtype)), 0.0, rows[n, clamped(chosen[n, d], classes), d])
        return -value * cast(w, value.dtype)

    losses = k.compute((batch, places), dtype, loss)
    if reduction == "none":
        return k.alias(losses, target.shape)
    summed = total(k, losses)
    if reduction == "sum":
        return k.elementwise(lambda s: s, summed, dtype=scores.dtype)
    if weight is None and ignored is None:
        return k.elementwise(lambda s: s / arg(batch * places, s.dtype), summed, dtype=scores.dtype)
    counted = total(k, k.compute((batch, places), dtype, weigh))
    return k.elementwise(lambda s, w: s / w, summed, counted, dtype=scores.dtype)


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    k: Builder, x: Value, target: Value, weight: Value | None = None, *, ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:  # fmt: skip
    """-x at the right classes, where x holds logarithms of probabilities."""
    return likelihood_loss(k, x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    k: Builder, scores: Value, labels: Value, weights: Value | None = None, *,
    ignore_index: int | None = None, reduction: str = "mean",
) -> tuple[Value, ...]:  # fmt: skip
    """-log softmax(scores) at the right classes; output 2 is the log softmax over the classes."""
    if scores.rank < 2:
        k.error(f"takes scores (N, C, ...), not {list(scores.shape)}")
    log_prob = softmax_over(k, scores, 1, 2, logarithm=True)
    return likelihood_loss(k, log_prob, labels, weights, ignore_index, reduction), log_prob
