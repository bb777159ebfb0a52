"""Conv and ConvTranspose over any number of spatial axes, with groups and dilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, lit, reduce
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.layout import FIRST, Layout
from engine.operators.linear import PLAIN, Zeros, less, zero_at
from engine.operators.registry import operator
from engine.operators.windows import slide


def add_bias(k: Builder, x: Value, bias: Value | None, layout: Layout = FIRST) -> Value:
    """Add one number per channel."""
    if bias is None:
        return x
    return k.elementwise(lambda e, b: e + b, x, layout.per_channel(k, bias, x.rank))


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
    dtype: np.dtype | None = None, source: Layout = FIRST, target: Layout = FIRST,
) -> Value:  # fmt: skip
    """`conv` of x and w less their zero points, without a bias; sums have `dtype`.

    x lies as `source` says, the result as `target`; w always is (M, C/group, *kernel).
    """
    spatial = x.rank - 2
    if spatial < 1 or w.rank != x.rank:
        k.error(
            "takes x (N, C, ...) and w (M, C/group, ...) of one rank, "
            f"not {list(x.shape)} and {list(w.shape)}"
        )
    if tuple(kernel_shape or w.shape[2:]) != w.shape[2:]:
        k.error(f"kernel_shape {tuple(kernel_shape)} contradicts the weights {list(w.shape)}")
    batch, depth, sizes = source.split(x.shape)
    if w.shape[1] * group != depth or w.shape[0] % group:
        k.error(f"{depth} input channels do not fit weights {list(w.shape)} in {group} group(s)")
    win = slide(k, sizes, w.shape[2:], strides, dilations, pads, auto_pad)
    per_group = w.shape[0] // group

    def formula(*indices: Expr) -> Expr:
        n, m, at = target.split(indices)
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
            position = source.order(n, first + channel, sources)
            outside = 0 if x_zero is None else x_zero
            value = x.load_where(win.inside(sources), position, outside) if padded else x[position]
            return less(value, x_zero) * weight

        return reduce("sum", w.shape[1], lambda c: taps([], c))

    shape = target.order(batch, w.shape[0], win.counts)
    if dtype is not None:
        return k.compute(shape, dtype, formula)
    facts = {
        "strides": win.strides, "dilations": win.dilations, "pads": win.begins, "group": group,
        "channels_last": target.channels_last, "x_first": not source.channels_last,
    }  # fmt: skip
    return k.compute(shape, x.dtype, formula, hint=lambda: Hint("conv", (x, w), facts))


@operator("ConvTranspose", since=1)
def conv_transpose(
    k: Builder, x: Value, w: Value, b: Value | None = None, *, auto_pad: str = "NOTSET", group: int = 1,
    dilations: Sequence[int] = (), kernel_shape: Sequence[int] = (), output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """x (N, C, *spatial), w (C, M/group, *kernel), b (M) -> (N, M, *out).

    out[o] sums x[i] * w[t] over the taps t with i * stride + t * dilation - begin = o.
    """
    if x.rank < 3 or w.rank != x.rank or w.shape[0] != x.shape[1] or x.shape[1] % group:
        k.error(f"takes x (N, C, ...) and w (C, M/group, ...), not {list(x.shape)} and {list(w.shape)}")
    spread = scatter(k, x.shape[2:], w, auto_pad, dilations, output_padding, output_shape, pads, strides)
    is_known = w.known is not None and w.size > 0
    if is_known and all(1 in pair for pair in zip(spread.strides, spread.dilations, strict=True)):
        return add_bias(k, by_phases(k, x, w, group, spread), b)
    return add_bias(k, by_taps(k, x, w, group, spread), b)


@dataclass(frozen=True)
class Spread:
    """Where a transposed convolution's inputs go: one entry per spatial axis in each tuple."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    counts: tuple[int, ...]
    is_fixed: bool
    """Whether begins and ends follow from the attributes alone."""


def scatter(
    k: Builder, sizes: Sequence[int], w: Value, auto_pad: str, dilations: Sequence[int],
    output_padding: Sequence[int], output_shape: Sequence[int], pads: Sequence[int], strides: Sequence[int],
) -> Spread:  # fmt: skip
    """Resolve ConvTranspose's attributes; an end is what the padding there takes away from the output."""
    spatial = len(sizes)
    stride = tuple(strides) or (1,) * spatial
    dilation = tuple(dilations) or (1,) * spatial
    extra = tuple(output_padding) or (0,) * spatial
    given = tuple(pads) or (0,) * (2 * spatial)
    begins, ends, counts = [], [], []
    for axis in range(spatial):
        extent = (w.shape[2 + axis] - 1) * dilation[axis] + 1
        full = (sizes[axis] - 1) * stride[axis] + extent + extra[axis]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER") or output_shape:
            wanted = output_shape[-spatial:][axis] if output_shape else sizes[axis] * stride[axis]
            total, count = max(full - wanted, 0), wanted
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (given[axis], given[axis + spatial])
            total, count = begin + end, full - begin - end
        begins.append(begin)
        ends.append(total - begin - extra[axis])
        counts.append(count)
    if min(counts) < 1:
        k.error(f"its output would have the spatial shape {tuple(counts)}")
    return Spread(stride, dilation, tuple(begins), tuple(ends), tuple(counts), not output_shape)


