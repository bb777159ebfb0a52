"""Matrices turned over, against NumPy: squares and what is left of them, slim ones, many small ones."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.kernels.expr import FLAT, acc, arg, cast, index, maximum
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, check, run_tuned, tuned_plan
from tests.engine.backends.steps import F32


def transpose_case(batch: int, rows: int, columns: int, *, static: bool = True, flat: bool = False) -> Case:
    """A batch of matrices; `flat` leaves the batch of 1 out of the space."""
    case = Case(rows)
    x = case.value("x", (batch, rows, columns))
    x.signature = tuple((n, n if static else n + 1) for n in x.shape)
    space = (columns, rows) if flat else (batch, columns, rows)
    *lead, column, row = (index(axis) for axis in range(len(space)))
    position = row * arg(columns) + column
    body = x.at(lead[0] * arg(rows * columns) + position if lead else position)
    attributes = {"batch": batch, "rows": rows, "columns": columns}
    return case.finish(space, body, Hint("transpose", (x,), attributes), None)


SHAPES = [
    (1, 16, 16), (2, 64, 49), (1, 17, 300), (3, 600, 33), (1, 1, 40), (2, 40, 1), (2, 3, 5), (5, 4, 60),
    (2, 3, 900), (2, 2000, 3), (1, 1, 1), (1, 15, 3000), (1, 5000, 15),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "rows", "columns"), SHAPES)
@pytest.mark.parametrize("static", [True, False])
def test_matrices(backend: CPUBackend, batch: int, rows: int, columns: int, static: bool) -> None:
    case = transpose_case(batch, rows, columns, static=static)
    expected = case.arrays["x"].swapaxes(1, 2).reshape(-1)
    np.testing.assert_array_equal(run_tuned(backend, case), expected)


@pytest.mark.parametrize(("batch", "rows", "columns"), [(2, 600, 33), (2, 40, 20), (2, 3, 500), (1, 2000, 5)])
def test_an_epilogue_knows_where_it_is(backend: CPUBackend, batch: int, rows: int, columns: int) -> None:
    case = transpose_case(batch, rows, columns)
    scale, other = case.value("scale", (rows,)), case.value("other", (batch, columns, rows))
    row_bias = case.value("row_bias", (columns,))
    assert case.compute is not None
    scaled = acc("float32") * scale[index(2)] + row_bias[index(1)]
    case.compute.epilogue = maximum(scaled, 0.0) + other.at(FLAT)
    check(backend, case)


@pytest.mark.parametrize(("rows", "columns"), [(48, 50), (3, 700)])
def test_one_matrix_as_another_type(backend: CPUBackend, rows: int, columns: int) -> None:
    case = transpose_case(1, rows, columns, flat=True)
    assert case.compute is not None
    case.compute.output = Value("y", case.compute.space, np.dtype(np.int8))
    case.compute.epilogue = cast(acc("float32") * 20.0, "int32")
    check(backend, case)


def test_kernels_depend_on_no_size_that_may_change(backend: CPUBackend) -> None:
    def key(rows: int, columns: int) -> str:
        (step,) = tuned_plan(backend, transpose_case(1, rows, columns, static=False)).steps
        return step.kernel.key

    assert key(3, 4) == key(300, 400)


def test_other_types_stay_generic(backend: CPUBackend) -> None:
    case = transpose_case(1, 20, 20)
    assert case.compute is not None
    assert case.compute.hint is not None
    x = Value("x", (1, 20, 20), np.dtype(np.float64))
    case.compute.hint = Hint("transpose", (x,), case.compute.hint.attributes)
    with pytest.raises(AssertionError):
        tuned_plan(backend, case)
    assert case.compute.output.dtype == F32
