"""Region pooling: RoiAlign interpolates between pixels, MaxRoiPool rounds to pixels.

How many pixels or samples a region has is known when the kernel runs, so loops have lengths computed there.
Regions come from a detector and may be anything: loops are limited by the image's size, for any contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, maximum, minimum, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator

MODES = ("avg", "max")

MOST_SAMPLES = 1024
"""Samples along an axis of a bin that a file may ask for; detectors take 2."""
TRANSFORMATIONS = ("half_pixel", "output_half_pixel")


def _image_of(position: Expr, x: Value) -> Expr:
    """The number of an image, limited to those there are."""
    return clamp(cast(position, "index"), lit(0), arg(x.shape[0] - 1))


def _check(k: Builder, x: Value, rois: Value, columns: int, out: Sequence[int]) -> None:
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != columns:
        k.error(f"takes x (N, C, H, W) and rois (R, {columns}), not {list(x.shape)} and {list(rois.shape)}")
    if len(out) != 2 or any(n < 1 for n in out):
        k.error(f"cannot pool each region to {tuple(out)}: two sizes of 1 or more are needed")
    if x.size == 0 and rois.size and x.shape[1]:
        k.error(f"cannot read from {list(x.shape)}: it has no elements")


# RoiAlign


@dataclass(frozen=True)
class Samples:
    """The samples of one bin along one axis: those from `first` on, `count` of them, may touch the image."""

    base: Expr
    spacing: Expr
    total: Expr
    first: Expr
    count: Expr
    size: Expr

    def place(self, r: Expr) -> tuple[Expr, Expr]:
        """Whether the r-th sample is inside the image, and its coordinate, 0 to the last pixel."""
        kind = self.base.dtype
        y = self.base + (cast(self.first + r, kind) + 0.5) * self.spacing
        inside = (y >= lit(-1.0, kind)) & (y <= cast(self.size, kind)) & (self.first + r < self.total)
        return inside, clamp(y, lit(0.0, kind), cast(self.size - lit(1), kind))


def _pixels(place: Expr, size: Expr) -> tuple[Expr, Expr, Expr]:
    """The two pixels around a position along an axis, and the weight of the second."""
    last = size - lit(1)
    low = clamp(cast(place, "index"), lit(0), last)
    return low, minimum(low + lit(1), last), place - cast(low, place.dtype)


def _corners(
    x: Value, image: Expr, c: Expr, rows: tuple[Expr, Expr, Expr], columns: tuple[Expr, Expr, Expr]
) -> list[Expr]:
    """The four pixels around a sample, each times its weight."""
    (top, bottom, y), (left, right, z) = rows, columns
    return [
        x[image, c, top, left] * ((1.0 - y) * (1.0 - z)), x[image, c, top, right] * ((1.0 - y) * z),
        x[image, c, bottom, left] * (y * (1.0 - z)), x[image, c, bottom, right] * (y * z),
    ]  # fmt: skip


def samples(start: Expr, end: Expr, at: Expr, bins: int, size: Expr, ratio: int, whole: bool) -> Samples:
    """The samples of bin number `at` of a region start..end along an axis of `size` pixels.

    There are `ratio` of them, or one per pixel where that is 0. `whole` widens regions to a pixel or more.
    """
    kind = start.dtype
    extent = maximum(end - start, 1.0) if whole else end - start
    width = extent / arg(bins, kind)
    per_pixel = cast(unary("ceil", width), "index")
    total = arg(ratio) if ratio > 0 else per_pixel
    spacing = width / cast(total, kind)
    base = start + cast(at, kind) * width
    # One step early, as the division may round; samples a pixel apart or closer by at most a half.
    first = cast(clamp((-1.0 - base) / spacing - 1.5, 0.0, 1e9), "index")
    near = maximum(size * lit(2) + lit(8), arg(ratio))
    return Samples(base, spacing, total, first, clamp(total - first, lit(0), near), size)


_MOST_LISTED = 4
"""Samples along an axis of a bin whose places are listed once for all channels."""

_WRITTEN_SAMPLES = 4
"""Samples of a bin that a kernel has written out, so that its loop over bins runs as vectors."""


@operator("RoiAlign", since=10)
def roi_align(
    k: Builder, x: Value, rois: Value, batch_indices: Value, *,
    coordinate_transformation_mode: str | None = None, mode: str = "avg", output_height: int = 1,
    output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Value:  # fmt: skip
    """The mean (max) of bilinear samples in each bin of each region (He et al. 2017).

    Regions are moved by half a pixel from opset 16 on, unless the mode is "output_half_pixel".
    """
    out, ratio, images = (output_height, output_width), sampling_ratio, batch_indices
    transformation = coordinate_transformation_mode
    if transformation is None:
        transformation = "half_pixel" if k.version >= 16 else "output_half_pixel"
    _check(k, x, rois, 4, out)
    if mode not in MODES or transformation not in TRANSFORMATIONS or ratio < 0:
        k.error(
            f"mode {mode!r} is not one of {', '.join(MODES)}, coordinate_transformation_mode "
            f"{transformation!r} of {', '.join(TRANSFORMATIONS)}, or sampling_ratio {ratio} is negative"
        )
    if ratio > MOST_SAMPLES:
        k.error(f"sampling_ratio {ratio} is more than {MOST_SAMPLES} samples along an axis of each bin")
    if images.shape != rois.shape[:1]:
        k.error(f"{rois.shape[0]} regions need one batch index each, not {list(images.shape)}")
    shifted = transformation == "half_pixel"
    bins, channels = out[0] * out[1], x.shape[1]
    shape = (rois.shape[0], channels, *out)

    def axis(r: Expr, column: int, at: Expr) -> Samples:
        ends = [
            rois[r, lit(i)] * arg(spatial_scale, rois.arithmetic) - (0.5 if shifted else 0.0)
            for i in (column, column + 2)
        ]
        return samples(ends[0], ends[1], at, out[1 - column], x.dim(3 - column), ratio, not shifted)

    if mode == "avg" and 0 < ratio <= _MOST_LISTED:
        wide = rois.dtype if rois.dtype == np.float64 else np.dtype(np.float32)

        def place(r: Expr, side: Expr, t: Expr, p: Expr) -> Expr:
            row = p // arg(out[1])
            (in_y, y), (in_x, z) = axis(r, 1, row).place(t), axis(r, 0, p - row * arg(out[1])).place(t)
            return select(eq(side, lit(0)), select(in_y, y, -1.0), select(in_x, z, -1.0))

        # A bin's samples lie at the same places in all channels: those along y, then those along x.
        places = k.compute((rois.shape[0], 2, ratio, bins), wide, place)
        each = lit(ratio) if ratio**2 <= _WRITTEN_SAMPLES else arg(ratio)

        def mean(r: Expr, c: Expr, p: Expr) -> Expr:
            image = _image_of(images[r], x)

            def sample(i: Expr, j: Expr) -> Expr:
                y, z = places[r, lit(0), i, p], places[r, lit(1), j, p]
                corners = _corners(x, image, c, _pixels(y, x.dim(2)), _pixels(z, x.dim(3)))
                found = corners[0] + corners[1] + corners[2] + corners[3]
                return select((y >= lit(0.0, y.dtype)) & (z >= lit(0.0, z.dtype)), found, 0.0)

            found = reduce("sum", each, lambda i: reduce("sum", each, lambda j: sample(i, j)))
            return found / arg(ratio**2, found.dtype)

        found = k.compute(
            (rois.shape[0], channels, bins), x.dtype, mean,
            hint=lambda: Hint("roi_align", (x, places, images), {"ratio": ratio, "across": out[1]}),
        )  # fmt: skip
        return k.alias(found, shape)

    def formula(r: Expr, c: Expr, ph: Expr, pw: Expr) -> Expr:
        image = _image_of(images[r], x)
        rows, columns = axis(r, 1, ph), axis(r, 0, pw)

        def sample(i: Expr, j: Expr) -> Expr:
            (in_y, y), (in_x, z) = rows.place(i), columns.place(j)
            corners = _corners(x, image, c, _pixels(y, x.dim(2)), _pixels(z, x.dim(3)))
            if mode == "avg":
                found = corners[0] + corners[1] + corners[2] + corners[3]
            else:
                # The specification's reference compares the corners' shares and not the samples.
                found = maximum(maximum(corners[0], corners[1]), maximum(corners[2], corners[3]))
            return select(in_y & in_x, found, 0.0)

        kind = "sum" if mode == "avg" else "max"
        gathered = reduce(kind, rows.count, lambda i: reduce(kind, columns.count, lambda j: sample(i, j)))
        if mode == "avg":
            number = cast(rows.total, gathered.dtype) * cast(columns.total, gathered.dtype)
            return gathered / maximum(number, 1.0)
        # A sample that was left out counts as 0, and so does a region without any.
        left_out = (rows.count < rows.total) | (columns.count < columns.total)
        none = (rows.count < lit(1)) | (columns.count < lit(1))
        return select(none, 0.0, select(left_out, maximum(gathered, 0.0), gathered))

    return k.compute(shape, x.dtype, formula)


# MaxRoiPool


def nearest_pixel(x: Expr) -> Expr:
    """Rounded to the nearest integer, halves away from 0; of a size that can be added and multiplied."""
    whole = unary("trunc", x)
    away = select(unary("abs", x - whole) >= 0.5, unary("sign", x), 0.0)
    return cast(clamp(whole + away, -1e6, 1e6), "index")


@operator("MaxRoiPool", since=1)
def max_roi_pool(
    k: Builder, x: Value, rois: Value, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Value:
    """The largest pixel in each bin of each region (batch, x1, y1, x2, y2), ends included (Girshick 2015)."""
    _check(k, x, rois, 5, pooled_shape)

    def formula(r: Expr, c: Expr, ph: Expr, pw: Expr) -> Expr:
        image = _image_of(rois[r, lit(0)], x)

        def span(column: int, at: Expr) -> tuple[Expr, Expr]:
            """The first pixel of a bin, and how many it has, inside the image."""
            scale, bins = arg(spatial_scale, rois.arithmetic), arg(pooled_shape[2 - column])
            start, end = (nearest_pixel(rois[r, lit(i)] * scale) for i in (column, column + 2))
            extent, size = maximum(end - start + lit(1), lit(1)), x.dim(4 - column)
            first = clamp(start + (at * extent) // bins, lit(0), size)
            last = clamp(start + ((at + lit(1)) * extent + bins - lit(1)) // bins, lit(0), size)
            return first, last - first

        (top, height), (left, width) = span(2, ph), span(1, pw)

        def pixel(i: Expr, j: Expr) -> Expr:
            return x[image, c, minimum(top + i, x.shape[2] - 1), minimum(left + j, x.shape[3] - 1)]

        found = reduce("max", height, lambda i: reduce("max", width, lambda j: pixel(i, j)))
        return select((height > lit(0)) & (width > lit(0)), found, 0.0)

    return k.compute((rois.shape[0], x.shape[1], *pooled_shape), x.dtype, formula)
