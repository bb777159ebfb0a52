"""Serialization of formulas as plain lists of numbers and strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.kernels.expr import Expr, made_of


def serialize(formula: Expr) -> list[list[Any]]:
    """Every node of a formula once, after its operands: [op, dtype, rows of its operands, attribute]."""
    rows: list[list[Any]] = []
    numbers: dict[Expr, int] = {}

    def visit(node: Expr) -> int:
        if node not in numbers:
            operands = [visit(operand) for operand in node.args]
            numbers[node] = len(rows)
            rows.append([node.op, node.dtype, operands, node.attr])
        return numbers[node]

    visit(formula)
    return rows


def deserialize(rows: Sequence[Sequence[Any]]) -> Expr:
    """Inverse of `serialize`; lists may have become tuples, or tuples lists."""
    nodes: list[Expr] = []
    for op, dtype, operands, attribute in rows:
        nodes.append(made_of(op, dtype, tuple([nodes[number] for number in operands]), _hashable(attribute)))
    return nodes[-1]


def _hashable(attribute: Any) -> Any:
    return tuple(map(_hashable, attribute)) if isinstance(attribute, list | tuple) else attribute
