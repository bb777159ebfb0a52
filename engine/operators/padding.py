"""Pad in all its modes, and CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.kernels.evaluate import evaluate
from engine.kernels.expr import Expr, arg, cast, clamp, floor_mod, index, lit, load, minimum
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value
from engine.operators.builder import Builder, axis_groups
from engine.operators.registry import operator

MODES = ("constant", "reflect", "edge", "wrap")


LONGEST_TABLE = 1 << 20
"""Elements of an axis up to which the places that it is padded from are a table."""


def source_of(mode: str, i: Expr, size: int) -> Expr:
    """The source index of position `i` for modes other than "constant"."""
    if mode == "edge":
        return clamp(i, lit(0), arg(size - 1))
    if mode == "wrap":
        return floor_mod(i, size)
    # Back and forth without repeating the ends.
    period = arg(max(2 * (size - 1), 1))
    phase = floor_mod(i, period)
    return minimum(phase, period - phase)


def source_table(mode: str, count: int, begin: int, size: int) -> np.ndarray:
    """`source_of` for each of `count` positions, of which `begin` precede the elements."""
    sources = cast(source_of(mode, index(0) - arg(begin), size), "int32")
    kernel, values, _ = kernel_call(sources, 1, np.dtype(np.int32))
    return evaluate(kernel, (count,), values, [])


def pad_by(
    k: Builder, x: Value, begins: Sequence[int], ends: Sequence[int], mode: str, value: Expr | None = None
) -> Value:
    """`begins` and `ends` elements more (negative: fewer) at both ends of each axis."""
    k.one_of("mode", mode, MODES)
    shape = [n + b + e for n, b, e in zip(x.shape, begins, ends, strict=True)]
    if any(n < 0 for n in shape):
        k.error(
            f"cannot remove {[-b for b in begins]} and {[-e for e in ends]} elements from {list(x.shape)}"
        )
    fill = lit(0, x.arithmetic) if value is None else value
    # What is cut off is out of reach for the padding too.
    cut = [max(0, -b) for b in begins]
    sizes = [n - c - max(0, -e) for n, c, e in zip(x.shape, cut, ends, strict=True)]
    if mode != "constant" and any(n < 1 for n in sizes) and all(n > 0 for n in shape):
        k.error(f"mode {mode!r} needs at least one element along each axis of {list(x.shape)}")
    # A size that no input shape changes is padded by what the model says, and by no accident of this run.
    padded = [a for a in range(x.rank) if begins[a] or ends[a] or not x.is_static(a)]
    groups = axis_groups([None if a in padded else "whole" for a in range(x.rank)])
    tables: list[np.ndarray] = []
    starts: dict[int, int] = {}
    if mode != "constant" and x.size:
        for axis in padded:
            if shape[axis] > LONGEST_TABLE:
                continue
            starts[axis] = sum(map(len, tables))
            tables.append(source_table(mode, shape[axis], max(0, begins[axis]), sizes[axis]))
    sources = k.constant(np.concatenate(tables)) if tables else None

    def formula(*at: Expr) -> Expr:
        position: Expr = lit(0)
        inside: Expr = lit(True, "bool")
        for i, group in zip(at, groups, strict=True):
            axis = group[-1]
            source = i
            if axis in padded:
                source = i - max(0, begins[axis])
                if mode == "constant":
                    inside = inside & (source >= lit(0)) & (source < arg(sizes[axis]))
                elif sources is not None and axis in starts:
                    # A table has neither a division nor a choice for each element.
                    source = cast(sources.at(arg(starts[axis]) + i), "index")
                elif x.size:
                    source = source_of(mode, source, sizes[axis])
                source = source + cut[axis]
            position = position + source * (lit(1) if axis == x.rank - 1 else arg(x.stride(axis)))
        if x.size == 0:
            return fill
        return load(x, position, inside, fill) if mode == "constant" else x.at(position)

    return k.compute(shape, x.dtype, formula, groups=groups)


def _pad(
    k: Builder, x: Value, pads: Sequence[int], axes: Sequence[int], mode: str, value: Expr | None
) -> Value:
    if len(pads) != 2 * len(axes):
        k.error(f"has {len(pads)} pads for {len(axes)} axes; needs two for each")
    begins, ends = [0] * x.rank, [0] * x.rank
    for position, axis in enumerate(axes):
        axis = k.axis(axis, x.rank)
        begins[axis], ends[axis] = pads[position], pads[position + len(axes)]
    return pad_by(k, x, begins, ends, mode, value)


@operator("Pad", since=2, until=10)
def pad_2(k: Builder, x: Value, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Value:
    """All begins, then all ends, as an attribute."""
    return _pad(k, x, pads, range(x.rank), mode, arg(value, x.arithmetic))


@operator("Pad", since=11, host=("pads", "axes"))
def pad(
    k: Builder, x: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None, *,
    mode: str = "constant",
) -> Value:  # fmt: skip
    """All begins, then all ends, of the named axes (default: all)."""
    given = constant_value is not None and constant_value.size and mode == "constant"
    value = constant_value.at(lit(0)) if given and constant_value is not None else None
    return _pad(k, x, k.ints(pads), range(x.rank) if axes is None else k.ints(axes), mode, value)


@operator("CenterCropPad", since=18, host=("shape",))
def center_crop_pad(k: Builder, x: Value, shape: Value, *, axes: Sequence[int] | None = None) -> Value:
    """Center-crop or zero-pad to `shape`; odd differences go to the end."""
    wanted = k.ints(shape)
    along = [k.axis(a, x.rank) for a in (range(x.rank) if axes is None else axes)]
    if len(wanted) != len(along):
        k.error(f"has {len(wanted)} sizes for {len(along)} axes")
    begins, ends = [0] * x.rank, [0] * x.rank
    for axis, size in zip(along, wanted, strict=True):
        more = size - x.shape[axis]
        begins[axis] = more // 2 if more >= 0 else -(-more // 2)
        ends[axis] = more - begins[axis]
    return pad_by(k, x, begins, ends, "constant")
