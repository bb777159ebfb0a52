"""Feature preprocessing (domain ai.onnx.ml): selection, scaling, imputation and concatenation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.graph.model import ML
from engine.kernels.expr import FLOATS, Expr, arg, cast, eq, lit, reduce, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.casting import convert
from engine.operators.indexing import clamped
from engine.operators.movement import concat
from engine.operators.registry import operator


@operator("ArrayFeatureExtractor", domain=ML, moves="x")
def array_feature_extractor(k: Builder, x: Value, y: Value) -> Value:
    """The columns (positions along the last axis) that `y` names."""
    if x.rank == 0 or (x.shape[-1] == 0 and y.size):
        k.error(f"cannot pick {y.size} columns of {list(x.shape)}")
    rows = k.alias(x, (prod(x.shape[:-1]), x.shape[-1]))
    chosen = k.alias(y, (y.size,))
    found = k.compute(
        (rows.shape[0], y.size), x.dtype, lambda r, c: rows[r, clamped(chosen[c], rows.shape[1])]
    )
    return k.alias(found, (*(x.shape[:-1] if x.rank > 1 else (1,)), y.size))


@operator("Binarizer", domain=ML)
def binarizer(k: Builder, x: Value, *, threshold: float = 0.0) -> Value:
    """1 above the threshold, else 0."""

    def formula(e: Expr) -> Expr:
        wide = e if e.dtype in FLOATS else cast(e, "float32")
        return cast(wide > arg(threshold, wide.dtype), e.dtype)

    return k.elementwise(formula, x)


def per_feature(k: Builder, x: Value, numbers: Sequence[float], name: str, dtype: np.dtype) -> Value:
    """One number for all features or one for each, as a tensor that broadcasts against `x`."""
    if len(numbers) not in (1, x.shape[-1] if x.rank else 1):
        k.error(f"has {len(numbers)} numbers as {name} for the features of {list(x.shape)}")
    return k.constant(np.array(numbers, dtype))


def as_floats(k: Builder, x: Value) -> Value:
    """Convert to float32, unless it is float64."""
    return x if x.dtype in (FLOAT32, np.dtype(np.float64)) else convert(k, x, FLOAT32)


@operator("Scaler", domain=ML)
def scaler(k: Builder, x: Value, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Value:
    """(x - offset) * scale, for each feature or all; float32."""
    wide = as_floats(k, x)
    shift = per_feature(k, x, offset or (0.0,), "offset", wide.dtype)
    factor = per_feature(k, x, scale or (1.0,), "scale", wide.dtype)
    formula: Callable[..., Expr] = lambda e, o, s: cast((e - o) * s, "float32")  # noqa: E731
    return k.elementwise(formula, wide, shift, factor, dtype=FLOAT32)


@operator("Imputer", domain=ML)
def imputer(
    k: Builder, x: Value, *, imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (), replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Value:  # fmt: skip
    """Elements equal to a value (NaN too) replaced, by one number or one for each feature."""
    is_float = x.dtype.kind == "f"
    numbers: Sequence[float] = imputed_value_floats if is_float else imputed_value_int64s
    gone = replaced_value_float if is_float else replaced_value_int64
    missing = gone != gone

    def formula(e: Expr, new: Expr) -> Expr:
        return select(unary("isnan", e) if missing else eq(e, arg(gone, e.dtype)), new, e)

    return k.elementwise(formula, x, per_feature(k, x, numbers, "imputed values", x.dtype))


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(k: Builder, *xs: Value, inputdimensions: Sequence[int] = ()) -> Value:
    """Features of several tensors side by side, float32; a tensor of rank 1 is a single row."""
    rows = [x if x.rank > 1 else k.alias(x, (1, x.size)) for x in xs]
    parts = [k.alias(x, (x.shape[0], prod(x.shape[1:]))) for x in rows]
    if inputdimensions and list(inputdimensions) != [part.shape[1] for part in parts]:
        k.error(f"has inputdimensions {list(inputdimensions)} for {[list(x.shape) for x in xs]}")
    return concat(k, *(convert(k, part, FLOAT32) for part in parts), axis=1)


@operator("Normalizer", domain=ML)
def normalizer(k: Builder, x: Value, *, norm: str = "MAX") -> Value:
    """Divide each row by its maximum, L1 or L2 norm, unless that is 0; float32."""
    if norm not in ("MAX", "L1", "L2") or x.rank not in (1, 2):
        k.error(f"takes rows of features and norm MAX, L1 or L2, not {list(x.shape)} and {norm!r}")
    wide = as_floats(k, x)
    rows = k.alias(wide, (x.size // max(1, x.shape[-1]), x.shape[-1]))
    sizes = k.compute((rows.shape[0],), rows.dtype, lambda r: row_size(rows, r, norm))

    def formula(r: Expr, c: Expr) -> Expr:
        size = sizes[r]
        zero = eq(size, lit(0.0, size.dtype))
        return cast(rows[r, c] / select(zero, lit(1.0, size.dtype), size), "float32")

    return k.alias(k.compute(rows.shape, FLOAT32, formula), x.shape)


def row_size(rows: Value, row: Expr, norm: str) -> Expr:
    """The divisor of a row."""
    count = rows.shape[1]
    if norm == "MAX":
        return reduce("max", count, lambda r: rows[row, r])
    if norm == "L1":
        return reduce("sum", count, lambda r: unary("abs", rows[row, r]))
    return unary("sqrt", reduce("sum", count, lambda r: rows[row, r] * rows[row, r]))
