"""Conversions between element types: Cast and CastLike by value, BitCast by bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.base.dtypes import BOOL, CODE_TYPES, INTEGER_TYPES, TEXT, arithmetic_type, as_dtype, bits_of
from engine.graph.model import Layer
from engine.kernels.expr import FLOATS, Expr, bits, cast, compare, lit, select
from engine.kernels.value import Value
from engine.operators import bounded_sizes
from engine.operators.builder import Builder
from engine.operators.registry import operator
from engine.operators.small_floats import decoder, encoder

ONNX_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "object",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4",
    22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}  # fmt: skip
"""TensorProto.DataType (onnx.proto) by number; strings are objects to NumPy."""

STRING = 8
"""The number of strings."""


def dtype_of(k: Builder, code: int) -> np.dtype:
    """The NumPy dtype of an ONNX element type number."""
    name = ONNX_TYPES.get(code)
    if name is None:
        k.error(
            f"element type {code} is not supported here; supported: {', '.join(sorted(ONNX_TYPES.values()))}"
        )
    return as_dtype(name)


def convert(k: Builder, x: Value, dtype: np.dtype, saturate: int = 1, round_mode: str = "up") -> Value:
    """Every element as `dtype`; `saturate` and `round_mode` matter for floats of 8 bits."""
    if dtype == x.dtype:
        return k.alias(x, x.shape)
    if TEXT in (x.dtype, dtype):
        return convert_strings(k, x, dtype)
    decode = decoder(k, x.dtype) if x.dtype.name in CODE_TYPES else None
    source = x.arithmetic if decode is None else "float32"
    encode = encoder(k, dtype, source, saturate, round_mode) if dtype.name in CODE_TYPES else None

    def formula(e: Expr) -> Expr:
        e = e if decode is None else decode(e)
        return convert_number(e, dtype) if encode is None else encode(e)

    return k.elementwise(formula, x, dtype=dtype)


def convert_number(e: Expr, dtype: np.dtype) -> Expr:
    """Convert a computed number for storage as `dtype`; for bool, any nonzero value is true."""
    if dtype == BOOL and e.dtype != "bool":
        return compare("ne", e, lit(0, e.dtype))
    if dtype.name in INTEGER_TYPES and dtype.itemsize < 4 and e.dtype in FLOATS:
        # Storage narrows by wrapping; floats pass through int32 first, as C and NumPy do.
        return cast(e, "int32")
    return cast(e, arithmetic_type(dtype))


def convert_strings(k: Builder, x: Value, dtype: np.dtype) -> Value:
    """Cast to or from strings, which are computed on the host."""
    if x.known is None and x.size:
        k.error(f"casts from {x.dtype.name} to {dtype.name} need elements that are known before the run")
    items = [] if x.known is None else x.known.reshape(-1).tolist() if x.dtype == TEXT else x.known.flat
    if dtype == TEXT:
        return k.constant(np.array([number_text(item, x.dtype) for item in items], TEXT).reshape(x.shape))
    try:
        numbers = [parse_number(item, dtype) for item in items]
    except ValueError as error:
        k.error(f"a string is not a number: {error}")
    # Types narrower than NumPy's own convert from its numbers only.
    wide = np.array(numbers, np.float64 if dtype.name not in INTEGER_TYPES else np.int64)
    array = np.array(numbers, dtype) if dtype.kind in "iu" else wide.astype(dtype)
    return k.constant(array.reshape(x.shape))


def number_text(item: Any, dtype: np.dtype) -> str:
    """A number as onnxruntime writes it: floats of every width with 8 significant digits, bool as 1 or 0.

    ONNX requires "plain floating-point representation" and says nothing of digits. The literals of what is
    not finite are those that ONNX reads back.
    """
    if dtype == TEXT:
        return str(item)
    if dtype == BOOL or dtype.name in INTEGER_TYPES:
        return str(int(item))
    number = float(item)
    if np.isfinite(number):
        return f"{number:.8g}"
    return "NaN" if np.isnan(number) else "INF" if number > 0 else "-INF"


def parse_number(text: str | bytes, dtype: np.dtype) -> Any:
    """A plain or scientific number, "INF" or "NaN" in any case; towards 0 for an integer type."""
    text = text.decode() if isinstance(text, bytes) else text
    if dtype.name not in INTEGER_TYPES:
        return float(text)
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def _read_for_text(layer: Layer) -> tuple[str, ...]:
    """Numbers become text on the host."""
    return ("x",) if layer.attributes.get("to") == STRING else ()


@operator("Cast", since=6, host=_read_for_text, bound=bounded_sizes.broadcast)
def cast_(k: Builder, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    """Conversion by value."""
    return convert(k, x, dtype_of(k, to), saturate, round_mode)


@operator("CastLike", since=15)
def cast_like(k: Builder, x: Value, target: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """Conversion to another tensor's type."""
    return convert(k, x, target.dtype, saturate, round_mode)


