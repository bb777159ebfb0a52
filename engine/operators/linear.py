"""Matrix products: MatMul and Gemm, both expressed by one strided product that backends may tune.

Products of quantised matrices subtract zero points from what they load and add up in int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, lit, load, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.movement import transpose
from engine.operators.registry import operator

Strides = tuple[int, int, int]
Zeros = tuple[Value | None, Value | None]
"""What counts as 0 in either side of a product: one number, or one for each row of a and column of b."""

PLAIN: Zeros = (None, None)


def zero_at(zero: Value | None, line: Expr) -> Expr | None:
    """The zero point of a row or column, which is counted through the batch; fewer zero points repeat."""
    return None if zero is None else zero.at(line % arg(zero.size))


def less(x: Expr, zero: Expr | None) -> Expr:
    """x - zero, if there is a zero point."""
    return x if zero is None else x - zero


def matmul(
    k: Builder,
    a: Value,
    b: Value,
    shape: Sequence[int],
    sizes: tuple[int, int, int, int],
    a_strides: Strides,
    b_strides: Strides,
    dtype: np.dtype | None = None,
    zeros: Zeros = PLAIN,
) -> Value:
    """out[batch, m, n] = sum over j of a[batch, m, j] * b[batch, j, n], viewed as `shape`.

    `sizes` are (batch, m, n, k); strides are (batch, row, column) in elements. The output's axes are
    grouped as (everything but the last two, m, n). `dtype` is what the product is stored as, by default
    the type of `a`. `zeros` are subtracted from what is loaded.
    """
    batch, m, n, depth = sizes
    out_shape = (batch, m, n)

    def formula(p: Expr, i: Expr, j: Expr) -> Expr:
        row = p * arg(a_strides[0]) + i * arg(a_strides[1])
        column = p * arg(b_strides[0]) + j * arg(b_strides[2])
        a_step, b_step = arg(a_strides[2]), arg(b_strides[1])
        a_zero, b_zero = zero_at(zeros[0], p * m + i), zero_at(zeros[1], p * n + j)

        def term(r: Expr) -> Expr:
            return less(load(a, row + r * a_step), a_zero) * less(load(b, column + r * b_step), b_zero)

        return reduce("sum", depth, term)

    attributes = {
        "m": m, "n": n, "k": depth, "batch": batch, "a_strides": a_strides, "b_strides": b_strides,
        "zeros": tuple(zero is not None for zero in zeros),
    }  # fmt: skip
    operands = (a, b, *(zero for zero in zeros if zero is not None))
    stored = a.dtype if dtype is None else dtype
    hint = Hint("matmul" if len(operands) == 2 else "matmul_integer", operands, attributes)
    return k.alias(k.compute(out_shape, stored, formula, hint=lambda: hint), shape)


def squared_distances(k: Builder, a: Value, b: Value) -> Value:
    """The squared distance of each row of a (m, n) from each row of b (k, n): (m, k)."""
    (m, depth), count = a.shape, b.shape[0]

    def formula(i: Expr, j: Expr) -> Expr:
        def square(r: Expr) -> Expr:
            apart = a[i, r] - b[j, r]
            return apart * apart

        return reduce("sum", depth, square)

    attributes = {
        "m": m, "n": count, "k": depth, "batch": 1, "a_strides": (m * depth, depth, 1),
        "b_strides": (0, 1, depth),
    }  # fmt: skip
    hint = Hint("squared_distances", (a, b), attributes)
    return k.compute((m, count), a.dtype, formula, hint=lambda: hint)


@operator("MatMul", since=1)
def matmul_(k: Builder, a: Value, b: Value) -> Value:
    """MatMul with NumPy's broadcasting."""
    return product(k, a, b)


