"""Reading and writing at positions that another tensor holds: gathers, scatters, OneHot, TopK.

Scatters are written from the output's side: each element looks for the updates that aim at it, in order, so
the result is the same on every backend. Positions count from the end where they are negative; one that
lies outside reads the nearest element and writes nothing, as no backend can raise for it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from engine.kernels.expr import (
    FLOATS,
    Expr,
    arg,
    cast,
    clamp,
    eq,
    fold,
    lit,
    maximum,
    minimum,
    reduce,
    select,
    unary,
)
from engine.kernels.value import Value
from engine.operators import bounds
from engine.operators.builder import Builder
from engine.operators.registry import operator

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)


def from_end(position: Expr, size: int) -> Expr:
    """A position of any integer type as an index; negative ones count from the end."""
    i = cast(position, "index")
    return select(i < lit(0), i + size, i)


def within(position: Expr, size: int) -> Expr:
    """A position as an index that surely lies inside an axis of `size` elements."""
    return clamp(from_end(position, size), lit(0), arg(size - 1))


def _not_empty(k: Builder, data: Value, out: int) -> None:
    if data.size == 0 and out:
        k.error(f"cannot read from {list(data.shape)}: it has no elements")


# Gathers


@operator("Gather", since=1, bound=bounds.gathered)
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
        (outer, indices.size, inner), data.dtype, lambda o, j, i: rows[o, within(chosen[j], size), i]
    )
    return k.alias(found, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@operator("GatherElements", since=11)
def gather_elements(k: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """Each index picks along the axis at its own place along the others."""
    axis = k.axis(axis, data.rank)
    if indices.rank != data.rank or any(
        i > n for a, (i, n) in enumerate(zip(indices.shape, data.shape, strict=True)) if a != axis
    ):
        k.error(f"indices {list(indices.shape)} reach beyond {list(data.shape)}")
    _not_empty(k, data, indices.size)

    def formula(*at: Expr) -> Expr:
        return data[(*at[:axis], within(indices[at], data.shape[axis]), *at[axis + 1 :])]

    return k.compute(indices.shape, data.dtype, formula)


@operator("GatherND", since=11, bound=bounds.gathered_nd)
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
        at = [within(tuples[b, j, lit(d)], blocks.shape[1 + d]) for d in range(depth)]
        return blocks[(b, *at, i)]

    return k.alias(k.compute((batch, count, inner), data.dtype, formula), (*lead, *rest))


# Scatters


REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old | new if old.dtype == "bool" else old + new,
    "mul": lambda old, new: old & new if old.dtype == "bool" else old * new,
    "max": lambda old, new: old | new if old.dtype == "bool" else maximum(old, new),
    "min": lambda old, new: old & new if old.dtype == "bool" else minimum(old, new),
}
"""What a scatter leaves where a new value falls on an old one."""


def combined(k: Builder, reduction: str) -> Callable[[Expr, Expr], Expr]:
    """The entry of `REDUCTIONS`."""
    if reduction not in REDUCTIONS:
        k.error(f"reduction is {reduction!r}; one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[reduction]


def _scatter_elements(
    k: Builder, data: Value, indices: Value, updates: Value, axis: int, reduction: str
) -> Value:
    axis, combine = k.axis(axis, data.rank), combined(k, reduction)
    if indices.rank != data.rank or indices.shape != updates.shape or data.rank == 0:
        k.error(f"cannot write {list(updates.shape)} at {list(indices.shape)} into {list(data.shape)}")
    if any(i > n for a, (i, n) in enumerate(zip(indices.shape, data.shape, strict=True)) if a != axis):
        k.error(f"indices {list(indices.shape)} reach beyond {list(data.shape)}")

    def formula(*at: Expr) -> Expr:
        covered: Expr = lit(True, "bool")
        for a, i in enumerate(at):
            if a != axis:
                covered = covered & (i < arg(indices.shape[a]))

        def step(r: Expr, value: Expr) -> tuple[Expr]:
            place = (*at[:axis], r, *at[axis + 1 :])
            target = from_end(indices.load_where(covered, place), data.shape[axis])
            new = combine(value, updates.load_where(covered, place))
            return (select(covered & eq(target, at[axis]), new, value),)

        # An empty tensor has no buffer to read.
        return fold(indices.shape[axis], (data[at],), step)[0] if indices.size else data[at]

    return k.compute(data.shape, data.dtype, formula)


@operator("Scatter", since=9, until=10)
def scatter(k: Builder, data: Value, indices: Value, updates: Value, *, axis: int = 0) -> Value:
    """The old name of ScatterElements."""
    return _scatter_elements(k, data, indices, updates, axis, "none")


@operator("ScatterElements", since=11)
def scatter_elements(
    k: Builder, data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """Each update goes along the axis to where its index says, at its own place along the others."""
    return _scatter_elements(k, data, indices, updates, axis, reduction)


@operator("ScatterND", since=11)
def scatter_nd(k: Builder, data: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    """The last axis of `indices` holds positions along the first axes of data; updates are slices there."""
    depth, combine = indices.shape[-1] if indices.rank else 0, combined(k, reduction)
    if not 1 <= depth <= data.rank or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        k.error(f"cannot write {list(updates.shape)} at {list(indices.shape)} into {list(data.shape)}")
    places, inner, count = prod(data.shape[:depth]), prod(data.shape[depth:]), prod(indices.shape[:-1])
    tuples = k.alias(indices, (count, depth))
    slices = k.alias(updates, (count, inner))
    rows = k.alias(data, (places, inner))

    def target(u: Expr) -> Expr:
        place: Expr = lit(0)
        valid: Expr = lit(True, "bool")
        for d in range(depth):
            i = from_end(tuples[u, lit(d)], data.shape[d])
            valid = valid & (i >= lit(0)) & (i < data.dim(d))
            place = place * data.dim(d) + i
        return cast(select(valid, place, lit(-1)), "int32")

    targets = k.compute((count,), INT32, target)

    def formula(place: Expr, i: Expr) -> Expr:
        def step(u: Expr, value: Expr) -> tuple[Expr]:
            hit = eq(cast(targets[u], "index"), place)
            return (select(hit, combine(value, slices[u, i]), value),)

        return fold(count, (rows[place, i],), step)[0] if updates.size else rows[place, i]

    return k.alias(k.compute((places, inner), data.dtype, formula), data.shape)


# One-hot vectors and rankings


@operator("OneHot", since=9, host=("depth",))
def one_hot(k: Builder, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """values[1] where the new axis of size `depth` meets the index, values[0] elsewhere."""
    if depth.size != 1 or values.shape != (2,):
        k.error(f"takes one depth and two values, not {depth} and {values}")
    size = int(np.asarray(depth.known).reshape(-1)[0])
    axis = k.axis(axis, indices.rank + 1)
    outer, inner = prod(indices.shape[:axis]), prod(indices.shape[axis:])
    rows = k.alias(indices, (outer, inner))

    def formula(o: Expr, c: Expr, i: Expr) -> Expr:
        return values.at(select(eq(from_end(rows[o, i], size), c), lit(1), lit(0)))

    hot = k.compute((outer, size, inner), values.dtype, formula)
    return k.alias(hot, (*indices.shape[:axis], size, *indices.shape[axis:]))


def _top_k(k: Builder, x: Value, count: int, axis: int, largest: int) -> tuple[Value, ...]:
    """Each element's rank is how many beat it; the output then looks its ranks up."""
    axis = k.axis(axis, x.rank)
    if x.rank == 0 or not 0 <= count <= x.shape[axis]:
        k.error(f"cannot choose {count} elements along axis {axis} of {list(x.shape)}")
    outer, size, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    rows = k.alias(x, (outer, size, inner))

    def beats(a: Expr, b: Expr) -> Expr:
        if a.dtype == "bool":
            return a & ~b if largest else ~a & b
        if a.dtype not in FLOATS:
            return a > b if largest else a < b
        # NaN counts as the largest number, so that all elements are ordered and every rank is taken once.
        a_nan, b_nan = unary("isnan", a), unary("isnan", b)
        return (a > b) | (a_nan & ~b_nan) if largest else (a < b) | (b_nan & ~a_nan)

    def rank(o: Expr, c: Expr, i: Expr) -> Expr:
        own = rows[o, c, i]

        def ahead(r: Expr) -> Expr:
            other = rows[o, r, i]
            return beats(other, own) | (~beats(own, other) & (r < c))

        return cast(reduce("sum", size, lambda r: cast(ahead(r), "index")), "int32")

    ranks = k.compute((outer, size, inner), INT32, rank)

    def position(o: Expr, c: Expr, i: Expr) -> Expr:
        own = cast(c, "int32")
        found = reduce("max", size, lambda r: select(eq(ranks[o, r, i], own), r, lit(0)))
        return cast(found, "int64")

    where = k.compute((outer, count, inner), INT64, position)
    best = k.compute(
        (outer, count, inner), x.dtype, lambda o, c, i: rows[o, cast(where[o, c, i], "index"), i]
    )
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return k.alias(best, shape), k.alias(where, shape)


@operator("TopK", since=1, until=9)
def top_k_1(builder: Builder, x: Value, *, k: int, axis: int = -1) -> tuple[Value, ...]:
    """The k largest elements along an axis, and where they were."""
    return _top_k(builder, x, k, axis, largest=1)


@operator("TopK", since=10, host=("count",))
def top_k(
    k: Builder, x: Value, count: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, ...]:
    """The k largest (smallest) elements along an axis, best first, and where they were."""
    if count.size != 1:
        k.error(f"takes one number of elements, not {count.size}")
    return _top_k(k, x, k.ints(count)[0], axis, largest)
