"""Pooling over windows, and global pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, cast, fold, lit, reduce_axes, select, unary
from engine.kernels.hint import Hint
from engine.kernels.printer import LIMITS
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.layout import CHANNELS_LAST, FIRST, Layout, layout_of
from engine.operators.reductions import Reduction, wide
from engine.operators.registry import operator
from engine.operators.windows import PoolAttributes, Windows, slide


def lowest(dtype: str) -> float | int:
    """The neutral element of a maximum."""
    return LIMITS[dtype][0] if dtype in LIMITS else float("-inf")


@operator("MaxPool", domain=CHANNELS_LAST)
@operator("MaxPool", since=1)
def max_pool(
    k: Builder, x: Value, *, storage_order: int = 0, sliding: PoolAttributes
) -> tuple[Value | None, ...]:
    """The largest element of each window; second output, of (N, C, ...): its position in the whole tensor."""
    win = slide(k, layout_of(k).spatial(k, x), sliding.kernel_shape, sliding)
    where = largest_at(k, x, win, storage_order) if k.wants(1) else None
    return window_maximum(k, x, win, layout_of(k)), where


def window_maximum(k: Builder, x: Value, win: Windows, layout: Layout) -> Value:
    """The largest element of each window."""

    def pooled(x: Value, win: Windows, dtype: np.dtype) -> Value:
        low = lit(lowest(x.arithmetic), x.arithmetic)
        return _windowed(k, x, win, layout, dtype, "max", lambda found, at: found, low)

    return separable(k, x, win, layout, pooled, "max")


_MOST_WRITTEN = 9
"""Taps that a kernel has written out, so that its loop over elements runs as vectors."""


def largest_at(k: Builder, x: Value, win: Windows, storage_order: int) -> Value:
    """The position in (N, C, *spatial), flattened, of each window's largest element."""
    low = lit(lowest(x.arithmetic), x.arithmetic)

    def position(n: Expr, c: Expr, *at: Expr) -> Expr:
        def step(taps: Sequence[Expr], best: Expr, where: Expr) -> tuple[Expr, Expr]:
            sources = [win.source(i, at[i], t) for i, t in enumerate(taps)]
            inside = win.inside(sources)
            value = x.load_where(inside, (n, c, *sources), low)
            order = sources[::-1] if storage_order else sources
            sizes = win.sizes[::-1] if storage_order else win.sizes
            here: Expr = n * x.shape[1] + c
            for source, size in zip(order, sizes, strict=True):
                here = here * size + source
            better = inside & ((value > best) | (where < lit(0)))
            return select(better, value, best), select(better, here, where)

        count = prod(win.kernel)
        if count > _MOST_WRITTEN:
            return cast(fold(count, (low, lit(-1)), lambda r, *found: step(win.taps(r), *found))[1], "int64")
        best, where = low, lit(-1)
        for taps in product(*map(range, win.kernel)):
            best, where = step([lit(t) for t in taps], best, where)
        return cast(where, "int64")

    return k.compute((*x.shape[:2], *win.counts), np.dtype(np.int64), position)


@operator("AveragePool", domain=CHANNELS_LAST)
@operator("AveragePool", since=7)
def average_pool(k: Builder, x: Value, *, count_include_pad: int = 0, sliding: PoolAttributes) -> Value:
    """The mean of each window, over the elements inside the input, or the padding too."""
    win = slide(k, layout_of(k).spatial(k, x), sliding.kernel_shape, sliding)
    layout, include_pad = layout_of(k), bool(count_include_pad)

    def pooled(x: Value, win: Windows, dtype: np.dtype) -> Value:
        def mean(total: Expr, at: Sequence[Expr]) -> Expr:
            counts = [win.counted(axis, i, include_pad) for axis, i in enumerate(at)]
            return total / cast(prod(counts, start=lit(1)), total.dtype)

        return _windowed(k, x, win, layout, dtype, "average", mean, None, include_pad)

    return separable(k, x, win, layout, pooled, "mean")


def _windowed(
    k: Builder, x: Value, win: Windows, layout: Layout, dtype: np.dtype, kind: str,
    finish: Callable[[Expr, Sequence[Expr]], Expr], outside: Expr | None = None, include_pad: bool = False,
) -> Value:  # fmt: skip
    """Each window's sum, or its largest element for the kind "max", as `finish` changes it."""
    batch, channels, _ = layout.split(x.shape)
    how = "max" if kind == "max" else "sum"

    def formula(*indices: Expr) -> Expr:
        n, c, at = layout.split(indices)

        def tap(*found: Expr) -> Expr:
            sources = [win.source(axis, i, found[axis]) for axis, i in enumerate(at)]
            position = layout.order(n, c, sources)
            return x.load_where(win.inside(sources), position, 0 if outside is None else outside)

        return finish(reduce_axes(how, win.kernel, tap), at)

    shape = layout.order(batch, channels, win.counts)
    attributes = {
        "kind": kind, "kernel": win.kernel, "strides": win.strides, "dilations": win.dilations,
        "pads": win.begins, "ends": win.ends, "include_pad": include_pad,
        "channels_last": layout.channels_last,
    }  # fmt: skip
    return k.compute(shape, dtype, formula, hint=lambda: Hint("pool", (x,), attributes))