# Bits

HALF_BIAS = 0x38000000
"""What a float16's exponent lacks of a float32's, in the bits of a float32."""


def half_bits(x: Expr) -> Expr:
    """The 16 bits of a float32 that a float16 represents exactly."""
    word = bits(x, "int32")
    size = word & lit(0x7FFFFFFF, "int32")
    tiny = cast(cast(bits(size, "float32") * lit(2.0**24, "float32"), "index"), "int32")
    normal = (size - lit(HALF_BIAS, "int32")) >> lit(13, "int32")
    special = lit(0x7C00, "int32") | ((size >> lit(13, "int32")) & lit(0x3FF, "int32"))
    found = select(size < lit(0x38800000, "int32"), tiny, normal)
    found = select(size >= lit(0x7F800000, "int32"), special, found)
    return found | ((word >> lit(16, "int32")) & lit(0x8000, "int32"))


def from_half_bits(word: Expr) -> Expr:
    """The float32 that 16 bits mean as a float16."""
    size = word & lit(0x7FFF, "int32")
    tiny = bits(cast(size, "float32") * lit(2.0**-24, "float32"), "int32")
    normal = (size << lit(13, "int32")) + lit(HALF_BIAS, "int32")
    special = (size << lit(13, "int32")) | lit(0x7F800000, "int32")
    found = select(size < lit(0x400, "int32"), tiny, normal)
    found = select(size >= lit(0x7C00, "int32"), special, found)
    return bits(found | ((word & lit(0x8000, "int32")) << lit(16, "int32")), "float32")


def to_bits(e: Expr, dtype: np.dtype) -> Expr:
    """The bits of an element as an int32, or as an int64 where it has 64."""
    match dtype.name:
        case "float16":
            return half_bits(e)
        case "bfloat16":
            return bits(e, "int32") >> lit(16, "int32")
        case "float32" | "float64":
            return bits(e, "int32" if dtype.itemsize == 4 else "int64")
    return cast(e, "int64" if dtype.itemsize == 8 else "int32")


def from_bits(word: Expr, dtype: np.dtype) -> Expr:
    """The element that bits mean."""
    match dtype.name:
        case "float16":
            return from_half_bits(word)
        case "bfloat16":
            return bits(word << lit(16, "int32"), "float32")
        case "float32" | "float64":
            return bits(word, "float32" if dtype.itemsize == 4 else "float64")
        case "bool":
            return compare("ne", word, lit(0, "int32"))
    if dtype.name in CODE_TYPES:
        return word & lit((1 << bits_of(dtype)) - 1, "int32")
    # Stores of narrow integers take the low bits.
    return cast(word, arithmetic_type(dtype))


@operator("BitCast", since=26, precision="exact")
def bit_cast(k: Builder, x: Value, *, to: int) -> Value:
    """The same bits as elements of another type of the same width; which NaN it is may change."""
    dtype = dtype_of(k, to)
    if TEXT in (x.dtype, dtype) or bits_of(x.dtype) != bits_of(dtype):
        k.error(f"the bits of {x.dtype.name} cannot be read as {dtype.name}: the widths differ")
    if dtype == x.dtype:
        return k.alias(x, x.shape)
    return k.elementwise(lambda e: from_bits(to_bits(e, x.dtype), dtype), x, dtype=dtype)
