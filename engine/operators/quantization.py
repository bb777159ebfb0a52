"""Quantisation: QuantizeLinear, DequantizeLinear, and products of quantised tensors.

y = (x - zero point) * scale. Products add up in int32, which is exact on every backend, and are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from engine.base.dtypes import CODE_TYPES, FLOAT32, FLOAT_TYPES, INT32, UINT8, integer_range
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, maximum, minimum, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.casting import convert, dtype_of
from engine.operators.convolution import add_bias, check_weights, convolve
from engine.operators.linear import Zeros, product
from engine.operators.reductions import Reduction
from engine.operators.registry import operator
from engine.operators.small_floats import decoder, encoder
from engine.operators.windows import ConvAttributes

Formula = Callable[..., Expr]


def spread(
    k: Builder, formula: Formula, x: Value, parameters: Sequence[Value], dtype: np.dtype, axis: int = 1,
    block_size: int = 0,
) -> Value:  # fmt: skip
    """`formula` of each element and its parameters.

    A parameter is one number, a vector along `axis`, a tensor that broadcasts against x, or, with a
    `block_size`, a tensor with one entry for so many elements along `axis`.
    """
    if block_size:
        return _spread_blocks(k, formula, x, parameters, dtype, axis, block_size)
    views = []
    for p in parameters:
        if p.size == 1 and p.rank <= 1:
            p = k.alias(p, ())
        elif p.rank == 1:
            along = k.axis(axis, x.rank) if x.rank > 1 else 0
            if x.rank == 0 or p.size != x.shape[along]:
                k.error(f"{p.size} scales or zero points do not fit axis {along} of {list(x.shape)}")
            p = k.alias(p, (p.size, *(1,) * (x.rank - 1 - along)))
        views.append(p)
    if k.broadcast(x.shape, *(v.shape for v in views)) != x.shape:
        k.error(f"scales and zero points of {list(parameters[0].shape)} do not fit {list(x.shape)}")
    return k.elementwise(formula, x, *views, dtype=dtype)


def _spread_blocks(
    k: Builder, formula: Formula, x: Value, parameters: Sequence[Value], dtype: np.dtype, axis: int,
    block_size: int,
) -> Value:  # fmt: skip
    axis = k.axis(axis, x.rank)
    if x.rank == 0 or block_size < 1:
        k.error(f"cannot cut {list(x.shape)} into blocks of {block_size}")
    outer, size, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    blocks = -(-size // block_size)
    wanted = (*x.shape[:axis], blocks, *x.shape[axis + 1 :])
    for p in parameters:
        if p.shape != wanted:
            k.error(
                f"blocks of {block_size} along axis {axis} of {list(x.shape)} need scales and zero points "
                f"of shape {list(wanted)}, not {list(p.shape)}"
            )
    rows = k.alias(x, (outer, size, inner))
    cells = [k.alias(p, (outer, blocks, inner)) for p in parameters]

    def body(o: Expr, c: Expr, i: Expr) -> Expr:
        return formula(rows[o, c, i], *(p[o, c // arg(block_size), i] for p in cells))

    return k.alias(k.compute((outer, size, inner), dtype, body), x.shape)


def numbers_of(k: Builder, dtype: np.dtype) -> Callable[[Expr], Expr]:
    """A formula for elements of a quantised or float type as float32."""
    return decoder(k, dtype) if dtype.name in CODE_TYPES else lambda e: cast(e, "float32")


def levels(k: Builder, dtype: np.dtype, saturate: int = 1) -> Callable[[Expr, Expr | None], Expr]:
    """A formula that rounds x / scale, adds the zero point, and saturates to `dtype`."""
    if dtype.name in CODE_TYPES:
        encode, decode = encoder(k, dtype, "float32", saturate, "up"), decoder(k, dtype)
        return lambda x, zero: encode(x if zero is None else x + decode(zero))
    low, high = (float(end) for end in integer_range(dtype.name))

    def formula(x: Expr, zero: Expr | None) -> Expr:
        x = unary("round", x)
        x = x if zero is None else x + cast(zero, "float32")
        return cast(clamp(x, low, high), "int32")

    return formula


def quantised(
    k: Builder, x: Value, scale: Value, zero: Value | None, dtype: np.dtype, *,
    axis: int = 1, block_size: int = 0, saturate: int = 1, precision: np.dtype = FLOAT32,
) -> Value:  # fmt: skip
    """round(x / scale) + zero point as `dtype`; the quotient is rounded to `precision` before that."""
    finish, unscaled = levels(k, dtype, saturate), numbers_of(k, scale.dtype)
    zeros = [] if zero is None else [zero]

    def whole(e: Expr, s: Expr, z: Expr | None = None) -> Expr:
        return finish(cast(e, "float32") / unscaled(s), z)

    if precision.itemsize >= 4:
        return spread(k, whole, x, [scale, *zeros], dtype, axis, block_size)
    narrow = [convert(k, scale, precision)]
    quotient = spread(k, lambda e, s: e / s, convert(k, x, precision), narrow, precision, axis, block_size)
    return spread(k, lambda e, z=None: finish(e, z), quotient, zeros, dtype, axis, block_size)


def dequantised(
    k: Builder, x: Value, scale: Value, zero: Value | None, dtype: np.dtype = FLOAT32, *,
    axis: int = 1, block_size: int = 0,
) -> Value:  # fmt: skip
    """(x - zero point) * scale as `dtype`, multiplied in float32."""
    decode, unscaled = numbers_of(k, x.dtype), numbers_of(k, scale.dtype)

    def formula(e: Expr, s: Expr, z: Expr | None = None) -> Expr:
        if x.dtype.name in CODE_TYPES:
            number = decode(e) if z is None else decode(e) - decode(z)
        else:
            number = cast(e if z is None else e - z, "float32")
        return number * unscaled(s)

    return spread(k, formula, x, [scale, *([] if zero is None else [zero])], dtype, axis, block_size)


@operator("QuantizeLinear", since=10)
@operator("QuantizeLinear", domain=CONTRIB)
def quantize_linear(
    k: Builder, x: Value, y_scale: Value, y_zero_point: Value | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0, precision: int = 0, saturate: int = 1,
) -> Value:  # fmt: skip
    """saturate(round(x / y_scale) + y_zero_point), per tensor, per slice along an axis, or per block."""
    wanted = dtype_of(k, output_dtype) if output_dtype else UINT8
    if y_zero_point is not None:
        if output_dtype and wanted != y_zero_point.dtype:
            k.error(f"output_dtype is {wanted.name}, the zero point {y_zero_point.dtype.name}")
        wanted = y_zero_point.dtype
    divided_in = dtype_of(k, precision) if precision else y_scale.dtype
    return quantised(
        k, x, y_scale, y_zero_point, wanted, axis=axis, block_size=block_size, saturate=saturate,
        precision=divided_in if divided_in.name in FLOAT_TYPES else FLOAT32,
    )  # fmt: skip


@operator("DequantizeLinear", since=10)
@operator("DequantizeLinear", domain=CONTRIB)
def dequantize_linear(
    k: Builder, x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0,
) -> Value:  # fmt: skip
    """(x - x_zero_point) * x_scale, per tensor, per slice along an axis, or per block."""
    wanted = dtype_of(k, output_dtype) if output_dtype else x_scale.dtype
    if wanted.name not in FLOAT_TYPES:
        k.error(f"cannot yield {wanted.name}; set output_dtype to a float type")
    return dequantised(k, x, x_scale, x_zero_point, wanted, axis=axis, block_size=block_size)


def extreme(k: Builder, kind: str, x: Value) -> Value:
    """The largest or smallest element of a whole tensor, as a scalar."""
    if x.size == 0:
        k.error(f"takes no tensor without elements, such as {list(x.shape)}")
    return Reduction(k, x, frozenset(range(x.rank))).plain(kind)


def dynamic_range(k: Builder, x: Value) -> tuple[Value, Value]:
    """Scale and zero point with which uint8 covers a tensor's numbers and 0; a scale of 1 if all are 0."""
    low, high = extreme(k, "min", x), extreme(k, "max", x)

    def scale(a: Expr, b: Expr) -> Expr:
        width = maximum(b, 0.0) - minimum(a, 0.0)
        return select(eq(width, 0.0), lit(1.0, "float32"), width / 255.0)

    step = k.elementwise(scale, low, high)

    def zero(a: Expr, s: Expr) -> Expr:
        return cast(unary("round", clamp(-minimum(a, 0.0) / s, 0.0, 255.0)), "int32")

    return step, k.elementwise(zero, low, step, dtype=UINT8)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(k: Builder, x: Value) -> tuple[Value, ...]:
    """x as uint8 with the scale and zero point of its own range."""
    scale, zero = dynamic_range(k, x)
    return quantised(k, x, scale, zero, UINT8), scale, zero


