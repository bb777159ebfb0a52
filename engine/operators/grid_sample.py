"""GridSample: interpolates a tensor at positions that another tensor holds."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from engine.base.dtypes import INT32, arithmetic_type
from engine.kernels.expr import Expr, arg, cast, clamp, floor_mod, lit, maximum, minimum, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.interpolation import Tap, blends, of_axis, plane_strides
from engine.operators.registry import operator

MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}
PADDINGS = ("zeros", "border", "reflection")
CUBIC_A = -0.75


def coordinate(g: Expr, size: Expr, align_corners: bool) -> Expr:
    """Convert -1..1 to element coordinates: the ends are the outermost centres, or their outer edges."""
    n = cast(size, g.dtype)
    if align_corners:
        return (g + 1.0) * 0.5 * (n - 1.0)
    return ((g + 1.0) * n - 1.0) * 0.5


def brought_inside(x: Expr, size: Expr, mode: str, padding: str, align_corners: bool) -> Expr:
    """Map a coordinate outside the borders by the padding mode.

    In mode "cubic" a border repeats elements instead, as PyTorch and onnxruntime do it.
    """
    last = cast(size, x.dtype) - 1.0
    if padding == "border" and mode != "cubic":
        return clamp(x, lit(0.0, x.dtype), last)
    if padding == "reflection":
        low, span = (lit(0.0, x.dtype), last) if align_corners else (lit(-0.5, x.dtype), last + 1.0)
        # The distance from the lower border, folded at the upper one; a span of 0 has one place only.
        twice = maximum(span * 2.0, 1e-30)
        phase = (x - low) - unary("floor", (x - low) / twice) * twice
        return low + minimum(phase, twice - phase)
    # Indices must not overflow; so far outside, all coordinates read the same.
    return clamp(x, lit(-4.0, x.dtype), last + 4.0)


def element_index(i: Expr, size: Expr, padding: str, align_corners: bool) -> Expr:
    """Map an index next to a coordinate by the padding mode."""
    if padding == "reflection":
        repeated = 1 if align_corners else 0
        period = maximum((size - lit(repeated)) * 2, lit(1))
        phase = floor_mod(i, period)
        i = minimum(phase, period - lit(1 - repeated) - phase)
    return clamp(i, lit(0), size - lit(1))


def cubic_weight(d: Expr) -> Expr:
    """Keys' cubic convolution (1981) at a distance."""
    d, a = unary("abs", d), CUBIC_A
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    return select(d <= 1.0, near, select(d < 2.0, far, 0.0))


def linear_weight(d: Expr) -> Expr:
    """A triangle of width 2."""
    return maximum(1.0 - unary("abs", d), 0.0)


WEIGHTS: dict[str, tuple[int, int, Callable[[Expr], Expr]]] = {
    "linear": (0, 2, linear_weight),
    "cubic": (-1, 4, cubic_weight),
}
"""Per mode: the first element read (from the one below the coordinate), how many, and their weights."""


@operator("GridSample", since=16)
def grid_sample(
    k: Builder, x: Value, grid: Value, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:  # fmt: skip
    """x (N, C, *spatial) at grid (N, *out, axes), whose last axis holds coordinates, innermost axis first."""
    axes = x.rank - 2
    if axes < 1 or grid.rank != x.rank or grid.shape[-1] != axes or grid.shape[0] != x.shape[0]:
        k.error(f"takes x (N, C, ...) and grid (N, ..., axes), not {list(x.shape)} and {list(grid.shape)}")
    if mode not in MODES or padding_mode not in PADDINGS:
        k.error(
            f"mode {mode!r} is not one of {', '.join(MODES)}, or {padding_mode!r} of {', '.join(PADDINGS)}"
        )
    if x.size == 0 and grid.size:
        k.error(f"cannot read from {list(x.shape)}: it has no elements")
    sizes, kind, aligned = x.shape[2:], MODES[mode], bool(align_corners)
    dtype = np.dtype(np.float64 if x.arithmetic == "float64" else np.float32)
    batch, channels, places = x.shape[0], x.shape[1], prod(grid.shape[1:-1])
    planes = k.alias(x, (batch, channels, prod(sizes)))

    def place(n: Expr, p: Expr, axis: Expr) -> tuple[Expr, Expr]:
        """The coordinate along an axis, and the size of that."""
        # A literal distance between coordinates makes vectors.
        position = n * arg(places * axes) + p * lit(axes) + (lit(axes - 1) - axis)
        g = cast(grid.at(position), arithmetic_type(dtype))
        size = of_axis(axis, list(map(arg, sizes)))
        found = coordinate(g, size, aligned)
        if kind == "nearest":
            found = unary("round", found)
        return brought_inside(found, size, kind, padding_mode, aligned), size

    def element(i: Expr, size: Expr, axis: Expr) -> tuple[Expr, Expr]:
        """Whether an index counts, and how far from the first element of a plane it is."""
        inside = (i >= lit(0)) & (i < size) if padding_mode == "zeros" else lit(True, "bool")
        return inside, element_index(i, size, padding_mode, aligned) * of_axis(axis, plane_strides(sizes))

    shape = (*x.shape[:2], *grid.shape[1:-1])
    if kind == "nearest":

        def chosen(n: Expr, p: Expr) -> Expr:
            inside, position = lit(True, "bool"), lit(0)
            for axis in map(lit, range(axes)):
                at, size = place(n, p, axis)
                # Half a step outside the borders rounds to an element beyond them.
                is_there, own = element(cast(unary("floor", at + 0.5), "index"), size, axis)
                inside, position = inside & is_there, position + own
            return cast(select(inside, position, lit(-1)), "int32")

        found = k.compute((batch, places), INT32, chosen)

        def read(n: Expr, c: Expr, p: Expr) -> Expr:
            position = cast(found[n, p], "index")
            return planes.load_where(position >= lit(0), (n, c, position))

        return k.alias(k.compute((batch, channels, places), x.dtype, read), shape)
    first, count, weight = WEIGHTS[kind]

    def tap(n: Expr, axis: Expr, t: Expr, p: Expr) -> Tap:
        at, size = place(n, p, axis)
        i = cast(unary("floor", at), "index") + t + lit(first)
        return (*element(i, size, axis), weight(at - cast(i, at.dtype)))

    table = blends(k, (batch,), axes, count, (places,), dtype, tap)
    blended = k.compute(
        (batch, channels, places),
        x.dtype,
        lambda n, c, p: table.read(planes, (n, c), (n,), p),
        hint=lambda: table.hint(k, planes),
    )
    return k.alias(blended, shape)
