"""Pooling over windows, and over whole planes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, cast, fold, lit, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.printer import LIMITS
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.layout import FIRST, Layout
from engine.operators.reductions import reduction_hint
from engine.operators.registry import operator
from engine.operators.windows import Windows, slide


def _planes(k: Builder, x: Value) -> tuple[int, ...]:
    """The spatial sizes of (N, C, *spatial)."""
    if x.rank < 3:
        k.error(f"takes a tensor (N, C, ...) of rank 3 or more, not {list(x.shape)}")
    return x.shape[2:]


def _hint(kind: str, x: Value, win: Windows, layout: Layout, include_pad: bool = False) -> Hint:
    facts = {
        "kind": kind, "kernel": win.kernel, "strides": win.strides, "dilations": win.dilations,
        "pads": win.begins, "ends": win.ends, "include_pad": include_pad,
        "channels_last": layout.channels_last,
    }  # fmt: skip
    return Hint("pool", (x,), facts)


def lowest(dtype: str) -> float | int:
    """What the maximum of nothing is."""
    return LIMITS[dtype][0] if dtype in LIMITS else float("-inf")


@operator("MaxPool", since=1)
def max_pool(
    k: Builder, x: Value, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] = (), pads: Sequence[int] = (), storage_order: int = 0,
    strides: Sequence[int] = (),
) -> tuple[Value | None, ...]:  # fmt: skip
    """The largest element of each window; second output: its position in the whole tensor."""
    win = slide(k, _planes(k, x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    where = largest_at(k, x, win, storage_order) if k.wants(1) else None
    return largest(k, x, win), where


def largest(k: Builder, x: Value, win: Windows, layout: Layout = FIRST) -> Value:
    """The largest element of each window."""
    batch, channels, _ = layout.split(x.shape)
    low = lit(lowest(x.arithmetic), x.arithmetic)

    def formula(*indices: Expr) -> Expr:
        n, c, at = layout.split(indices)

        def tap(r: Expr) -> Expr:
            sources = [win.source(i, at[i], t) for i, t in enumerate(win.taps(r))]
            return x.load_where(win.inside(sources), layout.order(n, c, sources), low)

        return reduce("max", prod(win.kernel), tap)

    shape = layout.order(batch, channels, win.counts)
    return k.compute(shape, x.dtype, formula, hint=lambda: _hint("max", x, win, layout))


def largest_at(k: Builder, x: Value, win: Windows, storage_order: int) -> Value:
    """Where in the whole of (N, C, *spatial) each window's largest element lies."""
    low = lit(lowest(x.arithmetic), x.arithmetic)

    def position(n: Expr, c: Expr, *at: Expr) -> Expr:
        def step(r: Expr, best: Expr, where: Expr) -> tuple[Expr, Expr]:
            sources = [win.source(i, at[i], t) for i, t in enumerate(win.taps(r))]
            inside = win.inside(sources)
            value = x.load_where(inside, (n, c, *sources), low)
            order = sources[::-1] if storage_order else sources
            sizes = win.sizes[::-1] if storage_order else win.sizes
            here: Expr = n * x.shape[1] + c
            for source, size in zip(order, sizes, strict=True):
                here = here * size + source
            better = inside & ((value > best) | (where < lit(0)))
            return select(better, value, best), select(better, here, where)

        return cast(fold(prod(win.kernel), (low, lit(-1)), step)[1], "int64")

    return k.compute((*x.shape[:2], *win.counts), np.dtype(np.int64), position)


@operator("AveragePool", since=7)
def average_pool(
    k: Builder, x: Value, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Sequence[int] = (), pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """The mean of each window, over the elements inside the input, or the padding too."""
    win = slide(k, _planes(k, x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return average(k, x, win, bool(count_include_pad))


def average(k: Builder, x: Value, win: Windows, include_pad: bool, layout: Layout = FIRST) -> Value:
    """The mean of each window, over the elements inside the input, or the padding too."""
    batch, channels, _ = layout.split(x.shape)

    def formula(*indices: Expr) -> Expr:
        n, c, at = layout.split(indices)

        def sources(r: Expr) -> list[Expr]:
            return [win.source(i, at[i], t) for i, t in enumerate(win.taps(r))]

        def element(r: Expr) -> Expr:
            return x.load_where(win.inside(found := sources(r)), layout.order(n, c, found))

        taps = prod(win.kernel)
        total = reduce("sum", taps, element)
        counted = reduce("sum", taps, lambda r: cast(win.inside(sources(r), include_pad), "index"))
        return total / cast(counted, total.dtype)

    shape = layout.order(batch, channels, win.counts)
    return k.compute(shape, x.dtype, formula, hint=lambda: _hint("average", x, win, layout, include_pad))


@operator("LpPool", since=2)
def lp_pool(
    k: Builder, x: Value, *, kernel_shape: Sequence[int], p: int = 2, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, dilations: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """The p-norm of each window."""
    win = slide(k, _planes(k, x), kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)

    def formula(n: Expr, c: Expr, *at: Expr) -> Expr:
        def tap(r: Expr) -> Expr:
            sources = [win.source(i, at[i], t) for i, t in enumerate(win.taps(r))]
            return p_power(x.load_where(win.inside(sources), (n, c, *sources)), p)

        return p_root(reduce("sum", prod(win.kernel), tap), p)

    return k.compute((*x.shape[:2], *win.counts), x.dtype, formula)


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


def _whole_plane(k: Builder, x: Value, body: str, p: int = 0) -> Value:
    count = prod(_planes(k, x))
    flat = k.alias(x, (*x.shape[:2], count))
    runs = k.alias(x, (prod(x.shape[:2]), count))

    def formula(n: Expr, c: Expr) -> Expr:
        if body == "max":
            return reduce("max", count, lambda r: flat[n, c, r])
        if body == "lp":
            return p_root(reduce("sum", count, lambda r: p_power(flat[n, c, r], p)), p)
        total = reduce("sum", count, lambda r: flat[n, c, r])
        return total / arg(count, total.dtype)

    hint = None if body == "lp" else lambda: reduction_hint(body, "element", runs)
    pooled = k.compute(x.shape[:2], x.dtype, formula, hint=hint)
    return k.alias(pooled, (*x.shape[:2], *(1,) * (x.rank - 2)))


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
    return _whole_plane(k, x, "lp", p=p)
