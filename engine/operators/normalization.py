"""Softmax and related functions; batch, layer, instance, group, RMS, local response and Lp normalization."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod

from engine.base.dtypes import FLOAT32
from engine.kernels.expr import Expr, arg, binary, cast, eq, lit, maximum, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.layout import CHANNELS_LAST, FIRST, layout_of
from engine.operators.reductions import Reduction, position_of_extreme, reduction_hint, wide
from engine.operators.registry import operator


def merged_axes(k: Builder, x: Value, axis: int, until: int | None = None) -> Value:
    """x as (outer, middle, inner), where middle holds the axes axis..until-1 (default: one axis).

    Rows that lie as a whole have no third axis: a step of 1 between elements is what loops are made for.
    """
    until = axis + 1 if until is None else until
    inner = () if until == x.rank else (prod(x.shape[until:]),)
    return k.alias(x, (prod(x.shape[:axis]), prod(x.shape[axis:until]), *inner))


def softmax_over(
    k: Builder, x: Value, axis: int, until: int, logarithm: bool = False, *,
    masked: bool = False, sink: Callable[[Expr], Expr] | None = None,
) -> Value:  # fmt: skip
    """exp(x - max) / sum, or its logarithm, over the axes axis..until-1; computed in float32 at least.

    With `masked`, a row of nothing but -inf becomes zeros. `sink` is, by row, one more score that takes a
    share and has no place in the output.
    """
    rows = merged_axes(k, x, axis, until)
    outer, _, *inner = rows.shape
    dtype = x.dtype if x.dtype.itemsize >= 4 else FLOAT32

    def largest(o: Expr, *i: Expr) -> Expr:
        found = reduce("max", rows.dim(1), lambda r: rows[(o, r, *i)])
        found = found if sink is None else maximum(found, sink(o))
        # exp(-inf - -inf) would be NaN.
        return select(eq(found, lit(-inf, found.dtype)), lit(0.0, found.dtype), found) if masked else found

    if inner and sink is None and not masked and dtype == x.dtype:
        return k.alias(_softmax_of_columns(k, rows, logarithm), x.shape)
    top = k.compute((outer, *inner), dtype, largest)

    def sum_of(o: Expr, *i: Expr) -> Expr:
        found = reduce("sum", rows.dim(1), lambda r: unary("exp", rows[(o, r, *i)] - top[(o, *i)]))
        found = found if sink is None else found + unary("exp", sink(o) - top[(o, *i)])
        zero = lit(0.0, found.dtype)
        return select(eq(found, zero), lit(1.0, found.dtype), found) if masked else found

    total = k.compute((outer, *inner), dtype, sum_of)

    def formula(o: Expr, c: Expr, *i: Expr) -> Expr:
        shifted, shares = rows[(o, c, *i)] - top[(o, *i)], total[(o, *i)]
        return shifted - unary("log", shares) if logarithm else unary("exp", shifted) / shares

    attributes = {"logarithm": logarithm, "masked": masked}
    hint = (lambda: Hint("softmax", (rows,), attributes)) if sink is None and not inner else None
    return k.alias(k.compute(rows.shape, x.dtype, formula, hint=hint), x.shape)


def _softmax_of_columns(k: Builder, rows: Value, logarithm: bool) -> Value:
    """Softmax along the middle axis of (outer, count, inner), in steps whose loops run along the last one."""
    outer, _, inner = rows.shape
    space = (outer, inner)
    top = k.compute(
        space, rows.dtype, lambda o, i: reduce("max", rows.dim(1), lambda r: rows[o, r, i]),
        hint=lambda: reduction_hint("max", "element", rows),
    )  # fmt: skip
    powers = k.compute(rows.shape, rows.dtype, lambda o, c, i: unary("exp", rows[o, c, i] - top[o, i]))
    total = k.compute(
        space, rows.dtype, lambda o, i: reduce("sum", powers.dim(1), lambda r: powers[o, r, i]),
        hint=lambda: reduction_hint("sum", "element", powers),
    )  # fmt: skip
    if not logarithm:
        return k.compute(rows.shape, rows.dtype, lambda o, c, i: powers[o, c, i] / total[o, i])
    logarithms = k.elementwise(lambda s: unary("log", s), total)
    return k.compute(rows.shape, rows.dtype, lambda o, c, i: rows[o, c, i] - top[o, i] - logarithms[o, i])


def hardmax_over(k: Builder, x: Value, axis: int, until: int) -> Value:
    """1 at the first largest element over the axes axis..until-1, 0 elsewhere."""
    rows = merged_axes(k, x, axis, until)
    where = position_of_extreme(k, rows, 1, 0, 0, largest=True)
    hit = k.compute(
        rows.shape, x.dtype, lambda o, c, *i: cast(eq(c, cast(where[(o, *i)], "index")), x.arithmetic)
    )
    return k.alias(hit, x.shape)


def _over_axes(name: str, define: Callable[[Builder, Value, int, int], Value]) -> None:
    """An operator over one axis, which until opset 12 was over all axes from one on."""

    @operator(name, since=1, until=12)
    def from_axis_on(k: Builder, x: Value, *, axis: int = 1) -> Value:
        """Over all axes from `axis` on, taken as one."""
        return define(k, x, k.axis(axis, x.rank), x.rank)

    @operator(name, since=13)
    def along_axis(k: Builder, x: Value, *, axis: int = -1) -> Value:
        """Over one axis."""
        axis = k.axis(axis, x.rank)
        return define(k, x, axis, axis + 1)


_over_axes("Softmax", softmax_over)
_over_axes("LogSoftmax", partial(softmax_over, logarithm=True))
_over_axes("Hardmax", hardmax_over)


def _batch_normalization(
    k: Builder, x: Value, scale: Value, bias: Value, mean: Value, var: Value, epsilon: float
) -> Value:
    """scale * (x - mean) / sqrt(var + epsilon) + bias, per channel (Ioffe and Szegedy, 2015)."""

    def formula(e: Expr, s: Expr, b: Expr, m: Expr, v: Expr) -> Expr:
        m, v, s, b = (cast(p, e.dtype) for p in (m, v, s, b))
        return (e - m) / unary("sqrt", v + arg(epsilon, e.dtype)) * s + b

    return k.elementwise(formula, x, *(FIRST.per_channel(k, p, x.rank) for p in (scale, bias, mean, var)))


@operator("BatchNormalization", since=7)
def batch_normalization(
    k: Builder, x: Value, scale: Value, b: Value, input_mean: Value, input_var: Value, *,
    epsilon: float = 1e-5, momentum: float = 0.9, spatial: int = 1, training_mode: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    """Inference; in training mode with the batch's statistics, and the running ones as outputs 2 and 3.

    `spatial=0` was removed from ONNX with opset 9.
    """
    if not spatial:
        k.error("spatial=0 (one statistic per element) is not supported")
    if not training_mode:
        return (_batch_normalization(k, x, scale, b, input_mean, input_var, epsilon),)
    over_batch = frozenset(axis for axis in range(x.rank) if axis != 1)
    mean = Reduction(k, x, over_batch).plain("mean", dtype=wide(x.dtype))
    apart = k.elementwise(lambda e, m: e - m, x, FIRST.per_channel(k, mean, x.rank), dtype=mean.dtype)
    var = Reduction(k, apart, over_batch).plain("mean", "square")
    y = _batch_normalization(k, x, scale, b, mean, var, epsilon)

    def running(old: Value, new: Value) -> Value:
        return k.elementwise(
            lambda o, n: o * arg(momentum, o.dtype) + cast(n, o.dtype) * arg(1.0 - momentum, o.dtype),
            old,
            new,
        )

    return y, running(input_mean, mean), running(input_var, var)


def mean_and_variance(k: Builder, rows: Value) -> tuple[Value, Value]:
    """Mean and variance over the second axis of (rows, count[, inner]), in float32 at least."""
    outer, count, *inner = rows.shape
    dtype = rows.dtype if rows.dtype.itemsize >= 4 else FLOAT32

    def mean_of(o: Expr, *i: Expr) -> Expr:
        total = reduce("sum", rows.dim(1), lambda r: rows[(o, r, *i)])
        return total / arg(count, total.dtype)

    kept = (outer, *inner)
    mean = k.compute(kept, dtype, mean_of, hint=lambda: reduction_hint("mean", "element", rows))

    def variance_of(*at: Expr) -> Expr:
        o, *i = at

        def square(r: Expr) -> Expr:
            return (rows[(o, r, *i)] - mean[at]) * (rows[(o, r, *i)] - mean[at])

        total = reduce("sum", rows.dim(1), square)
        return total / arg(count, total.dtype)

    hint = lambda: reduction_hint("mean", "deviation", rows, mean)  # noqa: E731 - made only when a plan is
    return mean, k.compute(kept, dtype, variance_of, hint=hint)


def moments(k: Builder, rows: Value, epsilon: float) -> tuple[Value, Value]:
    """Mean and 1 / sqrt(variance + epsilon) of each row of (rows, count), in float32 at least."""
    mean, spread = mean_and_variance(k, rows)
    return mean, k.elementwise(lambda v: 1.0 / unary("sqrt", v + arg(epsilon, v.dtype)), spread)


def normalized(k: Builder, x: Value, rows: Value, mean: Value, inverse: Value, epsilon: float) -> Value:
    """(x - mean) * inverse by row, in the shape of x; the two are `moments` with the same epsilon."""
    y = k.compute(
        rows.shape, x.dtype, lambda o, r: (rows[o, r] - mean[o]) * inverse[o],
        hint=lambda: Hint("normalize", (rows,), {"centered": True, "epsilon": epsilon}),
    )  # fmt: skip
    return k.alias(y, x.shape)


@operator("LayerNormalization", since=1)
def layer_normalization(
    k: Builder, x: Value, scale: Value, b: Value | None = None, *,
    axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
) -> tuple[Value, ...]:  # fmt: skip
    """Over the axes from `axis` on (Ba et al., 2016); outputs 2 and 3 are the mean and 1 / deviation."""
    axis = k.axis(axis, x.rank)
    rows = k.alias(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    mean, inverse = moments(k, rows, epsilon)
    y = normalized(k, x, rows, mean, inverse, epsilon)
    y = k.elementwise(lambda e, s: e * s, y, scale)
    if b is not None:
        y = k.elementwise(lambda e, s: e + s, y, b)
    kept = (*x.shape[:axis], *(1,) * (x.rank - axis))
    return y, k.alias(mean, kept), k.alias(inverse, kept)


@operator("InstanceNormalization", since=6)
def instance_normalization(k: Builder, x: Value, scale: Value, b: Value, *, epsilon: float = 1e-5) -> Value:
    """Over the plane of each sample's channel (Ulyanov et al., 2016)."""
    return _group_normalization(k, x, x.shape[1], epsilon, scale, b)