def by_taps(k: Builder, x: Value, w: Value, group: int, spread: Spread) -> Value:
    """A transposed convolution in gather form: each output asks of every tap whether an input meets it."""
    spatial = x.rank - 2
    per_group, channels = w.shape[1], x.shape[1] // group

    def formula(n: Expr, m: Expr, *at: Expr) -> Expr:
        member = m % arg(per_group)
        first = lit(0) if group == 1 else (m // arg(per_group)) * channels

        def taps(found: list[Expr], channel: Expr) -> Expr:
            axis = len(found)
            if axis < spatial:
                return reduce("sum", w.shape[2 + axis], lambda r: taps([*found, r], channel))
            inside: Expr = lit(True, "bool")
            sources = []
            for i in range(spatial):
                reach = at[i] + spread.begins[i] - found[i] * spread.dilations[i]
                step = arg(spread.strides[i])
                source = reach // step
                inside = inside & (reach >= lit(0)) & (source < x.shape[2 + i])
                # Truncating division is exact for the multiples that count.
                inside = inside & ((source * step - reach) >= lit(0))
                sources.append(source)
            value = x.load_where(inside, (n, first + channel, *sources))
            return value * w[(first + channel, member, *found)]

        return reduce("sum", channels, lambda c: taps([], c))

    return k.compute((x.shape[0], per_group * group, *spread.counts), x.dtype, formula)


def by_phases(k: Builder, x: Value, w: Value, group: int, spread: Spread, layout: Layout = FIRST) -> Value:
    """A transposed convolution as a convolution whose outputs are interleaved: no tap misses its input.

    Output o with o + begin = q * stride + r (0 <= r < stride) meets only the taps r, r + stride, ...: output
    channel (m, r) of the convolution holds those, reversed, and position q has the sum. Per axis, stride or
    dilation is 1.
    """
    steps = spread.strides
    phases = k.constant(phase_weights(w, group, steps, layout))
    reach = [(j - 1) * d for j, d in zip(phases.shape[2:], spread.dilations, strict=True)]
    pads = [*reach, *reach]
    if set(steps) == {1} and spread.is_fixed:
        # A convolution of the whole, where it need not be cut to size afterwards.
        tight = [r - p for r, p in zip(pads, (*spread.begins, *spread.ends), strict=True)]
        if min(tight) >= 0:
            return convolve(
                k, x, phases, "NOTSET", group, spread.dilations, (), tight, (), source=layout, target=layout
            )
    sums = convolve(
        k, x, phases, "NOTSET", group, spread.dilations, (), pads, (), source=layout, target=layout
    )
    batch, _, sizes = layout.split(sums.shape)
    channels = w.shape[1] * group
    is_beyond = [not spread.is_fixed or end < 0 for end in spread.ends]

    def formula(*indices: Expr) -> Expr:
        n, m, at = layout.split(indices)
        phase, sources = lit(0), []
        inside: Expr = lit(True, "bool")
        for axis, step in enumerate(steps):
            place = at[axis] + spread.begins[axis]
            # A model fixes its strides, and to divide by a literal is cheap.
            source = place if step == 1 else place // lit(step)
            if step > 1:
                phase = phase * lit(step) + (place - source * lit(step))
            if is_beyond[axis]:
                inside = inside & (source < sizes[axis])
            sources.append(source)
        channel = phase * arg(channels) + m if layout.channels_last else m * lit(prod(steps)) + phase
        position = layout.order(n, channel, sources)
        return sums.load_where(inside, position) if any(is_beyond) else sums[position]

    return k.compute(layout.order(batch, channels, spread.counts), x.dtype, formula)


def phase_weights(w: Value, group: int, steps: Sequence[int], layout: Layout) -> np.ndarray:
    """Known weights (C, M/group, *kernel) as those of `by_phases`: (M * phases, C/group, *taps).

    The phases of an output channel follow each other, so that each has its plane beside the others'; with
    channels last (and one group) the channels of a phase do, so that they are read as a run.
    """
    assert w.known is not None
    kernel, channels = w.shape[2:], w.shape[0] // group
    counts = [-(-size // step) for size, step in zip(kernel, steps, strict=True)]
    missing = [count * step - size for size, step, count in zip(kernel, steps, counts, strict=True)]
    padded = np.pad(w.known.reshape(w.shape), [(0, 0), (0, 0), *((0, n) for n in missing)])
    split = [n for pair in zip(counts, steps, strict=True) for n in pair]
    parts = padded.reshape(group, channels, w.shape[1], *split)
    tap_axes, phase_axes = range(3, parts.ndim, 2), range(4, parts.ndim, 2)
    outputs = (*phase_axes, 2) if layout.channels_last else (2, *phase_axes)
    parts = np.flip(parts, tuple(tap_axes)).transpose(0, *outputs, 1, *tap_axes)
    return np.ascontiguousarray(parts).reshape(-1, channels, *counts)
