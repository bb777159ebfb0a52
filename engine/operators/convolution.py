"""Conv and ConvTranspose over any number of spatial axes, with groups and dilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, lit, reduce_axes
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.layout import FIRST, Layout
from engine.operators.linear import PLAIN, Zeros, less, matmul, zero_at
from engine.operators.registry import operator
from engine.operators.windows import ConvAttributes, Windows, slide


def add_bias(k: Builder, x: Value, bias: Value | None, layout: Layout = FIRST) -> Value:
    """Add one number per channel."""
    if bias is None:
        return x
    return k.elementwise(lambda e, b: e + b, x, layout.per_channel(k, bias, x.rank))


@operator("Conv", since=1)
def conv(k: Builder, x: Value, w: Value, b: Value | None = None, *, sliding: ConvAttributes) -> Value:
    """x (N, C, *spatial), w (M, C/group, *kernel), b (M) -> (N, M, *out)."""
    return add_bias(k, convolve(k, x, w, sliding), b)


def convolve(
    k: Builder, x: Value, w: Value, sliding: ConvAttributes, zeros: Zeros = PLAIN,
    dtype: np.dtype | None = None, source: Layout = FIRST, target: Layout = FIRST,
) -> Value:  # fmt: skip
    """`conv` of x and w less their zero points, without a bias; sums have `dtype`.

    x is stored as `source` says, the result as `target`; w is (M, C/group, *kernel), but see `taps_first`.
    """
    spatial, group = x.rank - 2, sliding.group
    if spatial == 3 and w.rank == 5:
        return _by_planes(k, x, w, sliding, zeros, dtype, source, target)
    if spatial < 1 or w.rank != x.rank:
        k.error(
            "takes x (N, C, ...) and w (M, C/group, ...) of one rank, "
            f"not {list(x.shape)} and {list(w.shape)}"
        )
    batch, depth, sizes = source.split(x.shape)
    check_weights(k, depth, w.shape, sliding)
    win = slide(k, sizes, w.shape[2:], sliding)
    w, win, auto_pad = _without_idle_taps(k, x, w, win, sliding.auto_pad, source)
    if prod(win.kernel) > MANY_TAPS:
        if group == 1 and zeros == PLAIN and _is_one_product(x, w, win, source):
            return _as_product(k, x, w, win, dtype, source, target)
        if spatial == 2 and min(win.kernel) > 1:
            return _by_rows(k, x, w, win, group, zeros, dtype, source, target)
    per_group = w.shape[0] // group

    def formula(*indices: Expr) -> Expr:
        n, m, at = target.split(indices)
        x_zero, w_zero = zero_at(zeros[0], lit(0)), zero_at(zeros[1], m)
        first = lit(0) if group == 1 else (m // arg(per_group)) * w.shape[1]
        # With SAME the padding depends on the size, and sizes must not choose a kernel.
        padded = any(win.begins) or any(win.ends) or auto_pad.startswith("SAME")

        def tap(channel: Expr, *found: Expr) -> Expr:
            sources = [win.source(i, at[i], found[i]) for i in range(spatial)]
            weight = less(w[(m, channel, *found)], w_zero)
            position = source.order(n, first + channel, sources)
            outside = 0 if x_zero is None else x_zero
            value = x.load_where(win.inside(sources), position, outside) if padded else x[position]
            return less(value, x_zero) * weight

        return reduce_axes("sum", w.shape[1:], tap)

    shape = target.order(batch, w.shape[0], win.counts)
    attributes = {
        "strides": win.strides, "dilations": win.dilations, "pads": win.begins, "group": group,
        "channels_last": target.channels_last, "x_first": not source.channels_last,
        "zeros": tuple(zero is not None for zero in zeros),
    }  # fmt: skip
    operands = (x, w, *(zero for zero in zeros if zero is not None))
    hint = Hint("conv" if len(operands) == 2 else "conv_integer", operands, attributes)
    return k.compute(shape, x.dtype if dtype is None else dtype, formula, hint=lambda: hint)


def check_weights(k: Builder, channels: int, weights: Sequence[int], sliding: ConvAttributes) -> None:
    """Refuse weights (M, C/group, *kernel) that do not fit the attributes or the input's channels."""
    kernel, group = tuple(weights[2:]), sliding.group
    if tuple(sliding.kernel_shape or kernel) != kernel:
        k.error(f"kernel_shape {tuple(sliding.kernel_shape)} contradicts the weights {list(weights)}")
    if weights[1] * group != channels or weights[0] % group:
        k.error(f"{channels} input channels do not fit weights {list(weights)} in {group} group(s)")


MANY_TAPS = 1024
"""Elements of a window beyond which its rows are taken for channels, of which kernels take any number."""

FEW_PRODUCTS = 1 << 21
"""Elements that all of its windows read together, up to which such a convolution is one product with them."""

MOST_COPIES = 8
"""The same for how often each element is read, which does not depend on sizes."""


