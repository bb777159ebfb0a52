"""Deprecated and small layers that onnxruntime still accepts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, eq, lit, maximum, minimum, reduce, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.elementwise import identity
from engine.operators.movement import slice_, slice_by
from engine.operators.registry import operator

operator("DynamicSlice", since=1, host=("starts", "ends", "axes", "steps"))(slice_)
operator("MemcpyFromHost", since=1)(identity)
operator("MemcpyToHost", since=1)(identity)
operator("SampleOp", domain=CONTRIB)(identity)


@operator("Scale", since=1)
def scale_(k: Builder, x: Value, *, scale: float = 1.0) -> Value:
    """x * scale."""
    return k.elementwise(lambda e: e * arg(scale, e.dtype), x)


@operator("Crop", since=1)
def crop(k: Builder, x: Value, *, border: Sequence[int] = (), scale: Sequence[int] = ()) -> Value:
    """x (N, C, H, W) without its border (left, top, right, bottom), or from there on as large as `scale`."""
    if x.rank != 4 or len(border) != 4 or len(scale) not in (0, 2):
        k.error(f"takes x (N, C, H, W), 4 borders and a height and width, not {x}, {border} and {scale}")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    ends = (top + scale[0], left + scale[1]) if scale else (height - bottom, width - right)
    if left < 0 or top < 0 or not (top <= ends[0] <= height and left <= ends[1] <= width):
        k.error(f"cannot take rows {top} to {ends[0]} and columns {left} to {ends[1]} of {list(x.shape)}")
    return slice_by(k, x, (top, left), ends, (2, 3), None)


@operator("UnfoldTensor", domain=CONTRIB)
def unfold_tensor(k: Builder, x: Value, *, dim: int = -1, size: int, step: int = 1) -> Value:
    """Windows of `size` along an axis, every `step`; their elements are a new last axis."""
    axis = k.axis(dim, x.rank)
    if x.rank == 0 or step < 1 or not 1 <= size <= x.shape[axis]:
        k.error(f"cannot take windows of {size}, every {step}, along axis {dim} of {list(x.shape)}")
    count = (x.shape[axis] - size) // step + 1

    def formula(*at: Expr) -> Expr:
        place = [*at[:-1]]
        place[axis] = at[axis] * step + at[-1]
        return x[tuple(place)]

    return k.compute((*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype, formula)


@operator("CropAndResize", domain=CONTRIB, host=("crop_size",))
def crop_and_resize(
    k: Builder, x: Value, rois: Value, batch_indices: Value, crop_size: Value, *,
    extrapolation_value: float = 0.0, mode: str = "bilinear",
) -> Value:  # fmt: skip
    """Boxes (y1, x1, y2, x2) in parts of an image's size, resized to `crop_size` with aligned corners."""
    sizes = k.ints(crop_size)
    k.one_of("mode", mode, ("bilinear", "nearest"))
    count = batch_indices.size
    if x.rank != 4 or rois.shape != (count, 4) or len(sizes) != 2 or min(sizes) < 1:
        k.error(f"takes x (N, C, H, W), boxes (R, 4), R images and a size, not {x}, {rois} and {sizes}")

    def place(r: Expr, i: Expr, axis: int) -> Expr:
        low, high, last = rois[r, lit(axis)], rois[r, lit(axis + 2)], arg(x.shape[2 + axis] - 1, "float32")
        if sizes[axis] == 1:
            return (low + high) * 0.5 * last
        return low * last + cast(i, "float32") * ((high - low) * last / arg(sizes[axis] - 1, "float32"))

    def formula(r: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
        image = cast(batch_indices[r], "index")
        at = place(r, i, 0), place(r, j, 1)
        inside = lit(True, "bool")
        ends: list[tuple[Expr, Expr, Expr]] = []
        for axis, position in enumerate(at):
            last = x.shape[2 + axis] - 1
            inside = inside & (position >= 0.0) & (position <= arg(last, "float32"))
            held = minimum(maximum(position, 0.0), arg(last, "float32"))
            if mode == "nearest":
                # Halves go away from 0, as by C's round.
                near = cast(unary("floor", held + 0.5), "index")
                ends.append((near, near, lit(0.0, "float32")))
            else:
                low = unary("floor", held)
                ends.append((cast(low, "index"), cast(unary("ceil", held), "index"), held - low))
        (top, bottom, down), (left, right, across) = ends

        def row(y: Expr) -> Expr:
            first = x[image, c, y, left]
            return first + (x[image, c, y, right] - first) * across

        found = row(top) if mode == "nearest" else row(top) + (row(bottom) - row(top)) * down
        return select(inside, found, arg(extrapolation_value, found.dtype))

    return k.compute((count, x.shape[1], *sizes), x.dtype, formula)


@operator("NGramRepeatBlock", domain=CONTRIB)
def ngram_repeat_block(k: Builder, input_ids: Value, scores: Value, *, ngram_size: int) -> Value:
    """Scores, -inf for tokens that would end a run of `ngram_size` tokens which has been there before."""
    if input_ids.rank != 2 or scores.rank != 2 or input_ids.shape[0] != scores.shape[0] or ngram_size < 1:
        k.error(f"takes ids (N, T) and scores (N, V), not {input_ids} and {scores}")
    batch, length = input_ids.shape
    count = length - ngram_size + 1
    if count < 1:
        return k.alias(scores, scores.shape)

    def banned(b: Expr, i: Expr) -> Expr:
        """The token that followed the same run at `i`, or -1."""

        def alike(r: Expr) -> Expr:
            return cast(eq(input_ids[b, i + r], input_ids[b, r + count]), "int32")

        same = reduce("sum", ngram_size - 1, alike)
        token = cast(input_ids[b, i + (ngram_size - 1)], "int32")
        return select(eq(same, cast(arg(ngram_size - 1), "int32")), token, lit(-1, "int32"))

    tokens = k.compute((batch, count), np.dtype(np.int32), banned)

    def formula(b: Expr, v: Expr) -> Expr:
        hits = reduce("sum", count, lambda i: cast(eq(tokens[b, i], cast(v, "int32")), "int32"))
        return select(hits > lit(0, "int32"), lit(float("-inf"), scores.arithmetic), scores[b, v])

    return k.compute(scores.shape, scores.dtype, formula)
