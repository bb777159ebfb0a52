"""Transposed convolutions: by taps, or as one convolution per phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from engine.kernels.expr import Expr, arg, lit, reduce_axes, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.convolution import add_bias, convolve, taps_first
from engine.operators.layout import CHANNELS_LAST, Layout, layout_of
from engine.operators.registry import operator
from engine.operators.windows import ConvAttributes


@operator("ConvTranspose", domain=CHANNELS_LAST)
@operator("ConvTranspose", since=1)
def conv_transpose(
    k: Builder, x: Value, w: Value, b: Value | None = None, *, output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (), sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """x (N, C, *spatial), w (C, M/group, *kernel), b (M) -> (N, M, *out).

    out[o] sums x[i] * w[t] over the taps t with i * stride + t * dilation - begin = o. With channels last, x
    is (N, *spatial, C) and the result (N, *out, M); w is known then, and of stride and dilation one is 1.
    """
    layout, group = layout_of(k), sliding.group
    channels = layout.split(x.shape)[1] if x.rank > 2 else 0
    if x.rank < 3 or w.rank != x.rank or w.shape[0] != channels or channels % group:
        k.error(f"takes x (N, C, ...) and w (C, M/group, ...), not {list(x.shape)} and {list(w.shape)}")
    spread = spread_of(k, layout.split(x.shape)[2], w, output_padding, output_shape, sliding)
    is_known = w.known is not None and w.size > 0
    has_phases = is_known and all(1 in pair for pair in zip(spread.strides, spread.dilations, strict=True))
    if has_phases or layout.channels_last:
        return add_bias(k, by_phases(k, x, w, group, spread, layout), b, layout)
    return add_bias(k, by_taps(k, x, w, group, spread), b)


@dataclass(frozen=True)
class TransposedGeometry:
    """Geometry of a transposed convolution: one entry per spatial axis in each tuple."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    counts: tuple[int, ...]
    is_fixed: bool
    """Whether begins and ends follow from the attributes alone."""


def spread_of(
    k: Builder, sizes: Sequence[int], w: Value, output_padding: Sequence[int], output_shape: Sequence[int],
    sliding: ConvAttributes,
) -> TransposedGeometry:  # fmt: skip
    """Resolve ConvTranspose's attributes; end pads are removed from the output."""
    spatial, auto_pad = len(sizes), sliding.auto_pad
    stride = tuple(sliding.strides) or (1,) * spatial
    dilation = tuple(sliding.dilations) or (1,) * spatial
    extra = tuple(output_padding) or (0,) * spatial
    given = tuple(sliding.pads) or (0,) * (2 * spatial)
    begins, ends, counts = [], [], []
    for axis in range(spatial):
        extent = (w.shape[2 + axis] - 1) * dilation[axis] + 1
        full = (sizes[axis] - 1) * stride[axis] + extent + extra[axis]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER") or output_shape:
            wanted = output_shape[-spatial:][axis] if output_shape else sizes[axis] * stride[axis]
            total = max(full - wanted, 0)
            count = wanted if output_shape else full - total
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (given[axis], given[axis + spatial])
            total, count = begin + end, full - begin - end
        begins.append(begin)
        ends.append(total - begin - extra[axis])
        counts.append(count)
    if min(counts) < 1:
        k.error(f"its output would have the spatial shape {tuple(counts)}")
    return TransposedGeometry(stride, dilation, tuple(begins), tuple(ends), tuple(counts), not output_shape)


