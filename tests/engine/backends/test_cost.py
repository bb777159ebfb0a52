"""Estimates of formulas: what is counted, and how often."""

from __future__ import annotations

import numpy as np

from engine.backends.cost import formula_ns
from engine.backends.cpu.codegen.cost import step_ns
from engine.compiler.plan import Compute
from engine.kernels.expr import index, lit, reduce
from engine.kernels.value import Value

SHAPE = (30, 200)
X = Value("x", SHAPE, np.dtype(np.float32))


def estimate(*, per_row: bool) -> float:
    """Of a copy whose rows, or elements, are found by divisions."""
    divided = index(0) if per_row else index(1)
    place = (divided // lit(7) * lit(7) + divided % lit(7)) * lit(1)
    body = X[(place, index(1)) if per_row else (index(0), place)]
    step = Compute(Value("y", SHAPE, X.dtype), SHAPE, body, "copy", "Copy").as_step()
    return float(step_ns(step))


def test_what_a_row_shares_counts_once_for_each_row() -> None:
    assert 20 * estimate(per_row=True) < estimate(per_row=False) * 4


def test_only_what_depends_on_the_variables_is_counted() -> None:
    row, column = index(0) // lit(3), index(1) // lit(3)
    total = reduce("sum", lit(50), lambda r: X.at(row + r))
    whole = X.at(row + column) + total
    along = formula_ns(whole, (), frozenset({1}))
    assert along == formula_ns(X.at(index(0) + column) + 1.0, (), frozenset({1}))
    assert 0 < along < formula_ns(whole, ()) / 5
    assert formula_ns(whole, (), frozenset({2})) == 0
