"""Conv and ConvTranspose over any number of spatial axes, with groups and dilations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.kernels.expr import Expr, arg, lit, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.linear import PLAIN, Zeros, less, zero_at
from engine.operators.registry import operator
from engine.operators.windows import slide


def add_bias(k: Builder, x: Value, bias: Value | None) -> Value:
    """Add one number per channel to (N, C, *spatial)."""
    if bias is None:
        return x
    return k.elementwise(lambda e, b: e + b, x, k.alias(bias, (bias.size, *(1,) * (x.rank - 2))))


@operator("Conv", since=1)
def conv(
    k: Builder, x: Value, w: Value, b: Value | None = None, *, auto_pad: str = "NOTSET", group: int = 1,
    dilations: Sequence[int] = (), kernel_shape: Sequence[int] = (), pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """x (N, C, *spatial), w (M, C/group, *kernel), b (M) -> (N, M, *out)."""
    return add_bias(k, convolve(k, x, w, auto_pad, group, dilations, kernel_shape, pads, strides), b)


def convolve(
    k: Builder, x: Value, w: Value, auto_pad: str, group: int, dilations: Sequence[int],
    kernel_shape: Sequence[int], pads: Sequence[int], strides: Sequence[int], zeros: Zeros = PLAIN,
    dtype: np.dtype | None = None,
) -> Value:  # fmt: skip
    """`conv` of x and w less their zero points, without a bias; sums have `dtype`."""
    spatial = x.rank - 2
    if spatial < 1 or w.rank != x.rank:
        k.error(
            "takes x (N, C, ...) and w (M, C/group, ...) of one rank, "
            f"not {list(x.shape)} and {list(w.shape)}"
        )
    if tuple(kernel_shape or w.shape[2:]) != w.shape[2:]:
        k.error(f"kernel_shape {tuple(kernel_shape)} contradicts the weights {list(w.shape)}")
    if w.shape[1] * group != x.shape[1] or w.shape[0] % group:
        k.error(f"{x.shape[1]} input channels do not fit weights {list(w.shape)} in {group} group(s)")
    win = slide(k, x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    per_group = w.shape[0] // group

    def formula(n: Expr, m: Expr, *at: Expr) -> Expr:
        x_zero, w_zero = zero_at(zeros[0], lit(0)), zero_at(zeros[1], m)
        first = lit(0) if group == 1 else (m // arg(per_group)) * w.shape[1]
        # With SAME the padding depends on the size, and sizes must not choose a kernel.
        padded = any(win.begins) or any(win.ends) or auto_pad.startswith("SAME")

        def taps(found: list[Expr], channel: Expr) -> Expr:
            axis = len(found)
            if axis < spatial:
                return reduce("sum", w.shape[2 + axis], lambda r: taps([*found, r], channel))
            sources = [win.source(i, at[i], found[i]) for i in range(spatial)]
            weight = less(w[(m, channel, *found)], w_zero)
            position = (n, first + channel, *sources)
            outside = 0 if x_zero is None else x_zero
            value = x.load_where(win.inside(sources), position, outside) if padded else x[position]
            return less(value, x_zero) * weight

        return reduce("sum", w.shape[1], lambda c: taps([], c))

    shape = (x.shape[0], w.shape[0], *win.counts)
    if dtype is not None:
        return k.compute(shape, dtype, formula)
    facts = {"strides": win.strides, "dilations": win.dilations, "pads": win.begins, "group": group}
    return k.compute(shape, x.dtype, formula, hint=lambda: Hint("conv", (x, w), facts))


@operator("ConvTranspose", since=1)
def conv_transpose(
    k: Builder, x: Value, w: Value, b: Value | None = None, *, auto_pad: str = "NOTSET", group: int = 1,
    dilations: Sequence[int] = (), kernel_shape: Sequence[int] = (), output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """x (N, C, *spatial), w (C, M/group, *kernel), b (M) -> (N, M, *out), in gather form.

    out[o] sums x[i] * w[t] over the taps t with i * stride + t * dilation - begin = o.
    """
    spatial = x.rank - 2
    if spatial < 1 or w.rank != x.rank or w.shape[0] != x.shape[1] or x.shape[1] % group:
        k.error(f"takes x (N, C, ...) and w (C, M/group, ...), not {list(x.shape)} and {list(w.shape)}")
    kernel = w.shape[2:]
    stride = tuple(strides) or (1,) * spatial
    dilation = tuple(dilations) or (1,) * spatial
    extra = tuple(output_padding) or (0,) * spatial
    given = tuple(pads) or (0,) * (2 * spatial)
    begins, counts = [], []
    for axis in range(spatial):
        extent = (kernel[axis] - 1) * dilation[axis] + 1
        full = (x.shape[2 + axis] - 1) * stride[axis] + extent + extra[axis]
        if output_shape:
            total = max(full - output_shape[-spatial:][axis], 0)
            count = output_shape[-spatial:][axis]
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = x.shape[2 + axis] * stride[axis]
            total = max(full - count, 0)
        else:
            total = 0 if auto_pad == "VALID" else given[axis] + given[axis + spatial]
            count = full - total
        if auto_pad in ("SAME_UPPER", "SAME_LOWER") or output_shape:
            begins.append(
                total // 2 if auto_pad == "SAME_UPPER" or auto_pad == "NOTSET" else total - total // 2
            )
        else:
            begins.append(0 if auto_pad == "VALID" else given[axis])
        counts.append(count)
    per_group, channels = w.shape[1], x.shape[1] // group

    def formula(n: Expr, m: Expr, *at: Expr) -> Expr:
        member = m % arg(per_group)
        first = lit(0) if group == 1 else (m // arg(per_group)) * channels

        def taps(found: list[Expr], channel: Expr) -> Expr:
            axis = len(found)
            if axis < spatial:
                return reduce("sum", kernel[axis], lambda r: taps([*found, r], channel))
            inside: Expr = lit(True, "bool")
            sources = []
            for i in range(spatial):
                reach = at[i] + begins[i] - found[i] * dilation[i]
                step = arg(stride[i])
                source = reach // step
                inside = inside & (reach >= lit(0)) & (source < x.shape[2 + i])
                # Truncating division is exact for the multiples that count.
                inside = inside & ((source * step - reach) >= lit(0))
                sources.append(source)
            value = x.load_where(inside, (n, first + channel, *sources))
            return value * w[(first + channel, member, *found)]

        return reduce("sum", channels, lambda c: taps([], c))

    if min(counts) < 1:
        k.error(f"its output would have the spatial shape {tuple(counts)}")
    shape = (x.shape[0], per_group * group, *counts)
    return add_bias(k, k.compute(shape, x.dtype, formula), b)