def product(
    k: Builder, a: Value, b: Value, zeros: Zeros = PLAIN, dtype: np.dtype | None = None,
    flips: tuple[bool, bool] = (False, False),
) -> Value:  # fmt: skip
    """NumPy's matmul of a and b less their zero points; `flips` swaps the last two axes of a side.

    Nothing is copied for that, unless both sides are broadcast. Vectors have nothing to swap.
    """
    if a.rank == 0 or b.rank == 0:
        k.error(f"{k.layer.op_type} needs tensors of rank 1 or more")
    flip_a, flip_b = flips[0] and a.rank > 1, flips[1] and b.rank > 1
    a2 = k.alias(a, (1, a.shape[0])) if a.rank == 1 else a
    b2 = k.alias(b, (b.shape[0], 1)) if b.rank == 1 else b
    m, depth = a2.shape[-2:][::-1] if flip_a else a2.shape[-2:]
    rows, n = b2.shape[-2:][::-1] if flip_b else b2.shape[-2:]
    if rows != depth:
        k.error(
            f"cannot multiply {list(a.shape)} by {list(b.shape)}: {depth} columns meet {rows} rows",
            [depth], [rows],
        )  # fmt: skip
    lead = k.broadcast(a2.shape[:-2], b2.shape[:-2])
    shape = (*lead, *((m,) if a.rank > 1 else ()), *((n,) if b.rank > 1 else ()))
    batch = prod(lead)
    if not _batches_line_up(k, a2, b2):
        a2, b2 = (
            transpose(k, x, perm=(*range(x.rank - 2), x.rank - 1, x.rank - 2)) if flip else x
            for x, flip in ((a2, flip_a), (b2, flip_b))
        )
        return _broadcast_matmul(k, a2, b2, lead, shape, zeros, dtype)
    a_steps, b_steps = (1, m) if flip_a else (depth, 1), (1, depth) if flip_b else (n, 1)
    a_is_whole = prod(a2.shape[:-2]) == batch
    if prod(b2.shape[:-2]) == 1 and a_is_whole and (a.rank <= 2 or not flip_a):
        # One matrix for the whole batch: the batch becomes rows.
        sizes = (1, batch * m, n, depth)
        return matmul(k, a, b, shape, sizes, (0, *a_steps), (0, *b_steps), dtype, zeros)
    a_batch = m * depth if a_is_whole else 0
    b_batch = depth * n if prod(b2.shape[:-2]) == batch else 0
    strides = (a_batch, *a_steps), (b_batch, *b_steps)
    return matmul(k, a, b, shape, (batch, m, n, depth), *strides, dtype, zeros)


def _batches_line_up(k: Builder, a: Value, b: Value) -> bool:
    """Whether each side has all matrices of the batch or one, for every input shape of the model."""
    shapes = a.known_shapes(), b.known_shapes()
    if len(shapes[0]) != len(shapes[1]):
        # In a branch that no sample reaches, a tensor is known at the present sizes only, which come last.
        shapes = shapes[0][-1:], shapes[1][-1:]
    for one, other in zip(*shapes, strict=True):
        batch = prod(k.broadcast(one[:-2], other[:-2]))
        if prod(one[:-2]) not in (1, batch) or prod(other[:-2]) not in (1, batch):
            return False
    return True


def _broadcast_matmul(
    k: Builder, a: Value, b: Value, lead: tuple[int, ...], shape: Sequence[int], zeros: Zeros,
    dtype: np.dtype | None,
) -> Value:  # fmt: skip
    """Both sides broadcast, along different axes: the general formula."""
    m, (depth, n) = a.shape[-2], b.shape[-2:]

    def start(x: Value, p: Expr) -> Expr:
        """Where matrix `p` of the batch begins in a side."""
        position: Expr = lit(0)
        for own, size in enumerate(x.shape[:-2]):
            axis = own + len(lead) - (x.rank - 2)
            i = p // arg(prod(lead[axis + 1 :])) % arg(lead[axis])
            position = position + i * arg(0 if size == 1 else x.stride(own))
        return position

    def formula(p: Expr, i: Expr, j: Expr) -> Expr:
        row, column = start(a, p) + i * arg(depth), start(b, p) + j
        a_zero, b_zero = zero_at(zeros[0], p * m + i), zero_at(zeros[1], p * n + j)

        def term(r: Expr) -> Expr:
            return less(load(a, row + r), a_zero) * less(load(b, column + r * arg(n)), b_zero)

        return reduce("sum", depth, term)

    return k.alias(k.compute((prod(lead), m, n), a.dtype if dtype is None else dtype, formula), shape)


def matrix_product(
    k: Builder, a: Value, b: Value, trans_a: int, trans_b: int, zeros: Zeros = PLAIN,
    dtype: np.dtype | None = None,
) -> Value:  # fmt: skip
    """The product of two matrices, either of them transposed."""
    if a.rank != 2 or b.rank != 2:
        k.error(f"takes matrices, not tensors of rank {a.rank} and {b.rank}")
    return product(k, a, b, zeros, dtype, (bool(trans_a), bool(trans_b)))


@operator("Gemm", since=7)
def gemm(
    k: Builder, a: Value, b: Value, c: Value | None = None, *,
    alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    """alpha * A' * B' + beta * C."""
    y = matrix_product(k, a, b, transA, transB)
    if alpha != 1.0:
        y = k.elementwise(lambda x: x * arg(alpha, x.dtype), y)
    return y if beta == 0.0 else plus_c(k, y, c, beta)


def plus_c(k: Builder, y: Value, c: Value | None, beta: float = 1.0) -> Value:
    """A product and beta * C, which is broadcast to it."""
    if c is None:
        return y
    if k.broadcast_shape(y, c) != y.shape:
        k.error(f"cannot add C of shape {list(c.shape)} to a product of shape {list(y.shape)}")
    return k.elementwise(lambda x, e: x + (e if beta == 1.0 else e * arg(beta, e.dtype)), y, c)
