"""How many rounds the loops of a formula take for one element: some renderers stop after a number of them."""

from __future__ import annotations

from engine.kernels.expr import LOOPS, Expr


def rounds_of(formula: Expr) -> int:
    """Rounds of all loops together, those inside others included; an extent that is computed counts as 1."""
    memo: dict[Expr, frozenset[Expr]] = {}

    def loops(x: Expr) -> frozenset[Expr]:
        """The loops in a formula that stand in no other loop of it."""
        if x not in memo:
            found = frozenset().union(*map(loops, x.args)) if x.op not in LOOPS else frozenset({x})
            memo[x] = found
        return memo[x]

    def rounds(x: Expr) -> int:
        extent, *inside = x.args
        within: frozenset[Expr] = frozenset().union(*map(loops, inside))
        return _value_of(extent) * (1 + sum(map(rounds, within)))

    return sum(map(rounds, loops(formula)))


def _value_of(extent: Expr) -> int:
    if extent.op == "param":
        return int(extent.attr.value)
    return int(extent.attr) if extent.op == "const" else 1