def _without_idle_taps(
    k: Builder, x: Value, w: Value, win: Windows, auto_pad: str, source: Layout
) -> tuple[Value, Windows, str]:
    """Constant weights without the rows and columns that meet nothing but padding, for sizes that stay.

    Late layers of networks for larger images have windows of 3 x 3 over a single element.
    """
    spatial = len(win.sizes)
    axes = range(1, spatial + 1) if source.channels_last else range(2, spatial + 2)
    if w.known is None or not all(x.is_static(axis) for axis in axes):
        return w, win, auto_pad
    cut, begins, ends = [], [], []
    for size, kernel, stride, dilation, begin, count in zip(
        win.sizes, win.kernel, win.strides, win.dilations, win.begins, win.counts, strict=True
    ):
        starts = np.arange(count) * stride - begin
        met = [bool(np.any((at >= 0) & (at < size))) for at in (starts + t * dilation for t in range(kernel))]
        if not any(met):
            return w, win, auto_pad
        first, last = met.index(True), kernel - met[::-1].index(True)
        cut.append(slice(first, last))
        begins.append(begin - first * dilation)
        ends.append((count - 1) * stride + (last - first - 1) * dilation + 1 - size - begins[-1])
    kept = tuple(c.stop - c.start for c in cut)
    if kept == win.kernel or min(begins) < 0:
        return w, win, auto_pad
    array = np.ascontiguousarray(w.known[:, :, *cut])
    signature = None if w.signature is None else tuple((n,) * len(w.signature[0]) for n in array.shape)
    # Not `constant`: samples, which do not know what stays, would count the tensors that follow differently.
    weights = Value(f"{k.layer.name} taps that are met", array.shape, w.dtype, signature, array)
    trimmed = replace(win, kernel=kept, begins=tuple(begins), ends=tuple(max(end, 0) for end in ends))
    return weights, trimmed, "NOTSET"


def _by_rows(
    k: Builder, x: Value, w: Value, win: Windows, group: int, zeros: Zeros, dtype: np.dtype | None,
    source: Layout, target: Layout,
) -> Value:  # fmt: skip
    """A convolution with large windows: each row of a window as channels of its own, see `_by_planes`."""
    batch, channels, (rows, columns) = source.split(x.shape)
    (height, width), per_group = win.kernel, w.shape[1]
    kernel = (height, 1, width)
    order = (w.shape[0], height, per_group, 1, width)
    if taps_first(kernel, source) and w.known is not None:
        weights = k.constant(np.ascontiguousarray(w.known.swapaxes(1, 2)).reshape(order))
    elif taps_first(kernel, source):
        weights = k.compute(order, w.dtype, lambda m, r, c, _, t: w[m, c, r, t])
    else:
        weights = k.alias(w, (w.shape[0], per_group, *kernel))
    sliding = ConvAttributes(
        group=group, dilations=(win.dilations[0], 1, win.dilations[1]),
        pads=(win.begins[0], 0, win.begins[1], win.ends[0], 0, win.ends[1]),
        strides=(win.strides[0], 1, win.strides[1]),
    )  # fmt: skip
    by_row = k.alias(x, source.order(batch, channels, (rows, 1, columns)))
    y = convolve(k, by_row, weights, sliding, zeros, dtype, source, target)
    return k.alias(y, target.order(batch, w.shape[0], win.counts))


def _is_one_product(x: Value, w: Value, win: Windows, source: Layout) -> bool:
    """Whether what all windows read is little enough to be copied."""
    if prod(win.kernel) <= MOST_COPIES * prod(win.strides):
        return True
    axes = source.split(range(x.rank))[2]
    read = x.shape[0] * prod(win.counts) * w.size // max(1, w.shape[0])
    return read <= FEW_PRODUCTS and all(x.is_static(axis) for axis in axes)


