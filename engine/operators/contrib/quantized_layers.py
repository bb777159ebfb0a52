"""onnxruntime's quantised layers (domain com.microsoft), which its quantisation tools write into models.

Most are a layer of ONNX between dequantising and quantising, and are written so: the formulas fuse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, lit, reduce, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.contrib.block_quantized import unpacked_number
from engine.operators.elementwise import sigmoid
from engine.operators.layout import in_either_layout
from engine.operators.linear import matrix_product, plus_c
from engine.operators.movement import concat
from engine.operators.normalization import softmax_over
from engine.operators.pooling import average_pool, global_average_pool
from engine.operators.quantization import (
    FLOAT32,
    INT32,
    check_zero,
    dequantised,
    dynamic_range,
    integer_product,
    qlinear_conv,
    quantised,
    rescaled,
    rows_as_column,
    scaled,
    spread,
)
from engine.operators.registry import operator
from engine.operators.windows import ConvAttributes, PoolAttributes


def _on_levels(name: str, formula: Callable[[Expr, Expr], Expr]) -> None:
    @operator(name, domain=CONTRIB)
    def define(
        k: Builder, a: Value, a_scale: Value, a_zero: Value | None, b: Value, b_scale: Value,
        b_zero: Value | None, c_scale: Value, c_zero: Value | None = None,
    ) -> Value:  # fmt: skip
        sides = dequantised(k, a, a_scale, a_zero), dequantised(k, b, b_scale, b_zero)
        return quantised(k, k.elementwise(formula, *sides), c_scale, c_zero, a.dtype)


_on_levels("QLinearAdd", lambda a, b: a + b)
_on_levels("QLinearMul", lambda a, b: a * b)


@operator("QLinearSigmoid", domain=CONTRIB)
def qlinear_sigmoid(
    k: Builder, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None
) -> Value:
    """1 / (1 + exp(-x)) of a quantised tensor, quantised."""
    found = k.elementwise(sigmoid, dequantised(k, x, x_scale, x_zero))
    return quantised(k, found, y_scale, y_zero, x.dtype)


@operator("QLinearLeakyRelu", domain=CONTRIB)
def qlinear_leaky_relu(
    k: Builder, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    *, alpha: float = 0.01,
) -> Value:  # fmt: skip
    """x, or alpha * x below zero, of a quantised tensor, quantised."""
    real = dequantised(k, x, x_scale, x_zero)
    found = k.elementwise(lambda e: select(e < 0.0, e * arg(alpha, "float32"), e), real)
    return quantised(k, found, y_scale, y_zero, x.dtype)


@operator("QLinearWhere", domain=CONTRIB)
def qlinear_where(
    k: Builder, condition: Value, x: Value, x_scale: Value, x_zero: Value, y: Value, y_scale: Value,
    y_zero: Value, z_scale: Value, z_zero: Value,
) -> Value:  # fmt: skip
    """x where the condition holds, else y, each on its own scale, quantised on a third."""
    one = quantised(k, dequantised(k, x, x_scale, x_zero), z_scale, z_zero, z_zero.dtype)
    other = quantised(k, dequantised(k, y, y_scale, y_zero), z_scale, z_zero, z_zero.dtype)
    return k.elementwise(select, condition, one, other, dtype=z_zero.dtype)


@operator("QLinearConcat", domain=CONTRIB)
def qlinear_concat(k: Builder, y_scale: Value, y_zero: Value, *parts: Value, axis: int) -> Value:
    """Tensors, each followed by its scale and zero point, brought to one scale and joined along an axis."""
    if not parts or len(parts) % 3:
        k.error(f"takes a scale and a zero point after each tensor; {len(parts)} inputs are no triples")
    triples = [parts[i : i + 3] for i in range(0, len(parts), 3)]
    real = [dequantised(k, x, scale, zero) for x, scale, zero in triples]
    same = [quantised(k, x, y_scale, y_zero, y_zero.dtype) for x in real]
    return concat(k, *same, axis=axis)


@operator("QLinearSoftmax", domain=CONTRIB)
def qlinear_softmax(
    k: Builder, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value, *,
    axis: int = -1, opset: int,
) -> Value:  # fmt: skip
    """Softmax of a quantised tensor as in ONNX's version `opset`, quantised."""
    axis = k.axis(axis, x.rank)
    found = softmax_over(k, dequantised(k, x, x_scale, x_zero), axis, x.rank if opset < 13 else axis + 1)
    return quantised(k, found, y_scale, y_zero, y_zero.dtype)