_FEW_TAPS = 3
"""Windows with more taps than so many times those of a row and a column are pooled by axis."""


def separable(
    k: Builder, x: Value, win: Windows, layout: Layout,
    pooled: Callable[[Value, Windows, np.dtype], Value], whole: str, dtype: np.dtype | None = None,
) -> Value:  # fmt: skip
    """Separable pooling: windows along one axis after another, where that is less work.

    `pooled` takes windows over one or two axes; `whole` is what a reduction over all elements is called.
    Between the axes, narrow floats are kept as float32.
    """
    batch, channels, sizes = layout.split(x.shape)
    spatial = range(x.rank - 2)
    dtype = x.dtype if dtype is None else dtype
    between = wide(x.dtype)
    static = all(map(x.is_static, layout.split(range(x.rank))[2]))
    if static and win.kernel == win.sizes and set(win.counts) == {1} and not any((*win.begins, *win.ends)):
        return _whole_plane(k, x, whole, layout=layout, dtype=dtype)
    if len(spatial) > 2:
        depth, rest = sizes[0], sizes[1:]
        is_last = (win.kernel[0], win.strides[0], win.begins[0], win.ends[0]) == (1, 1, 0, 0)
        planes = (batch * depth, channels) if layout.channels_last else (batch, channels * depth)
        planes_of = k.alias(x, layout.order(*planes, rest))
        inner = separable(
            k, planes_of, win.along(*spatial[1:]), layout, pooled, whole, dtype if is_last else between
        )
        shape = layout.order(batch, channels, win.counts)
        if is_last:
            return k.alias(inner, shape)
        area = prod(win.counts[1:])
        rows = k.alias(inner, layout.order(batch, channels, (depth, area)))
        return k.alias(pooled(rows, _beside(win.along(0), area), dtype), shape)
    if len(spatial) == 2 and prod(win.kernel) > _FEW_TAPS * sum(win.kernel):
        # Down the columns first: there, neighbouring windows read neighbouring elements for any stride.
        across = Windows(
            (win.counts[0], sizes[1]), (1, win.kernel[1]), (1, win.strides[1]), (1, win.dilations[1]),
            (0, win.begins[1]), (0, win.ends[1]), win.counts,
        )  # fmt: skip
        return pooled(pooled(x, _beside(win.along(0), sizes[1]), between), across, dtype)
    return pooled(x, win, dtype)


def _beside(win: Windows, columns: int) -> Windows:
    """Windows over one axis, in each of so many columns."""
    return Windows(
        (*win.sizes, columns), (*win.kernel, 1), (*win.strides, 1), (*win.dilations, 1), (*win.begins, 0),
        (*win.ends, 0), (*win.counts, columns),
    )  # fmt: skip


@operator("LpPool", since=2)
def lp_pool(k: Builder, x: Value, *, p: int = 2, sliding: PoolAttributes) -> Value:
    """The p-norm of each window."""
    win = slide(k, layout_of(k).spatial(k, x), sliding.kernel_shape, sliding)

    def pooled(x: Value, win: Windows, dtype: np.dtype) -> Value:
        return _windowed(k, x, win, FIRST, dtype, "sum", lambda total, at: total)

    sums = separable(
        k, k.elementwise(lambda e: p_power(e, p), x, dtype=wide(x.dtype)), win, FIRST, pooled, "sum"
    )
    return k.elementwise(lambda e: p_root(e, p), sums, dtype=x.dtype)


def p_power(x: Expr, p: int) -> Expr:
    """abs(x) ** p."""
    if p == 2:
        return x * x
    return unary("abs", x) if p == 1 else Expr("pow", x.dtype, (unary("abs", x), arg(float(p), x.dtype)))


def p_root(x: Expr, p: int) -> Expr:
    """x ** (1 / p)."""
    if p == 2:
        return unary("sqrt", x)
    return x if p == 1 else Expr("pow", x.dtype, (x, arg(1.0 / p, x.dtype)))


def _whole_plane(
    k: Builder, x: Value, kind: str, layout: Layout = FIRST, dtype: np.dtype | None = None
) -> Value:
    layout.spatial(k, x)
    planes = Reduction(k, x, frozenset(layout.split(range(x.rank))[2]))
    return planes.shaped(planes.plain(kind, dtype=dtype))


@operator("GlobalAveragePool", since=1)
def global_average_pool(k: Builder, x: Value) -> Value:
    """The mean of each channel's plane."""
    return _whole_plane(k, x, "mean")


@operator("GlobalMaxPool", since=1)
def global_max_pool(k: Builder, x: Value) -> Value:
    """The largest element of each channel's plane."""
    return _whole_plane(k, x, "max")


@operator("GlobalLpPool", since=2)
def global_lp_pool(k: Builder, x: Value, *, p: int = 2) -> Value:
    """The p-norm of each channel's plane."""
    sums = _whole_plane(k, k.elementwise(lambda e: p_power(e, p), x, dtype=wide(x.dtype)), "sum")
    return k.elementwise(lambda e: p_root(e, p), sums, dtype=x.dtype)
