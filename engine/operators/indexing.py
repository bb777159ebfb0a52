"""Indexing by another tensor: gathers and OneHot.

Positions count from the end where they are negative; one that is outside reads the nearest element, as no
backend can raise for it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, select
from engine.kernels.value import Value
from engine.operators import bounded_sizes
from engine.operators.builder import Builder
from engine.operators.registry import operator


def from_end(position: Expr, size: int) -> Expr:
    """A position of any integer type as an index; negative ones count from the end."""
    i = cast(position, "index")
    return select(i < lit(0), i + size, i)


def clamped(position: Expr, size: int) -> Expr:
    """A position as an index that is always inside an axis of `size` elements."""
    return clamp(from_end(position, size), lit(0), arg(size - 1))


def _not_empty(k: Builder, data: Value, out: int) -> None:
    if data.size == 0 and out:
        k.error(f"cannot read from {list(data.shape)}: it has no elements")


# Gathers


@operator("Gather", since=1, bound=bounded_sizes.gathered, moves="data")
def gather(k: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """Slices of `data` along an axis: shape data[:axis] + indices + data[axis+1:]."""
    axis = k.axis(axis, data.rank)
    if data.rank == 0:
        k.error("cannot gather from a scalar")
    outer, size, inner = prod(data.shape[:axis]), data.shape[axis], prod(data.shape[axis + 1 :])
    _not_empty(k, data, outer * indices.size * inner)
    rows = k.alias(data, (outer, size, inner))
    chosen = k.alias(indices, (indices.size,))
    found = k.compute(
        (outer, indices.size, inner), data.dtype, lambda o, j, i: rows[o, clamped(chosen[j], size), i]
    )
    return k.alias(found, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@operator("GatherElements", since=11)
def gather_elements(k: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """Gather along the axis at each index; other coordinates are kept."""
    axis = k.axis(axis, data.rank)
    if indices.rank != data.rank or any(
        i > n for a, (i, n) in enumerate(zip(indices.shape, data.shape, strict=True)) if a != axis
    ):
        k.error(f"indices {list(indices.shape)} reach beyond {list(data.shape)}")
    _not_empty(k, data, indices.size)

    def formula(*at: Expr) -> Expr:
        return data[(*at[:axis], clamped(indices[at], data.shape[axis]), *at[axis + 1 :])]

    return k.compute(indices.shape, data.dtype, formula)


@operator("GatherND", since=11, bound=bounded_sizes.gathered_nd)
def gather_nd(k: Builder, data: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """The last axis of `indices` holds positions along the first axes of data that follow the batch axes."""
    if not 0 <= batch_dims < min(indices.rank, data.rank):
        k.error(f"batch_dims {batch_dims} does not fit {list(data.shape)} and {list(indices.shape)}")
    depth = indices.shape[-1]
    if depth < 1 or batch_dims + depth > data.rank or data.shape[:batch_dims] != indices.shape[:batch_dims]:
        k.error(f"indices {list(indices.shape)} do not fit {list(data.shape)}")
    lead, rest = indices.shape[:-1], data.shape[batch_dims + depth :]
    batch, count, inner = prod(lead[:batch_dims]), prod(lead[batch_dims:]), prod(rest)
    _not_empty(k, data, batch * count * inner)
    blocks = k.alias(data, (batch, *data.shape[batch_dims : batch_dims + depth], inner))
    tuples = k.alias(indices, (batch, count, depth))

    def formula(b: Expr, j: Expr, i: Expr) -> Expr:
        at = [clamped(tuples[b, j, lit(d)], blocks.shape[1 + d]) for d in range(depth)]
        return blocks[(b, *at, i)]

    return k.alias(k.compute((batch, count, inner), data.dtype, formula), (*lead, *rest))


# One-hot vectors


@operator("OneHot", since=9, host=("depth",))
def one_hot(k: Builder, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """values[1] where the new axis of size `depth` meets the index, values[0] elsewhere."""
    if depth.size != 1 or values.shape != (2,):
        k.error(f"takes one depth and two values, not {depth} and {values}")
    size = int(np.asarray(depth.known).reshape(-1)[0])
    axis = k.axis(axis, indices.rank + 1)
    outer = prod(indices.shape[:axis])
    # A loop over no axes would take longer than the element.
    inner = (prod(indices.shape[axis:]),) if axis < indices.rank else ()
    rows = k.alias(indices, (outer, *inner))

    def formula(o: Expr, c: Expr, *i: Expr) -> Expr:
        return select(eq(from_end(rows[(o, *i)], size), c), values.at(lit(1)), values.at(lit(0)))

    hot = k.compute((outer, size, *inner), values.dtype, formula)
    return k.alias(hot, (*indices.shape[:axis], size, *indices.shape[axis:]))
