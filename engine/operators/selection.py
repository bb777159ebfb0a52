"""Data-dependent selection: NonZero and Compress, counted on the device, and Unique.

The entries to keep are numbered by a running sum; each slot of the output then looks for its entry by binary
search, so that nothing is scattered.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from engine.base.dtypes import BOOL, INT32, INT64
from engine.kernels.expr import Expr, arg, cast, compare, eq, lit, minimum, reduce, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator
from engine.operators.scans import BLOCK, prefix
from engine.operators.sorting import first_beyond


def true_positions(
    k: Builder, mask: Value, room: int, fixed: bool = False
) -> tuple[Value, Value, tuple[Value, ...]]:
    """Positions and count of true elements in each row of `mask` (rows, length).

    The third are the operands of hints: the mask, its inclusive running sum, and that before each block.

    Neither size is 0. Positions are int32, (rows, room), those beyond the number of no
    meaning but within the range; numbers int64, (rows). `fixed` says that the length is the same for every
    input shape that the model can take.
    """
    rows, count = mask.shape

    def element(o: Expr, p: Expr, _: Expr) -> Expr:
        return cast(mask[o, p], "int32")

    lines = k.alias(mask, (rows, count, 1))
    found = prefix(k, (rows, count, 1), INT32, "sum", element, source=lines, fixed=fixed)
    through = k.alias(found.through, mask.shape)
    marks = (mask, through) if found.before is None else (mask, through, found.before)

    def number(o: Expr) -> Expr:
        if found.before is None:
            return cast(through[o, arg(count - 1)], "int64")
        # Backends that have kernels for positions do without the running sum.
        last = (count - 1) // BLOCK
        rest = reduce("sum", count - last * BLOCK, lambda r: element(o, r + last * BLOCK, lit(0)))
        return cast(found.before[o, arg(last), lit(0)] + rest, "int64")

    numbers = k.compute((rows,), INT64, number, hint=lambda: Hint("count_nonzero", (mask,), {}))

    def position(o: Expr, slot: Expr) -> Expr:
        def before(p: Expr) -> Expr:
            return cast(through[o, minimum(p, count - 1)], "index") <= slot

        found = first_beyond(lit(0), arg(count), count, before, slot < cast(numbers[o], "index"))
        return minimum(found, count - 1)

    places = k.compute(
        (rows, room), INT32, position, hint=lambda: Hint("stream_compaction", marks, {"block": BLOCK})
    )
    return places, numbers, marks


@operator("NonZero", since=9)
def non_zero(k: Builder, x: Value) -> Value:
    """The indices of all elements that are not 0, in row-major order: (rank, how many there are)."""
    if not x.size:
        return k.compute((x.rank, 0), INT64, lambda *at: lit(0, "int64"))
    fixed = all(x.is_static(a) for a in range(x.rank))

    mask = k.alias(x, (1, x.size))
    if x.dtype != BOOL:
        mask = k.elementwise(lambda e: compare("ne", e, lit(0, e.dtype)), mask, dtype=BOOL)
    positions, number, marks = true_positions(k, mask, x.size, fixed)

    def formula(axis: Expr, slot: Expr) -> Expr:
        position, found = cast(positions[lit(0), slot], "index"), lit(0)
        for a in range(x.rank):
            along = position // arg(x.stride(a)) if a + 1 < x.rank else position
            along = along % arg(x.shape[a]) if a else along
            found = select(eq(axis, lit(a)), along, found)
        return cast(found, "int64")

    hint = (lambda: Hint("nonzero", marks, {"shape": x.shape, "block": BLOCK})) if x.rank else None
    return k.counted(k.compute((x.rank, x.size), INT64, formula, hint=hint), 1, number)


@operator("Compress", since=9)
def compress(k: Builder, x: Value, condition: Value, *, axis: int | None = None) -> Value:
    """The slices along an axis (without one, the elements) where `condition`, which may be shorter, holds."""
    if condition.rank != 1 or (axis is not None and x.rank == 0):
        k.error(f"takes a tensor and a row of booleans, not {list(x.shape)} and {list(condition.shape)}")
    along = 0 if axis is None else k.axis(axis, x.rank)
    whole = (x.size,) if axis is None else x.shape
    outer, inner = prod(whole[:along]), prod(whole[along + 1 :])
    room = min(whole[along], condition.size)
    rows = k.alias(x, (outer, whole[along], inner))

    def result(size: int, source: Callable[[Expr], Expr], mask: Value | None = None) -> Value:
        hint = None if mask is None else lambda: Hint("compress", (rows, mask), {})
        found = k.compute((outer, size, inner), x.dtype, lambda o, c, i: rows[o, source(c), i], hint=hint)
        return k.alias(found, (*whole[:along], size, *whole[along + 1 :]))

    known = k.elements(condition)
    if known is not None or not room:
        where = k.constant(np.flatnonzero(known[:room] if known is not None else []).astype(np.int32))
        return result(where.size, lambda c: cast(where[c], "index"))
    mask = k.alias(condition, (1, condition.size))
    if room < condition.size:
        mask = k.compute((1, room), BOOL, lambda _, p: condition[p])
    positions, number, _ = true_positions(k, mask, room, condition.is_static(0))
    return k.counted(result(room, lambda c: cast(positions[lit(0), c], "index"), mask), along, number)


@operator("Unique", kind="numpy", since=11)
def unique(x: np.ndarray, *, axis: int | None = None, sorted: int = 1) -> tuple[np.ndarray, ...]:
    """Unique elements (slices along `axis`), first indices, inverse indices, and counts.

    In ascending order, or in that of their first occurrence. All NaN are one.
    """
    if axis is not None and not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis {axis} is outside a tensor of rank {x.ndim}")
    if x.size and x.dtype.kind in "biuf" and (axis is None or x.ndim == 1):
        values, first, inverse, counts = _unique_numbers(x.reshape(-1))
    else:
        values, first, inverse, counts = np.unique(
            x.astype(str) if x.dtype == object else x,
            return_index=True, return_inverse=True, return_counts=True, axis=axis,
        )  # fmt: skip
        values = values.astype(x.dtype)
        inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        values = values.take(order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return values, *(a.astype(np.int64) for a in (first, inverse, counts))


def _unique_numbers(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """`np.unique` of a row of numbers, with all that it returns, by an order that need not be stable."""
    order = np.argsort(x)
    ascending = x[order]
    begins = np.ones(x.size, bool)
    begins[1:] = ascending[1:] != ascending[:-1]
    if x.dtype.kind == "f":
        begins[1:] &= ~np.isnan(ascending[:-1])
    starts = np.flatnonzero(begins)
    first = np.minimum.reduceat(order, starts)
    inverse = np.empty(x.size, np.int64)
    inverse[order] = np.cumsum(begins) - 1
    return x[first], first, inverse, np.append(starts[1:], x.size) - starts
