"""Formulas as rows: what is read back is the same formula, and has the same key."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from engine.kernels.expr import Expr, acc, arg, cast, fold, index, lit, load, reduce, select
from engine.kernels.kernel import kernel_call
from engine.kernels.serialization import deserialize, serialize
from engine.kernels.value import Value

X = Value("x", (4, 5), np.dtype(np.float32))


def formulas() -> dict[str, Expr]:
    """Every kind of node that depends on variables, and attributes of every type."""
    i, j = index(0), index(1)
    total = reduce("sum", arg(5), lambda k: X[i, k] * X[i, k])
    high, low = fold(
        arg(5),
        [lit(float("-inf"), "float32"), lit(0, "int32")],
        lambda k, best, at: (select(X[i, k] > best, X[i, k], best), at + cast(k, "int32")),
    )
    return {
        "nested": total + reduce("max", lit(3), lambda k: X[k, j] + reduce("min", i, lambda n: X[n, k])),
        "folded": high * cast(low, "float32"),
        "epilogue": acc("float32") * lit(-0.0, "float32") + lit(float("nan"), "float32"),
        "flags": cast(select(i < j, lit(True, "bool"), lit(False, "bool")), "float32"),
        "bounded": load(X, i * arg(5) + j, i < lit(2), 1.5),
    }


@pytest.mark.parametrize("name", formulas())
def test_a_formula_is_read_back_as_it_was(name: str) -> None:
    kernel, _, _ = kernel_call(formulas()[name], 2, np.dtype(np.float32))
    found = deserialize(json.loads(json.dumps(serialize(kernel.body))))
    again = replace(kernel, body=found)
    assert again.key == kernel.key
    assert again.body.free == kernel.body.free
    assert again.body.depth == kernel.body.depth
    # A NaN equals nothing, not even itself.
    assert name == "epilogue" or again == kernel
