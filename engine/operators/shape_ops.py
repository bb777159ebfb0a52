"""Tensors from shapes and numbers: Shape, Size, Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from engine.base.dtypes import FLOAT_TYPES, INT64, arithmetic_type, to_numbers
from engine.kernels.expr import Expr, arg, cast, eq, lit
from engine.kernels.size import largest, numbers_of
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.casting import dtype_of
from engine.operators.registry import operator


@operator("Shape", since=1, precision="exact")
def shape_(k: Builder, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    """The sizes of the axes start..end-1 (negative: from the end; limited to the axes there are)."""
    return k.constant(numbers_of(x.shape[start:end]))


@operator("Size", since=1, precision="exact")
def size(k: Builder, x: Value) -> Value:
    """How many elements there are."""
    return k.constant(numbers_of([x.size]).reshape(()))


@operator("Constant", since=1, precision="exact")
def constant(
    k: Builder, *, value: np.ndarray | None = None,
    value_float: float | None = None, value_floats: Sequence[float] | None = None,
    value_int: int | None = None, value_ints: Sequence[int] | None = None,
    value_string: Any = None, value_strings: Any = None, sparse_value: Any = None,
) -> Value:  # fmt: skip
    """The tensor in the attribute that is given."""
    floats = value_float if value_floats is None else value_floats
    ints = value_int if value_ints is None else value_ints
    if value is None and floats is not None:
        value = np.array(floats, np.float32)
    if value is None and ints is not None:
        value = np.array(ints, INT64)
    if value is None:
        k.error("holds no tensor of numbers")
    return k.constant(np.asarray(value))


@operator("ConstantOfShape", since=9, host=("shape",))
def constant_of_shape(k: Builder, shape: Value, *, value: np.ndarray | None = None) -> Value:
    """One number (default: 0.0) everywhere."""
    sizes = k.ints(shape)
    given = np.zeros(1, np.float32) if value is None else np.asarray(value)
    if given.size != 1:
        k.error(f"its value must have one element, not {given.size}")
    if any(size < 0 for size in sizes):
        k.error(f"{sizes} is not a shape")
    number = to_numbers(given).reshape(-1)[0]

    def formula(*_: Expr) -> Expr:
        kind = arithmetic_type(given.dtype)
        return lit(bool(number), "bool") if kind == "bool" else arg(number, kind)

    return k.compute(sizes, given.dtype, formula)


@operator("Range", since=11, host=("start", "limit", "delta"))
def range_(k: Builder, start: Value, limit: Value, delta: Value, *, stash_type: int | None = None) -> Value:
    """start + i * delta, up to but not including limit."""
    first, last, step = (np.asarray(x.known).reshape(-1).tolist() for x in (start, limit, delta))
    if not len(first) == len(last) == len(step) == 1 or not step[0]:
        k.error(f"takes three numbers, the last of them not 0; got {start}, {limit}, {delta}")
    if start.dtype.name in FLOAT_TYPES:
        count = ceil((float(last[0]) - float(first[0])) / float(step[0]))
    else:
        # As many steps as Python's own range has.
        count = -((first[0] - last[0]) // step[0])
    kind = arithmetic_type(start.dtype)

    def formula(i: Expr) -> Expr:
        return arg(first[0], kind) + cast(i, kind) * arg(step[0], kind)

    return k.compute((largest(count, 0),), start.dtype, formula)


@operator("EyeLike", since=9)
def eye_like(builder: Builder, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    """1 on the k-th diagonal, 0 elsewhere, in the shape of `x`."""
    if x.rank != 2:
        builder.error(f"takes a matrix, not {list(x.shape)}")
    wanted = x.dtype if dtype is None else dtype_of(builder, dtype)
    kind = arithmetic_type(wanted)
    diagonal = max(-x.shape[0], min(x.shape[1], k))

    def formula(i: Expr, j: Expr) -> Expr:
        on = eq(j - i, arg(diagonal))
        return on if kind == "bool" else cast(on, kind)

    return builder.compute(x.shape, wanted, formula)