@operator("QLinearGlobalAveragePool", domain=CONTRIB)
def qlinear_global_average_pool(
    k: Builder, x: Value, x_scale: Value, x_zero: Value, y_scale: Value, y_zero: Value, *,
    channels_last: int = 0,
) -> Value:  # fmt: skip
    """The mean of each channel's plane of a quantised tensor, quantised."""
    real = dequantised(k, x, x_scale, x_zero)
    found = in_either_layout(k, real, channels_last, lambda v: global_average_pool(k, v))
    return quantised(k, found, y_scale, y_zero, x.dtype)


@operator("QLinearAveragePool", domain=CONTRIB)
def qlinear_average_pool(
    k: Builder, x: Value, x_scale: Value, x_zero: Value | None, y_scale: Value, y_zero: Value | None = None,
    *, channels_last: int = 0, count_include_pad: int = 0, sliding: PoolAttributes,
) -> Value:  # fmt: skip
    """The mean of each window of a quantised tensor, quantised."""

    def pool(v: Value) -> Value:
        return average_pool(k, v, count_include_pad=count_include_pad, sliding=sliding)

    found = in_either_layout(k, dequantised(k, x, x_scale, x_zero), channels_last, pool)
    return quantised(k, found, y_scale, y_zero, x.dtype)


# Products


@operator("QLinearConv", domain=CONTRIB)
def qlinear_conv_contrib(
    k: Builder, x: Value, x_scale: Value, x_zero_point: Value, w: Value, w_scale: Value, w_zero_point: Value,
    y_scale: Value, y_zero_point: Value, b: Value | None = None, *, channels_last: int = 0,
    sliding: ConvAttributes,
) -> Value:  # fmt: skip
    """ONNX's QLinearConv, of tensors (N, *spatial, C) with `channels_last`."""

    def conv(v: Value) -> Value:
        return qlinear_conv(
            k, v, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, b, sliding=sliding
        )

    return in_either_layout(k, x, channels_last, conv)


