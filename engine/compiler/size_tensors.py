"""Tensors of open sizes that kernels read: each is stored by a kernel, to which the sizes are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.compiler.plan import Compute
from engine.kernels.evaluate_sizes import holds_sizes
from engine.kernels.expr import Expr, arg, compare, eq, index, lit, select
from engine.kernels.value import Value


def with_sizes_computed(computes: Sequence[Compute]) -> Sequence[Compute]:
    """The formulas, behind one for each tensor that they read and of which elements are open sizes."""
    found = dict.fromkeys(value for compute in computes for value in compute.reads if holds_sizes(value))
    if not found:
        return computes
    first = {value: _stored(value) for value in found}
    for value in found:
        value.known = None
    for compute in computes:
        for operand in () if compute.hint is None else compute.hint.operands:
            if operand.root in found:
                operand.known = None
    return [*first.values(), *computes]


def _stored(value: Value) -> Compute:
    assert value.known is not None
    body: Expr | None = None
    for position, element in enumerate(value.known.reshape(-1)):
        own = _argument(element, value)
        body = own if body is None else select(eq(index(0), lit(position)), own, body)
    assert body is not None
    return Compute(value, (value.size,), body, value.name, "Shape")


def _argument(element: Any, value: Value) -> Expr:
    if value.arithmetic == "bool":
        return compare("ne", arg(element, "int32"), lit(0, "int32"))
    return arg(element, value.arithmetic)
