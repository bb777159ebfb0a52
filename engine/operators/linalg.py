"""Linear algebra: determinants and inverses."""

from __future__ import annotations

from math import prod

from engine.base.dtypes import INT32
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, eq, fold, lit, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.reductions import wide
from engine.operators.registry import operator


@operator("Det", since=11)
def det(k: Builder, x: Value) -> Value:
    """The determinant of the matrices (..., n, n), by elimination with row pivots."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        k.error(f"takes square matrices (..., n, n), not {list(x.shape)}")
    lead, n = x.shape[:-2], x.shape[-1]
    if n == 0:
        return k.compute(lead, x.dtype, lambda *_: lit(1.0, x.arithmetic))
    rest, done = k.alias(x, (prod(lead), n, n)), None
    while rest.shape[1] > 2:
        pivots = pivot_rows(k, rest, 0)
        done = times_pivots(k, rest, pivots, done)
        rest = eliminated(k, rest, pivots)
    last = rest

    def formula(m: Expr) -> Expr:
        a, b, c, d = (last[m, lit(i // 2 % n), lit(i % 2 % n)] for i in range(4))
        own = a if n == 1 else a * d - b * c
        return own if done is None else own * done[m]

    return k.alias(k.compute((last.shape[0],), x.dtype, formula), lead)


def pivot_rows(k: Builder, x: Value, column: int) -> Value:
    """For each matrix, the row from `column` on whose element in that column is the largest in magnitude."""

    def formula(m: Expr) -> Expr:
        def step(r: Expr, best: Expr, where: Expr) -> tuple[Expr, Expr]:
            size = unary("abs", x[m, r + column, arg(column)])
            return select(size > best, size, best), select(size > best, r + column, where)

        start = lit(-1.0, x.arithmetic), arg(column)
        return cast(fold(arg(x.shape[1] - column), start, step)[1], "int32")

    return k.compute(x.shape[:1], INT32, formula)


def times_pivots(k: Builder, x: Value, pivots: Value, done: Value | None) -> Value:
    """The running product of the pivots; a row exchange flips its sign."""

    def formula(m: Expr) -> Expr:
        row = cast(pivots[m], "index")
        own = x[m, row, lit(0)]
        own = select(eq(row, lit(0)), own, -own)
        return own if done is None else own * done[m]

    return k.compute(x.shape[:1], wide(x.dtype), formula)


def eliminated(k: Builder, x: Value, pivots: Value) -> Value:
    """The matrices without the pivot's row and the first column, which the row has cleared."""
    matrices, n, _ = x.shape

    def formula(m: Expr, i: Expr, j: Expr) -> Expr:
        row, column = cast(pivots[m], "index"), j + lit(1)
        own = i + lit(1)
        own = select(eq(own, row), lit(0), own)
        pivot, first = x[m, row, lit(0)], x[m, own, lit(0)]
        # Without a pivot the determinant is 0 already; the rest need only stay finite.
        factor = select(eq(pivot, 0.0), 0.0, first / pivot)
        return x[m, own, column] - factor * x[m, row, column]

    return k.compute((matrices, n - 1, n - 1), wide(x.dtype), formula)


@operator("Inverse", domain=CONTRIB)
def inverse(k: Builder, x: Value) -> Value:
    """The inverse of each matrix, by Gauss and Jordan's elimination with the largest pivot of each column."""
    size = x.shape[-1] if x.rank > 1 else 0
    if x.rank < 2 or x.shape[-2] != size:
        k.error(f"takes square matrices, not {list(x.shape)}")
    squares = k.alias(x, (prod(x.shape[:-2]), size, size))
    one, kind = lit(1.0, x.arithmetic), x.arithmetic

    def beside_identity(b: Expr, i: Expr, j: Expr) -> Expr:
        left = squares.load_where(j < arg(size), (b, i, j))
        return select(eq(j - arg(size), i), one, left)

    work = k.compute((squares.shape[0], size, 2 * size), wide(x.dtype), beside_identity)
    for column in range(size):
        work = reduced_column(k, work, column)
    return k.alias(
        k.compute(squares.shape, x.dtype, lambda b, i, j: cast(work[b, i, j + size], kind)), x.shape
    )


def reduced_column(k: Builder, work: Value, column: int) -> Value:
    """(B, n, 2n) with column `column` made the identity's."""
    pivots = pivot_rows(k, work, column)

    def formula(b: Expr, i: Expr, j: Expr) -> Expr:
        pivot, here = cast(pivots[b], "index"), arg(column)
        row = select(eq(i, pivot), here, i)
        scaled = work[b, pivot, j] / work[b, pivot, here]
        return select(eq(i, here), scaled, work[b, row, j] - work[b, row, here] * scaled)

    return k.compute(work.shape, work.dtype, formula)
