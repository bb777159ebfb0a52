"""Rows of which each element reads one of a few runs: woven from whole groups, and single elements beside."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.codegen.printer import NumbaPrinter
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import Expr, index, lit, select
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value
from tests.engine.kernels.runners import run_on_cpu

F32 = np.dtype(np.float32)


def woven(step: int, by_product: bool) -> tuple[Expr, Value]:
    """Element j of row i: of run j % step the element j // step, negated in every other row."""
    runs = Value("runs", (6, step, 9), F32)
    i, j = index(0), index(1)
    part = j // lit(step)
    phase = j - part * lit(step) if by_product else j % lit(step)
    e = runs[i, phase, part]
    return select((i % lit(2)) < lit(1), e, -e), runs


@pytest.mark.parametrize("by_product", [True, False])
@pytest.mark.parametrize(("step", "columns"), [(2, 18), (2, 17), (3, 26), (4, 3), (4, 34), (5, 45)])
def test_rows_in_blocks_of_any_size(step: int, columns: int, by_product: bool) -> None:
    body, runs = woven(step, by_product)
    kernel, values, inputs = kernel_call(body, 2, F32)
    arrays = [np.arange(v.size, dtype=np.float32).reshape(v.shape) for v in inputs]
    found = run_on_cpu(kernel, (6, columns), values, [a.reshape(-1) for a in arrays])
    np.testing.assert_array_equal(found, evaluate(kernel, (6, columns), values, arrays).reshape(-1))
    assert ("for part in" in NumbaPrinter(kernel).source().source) == (step <= 4)
    assert runs in inputs


def test_other_uses_of_the_index_stay() -> None:
    body, _ = woven(2, by_product=False)
    bound = select(index(1) < lit(5), body, lit(0.0, "float32"))
    kernel, _, _ = kernel_call(bound, 2, F32)
    assert "for part in" not in NumbaPrinter(kernel).source().source
