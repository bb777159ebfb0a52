"""Resize in all its modes, and its predecessor Upsample.

Where an output index reads from, and with which weights, depends on one axis at a time. So the host works
that out once per plan, as tables with a row per output index of an axis; the kernel looks its rows up. All
backends then read the same elements, which a coordinate near a boundary, computed on each, would not ensure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import prod, trunc

import numpy as np

from engine.base.dtypes import arithmetic_type
from engine.kernels.expr import FLOATS, Expr, arg, cast, clamp, lit, maximum, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.size import deferrable, deferred
from engine.kernels.value import Value
from engine.operators.builder import Builder, axis_groups
from engine.operators.registry import operator

FLOAT32 = np.float32
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
POLICIES = ("stretch", "not_larger", "not_smaller")


@deferrable
@dataclass(frozen=True)
class Sampling:
    """The attributes of Resize that decide which elements an output element blends."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    def problem(self) -> str | None:
        """Why the attributes are invalid, or None."""
        for name, value, known in (
            ("mode", self.mode, ("nearest", "linear", "cubic")),
            ("coordinate_transformation_mode", self.coordinates, COORDINATES),
            ("nearest_mode", self.nearest, NEAREST),
        ):
            if value not in known:
                return f"{name} is {value!r}; one of {', '.join(known)}"
        return "antialias needs mode linear or cubic" if self.antialias and self.mode == "nearest" else None


@deferrable
@dataclass(frozen=True)
class ResizedAxis:
    """A resized axis: sizes, scale, and the part to read (0 to 1 is all), for tf_crop_and_resize.

    `settled` says that the model decides whether the axis is resized, and not the sizes of this run.
    """

    size: int
    out: int
    scale: float = 1.0
    start: float = 0.0
    end: float = 1.0
    settled: bool = True

    @property
    def is_kept(self) -> bool:
        """Whether the axis is unchanged."""
        return self.size == self.out and (self.scale, self.start, self.end) == (1.0, 0.0, 1.0)


def source_coordinates(axis: ResizedAxis, kind: str) -> np.ndarray:
    """The position of each output index among the input's, as float32 (ONNX's formulas by name)."""
    i = np.arange(axis.out, dtype=FLOAT32)
    scale, half, last = FLOAT32(axis.scale), FLOAT32(0.5), FLOAT32(axis.size - 1)
    # The length before it was cut to a whole number.
    length = scale * FLOAT32(axis.size)
    if kind == "asymmetric":
        return i / scale
    if kind == "tf_half_pixel_for_nn":
        return (i + half) / scale
    if kind == "align_corners":
        return np.zeros_like(i) if axis.out == 1 or length == 1 else i * last / (length - FLOAT32(1))
    if kind == "tf_crop_and_resize":
        start, end = FLOAT32(axis.start), FLOAT32(axis.end)
        if axis.out == 1:
            return np.full_like(i, half * (start + end) * last)
        return start * last + i * (end - start) * last / FLOAT32(axis.out - 1)
    if kind == "pytorch_half_pixel" and axis.out == 1:
        return np.zeros_like(i)
    x = (i + half) / scale
    if kind == "half_pixel_symmetric":
        x = FLOAT32(axis.size) * half * (FLOAT32(1) - FLOAT32(axis.out) / length) + x
    return x - half


def nearest_index(x: np.ndarray, rounding: str, shrinking: bool) -> np.ndarray:
    """Coordinates rounded to whole indices."""
    if rounding == "simple":
        rounding = "ceil" if shrinking else "floor"
    if rounding in ("floor", "ceil"):
        found = np.floor(x) if rounding == "floor" else np.ceil(x)
    elif rounding == "round_prefer_floor":
        found = np.ceil(x - FLOAT32(0.5))
    else:
        found = np.floor(x + FLOAT32(0.5))
    return found.astype(np.int64)


def kernel_weights(distance: np.ndarray, mode: str, a: float) -> np.ndarray:
    """The weight of an element at a distance: a triangle, or Keys' cubic convolution (1981)."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1.0 - d, 0.0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def first_tap(axis: ResizedAxis, sampling: Sampling) -> int:
    """Offset of the first element that one output blends, from the one below its coordinate."""
    return trunc(np.floor(-(1 if sampling.mode == "linear" else 2) / tap_width(axis, sampling))) + 1


def tap_width(axis: ResizedAxis, sampling: Sampling) -> float:
    """The kernel's width; larger when shrinking with antialias."""
    return min(axis.scale, 1.0) if sampling.antialias else 1.0


