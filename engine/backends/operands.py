"""Promotes operands of products and convolutions to float32 or int32, minus their zero points.

Kernels that compute a tile of results read each element many times. What is stored in bytes or halves, or has
a zero point, is therefore brought to float32 or int32 first: known elements once, others in a step of
their own, which costs no more than a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from engine.base.dtypes import FLOAT32, INT32, INT64
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import FLAT, Expr, arg, cast, index, lit, nodes
from engine.kernels.hint import Hint
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Signature, Value

PROMOTED_KINDS = {"matmul": "matmul", "matmul_integer": "matmul", "conv": "conv", "conv_integer": "conv"}
"""Kinds of hints whose operands are promoted, and which they become."""

_WIDE: dict[str, np.dtype] = {
    "float32": FLOAT32, "float64": np.dtype(np.float64), "int32": INT32, "int64": INT64
}  # fmt: skip

Fits = Callable[[int, np.dtype], bool]
"""Whether a tensor of so many elements of a type fits in a buffer."""


@storable
def flattened(elements: np.ndarray) -> np.ndarray:
    """All elements in row-major order, 1-D."""
    return np.ascontiguousarray(elements).reshape(-1)


def rows_of(value: Value, tuner: Tuner) -> str:
    """The tensor of a matrix's rows as they are: known ones may have no own buffer (`promote_operands`)."""
    known = value.known
    return (
        value.root.name if known is None else tuner.constant(f"{value.name}:rows", partial(flattened, known))
    )


def promote_operands(
    compute: Compute, tuner: Tuner, fits: Fits, sides: Collection[int] = (0, 1)
) -> Compute | None:
    """The step as "matmul" or "conv" of operands of its own type without zero points.

    Steps that make the operands are emitted. None where the hint, the type or the zero points do not fit.
    Known weights stay known, under another name, and have no buffer: who reads them packs them. Operands of
    other `sides` are left as they are, with their zero points.
    """
    hint = compute.hint
    dtype = _WIDE.get(compute.body.dtype)
    if hint is None or hint.kind not in PROMOTED_KINDS or dtype is None:
        return None
    operands, rest = list(hint.operands[:2]), list(hint.operands[2:])
    has_zero = hint.attributes.get("zeros", (False, False)) if rest else (False, False)
    zeros = [rest.pop(0) if present else None for present in has_zero]
    if all(zero is None and side.dtype == dtype for zero, side in zip(zeros, operands, strict=True)):
        return compute
    found: list[Value] = []
    for place, (side, zero) in enumerate(zip(operands, zeros, strict=True)):
        if place not in sides:
            found.append(side)
            continue
        if side.arithmetic != compute.body.dtype or not fits(side.size, dtype):
            return None
        entry = _zero_of(hint, place, side, zero)
        if entry is None:
            return None
        if zero is None and side.dtype == dtype:
            found.append(side)
            continue
        is_weight = place == 1 and (
            "conv" in hint.kind or side.size == hint.attributes["k"] * hint.attributes["n"]
        )
        found.append(promoted_operand(side, zero, entry, dtype, tuner, is_weight))
    promoted_hint = Hint("matmul" if "matmul" in hint.kind else "conv", tuple(found), hint.attributes)
    return replace(compute, hint=promoted_hint)


def _zero_of(hint: Hint, side: int, x: Value, zero: Value | None) -> Callable[[Expr], Expr] | None:
    """Which entry of a zero point belongs to the element at a position of an operand; None if several do."""
    if zero is None or zero.size == 1:
        return lambda position: lit(0)
    attributes, size = hint.attributes, zero.size
    if "conv" in hint.kind:
        taps = prod(x.shape[1:])
        return (lambda position: position // arg(taps)) if side == 1 and size == x.shape[0] else None
    m, n, k, batch = attributes["m"], attributes["n"], attributes["k"], attributes["batch"]
    if side == 0:
        by_rows = attributes["a_strides"][1:] == (k, 1) and (
            batch == 1 or attributes["a_strides"][0] == m * k
        )
        return (lambda position: position // arg(k) % arg(size)) if by_rows else None
    by_columns = attributes["b_strides"][1:] == (n, 1) and size == n
    return (lambda position: position % arg(n)) if by_columns else None


def promoted_operand(
    x: Value,
    zero: Value | None,
    entry: Callable[[Expr], Expr],
    dtype: np.dtype,
    tuner: Tuner,
    is_weight: bool,
) -> Value:
    """An operand minus its zero point in a type of at least 32 bits; constant if the operand is.

    Args:
        x: the operand.
        zero: its zero point, if it has one.
        entry: which entry of the zero point belongs to a position.
        dtype: the type.
        tuner: takes the step, where one is needed.
        is_weight: whether known elements stay known.
    """

    def formula(position: Expr) -> Expr:
        value = x.at(position)
        return value if zero is None else value - zero.at(entry(position))

    if is_weight and x.known is not None and (zero is None or zero.known is not None):
        kernel, values, inputs = kernel_call(formula(index(0)), 1, dtype)
        arrays = [v.known.reshape(-1) for v in inputs if v.known is not None]
        name = f"{x.root.name}:{dtype.name}" + ("" if zero is None else f":{zero.root.name}")
        known = evaluate(kernel, (x.size,), values, arrays)
        return Value(name, x.shape, dtype, x.signature, known.reshape(x.shape))
    name = tuner.temporary(x.size, dtype)
    emit(tuner, formula(FLAT), (x.size,), dtype, name)
    return Value(name, x.shape, dtype, x.signature)


def emit_result(compute: Compute, tuner: Tuner, shape: tuple[int, ...], formula: Callable[..., Expr]) -> None:
    """Emit the generic step that stores `formula` of each index of `shape`, after the step's epilogue.

    The output holds the elements of `shape` in row-major order.
    """
    space, epilogue = compute.space, compute.epilogue
    at: list[Expr] = []
    if epilogue is None or not any(node.op == "index" for node in nodes(epilogue)):
        space, at = shape, list(map(index, range(len(shape))))
    else:
        # The epilogue's indices are those of its own space.
        rest: Expr = FLAT
        for size in shape[:0:-1]:
            at.insert(0, rest % arg(size))
            rest = rest // arg(size)
        at.insert(0, rest)
    body = cast(formula(*at), compute.body.dtype)
    step = replace(compute, space=space, body=body, hint=None).as_step()
    tuner.emit(step.kernel, step.space, step.values, step.inputs, step.output)


def emit(
    tuner: Tuner,
    formula: Expr,
    space: tuple[int, ...],
    dtype: np.dtype,
    output: str,
    extents: Signature | None = None,
) -> None:
    """Emit a generic step within a rule; `extents` as of `Compute`."""
    compute, value = tuner.compute, Value(output, space, dtype)
    made = Compute(value, space, formula, compute.layer, compute.op_type, extents=extents)
    tuner.steps.append(tuner.generic(made))
