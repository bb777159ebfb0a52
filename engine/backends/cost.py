"""Estimated cost of a formula, for dividing work into parts on any processor."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kernels.expr import Expr
from engine.kernels.size import as_float, largest, whole

# Nanoseconds per element on one core of a few years ago, in loops that vectorise.
_OPERATION_NS = 0.15
_FUNCTION_NS = 1.0
_INTEGER_DIVISION_NS = 3.0
_SCALAR_STEP_NS = 1.5
_FUNCTIONS = frozenset("exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow".split())
# What a loop's extent counts for when it depends on the element.
_UNKNOWN_EXTENT = 16


def formula_ns(body: Expr, values: Sequence[int | float], along: frozenset[int | str] | None = None) -> float:
    """Estimated nanoseconds per element, repeated nodes counted once.

    along: count only what depends on these variables; the rest is computed once for all their values.
    """
    return _ns(body, values, set(), along)


def _ns(
    node: Expr, values: Sequence[int | float], seen: set[Expr], along: frozenset[int | str] | None = None
) -> float:
    if node in seen or node.op in ("const", "param") or (along is not None and not node.free & along):
        return 0.0
    seen.add(node)
    if node.op in ("reduce", "fold"):
        extent = node.args[0]
        steps = float(_UNKNOWN_EXTENT)
        if extent.op == "param":
            steps = as_float(values[extent.attr])
        elif extent.op == "const":
            steps = float(extent.attr)
        inner = sum(_ns(a, values, seen) for a in node.args[1:])
        return largest(steps, 1.0) * (inner + _SCALAR_STEP_NS)
    own = _OPERATION_NS
    if node.op in _FUNCTIONS:
        own = _FUNCTION_NS
    elif node.op in ("div", "rem") and node.dtype not in ("float32", "float64"):
        own = _INTEGER_DIVISION_NS
    return sum((_ns(a, values, seen, along) for a in node.args), own)


def loop_rounds(formula: Expr, values: Sequence[int | float]) -> int:
    """Approximate number of loop iterations per element: the product of nested extents."""
    memo: dict[Expr, int] = {}

    def visit(node: Expr) -> int:
        if node not in memo:
            inner = largest(1, *map(visit, node.args))
            memo[node] = inner * extent(node.args[0]) if node.op in ("reduce", "fold") else inner
        return memo[node]

    def extent(node: Expr) -> int:
        if node.op == "param":
            found: int = largest(1, whole(values[node.attr]))
            return found
        return max(1, int(node.attr)) if node.op == "const" else 1

    return visit(formula)