def tap_count(axis: ResizedAxis, sampling: Sampling) -> int:
    """How many elements along an axis one output blends."""
    if axis.is_kept or sampling.mode == "nearest":
        return 1
    return 2 - 2 * first_tap(axis, sampling)


@lru_cache(maxsize=256)
def axis_table(axis: ResizedAxis, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Indices (out, taps) to read along an axis and their weights; index -1 is outside the crop.

    They are shared: do not write them.
    """
    if not axis.size:
        return np.zeros((0, 1)), np.zeros((0, 1))
    if axis.is_kept:
        return np.arange(axis.size)[:, None], np.ones((axis.size, 1))
    x = source_coordinates(axis, sampling.coordinates)
    if sampling.mode == "nearest":
        indices = nearest_index(x, sampling.nearest, axis.scale < 1)[:, None]
        weights = np.ones(indices.shape)
    else:
        width, first = tap_width(axis, sampling), first_tap(axis, sampling)
        # A whole coordinate is taken as the right end of its interval, as the specification's reference does.
        base = np.ceil(x).astype(np.int64) - 1 if sampling.antialias else np.floor(x).astype(np.int64)
        indices = base[:, None] + np.arange(first, 2 - first)
        weights = kernel_weights(
            (indices - x[:, None].astype(np.float64)) * width, sampling.mode, sampling.cubic_a
        )
        if sampling.exclude_outside:
            weights = np.where((indices >= 0) & (indices < axis.size), weights, 0.0)
        if sampling.exclude_outside or sampling.antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1.0, total)
    indices = np.minimum(np.maximum(indices, 0), axis.size - 1)
    if sampling.coordinates == "tf_crop_and_resize":
        indices[(x < 0) | (x > axis.size - 1)] = -1
    return indices, weights


@lru_cache(maxsize=64)
def joined_tables(axes: tuple[ResizedAxis, ...], sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """The tables of all axes, concatenated.

    A tap's entries are adjacent, so that neighbouring outputs read neighbouring ones.
    """
    tables = [axis_table(axis, sampling) for axis in axes]
    indices = np.concatenate([t.T.reshape(-1) for t, _ in tables]).astype(np.int32)
    return indices, np.concatenate([w.T.reshape(-1) for _, w in tables])


@deferrable
def joined_indices(axes: tuple[ResizedAxis, ...], sampling: Sampling) -> np.ndarray:
    """Which elements along each axis its outputs blend."""
    return joined_tables(axes, sampling)[0]


@deferrable
def joined_weights(axes: tuple[ResizedAxis, ...], sampling: Sampling) -> np.ndarray:
    """The tap weights along each axis, concatenated."""
    return joined_tables(axes, sampling)[1]


def resample(
    k: Builder, x: Value, axes: Sequence[ResizedAxis], sampling: Sampling, extrapolation: float = 0.0
) -> Value:
    """The resized tensor; `axes` has one entry per axis of `x`."""
    if message := sampling.problem():
        k.error(message)
    shape = [axis.out for axis in axes]
    if x.size == 0 and all(n > 0 for n in shape):
        k.error(f"cannot resize {list(x.shape)} to {shape}: it has no elements")
    crops = sampling.coordinates == "tf_crop_and_resize"
    moving = [a for a, axis in enumerate(axes) if not (axis.settled and axis.is_kept)]
    if sampling.mode == "nearest" or crops or len(moving) < 2:
        return _blended(k, x, axes, sampling, x.dtype, extrapolation)
    # One axis after another: the taps add up instead of multiplying. What shrinks most comes first. Along the
    # innermost axis, elements are read one by one: it stands between those that shrink and those that grow.
    ratios = {
        a: axes[a].out / max(axes[a].size, 1) if axes[a].settled and a < x.rank - 1 else 1.0 for a in moving
    }
    dtype, wide = x.dtype, x.dtype if x.dtype == np.float64 else np.dtype(FLOAT32)
    for turn, a in enumerate(sorted(moving, key=lambda a: (ratios[a], -a))):
        only = [
            axis if b == a else ResizedAxis(n, n)
            for b, (axis, n) in enumerate(zip(axes, x.shape, strict=True))
        ]
        is_last = turn == len(moving) - 1
        x = _blended(k, x, only, sampling, dtype if is_last and dtype.kind not in "iub" else wide)
    # Apart from the blend, so that a backend may have a kernel for it.
    return x if x.dtype == dtype else k.elementwise(lambda e: _stored(e, dtype), x, dtype=dtype)


_WRITTEN_TAPS = 16
"""Taps that a kernel has written out, so that its loop over elements runs as vectors."""


def _blended(
    k: Builder,
    x: Value,
    axes: Sequence[ResizedAxis],
    sampling: Sampling,
    dtype: np.dtype,
    extrapolation: float = 0.0,
) -> Value:
    """The tensor resized along all axes at once, as elements of `dtype`."""
    taps = [tap_count(axis, sampling) if axis.size else 1 for axis in axes]
    counts = [(axis.out if axis.size else 0) * count for axis, count in zip(axes, taps, strict=True)]
    for count in counts:
        k.check_table(count)
    offsets = [0, *accumulate(counts)]
    kind = x.dtype if x.dtype == np.float64 else np.dtype(FLOAT32)
    given = (tuple(axes), sampling)
    rows = k.table(offsets[-1], np.dtype(np.int32), joined_indices, *given)
    weights = k.table(offsets[-1], kind, joined_weights, *given)
    crops = sampling.coordinates == "tf_crop_and_resize"
    idle = [axis.settled and axis.is_kept for axis in axes]
    groups = axis_groups([is_idle or None for is_idle in idle])

    def formula(*at: Expr) -> Expr:
        inside: Expr = lit(True, "bool")
        moving: list[tuple[int, Expr]] = []
        start: Expr = lit(0)
        for i, group in zip(at, groups, strict=True):
            a = group[-1]
            if idle[a]:
                start = start + i * (lit(1) if a == x.rank - 1 else arg(x.stride(a)))
                continue
            row = arg(offsets[a]) + i
            moving.append((a, row))
            if crops:
                inside = inside & (rows.at(row) >= lit(0, "int32"))

        def blend(position: Expr, left: Sequence[tuple[int, Expr]]) -> Expr:
            if not left:
                value = x.at(position)
                return value if sampling.mode == "nearest" else cast(value, weights.arithmetic)
            (a, row), rest = left[0], left[1:]

            def source(entry: Expr) -> Expr:
                index = maximum(cast(rows.at(entry), "index"), lit(0))
                return position + index * (lit(1) if a == x.rank - 1 else arg(x.stride(a)))

            if sampling.mode == "nearest":
                return blend(source(row), rest)
            count = lit(taps[a]) if axes[a].settled and taps[a] <= _WRITTEN_TAPS else arg(taps[a])

            def tap(r: Expr) -> Expr:
                entry = row + r * arg(axes[a].out)
                return weights.at(entry) * blend(source(entry), rest)

            return reduce("sum", count, tap)

        value = blend(start, moving)
        if crops:
            value = select(inside, value, _number(extrapolation, value))
        return value if value.dtype == arithmetic_type(dtype) else _stored(value, dtype)

    def resample_hint(axis: int) -> Hint:
        attributes = {
            "outer": prod(x.shape[:axis]), "size": x.shape[axis], "out": axes[axis].out,
            "inner": prod(x.shape[axis + 1 :]), "first": offsets[axis], "taps": taps[axis],
            "is_innermost": axis == x.rank - 1,
            "is_inner_static": all(x.is_static(a) for a in range(axis + 1, x.rank)),
        }  # fmt: skip
        return Hint("resample", (x, rows, weights), attributes)

    def hint() -> Hint | None:
        moving = [a for a in range(x.rank) if not idle[a]]
        if sampling.mode != "nearest" and not crops and len(moving) == 1:
            return resample_hint(moving[0])
        if sampling.mode != "nearest" or crops or x.rank < 2 or not all(idle[:-2]) or idle[-1]:
            return None
        planes = k.alias(x, (prod(x.shape[:-2]), *x.shape[-2:]))
        attributes = {
            "out_rows": axes[-2].out, "out_columns": axes[-1].out,
            "row_places": offsets[x.rank - 2], "column_places": offsets[x.rank - 1],
        }  # fmt: skip
        return Hint("resize_nearest", (planes, rows), attributes)

    return k.compute([axis.out for axis in axes], dtype, formula, groups=groups, hint=hint)


def _number(number: float, like: Expr) -> Expr:
    return arg(number if like.dtype in FLOATS else int(number), like.dtype)


def _stored(value: Expr, dtype: np.dtype) -> Expr:
    """A blended value as an element of `dtype`: whole numbers are rounded and stay within its range."""
    if dtype == np.dtype(bool):
        return value > lit(0.5, value.dtype)
    info = np.iinfo(dtype)
    rounded = unary("round", value)
    if dtype.itemsize < 4:
        rounded = clamp(rounded, lit(float(info.min), value.dtype), lit(float(info.max), value.dtype))
    return cast(rounded, arithmetic_type(dtype))


# The operators


def scaled_axes(k: Builder, x: Value, axes: Sequence[int], scales: Sequence[float]) -> list[ResizedAxis]:
    """Each axis with its output size, from scales for some of them."""
    if len(scales) != len(axes) or not all(s > 0 for s in scales):
        k.error(f"takes one scale above 0 for each of {len(axes)} axes, not {list(scales)}")
    found = [ResizedAxis(n, n) for n in x.shape]
    for a, scale in zip(axes, scales, strict=True):
        found[a] = ResizedAxis(x.shape[a], deferred(scaled_size, x.shape[a], float(scale)), float(scale))
    return found


@deferrable
def scaled_size(size: int, scale: float) -> int:
    """A size times a scale, in float32 as ONNX has it."""
    return int(FLOAT32(size) * FLOAT32(scale))


def sized(k: Builder, x: Value, axes: Sequence[int], sizes: Sequence[int], policy: str) -> list[ResizedAxis]:
    """Output sizes of all axes, given for some; a policy may keep the aspect ratio."""
    if len(sizes) != len(axes) or any(n < 1 for n in sizes) or any(x.shape[a] < 1 for a in axes):
        k.error(f"takes one size above 0 for each of {len(axes)} axes of {list(x.shape)}, not {list(sizes)}")
    k.one_of("keep_aspect_ratio_policy", policy, POLICIES)
    ratios = [size / x.shape[a] for a, size in zip(axes, sizes, strict=True)]
    found = [ResizedAxis(n, n) for n in x.shape]
    for a, size, ratio in zip(axes, sizes, ratios, strict=True):
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            size = trunc(ratio * x.shape[a] + 0.5)
        found[a] = ResizedAxis(x.shape[a], size, ratio, settled=x.signature is None or x.is_static(a))
    return found


def floats(x: Value | None) -> list[float]:
    """The elements of a known tensor of floats, none for one that is left out."""
    return [] if x is None or x.size == 0 else [float(v) for v in np.asarray(x.known).reshape(-1)]


@operator("Resize", since=11, host=("roi", "scales", "sizes"))
def resize(
    k: Builder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """Resampled to `sizes`, or by `scales`, along `axes` (default: all)."""
    sampling = Sampling(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(antialias),
        bool(exclude_outside),
    )
    along = [k.axis(a, x.rank) for a in (range(x.rank) if axes is None else axes)]
    factors, targets, region = floats(scales), [] if sizes is None else k.ints(sizes), floats(roi)
    if bool(factors) == bool(targets):
        k.error("takes either scales or sizes")
    if factors:
        found = scaled_axes(k, x, along, factors)
    else:
        found = sized(k, x, along, targets, keep_aspect_ratio_policy)
    if sampling.coordinates == "tf_crop_and_resize":
        if len(region) != 2 * len(along):
            k.error(f"takes a roi of {2 * len(along)} numbers, not {len(region)}")
        for position, a in enumerate(along):
            found[a] = replace(found[a], start=region[position], end=region[position + len(along)])
    return resample(k, x, found, sampling, extrapolation_value)


@operator("Resize", since=10, until=10, host=("scales",))
@operator("Upsample", since=9, host=("scales",), attributes_before={"scales": float})
def upsample(k: Builder, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    """By scales; mode nearest or linear."""
    sampling = Sampling("linear" if mode == "bilinear" else mode, "asymmetric", "simple")
    return resample(k, x, scaled_axes(k, x, range(x.rank), floats(scales)), sampling)
