"""DeformConv, Col2Im, MaxUnpool and AffineGrid."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.base.dtypes import INT32
from engine.kernels.expr import Expr, arg, cast, clamp, eq, fold, lit, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.convolution import add_bias, check_weights
from engine.operators.interpolation import Tap, blends, of_axis, plane_strides
from engine.operators.linear import matmul
from engine.operators.padding import pad_by
from engine.operators.reductions import wide
from engine.operators.registry import operator
from engine.operators.scatters import known_or_computed
from engine.operators.windows import ConvAttributes, WindowAttributes, Windows, slide

# Deformable convolution


def deformed_columns(
    k: Builder, x: Value, offset: Value, mask: Value | None, win: Windows, offset_group: int, grouped: bool
) -> Value:
    """The elements that taps read: (N, C, taps, *out), or (C, taps, N, *out) if `grouped`."""
    images, channels = x.shape[:2]
    taps, axes, places = prod(win.kernel), len(win.kernel), prod(win.counts)
    # The channels of one offset group are treated as an image.
    sets, own = images * offset_group, channels // offset_group
    moves = k.alias(offset, (sets, taps, axes, *win.counts))
    shares = None if mask is None else k.alias(mask, (sets, taps, *win.counts))
    planes = k.alias(x, (sets, own, prod(win.sizes)))

    def side(n: Expr, t: Expr, axis: Expr, number: Expr, *window: Expr) -> Tap:
        """One of the elements around a place, blended linearly; those outside count as 0."""
        places = [win.source(a, window[a], tap) for a, tap in enumerate(win.taps(t))]
        size = of_axis(axis, list(map(arg, win.sizes)))
        place = cast(of_axis(axis, places), moves.arithmetic) + moves[(n, t, axis, *window)]
        # Indices must not overflow; from so far outside, nothing is read.
        near = clamp(place, lit(-2.0, place.dtype), cast(size + lit(1), place.dtype))
        low = unary("floor", near)
        i = cast(low, "index") + number
        share = select(number > lit(0), near - low, 1.0 - (near - low))
        if shares is not None:
            share = select(axis > lit(0), share, share * shares[(n, t, *window)])
        return (i >= lit(0)) & (i < size), i * of_axis(axis, plane_strides(win.sizes)), share

    table = blends(k, (sets, taps), axes, 2, win.counts, wide(offset.dtype), side)

    def formula(*at: Expr) -> Expr:
        if not grouped:
            n, c, t, place = at
            return table.read(planes, (n, c), (n, t), place)
        c, t, n, place = at
        set_ = c // arg(own)
        n, c = n * arg(offset_group) + set_, c - set_ * arg(own)
        return table.read(planes, (n, c), (n, t), place)

    lead = (channels, taps, images) if grouped else (sets, own, taps)
    columns = k.compute(
        (*lead, places), wide(x.dtype), formula, hint=lambda: None if grouped else table.hint(k, planes)
    )
    return k.alias(columns, (*(lead if grouped else (images, channels, taps)), *win.counts))


@operator("DeformConv", since=19)
def deform_conv(
    k: Builder, x: Value, w: Value, offset: Value, b: Value | None = None, mask: Value | None = None, *,
    dilations: Sequence[int] = (), group: int = 1, kernel_shape: Sequence[int] = (), offset_group: int = 1,
    pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """Conv whose taps are moved by `offset` and weighted by `mask` (Dai et al. 2017, Zhu et al. 2018).

    x (N, C, *spatial), w (M, C/group, *kernel), offset (N, offset_group * taps * axes, *out),
    mask (N, offset_group * taps, *out), b (M).
    """
    if x.rank < 3 or w.rank != x.rank:
        k.error(f"takes x (N, C, ...) and w (M, C/group, ...), not {list(x.shape)} and {list(w.shape)}")
    if min(group, offset_group) < 1 or x.shape[1] % offset_group:
        k.error(f"cannot divide {list(x.shape)} by {offset_group}, or by {group} group(s)")
    sliding = ConvAttributes(
        group=group, kernel_shape=kernel_shape, dilations=dilations, pads=pads, strides=strides
    )
    check_weights(k, x.shape[1], w.shape, sliding)
    win = slide(k, x.shape[2:], w.shape[2:], sliding)
    taps, axes = prod(win.kernel), len(win.kernel)
    for name, value, rows in (("offset", offset, taps * axes), ("mask", mask, taps)):
        expected = (x.shape[0], offset_group * rows, *win.counts)
        if value is not None and value.shape != expected:
            k.error(f"its {name} is {list(value.shape)}; these windows need {list(expected)}")
    columns = deformed_columns(k, x, offset, mask, win, offset_group, group > 1)
    images, rows, depth, places = x.shape[0], w.shape[0] // group, w.shape[1] * taps, prod(win.counts)
    shape = (images, w.shape[0], *win.counts)
    if group == 1:
        strides_ = (depth * places, places, 1)
        y = matmul(k, w, columns, shape, (images, rows, places, depth), (0, depth, 1), strides_)
        return add_bias(k, y, b)
    wide_ = images * places
    sizes, strides_ = (group, rows, wide_, depth), (depth * wide_, wide_, 1)
    y = matmul(k, w, columns, (w.shape[0], images, places), sizes, (rows * depth, depth, 1), strides_)
    turned = k.compute((images, w.shape[0], places), x.dtype, lambda n, m, o: y[m, n, o])
    return add_bias(k, k.alias(turned, shape), b)


# Col2Im

_WRITTEN_TAPS = 16
"""Taps that a kernel has written out, so that its loop over elements runs as vectors."""


@operator("Col2Im", since=18, host=("image_shape", "block_shape"))
def col2im(
    k: Builder, x: Value, image_shape: Value, block_shape: Value, *, dilations: Sequence[int] = (),
    pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """(N, C * taps, windows) -> (N, C, *image): sums the overlapping window elements at each position.

    In gather form: window q and tap t meet at q * stride + t * dilation - begin.
    """
    image, block = k.ints(image_shape), k.ints(block_shape)
    win = slide(k, image, block, WindowAttributes(dilations=dilations, pads=pads, strides=strides))
    taps, windows = prod(win.kernel), prod(win.counts)
    if x.rank != 3 or x.shape[1] % taps or x.shape[2] != windows:
        k.error(
            f"takes (N, C * {taps}, {windows}) for blocks {block} of an image {image}, not {list(x.shape)}"
        )
    channels = x.shape[1] // taps
    blocks = k.alias(x, (x.shape[0], channels, taps, windows))
    how = "max" if x.dtype == np.dtype(bool) else "sum"

    def formula(n: Expr, c: Expr, *at: Expr) -> Expr:
        def sums(own: list[Expr], inside: Expr, window: Expr) -> Expr:
            axis = len(own)
            if axis == len(win.kernel):
                t: Expr = lit(0)
                for place, size in zip(own, win.kernel, strict=True):
                    t = t * lit(size) + place
                found = blocks.load_where(inside, (n, c, t, window))
                return cast(found, "int32") if found.dtype == "bool" else found

            def tap(r: Expr) -> Expr:
                reach = at[axis] + win.begins[axis] - r * win.dilations[axis]
                # A model fixes its strides, and to divide by a literal is cheap.
                step = lit(win.strides[axis])
                q = reach if win.strides[axis] == 1 else reach // step
                meets = (reach >= lit(0)) & (q < arg(win.counts[axis]))
                if win.strides[axis] > 1:
                    meets = meets & eq(q * step, reach)
                return sums([*own, r], inside & meets, window * win.counts[axis] + q)

            written = taps <= _WRITTEN_TAPS
            return reduce(how, lit(win.kernel[axis]) if written else arg(win.kernel[axis]), tap)

        total = sums([], lit(True, "bool"), lit(0))
        return total > lit(0, "int32") if x.dtype == np.dtype(bool) else total

    return k.compute((x.shape[0], channels, *image), x.dtype, formula)


# MaxUnpool


@operator("MaxUnpool", since=9, host=("output_shape",))
def max_unpool(
    k: Builder, x: Value, indices: Value, output_shape: Value | None = None, *,
    kernel_shape: Sequence[int], pads: Sequence[int] = (), strides: Sequence[int] = (),
) -> Value:  # fmt: skip
    """Move each element of x to the position that MaxPool recorded; 0 elsewhere.

    Positions count in the shape that the windows span; a larger `output_shape` adds zeros behind it.
    """
    axes = x.rank - 2
    if axes < 1 or indices.shape != x.shape or len(kernel_shape) != axes:
        k.error(f"takes x (N, C, ...), indices alike and {axes} kernel sizes, not {list(indices.shape)}")
    steps, edges = tuple(strides) or (1,) * axes, tuple(pads) or (0,) * (2 * axes)
    if len(steps) != axes or len(edges) != 2 * axes or min(steps) < 1:
        k.error(f"strides {steps} and pads {edges} do not fit {axes} spatial axes")
    spans = [
        (x.shape[2 + a] - 1) * steps[a] - edges[a] - edges[a + axes] + kernel_shape[a] for a in range(axes)
    ]
    spanned = (*x.shape[:2], *spans)
    shape = tuple(k.ints(output_shape)) if output_shape is not None else spanned
    if len(shape) != x.rank or any(out < n for out, n in zip(shape, spanned, strict=True)):
        k.error(f"its windows span {list(spanned)}, which the output shape {list(shape)} cannot hold")
    if x.size == 0:
        return k.compute(shape, x.dtype, lambda *_: lit(0, x.arithmetic))
    win = Windows(
        tuple(spans), tuple(kernel_shape), steps, (1,) * axes, edges[:axes], edges[axes:], x.shape[2:]
    )
    found = _unpooled(k, x, indices, win)
    if shape == spanned:
        return found
    return pad_by(k, found, [0] * x.rank, [a - b for a, b in zip(shape, spanned, strict=True)], "constant")


def _unpooled(k: Builder, x: Value, indices: Value, win: Windows) -> Value:
    """For each place that the windows span, the last element that aims at it.

    Elements that MaxPool yielded lie in a window over their place, so few need to be looked at. Whether
    all do is found out first; where one does not, every element is looked at for every place.
    """
    axes, plane, spanned = len(win.sizes), prod(win.counts), (*x.shape[:2], *win.sizes)
    targets, elements = k.alias(indices, (prod(x.shape[:2]), plane)), k.alias(x, (x.size,))
    reach = [-(-size // step) for size, step in zip(win.kernel, win.strides, strict=True)]

    def along(position: Expr, sizes: Sequence[int]) -> list[Expr]:
        inner = [prod(sizes[a + 1 :]) for a in range(axes)]
        return [position // arg(inner[a]) % arg(sizes[a]) for a in range(axes)]

    def is_own(p: Expr, e: Expr) -> Expr:
        place = cast(targets[p, e], "index") - p * prod(win.sizes)
        own = (place >= lit(0)) & (place < arg(prod(win.sizes)))
        for a, (i, window) in enumerate(zip(along(place, win.sizes), along(e, win.counts), strict=True)):
            tap = i - window * win.strides[a] + win.begins[a]
            own = own & (tap >= lit(0)) & (tap < arg(win.kernel[a]))
        return cast(own, "int32")

    by_plane = k.compute(targets.shape[:1], INT32, lambda p: reduce("min", plane, lambda e: is_own(p, e)))
    every = k.compute((1,), INT32, lambda _: reduce("min", by_plane.size, lambda p: by_plane[p]))
    flat = k.alias(indices, (x.size,))

    total, rows = prod(spanned), k.alias(x, (1, x.size, 1))
    aim = known_or_computed(k, (1, x.size, 1), lambda e: cast(flat[e], "int32"), flat)
    zeros = k.alias(k.compute((total,), x.dtype, lambda _: lit(0, x.arithmetic)), (1, total, 1))
    attributes = {"whole": True, "reduction": "none"}

    def formula(n: Expr, c: Expr, *at: Expr) -> Expr:
        own = every[lit(0)] > lit(0, "int32")
        place: Expr = lit(0)
        for i, size in zip((n, c, *at), spanned, strict=True):
            place = place * size + i
        first = [
            # The first window over a place; rounded up, and surely not beyond it.
            clamp(
                (at[a] + win.begins[a]) // arg(win.strides[a]) - reach[a] + lit(1), lit(0), arg(win.counts[a])
            )
            for a in range(axes)
        ]

        def near(r: Expr) -> tuple[Expr, Expr]:
            """The r-th element whose window may cover the place, and whether there is one."""
            element, there = n * x.shape[1] + c, lit(True, "bool")
            for a in range(axes):
                window = first[a] + r // arg(prod(reach[a + 1 :])) % arg(reach[a])
                there = there & (window < arg(win.counts[a]))
                element = element * win.counts[a] + window
            return element, there

        def step(r: Expr, found: Expr) -> tuple[Expr]:
            element, there = near(r)
            element = select(own, element, r)
            hit = there | ~own
            hit = hit & eq(cast(flat.load_where(hit, (element,), -1), "index"), place)
            return (select(hit, elements.load_where(hit, (element,)), found),)

        extent = select(own, arg(prod(reach)), arg(x.size))
        return fold(extent, (lit(0, x.arithmetic),), step)[0]

    return k.compute(spanned, x.dtype, formula, hint=lambda: Hint("scatter", (zeros, aim, rows), attributes))


# AffineGrid


@operator("AffineGrid", since=20, host=("size",))
def affine_grid(k: Builder, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """Coordinates for GridSample: theta (N, axes, axes + 1) times the place (x, y[, z], 1), from -1 to 1."""
    sizes = k.ints(size)
    axes = len(sizes) - 2
    if axes not in (2, 3) or min(sizes) < 0 or theta.shape != (sizes[0], axes, axes + 1):
        k.error(
            "takes theta (N, 2, 3) for a size (N, C, H, W) or (N, 3, 4) for (N, C, D, H, W), "
            f"not {list(theta.shape)} for {sizes}"
        )
    kind = theta.arithmetic

    def coordinate(i: Expr, count: int) -> Expr:
        """From elements to -1..1; the only one of an axis with aligned corners is in the middle."""
        twice = cast(i * lit(2) + lit(0 if align_corners else 1), kind)
        if align_corners:
            return twice / arg(max(count - 1, 1), kind) - arg(1.0 if count > 1 else 0.0, kind)
        return twice / arg(count, kind) - 1.0

    def formula(n: Expr, *at: Expr) -> Expr:
        row, total = at[-1], theta[n, at[-1], lit(axes)]
        for j in range(axes):
            # The innermost axis is x.
            axis = axes - 1 - j
            total = total + theta[n, row, lit(j)] * coordinate(at[axis], sizes[2 + axis])
        return total

    return k.compute((sizes[0], *sizes[2:], axes), theta.dtype, formula)