def _group_normalization(k: Builder, x: Value, groups: int, epsilon: float, scale: Value, b: Value) -> Value:
    rows = k.alias(x, (x.shape[0] * groups, prod(x.shape[1:]) // groups))
    mean, inverse = moments(k, rows, epsilon)
    y = normalized(k, x, rows, mean, inverse, epsilon)
    return k.elementwise(
        lambda e, s, t: e * s + t, y, FIRST.per_channel(k, scale, x.rank), FIRST.per_channel(k, b, x.rank)
    )


@operator("GroupNormalization", since=21)
def group_normalization(
    k: Builder,
    x: Value,
    scale: Value,
    b: Value,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Over groups of channels of each sample (Wu and He, 2018)."""
    if x.shape[1] % num_groups:
        k.error(f"{x.shape[1]} channels do not divide into {num_groups} groups")
    return _group_normalization(k, x, num_groups, epsilon, scale, b)


def rms_scaled(k: Builder, x: Value, scale: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """x / r * scale with r = sqrt(mean(x * x) + epsilon) over the axes from `axis` on, and 1 / r."""
    axis = k.axis(axis, x.rank)
    count = prod(x.shape[axis:])
    rows = k.alias(x, (prod(x.shape[:axis]), count))
    dtype = x.dtype if x.dtype.itemsize >= 4 else FLOAT32

    def inverse_of(o: Expr) -> Expr:
        total = reduce("sum", rows.dim(1), lambda r: rows[o, r] * rows[o, r])
        return 1.0 / unary("sqrt", total / arg(count, total.dtype) + arg(epsilon, total.dtype))

    inverse = k.compute((rows.shape[0],), dtype, inverse_of)
    scaled = k.compute(
        rows.shape, x.dtype, lambda o, r: rows[o, r] * inverse[o],
        hint=lambda: Hint("normalize", (rows,), {"centered": False, "epsilon": epsilon}),
    )  # fmt: skip
    y = k.alias(scaled, x.shape)
    kept = (*x.shape[:axis], *(1,) * (x.rank - axis))
    return k.elementwise(lambda e, s: e * s, y, scale), k.alias(inverse, kept)


@operator("RMSNormalization", since=23)
def rms_normalization(
    k: Builder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """x / sqrt(mean(x * x) + epsilon) * scale over the axes from `axis` on (Zhang and Sennrich, 2019)."""
    return rms_scaled(k, x, scale, axis, epsilon)[0]


_FEW_CHANNELS = 7
"""Neighbours that a kernel has written out, so that its loop over elements runs as vectors."""


@operator("LRN", domain=CHANNELS_LAST)
@operator("LRN", since=1)
def lrn(
    k: Builder, x: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """x / (bias + alpha / size * sum of squares over nearby channels) ** beta (Krizhevsky et al., 2012)."""
    layout = layout_of(k)
    batch, channels, sizes = layout.split(x.shape)
    planes = k.alias(x, layout.order(batch, channels, (prod(sizes),)))
    before = (size - 1) // 2
    # What is beyond all channels adds nothing, however far the window reaches.
    behind = min(size - 1 - before, channels)
    before = min(before, channels)

    def formula(*indices: Expr) -> Expr:
        n, c, at = layout.split(indices)

        def square(r: Expr | int) -> Expr:
            channel = c + r - before
            inside = (channel >= lit(0)) & (channel < channels)
            value = planes.load_where(inside, layout.order(n, channel, at))
            return value * value

        if size <= _FEW_CHANNELS:
            first, *others = map(square, range(size))
            total = sum(others, first)
        else:
            total = reduce("sum", before + behind + 1, square)
        dtype = total.dtype
        scale = arg(bias, dtype) + arg(alpha / size, dtype) * total
        if beta != 0.75:
            return planes[indices] / binary("pow", scale, arg(beta, dtype))
        # The power that the paper takes, by two roots.
        root = unary("sqrt", scale)
        return planes[indices] / (root * unary("sqrt", root))

    return k.alias(k.compute(planes.shape, x.dtype, formula), x.shape)


@operator("LpNormalization", since=1)
def lp_normalization(k: Builder, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """x / p-norm along an axis; 0 where the norm is 0."""
    axis = k.axis(axis, x.rank)
    rows = merged_axes(k, x, axis)
    outer, _, *inner = rows.shape

    def norm(o: Expr, *i: Expr) -> Expr:
        if p == 1:
            return reduce("sum", rows.dim(1), lambda r: unary("abs", rows[(o, r, *i)]))
        return reduce("sum", rows.dim(1), lambda r: rows[(o, r, *i)] * rows[(o, r, *i)])

    term = "magnitude" if p == 1 else "square"
    size = k.compute((outer, *inner), x.dtype, norm, hint=lambda: reduction_hint("sum", term, rows))
    if p != 1:
        size = k.elementwise(lambda s: unary("sqrt", s), size)

    def formula(o: Expr, c: Expr, *i: Expr) -> Expr:
        n, zero = size[(o, *i)], lit(0, size.arithmetic)
        empty = eq(n, zero)
        return select(empty, zero, rows[(o, c, *i)] / select(empty, lit(1, n.dtype), n))

    return k.alias(k.compute(rows.shape, x.dtype, formula), x.shape)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(k: Builder, x: Value, *, axes: Sequence[int] = (0, 2, 3)) -> Value:
    """(x - mean) / deviation over some axes, by default all but the channels."""
    chosen = frozenset(k.axis(a, x.rank) for a in axes)
    means = Reduction(k, x, chosen)
    mean = means.shaped(means.plain("mean", dtype=wide(x.dtype)))
    apart = k.elementwise(lambda e, m: e - m, x, mean, dtype=mean.dtype)
    squares = Reduction(k, apart, chosen)
    var = squares.shaped(squares.plain("mean", "square"))
    return k.elementwise(lambda e, v: e / (unary("sqrt", v) + lit(1e-9, e.dtype)), apart, var, dtype=x.dtype)