def _as_product(
    k: Builder, x: Value, w: Value, win: Windows, dtype: np.dtype | None, source: Layout, target: Layout
) -> Value:
    """A convolution with few windows as one product with all they read."""
    batch, channels, _ = source.split(x.shape)
    count, taps, outputs = prod(win.counts), prod(win.kernel), w.shape[0]
    depth = channels * taps

    def element(n: Expr, o: Expr, i: Expr) -> Expr:
        at, tap = win.places(o), win.taps(i % arg(taps))
        sources = [win.source(axis, at[axis], tap[axis]) for axis in range(len(at))]
        return x.load_where(win.inside(sources), source.order(n, i // arg(taps), sources))

    read = k.compute((batch, count, depth), x.dtype, element)
    weights, shape = k.alias(w, (outputs, depth)), target.order(batch, outputs, win.counts)
    if target.channels_last:
        sizes = (1, batch * count, outputs, depth)
        return matmul(k, read, weights, shape, sizes, (0, depth, 1), (0, 1, depth), dtype)
    sizes = (batch, outputs, count, depth)
    return matmul(k, weights, read, shape, sizes, (0, depth, 1), (count * depth, 1, depth), dtype)


def taps_first(kernel: Sequence[int], layout: Layout) -> bool:
    """Whether `convolve` takes weights (M, depth, C/group, height, width), for an input in this layout.

    So they fit the unfolded input, in which the channels of a tap stay together where they are last.
    """
    return layout.channels_last and len(kernel) == 3 and prod(kernel[1:]) > 1


def _by_planes(
    k: Builder, x: Value, w: Value, sliding: ConvAttributes, zeros: Zeros, dtype: np.dtype | None,
    source: Layout, target: Layout,
) -> Value:  # fmt: skip
    """A convolution over three spatial axes as one over two, which backends have tuned kernels for.

    The taps along the depth become channels of the input: each plane of results reads the planes that its
    windows meet as one image with as many times the channels. Windows of one column are windows over (D,
    H * W), and nothing is copied.
    """
    batch, channels, sizes = source.split(x.shape)
    kernel = w.shape[2:]
    if taps_first(kernel, source):
        kernel = (w.shape[1], *w.shape[3:])
    per_group = w.size // max(1, w.shape[0] * prod(kernel))
    check_weights(k, channels, (w.shape[0], per_group, *kernel), sliding)
    win, auto_pad = slide(k, sizes, kernel, sliding), sliding.auto_pad
    plain = [s == (1, 1, 0, 0) for s in zip(kernel, win.strides, win.begins, win.ends, strict=True)]

    def flat(image: Value, weights: Value, axes: slice) -> Value:
        """The convolution over two axes; the padding's mode is passed on, as what it yields follows sizes."""
        padded = () if auto_pad.startswith("SAME") else (*win.begins[axes], *win.ends[axes])
        flattened = replace(
            sliding, dilations=win.dilations[axes], kernel_shape=(), pads=padded, strides=win.strides[axes]
        )
        return convolve(k, image, weights, flattened, zeros, dtype, source, target)

    depth, rows, columns = sizes
    shape = target.order(batch, w.shape[0], win.counts)
    if plain[1] and (plain[0] or plain[2]):
        # Two neighbouring axes along which each window has one element are walked as one.
        merged = (depth, rows * columns) if plain[2] else (depth * rows, columns)
        axes = slice(0, 2) if plain[2] else slice(1, 3)
        image = k.alias(x, source.order(batch, channels, merged))
        return k.alias(flat(image, k.alias(w, (w.shape[0], per_group, *kernel[axes])), axes), shape)
    unfolded = k.alias(w, (w.shape[0], per_group * kernel[0], *kernel[1:]))
    y = flat(_unfold(k, x, win, sliding.group, zeros, source, auto_pad), unfolded, slice(1, 3))
    if target.channels_last or (x.is_static(2) and win.counts[0] == 1):
        return k.alias(y, shape)
    count, area = win.counts[0], prod(win.counts[1:])
    planes = k.alias(y, (batch, count, w.shape[0], area))
    found = k.compute((batch, w.shape[0], count, area), y.dtype, lambda n, m, o, i: planes[n, o, m, i])
    return k.alias(found, shape)


def _unfold(
    k: Builder, x: Value, win: Windows, group: int, zeros: Zeros, layout: Layout, auto_pad: str
) -> Value:
    """Planes (N * out depth, C * taps, H, W), or with channels last (N * out depth, H, W, C * taps)."""
    batch, channels, (depth, rows, columns) = layout.split(x.shape)
    count, taps, area = win.counts[0], win.kernel[0], rows * columns
    planes = k.alias(
        x, (batch, depth, area, channels) if layout.channels_last else (batch, channels, depth, area)
    )
    is_plain = (taps, win.strides[0], win.begins[0], win.ends[0]) == (1, 1, 0, 0)
    is_padded = auto_pad.startswith("SAME") or win.begins[0] > 0 or win.ends[0] > 0
    zero = zero_at(zeros[0], lit(0))

    def element(n: Expr, o: Expr, t: Expr, channel: Expr, i: Expr) -> Expr:
        at = win.source(0, o, t)
        position = (n, at, i, channel) if layout.channels_last else (n, channel, at, i)
        if not is_padded:
            return planes[position]
        inside = (at >= lit(0)) & (at < arg(depth))
        return planes.load_where(inside, position, 0 if zero is None else zero)

    if layout.channels_last:
        shape = (batch * count, rows, columns, channels * taps)
        if is_plain:
            return k.alias(x, shape)
        per_group = channels // group
        if taps > 1 and not taps_first(win.kernel, layout):
            order = (batch, count, area, channels, taps)
            found = k.compute(order, x.dtype, lambda n, o, i, c, t: element(n, o, t, c, i))
        elif group == 1:
            order = (batch, count, area, taps, channels)
            found = k.compute(order, x.dtype, lambda n, o, i, t, c: element(n, o, t, c, i))
        else:
            found = k.compute(
                (batch, count, area, group, taps, per_group),
                x.dtype,
                lambda n, o, i, g, t, c: element(n, o, t, g * arg(per_group) + c, i),
            )
        return k.alias(found, shape)
    order = (batch, count, channels, taps, area)
    found = k.compute(order, x.dtype, lambda n, o, c, t, i: element(n, o, t, c, i))
    return k.alias(found, (batch * count, channels * taps, rows, columns))
