"""Prefix sums and products in linear work, by blocks.

Each level shortens a row to one entry per block; the levels are steps of the same few kernels, so that only
their number depends on the size (Blelloch, Prefix Sums and Their Applications, 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from engine.kernels.expr import Expr, arg, lit, minimum, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.reductions import wide
from engine.operators.registry import operator

BLOCK = 16
"""Elements that one kernel adds up in a row: half as many loads per element, on average, at each level."""

MOST_LEVELS = 8
"""As many as 2**31 elements need."""

COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b}

Element = Callable[[Expr, Expr, Expr], Expr]
"""The element of a row from the indices (outer, position, inner)."""


class RunningTotal(NamedTuple):
    """A running sum or product, and that before each block (outer, blocks, inner), if there are several."""

    through: Value
    before: Value | None


def lined_up(k: Builder, x: Value, made: int, most: int) -> Value:
    """Pad the created tensors to `most` with aliases of `x`, and return another alias.

    What the samples say about a layer's tensors is distinguished by the order in which they are made.
    """
    for _ in range(most - made):
        k.alias(x, x.shape)
    return k.alias(x, x.shape)


def levels_for(count: int, fixed: bool) -> int:
    """How many levels a row of `count` elements takes; every kernel occurs where the size is not fixed."""
    levels = 1 if fixed else 3
    while BLOCK**levels < count:
        levels += 1
    return levels


def prefix(
    k: Builder, shape: tuple[int, int, int], dtype: np.dtype, kind: str, element: Element, *,
    source: Value, exclusive: bool = False, reverse: bool = False, fixed: bool = False,
) -> RunningTotal:  # fmt: skip
    """The running "sum" or "prod" of `element` along the middle axis of (outer, count, inner).

    `source` is the tensor whose elements these are, cast to the type. `fixed` says that `count` is the same
    for every input shape that the model can take.
    """
    levels = levels_for(shape[1], fixed)

    def place(c: Expr) -> Expr:
        return arg(shape[1] - 1) - c if reverse else c

    scanned = _scan(
        k, shape, dtype, kind, lambda o, c, i: element(o, place(c), i), exclusive, levels, place,
        partial(_hint, source, kind, exclusive, reverse),
    )  # fmt: skip
    if fixed or scanned.before is None:
        return scanned
    through = lined_up(k, scanned.through, 2 * levels, 2 * MOST_LEVELS)
    return RunningTotal(through, k.alias(scanned.before, scanned.before.shape))


def _hint(source: Value, kind: str, exclusive: bool, reverse: bool, *before: Value) -> Hint:
    attributes = {"kind": kind, "exclusive": exclusive, "reverse": reverse, "block": BLOCK}
    return Hint("prefix_scan", (source, *before), attributes)


def _scan(
    k: Builder, shape: tuple[int, int, int], dtype: np.dtype, kind: str, element: Element,
    exclusive: bool, levels: int, place: Callable[[Expr], Expr],
    hint: Callable[..., Hint],
) -> RunningTotal:  # fmt: skip
    outer, count, inner = shape
    own = lit(0 if exclusive else 1)

    def total(o: Expr, first: Expr, extent: Expr, i: Expr) -> Expr:
        return reduce(kind, extent, lambda r: element(o, minimum(first + r, count - 1), i))

    if levels == 1:
        whole = k.compute(shape, dtype, lambda o, c, i: total(o, lit(0), place(c) + own, i), hint=hint)
        return RunningTotal(whole, None)
    blocks = -(-count // BLOCK)

    def of_block(o: Expr, b: Expr, i: Expr) -> Expr:
        first = b * lit(BLOCK)
        return total(o, first, minimum(lit(BLOCK), arg(count) - first), i)

    short = (outer, blocks, inner)
    sums = k.compute(short, wide(dtype), of_block)
    before = _scan(
        k, short, wide(dtype), kind, lambda *at: sums[at], True, levels - 1, lambda c: c,
        partial(_hint, sums, kind, True, False),
    ).through  # fmt: skip

    def formula(o: Expr, c: Expr, i: Expr) -> Expr:
        position = place(c)
        block = position // lit(BLOCK)
        first = block * lit(BLOCK)
        inside = minimum(position - first + own, lit(BLOCK))
        return COMBINE[kind](before[o, block, i], total(o, first, inside, i))

    return RunningTotal(k.compute(shape, dtype, formula, hint=partial(hint, before)), before)


def _running(name: str, kind: str, since: int) -> None:
    @operator(name, since=since, host=("axis",))
    def define(k: Builder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
        """At each element, `kind` of it (unless exclusive) and all before it (in reverse, after it)."""
        if axis.size != 1:
            k.error(f"takes one axis, not {axis.size}")
        if x.rank == 0:
            k.error("takes a tensor with an axis, not a scalar")
        along = k.axis(k.ints(axis)[0], x.rank)
        shape = prod(x.shape[:along]), x.shape[along], prod(x.shape[along + 1 :])
        rows = k.alias(x, shape)
        found = prefix(
            k, shape, x.dtype, kind, lambda *at: rows[at],
            exclusive=bool(exclusive), reverse=bool(reverse), fixed=x.is_static(along),
            source=rows,
        ).through  # fmt: skip
        return k.alias(found, x.shape)


_running("CumSum", "sum", since=11)
_running("CumProd", "prod", since=26)