# Products


def scaled(k: Builder, a: Value, b: Value, down: Value | None = None) -> Value:
    """a * b / down, folded if all are constant."""
    values = [a, b] if down is None else [a, b, down]
    known = [v.known.astype(np.float32) for v in values if v.known is not None]
    if len(known) == len(values):
        return k.constant(np.asarray(known[0] * known[1] / (1 if down is None else known[2]), np.float32))

    def formula(x: Expr, y: Expr, z: Expr | None = None) -> Expr:
        both = cast(x, "float32") * cast(y, "float32")
        return both if z is None else both / cast(z, "float32")

    return k.elementwise(formula, *values, dtype=FLOAT32)


def rescaled(
    k: Builder, x: Value, scale: Value, zero: Value | None, dtype: np.dtype, axis: int = 1
) -> Value:  # fmt: skip
    """Requantise sums of products: round(x * scale) + zero point as `dtype`."""
    finish = levels(k, dtype)

    def formula(e: Expr, s: Expr, z: Expr | None = None) -> Expr:
        return finish(cast(e, "float32") * s, z)

    return spread(k, formula, x, [scale, *([] if zero is None else [zero])], dtype, axis)


def rows_as_column(k: Builder, parameter: Value, x: Value) -> Value:
    """A vector with one entry per row of x's matrices as a column; other shapes stay."""
    if parameter.rank != 1 or parameter.size == 1 or x.rank < 2:
        return parameter
    return k.alias(parameter, (parameter.size, 1))