def by_taps(k: Builder, x: Value, w: Value, group: int, spread: TransposedGeometry) -> Value:
    """Transposed convolution in gather form: each output tests which taps have an input."""
    spatial = x.rank - 2
    per_group, channels = w.shape[1], x.shape[1] // group

    def formula(n: Expr, m: Expr, *at: Expr) -> Expr:
        member = m % arg(per_group)
        first = lit(0) if group == 1 else (m // arg(per_group)) * channels

        def tap(channel: Expr, *found: Expr) -> Expr:
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
            # Not as a product with 0: that of NaN is NaN.
            return select(inside, value * w[(first + channel, member, *found)], lit(0, x.arithmetic))

        return reduce_axes("sum", (channels, *w.shape[2:]), tap)

    return k.compute((x.shape[0], per_group * group, *spread.counts), x.dtype, formula)


def by_phases(
    k: Builder, x: Value, w: Value, group: int, spread: TransposedGeometry, layout: Layout
) -> Value:
    """A transposed convolution as convolutions whose outputs are interleaved: no tap misses its input.

    Output o with o + begin = q * stride + r (0 <= r < stride) meets only the taps r, r + stride, ...: output
    channel (m, r) of a convolution holds those, reversed, and position q has the sum. Phases r with as many
    taps share a convolution: there are two numbers at most along an axis. Per axis, stride or dilation is 1.
    """
    steps = spread.strides
    parts = [
        _PhaseConv(k, x, w, group, spread, layout, runs)
        for runs in product(*(_runs(size, step) for size, step in zip(w.shape[2:], steps, strict=True)))
        if all(run.taps for run in runs)
    ]
    if set(steps) == {1} and spread.is_fixed:
        # A convolution of the whole, where it need not be cut to size afterwards.
        tight = [r - p for r, p in zip(parts[0].pads, (*spread.begins, *spread.ends), strict=True)]
        if min(tight) >= 0:
            return parts[0].convolved(tight)
    batch, _, _ = layout.split(x.shape)
    shape = layout.order(batch, w.shape[1] * group, spread.counts)
    # An innermost axis of one element would make each a row of its own.
    flat = layout.channels_last and w.shape[1] * group == 1
    groups = (*((a,) for a in range(x.rank - 2)), (x.rank - 2, x.rank - 1)) if flat else None
    found: Value | None = None
    for first in range(0, len(parts), _TOGETHER):
        sums = [(part, part.convolved(part.pads)) for part in parts[first : first + _TOGETHER]]
        formula = _interleaved(spread, layout, sums, found)
        found = k.compute(shape, x.dtype, _without_channel(formula) if flat else formula, groups=groups)
    assert found is not None
    return found


def _interleaved(
    spread: TransposedGeometry, layout: Layout, sums: Sequence[tuple[_PhaseConv, Value]], before: Value | None
) -> Callable[..., Expr]:
    """The formula of the output from what some parts yield, and from `before` where others are."""

    def formula(*indices: Expr) -> Expr:
        n, m, at = layout.split(indices)
        phases, sources = [], []
        for axis, step in enumerate(spread.strides):
            begin = spread.begins[axis]
            place = at[axis] + (lit(begin) if spread.is_fixed else begin)
            # A model fixes its strides, and to divide by a literal is cheap.
            sources.append(place if step == 1 else place // lit(step))
            phases.append(lit(0) if step == 1 else place - sources[-1] * lit(step))
        value: Expr | None = None if before is None else before[indices]
        for part, each in sums:
            value = part.value(each, (n, m, sources), phases, value)
        assert value is not None
        return value

    return formula


def _without_channel(formula: Callable[..., Expr]) -> Callable[..., Expr]:
    """The formula of the only channel, which is last."""
    return lambda *indices: formula(*indices, lit(0))


_TOGETHER = 4
"""Parts that one kernel interleaves: it may not read many tensors."""


class _Run(NamedTuple):
    """Neighbouring phases of one axis, and how many taps each of them has."""

    first: int
    phases: int
    taps: int


def _runs(size: int, step: int) -> list[_Run]:
    """The phases of a kernel of `size` taps: those that have one more than the others come first."""
    taps, more = divmod(size, step)
    return ([_Run(0, more, taps + 1)] if more else []) + [_Run(more, step - more, taps)]


class _PhaseConv:
    """The convolution for the phases of one run along each axis."""

    def __init__(
        self,
        k: Builder,
        x: Value,
        w: Value,
        group: int,
        spread: TransposedGeometry,
        layout: Layout,
        runs: Sequence[_Run],
    ) -> None:
        assert w.known is not None
        self.k, self.x, self.group, self.spread, self.layout, self.runs = k, x, group, spread, layout, runs
        self.channels = w.shape[1] * group
        taken = [
            [run.first + step * tap + phase for tap in range(run.taps) for phase in range(run.phases)]
            for run, step in zip(runs, spread.strides, strict=True)
        ]
        known = w.known.reshape(w.shape)
        is_whole = [len(t) for t in taken] == [*w.shape[2:]]
        part = known if is_whole else known[np.ix_(range(w.shape[0]), range(w.shape[1]), *taken)]
        self.weights = k.constant(phase_weights(part, group, [run.phases for run in runs], layout))
        reach = [(run.taps - 1) * d for run, d in zip(runs, spread.dilations, strict=True)]
        self.pads = [*reach, *reach]

    def convolved(self, pads: Sequence[int]) -> Value:
        """The sums of these phases."""
        sliding = ConvAttributes(group=self.group, dilations=self.spread.dilations, pads=pads)
        return convolve(self.k, self.x, self.weights, sliding, source=self.layout, target=self.layout)

    def value(
        self, sums: Value, place: tuple[Expr, Expr, Sequence[Expr]], phases: Sequence[Expr],
        other: Expr | None,
    ) -> Expr:  # fmt: skip
        """An element of these phases; elsewhere, and where no tap meets an input, `other` or 0."""
        n, m, sources = place
        _, _, sizes = self.layout.split(sums.shape)
        phase: Expr = lit(0)
        inside: Expr = lit(True, "bool")
        is_checked = False
        for axis, run in enumerate(self.runs):
            step, here = self.spread.strides[axis], phases[axis]
            if run.phases < step:
                inside = inside & (here >= lit(run.first)) & (here < lit(run.first + run.phases))
                is_checked = True
            if step > 1:
                phase = phase * lit(run.phases) + (here - lit(run.first))
            if not self.spread.is_fixed or self.spread.ends[axis] < 0:
                inside = inside & (sources[axis] < sizes[axis])
                is_checked = True
        if self.layout.channels_last:
            channel = phase * arg(self.channels) + m
        else:
            channel = m * lit(prod(run.phases for run in self.runs)) + phase
        position = self.layout.order(n, channel, sources)
        if not is_checked:
            return sums[position]
        return sums.load_where(inside, position, 0 if other is None else other)


def phase_weights(w: np.ndarray, group: int, steps: Sequence[int], layout: Layout) -> np.ndarray:
    """Rearrange weights (C, M/group, *kernel) for `by_phases`: (M * phases, C/group, *taps).

    The phases of an output channel follow each other, so that each has its plane next to the others'; with
    channels last (and one group) the channels of a phase do, so that they are read as a run.
    """
    kernel, channels = w.shape[2:], w.shape[0] // group
    counts = [size // step for size, step in zip(kernel, steps, strict=True)]
    split = [n for pair in zip(counts, steps, strict=True) for n in pair]
    parts = w.reshape(group, channels, w.shape[1], *split)
    tap_axes, phase_axes = range(3, parts.ndim, 2), range(4, parts.ndim, 2)
    outputs = (*phase_axes, 2) if layout.channels_last else (2, *phase_axes)
    parts = np.flip(parts, tuple(tap_axes)).transpose(0, *outputs, 1, *tap_axes)
    parts = parts.reshape(-1, channels, *counts)
    return np.ascontiguousarray(parts.swapaxes(1, 2) if taps_first(counts, layout) else parts)