@operator("QGemm", domain=CONTRIB)
def qgemm(
    k: Builder, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
    c: Value | None = None, y_scale: Value | None = None, y_zero: Value | None = None, *,
    alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Value:  # fmt: skip
    """alpha * A' * B' + C, C in units of alpha * a_scale * b_scale; quantised where y_scale is given."""
    total = matrix_product(k, a, b, transA, transB, (a_zero, b_zero), INT32)
    check_zero(k, b_zero, total.shape[1], "columns")
    total = plus_c(k, total, c)
    scale = scaled(k, scaled(k, a_scale, k.constant(np.array(alpha, np.float32))), b_scale, y_scale)
    if y_scale is None:
        return _in_units(k, total, scale, None, FLOAT32)
    return rescaled(k, total, scale, y_zero, a.dtype if y_zero is None else y_zero.dtype, axis=-1)


def _in_units(k: Builder, total: Value, scale: Value, bias: Value | None, dtype: np.dtype) -> Value:
    """Sums of products times their unit, plus a bias per column, as floats."""

    def formula(t: Expr, s: Expr, b: Expr | None = None) -> Expr:
        value = cast(t, "float32") * s
        return value if b is None else value + b

    return spread(k, formula, total, [scale, *([] if bias is None else [bias])], dtype, axis=-1)


@operator("MatMulIntegerToFloat", domain=CONTRIB)
def matmul_integer_to_float(
    k: Builder, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value | None = None,
    b_zero: Value | None = None, bias: Value | None = None,
) -> Value:  # fmt: skip
    """The product of two quantised matrices as floats, plus a bias per column."""
    total = integer_product(k, a, b, a_zero, b_zero)
    return _in_units(k, total, scaled(k, rows_as_column(k, a_scale, a), b_scale), bias, a_scale.dtype)


@operator("DynamicQuantizeMatMul", domain=CONTRIB)
def dynamic_quantize_matmul(
    k: Builder, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None, bias: Value | None = None
) -> Value:
    """a, quantised by its own range, times a quantised matrix; a bias per column is added."""
    a_scale, a_zero = dynamic_range(k, a)
    levels = quantised(k, a, a_scale, a_zero, a_zero.dtype)
    total = integer_product(k, levels, b, a_zero, b_zero)
    return _in_units(k, total, scaled(k, a_scale, b_scale), bias, FLOAT32)


@operator("MatMulNBits", domain=CONTRIB)
def matmul_n_bits(
    k: Builder, a: Value, b: Value, scales: Value, zero_points: Value | None = None,
    g_idx: Value | None = None, bias: Value | None = None, *, K: int, N: int, bits: int = 4,
    block_size: int, accuracy_level: int = 0, weight_prepacked: int = 0,
) -> Value:  # fmt: skip
    """a times the transpose of an N x K matrix of `bits`-bit numbers packed into bytes, lowest bits first.

    Each row has a scale and a zero point, by default the middle, per block of `block_size` numbers, or for
    those to which `g_idx` assigns the same number.
    """
    blocks = -(-K // block_size)
    blob = block_size * bits // 8
    if bits not in (2, 4, 8) or weight_prepacked:
        k.error(f"takes plainly packed weights of 2, 4 or 8 bits, not of {bits} bits")
    if g_idx is not None and g_idx.size not in (K, blocks * block_size):
        k.error(f"g_idx {list(g_idx.shape)} must name a block for each of {K} columns")
    if a.rank == 0 or a.shape[-1] != K or b.size != N * blocks * blob or scales.size != N * blocks:
        k.error(
            f"K = {K}, N = {N} and blocks of {block_size} do not fit {list(a.shape)}, weights "
            f"{list(b.shape)} and scales {list(scales.shape)}"
        )
    rows = k.alias(a, (a.size // K if K else 0, K))
    words = k.alias(b, (N, blocks * blob))
    steps = k.alias(scales, (N, blocks))
    zero = _block_zeros(k, zero_points, N, blocks, bits)

    def weight(n: Expr, at: Expr) -> Expr:
        j = at // lit(block_size) if g_idx is None else cast(g_idx.at(at), "index")
        number = cast(unpacked_number(words, (n,), at, bits), "float32")
        return cast(steps[n, j], "float32") * (number - zero(n, j))

    def hint() -> Hint:
        packed = [v for v in (words, steps, zero_points, g_idx) if v is not None]
        attributes = {
            "m": rows.shape[0], "n": N, "k": K, "weight": weight, "bits": bits, "block": block_size,
            "is_assigned": g_idx is not None,
        }  # fmt: skip
        return Hint("matmul_nbits", (rows, *packed), attributes)

    def formula(i: Expr, n: Expr) -> Expr:
        def block(j: Expr) -> Expr:
            middle = zero(n, j)

            def term(r: Expr) -> Expr:
                at = j * lit(block_size) + r
                number = cast(unpacked_number(words, (n,), at, bits), "float32") - middle
                row = rows.load_where(at < arg(K), (i, at)) if K % block_size else rows[i, at]
                return row * number

            return steps[n, j] * reduce("sum", block_size, term)

        return reduce("sum", blocks, block)

    def assigned(i: Expr, n: Expr) -> Expr:
        return reduce("sum", K, lambda at: rows[i, at] * weight(n, at))

    shape = (*a.shape[:-1], N)
    product = formula if g_idx is None else assigned
    found = k.alias(k.compute((rows.shape[0], N), a.dtype, product, hint=hint), shape)
    return found if bias is None else k.elementwise(lambda e, c: e + c, found, bias)


def _block_zeros(
    k: Builder, zeros: Value | None, rows: int, blocks: int, bits: int
) -> Callable[[Expr, Expr], Expr]:
    """A formula for the zero point of a row's block: packed like the weights, or plain numbers."""
    if zeros is None:
        return lambda n, j: lit(float(1 << (bits - 1)), "float32")
    packed = zeros.dtype == np.dtype(np.uint8)
    width = -(-blocks * bits // 8) if packed else blocks
    if zeros.size != rows * width:
        k.error(f"zero points of shape {list(zeros.shape)} do not fit {rows} rows of {blocks} blocks")
    table = k.alias(zeros, (rows, width))
    if packed:
        return lambda n, j: cast(unpacked_number(table, (n,), j, bits), "float32")
    return lambda n, j: table[n, j]