def check_zero(k: Builder, zero: Value | None, count: int, what: str) -> None:
    """Raise for zero points that are neither scalar nor a whole number of `count` lines."""
    if zero is not None and zero.size != 1 and (count == 0 or zero.size % count):
        k.error(f"{zero.size} zero points do not fit {count} {what}")


def integer_product(k: Builder, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    """(a - a_zero) @ (b - b_zero) in int32."""
    check_zero(k, a_zero, a.shape[-2] if a.rank > 1 else 1, "rows")
    check_zero(k, b_zero, b.shape[-1] if b.rank > 1 else 1, "columns")
    return product(k, a, b, (a_zero, b_zero), INT32)


@operator("MatMulInteger16", domain=CONTRIB, precision="exact")
@operator("MatMulInteger", since=10, precision="exact")
def matmul_integer(
    k: Builder, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Value:
    """(A - a_zero_point) @ (B - b_zero_point) in int32."""
    return integer_product(k, a, b, a_zero_point, b_zero_point)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    k: Builder, a: Value, a_scale: Value, a_zero_point: Value, b: Value, b_scale: Value, b_zero_point: Value,
    y_scale: Value, y_zero_point: Value,
) -> Value:  # fmt: skip
    """The product of two quantised matrices, quantised; floats of 8 bits are multiplied as float32."""
    if a.dtype.name in CODE_TYPES or b.dtype.name in CODE_TYPES:
        found = product(k, convert(k, a, FLOAT32), convert(k, b, FLOAT32))
    else:
        found = integer_product(k, a, b, a_zero_point, b_zero_point)
    scale = scaled(k, rows_as_column(k, a_scale, a), b_scale, y_scale)
    return rescaled(k, found, scale, y_zero_point, y_zero_point.dtype, axis=-1)


@operator("ConvInteger", since=10, precision="exact")
def conv_integer(
    k: Builder, x: Value, w: Value, x_zero_point: Value | None = None, w_zero_point: Value | None = None, *,
    sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """The convolution of x - x_zero_point with w - w_zero_point in int32; padding is the zero point."""
    check_zero(k, w_zero_point, w.shape[0], "output channels")
    found = integer_convolution(k, x, w, sliding, (x_zero_point, w_zero_point))
    return k.alias(found, (*found.shape, *[1] * (x.rank - found.rank)))


def integer_convolution(k: Builder, x: Value, w: Value, sliding: ConvAttributes, zeros: Zeros) -> Value:
    """`convolve` in int32. Of single pixels, (N, C) times (M, C): an output (N, M) fills whole vectors."""
    is_pixel = all(x.always_one(axis) for axis in range(2, x.rank)) and set(w.shape[2:]) == {1}
    if not is_pixel or sliding.group != 1 or any(sliding.pads) or w.known is None or x.rank != w.rank:
        return convolve(k, x, w, sliding, zeros, INT32)
    check_weights(k, x.shape[1], w.shape, sliding)
    rows, weights = k.alias(x, x.shape[:2]), k.constant(np.ascontiguousarray(w.known.reshape(w.shape[:2]).T))
    return integer_product(k, rows, weights, *zeros)


@operator("QLinearConv", since=10)
def qlinear_conv(
    k: Builder, x: Value, x_scale: Value, x_zero_point: Value, w: Value, w_scale: Value, w_zero_point: Value,
    y_scale: Value, y_zero_point: Value, b: Value | None = None, *, sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """The convolution of quantised x and w, plus a bias in units of x_scale * w_scale, quantised."""
    check_zero(k, w_zero_point, w.shape[0], "output channels")
    total = integer_convolution(k, x, w, sliding, (x_zero_point, w_zero_point))
    scale = scaled(k, x_scale, w_scale, y_scale)
    found = rescaled(k, add_bias(k, total, b), scale, y_zero_point, y_zero_point.dtype, axis=1)
    return k.alias(found, (*found.shape, *[1] * (x.rank - found.rank)))
