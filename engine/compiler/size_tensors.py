"""Tensors that hold symbolic sizes: a kernel stores each, with the sizes as arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.compiler.plan import Compute
from engine.kernels.evaluate_sizes import holds_sizes
from engine.kernels.expr import Expr, arg, compare, eq, index, lit, select
from engine.kernels.value import Value


@contextmanager
def sizes_computed(computes: Sequence[Compute]) -> Iterator[Sequence[Compute]]:
    """Context manager: yields the formulas, preceded by one per tensor with symbolic elements that they read.

    Within the block, nothing knows the elements of these tensors.
    """
    found = dict.fromkeys(value for compute in computes for value in compute.reads if holds_sizes(value))
    first = {value: _stored(value) for value in found}
    hints = [compute.hint for compute in computes if compute.hint is not None]
    views = [operand for hint in hints for operand in hint.operands if operand.root in found]
    known = {value: value.known for value in [*found, *views]}
    for value in known:
        value.known = None
    try:
        yield [*first.values(), *computes]
    finally:
        # What continues the plan knows them.
        for value, elements in known.items():
            value.known = elements


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
