"""Floats of 8 bits and fewer: decoding and rounding.

Kernels hold such floats as codes. Decoding looks the code up in a table of all values; encoding counts how
many rounding thresholds lie at or below the number, which is the code, as positive values ascend with
their codes. The tables come from `ml_dtypes`, so every backend agrees with NumPy bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np

from engine.base.dtypes import ArithmeticType, as_dtype, bits_of
from engine.kernels.expr import Expr, arg, bits, cast, compare, lit, minimum, select, unary
from engine.operators.builder import Builder

Step = Callable[[Expr], Expr]

ROUND_MODES = ("up", "down", "nearest")


@cache
def decode_bytes(name: str) -> np.ndarray:
    """The values of bytes as float32; excess bits are ignored."""
    return np.arange(256, dtype=np.uint8).view(as_dtype(name)).astype(np.float32)


@cache
def largest_code(name: str) -> int:
    """The code of the largest finite value."""
    positive = decode_bytes(name)[: 256 if name == "float8_e8m0fnu" else 1 << (bits_of(as_dtype(name)) - 1)]
    return int(np.flatnonzero(np.isfinite(positive))[-1])


@cache
def thresholds(name: str, kind: str, round_mode: str) -> np.ndarray:
    """Thresholds of float type `kind`: a magnitude's code is the number that it reaches.

    Entry i is where code i rounds up to i + 1, ties going to the even code; the last, where the format has
    a code for it, is where the magnitude overflows. Padded with NaN, which nothing reaches.
    """
    wide = np.dtype(kind).type
    count = largest_code(name)
    v = decode_bytes(name)[: count + 1].astype(np.float64)
    after = np.append(v[1:], 2 * v[-1] - v[-2] if name != "float8_e8m0fnu" else 2.0**128)
    if name != "float8_e8m0fnu":
        edges = ((v + after) / 2).astype(wide)
        odd = np.arange(1, count + 2) % 2 == 1
        edges[odd] = np.nextafter(edges[odd], wide(np.inf))
    elif round_mode == "up":
        edges = np.nextafter(v.astype(wide), wide(np.inf))
    else:
        with np.errstate(over="ignore"):
            edges = (after if round_mode == "down" else 1.5 * v).astype(wide)
    if ml_dtypes.finfo(as_dtype(name)).bits < 8:
        edges = edges[:-1]
    table = np.full((1 << len(edges).bit_length()) - 1, np.nan, wide)
    table[: len(edges)] = edges
    return table


def decoder(k: Builder, dtype: np.dtype) -> Step:
    """A formula that turns codes of `dtype` into float32."""
    table = k.constant(decode_bytes(dtype.name))
    return lambda code: table.at(cast(code & lit(255, "int32"), "index"))


def encoder(k: Builder, dtype: np.dtype, source: ArithmeticType, saturate: int, round_mode: str) -> Step:
    """A formula that turns numbers of type `source` into codes of `dtype`, as ONNX's Cast rounds.

    Without `saturate`, what overflows becomes infinity, or NaN where the format has none.
    """
    k.one_of("round_mode", round_mode, ROUND_MODES)
    kind: ArithmeticType = "float64" if source == "float64" else "float32"
    edges = thresholds(dtype.name, kind, round_mode)
    table = k.constant(edges)
    nan = int(np.array([np.nan], np.float32).astype(dtype).view(np.uint8)[0])
    unsigned, no_negative_zero = dtype.name == "float8_e8m0fnu", dtype.name.endswith("fnuz")

    def formula(x: Expr) -> Expr:
        number = cast(x, kind)
        magnitude, code = unary("abs", number), lit(0)
        step = (len(edges) + 1) // 2
        while step:
            reached = magnitude >= table.at(code + lit(step - 1))
            code = code + select(reached, lit(step), lit(0))
            step //= 2
        code = cast(code, "int32")
        if saturate:
            code = minimum(code, lit(largest_code(dtype.name), "int32"))
        elif unsigned:
            code = select(magnitude < arg(2.0**-127, kind), lit(nan, "int32"), code)
        code = select(unary("isnan", number), lit(nan, "int32"), code)
        if unsigned:
            return code
        sign = lit(1 << (bits_of(dtype) - 1), "int32")
        negative = bits(cast(number, "float32"), "int32") < lit(0, "int32")
        if no_negative_zero:
            negative = negative & compare("ne", code, lit(0, "int32"))
        return select(negative, code | sign, code)

    return formula
