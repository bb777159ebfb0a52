"""Block-quantised tables and matrices, packed into bytes as in onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.base.dtypes import CODE_TYPES, UINT8
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, floor_mod, lit, reduce, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.quantization import numbers_of
from engine.operators.registry import operator


def unpacked_number(words: Value, row: Sequence[Expr], at: Expr, bits: int) -> Expr:
    """Number `at` of a row of bytes that hold numbers of `bits` bits, lowest bits first, as int32."""
    if bits == 8:
        return words[(*row, at)]
    mask = lit((1 << bits) - 1, "int32")
    if 8 % bits:
        # A number may begin in one byte and end in the next.
        first = at * lit(bits)
        byte, last = first // lit(8), arg(words.shape[-1] - 1)
        after = words.load_where(byte < last, (*row, byte + lit(1)))
        pair = words[(*row, byte)] | (after << lit(8, "int32"))
        return (pair >> cast(first % lit(8), "int32")) & mask
    per_byte = lit(8 // bits)
    shift = cast(at % per_byte, "int32") * lit(bits, "int32")
    return (words[(*row, at // per_byte)] >> shift) & mask


@operator("GatherBlockQuantized", domain=CONTRIB)
def gather_block_quantized(
    k: Builder, data: Value, indices: Value, scales: Value, zero_points: Value | None = None, *,
    bits: int = 4, block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Value:  # fmt: skip
    """Gather from a tensor with a scale and a zero point per block along an axis; zeros outside of it.

    Numbers are elements of their own type, or uint8 bytes that hold several along the last axis.
    """
    rank = data.rank
    along, blocked = k.axis(gather_axis, rank), k.axis(quantize_axis, rank)
    is_packed = data.dtype == UINT8
    bits = bits if is_packed else 8
    if bits not in (2, 4, 8) or (bits < 8 and along == rank - 1):
        k.error(f"takes 2, 4 or 8 bits, packed along another axis than gather_axis; not {bits}, {along}")
    shape = (*data.shape[:-1], data.shape[-1] * 8 // bits)
    block = block_size or max(shape[blocked], 1)
    wanted = (*shape[:blocked], -(-shape[blocked] // block), *shape[blocked + 1 :])
    broadcasts = data.dtype.name in CODE_TYPES
    if scales.rank != rank or any(
        n != w and not (broadcasts and n == 1) for n, w in zip(scales.shape, wanted, strict=True)
    ):
        k.error(f"blocks of {block} of {list(shape)} need scales {list(wanted)}, not {list(scales.shape)}")
    zero_shape = (*wanted[:-1], -(-wanted[-1] * bits // 8))
    if zero_points is not None and zero_points.shape != zero_shape:
        k.error(f"zero_points must be {list(zero_shape)}, not {list(zero_points.shape)}")
    decode, unscaled = numbers_of(k, data.dtype), numbers_of(k, scales.dtype)
    middle = float(1 << (bits - 1)) if is_packed else 0.0
    chosen, count = k.alias(indices, (indices.size,)), shape[along]

    def formula(*at: Expr) -> Expr:
        index = cast(chosen[at[along]], "index")
        inside = (index >= arg(-count)) & (index < arg(count))
        place = [*at]
        place[along] = floor_mod(index, max(count, 1))
        cell = [*place]
        cell[blocked] = place[blocked] // arg(block)
        number = (
            cast(unpacked_number(data, place[:-1], place[-1], bits), "float32")
            if is_packed
            else decode(data[tuple(place)])
        )
        if zero_points is None:
            number = number - middle
        else:
            zero = unpacked_number(zero_points, cell[:-1], cell[-1], bits)
            number = number - (cast(zero, "float32") if is_packed else decode(zero))
        spread = [lit(0) if n == 1 else c for n, c in zip(scales.shape, cell, strict=True)]
        found = number * unscaled(scales[tuple(spread)])
        return select(inside, found, 0.0)

    found = k.compute((*shape[:along], indices.size, *shape[along + 1 :]), scales.dtype, formula)
    return k.alias(found, (*shape[:along], *indices.shape, *shape[along + 1 :]))


FP4 = (0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""The values of bitsandbytes' 4-bit floats; the other eight are their opposites."""
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
    1.0,
)  # fmt: skip
"""Quantiles of the normal distribution (Dettmers et al., 2023)."""


@operator("MatMulBnb4", domain=CONTRIB)
def matmul_bnb4(
    k: Builder, a: Value, b: Value, absmax: Value, *, K: int, N: int, block_size: int, quant_type: int,
    training_mode: int = 0, transB: int = 1,
) -> Value:  # fmt: skip
    """a times the transpose of an N x K matrix of 4-bit floats, packed two to a byte, highest bits first.

    Each run of `block_size` numbers has a scale. Without `transB`, a times the matrix itself.
    """
    depth, columns = (K, N) if transB else (N, K)
    if quant_type not in (0, 1) or block_size < 1:
        k.error(f"quant_type is {quant_type} (0 FP4, 1 NF4), block_size {block_size}")
    fits = b.size == -(-N * K // 2) and absmax.size == -(-N * K // block_size)
    if a.rank < 1 or a.shape[-1] != depth or not fits:
        k.error(f"K = {K}, N = {N} and blocks of {block_size} do not fit {a}, {b} and {absmax}")
    values = np.array(NF4 if quant_type else (*FP4, *(-v for v in FP4)), np.float32)
    table = k.constant(values)
    rows = k.alias(a, (a.size // max(depth, 1), depth))
    words, steps = k.alias(b, (b.size,)), k.alias(absmax, (absmax.size,))

    def weight(at: Expr) -> Expr:
        shift = (lit(1) - at % lit(2)) * lit(4)
        code = (words[at // lit(2)] >> cast(shift, "int32")) & lit(15, "int32")
        return table[cast(code, "index")] * cast(steps[at // arg(block_size)], "float32")

    def formula(i: Expr, j: Expr) -> Expr:
        return reduce("sum", depth, lambda r: rows[i, r] * weight(j * K + r if transB else r * K + j))

    return k.alias(k.compute((rows.shape[0], columns), a.dtype, formula), (*a.shape[:-1], columns))
