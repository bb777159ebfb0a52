"""Matrices turned over, against NumPy: squares and what is left of them, slim ones, many small ones."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.kernels.expr import FLAT, acc, arg, cast, index, maximum
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, check, run_tuned, tuned_plan


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


def typed_case(dtype: str, batch: int, rows: int, columns: int) -> Case:
    """Whole matrices of another type."""
    case = transpose_case(batch, rows, columns, static=False)
    case.arrays["x"] = (case.arrays["x"] * 50).astype(dtype)
    x = Value("x", (batch, rows, columns), np.dtype(dtype))
    assert case.compute is not None
    assert case.compute.hint is not None
    x.signature = case.compute.hint.operands[0].signature
    batch_index, column, row = (index(axis) for axis in range(3))
    body = x.at(batch_index * arg(rows * columns) + row * arg(columns) + column)
    return case.finish(
        (batch, columns, rows), body, Hint("transpose", (x,), case.compute.hint.attributes), None, x.dtype
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "float16", "int16", "int32", "int64", "float64"])
@pytest.mark.parametrize(("batch", "rows", "columns"), [(1, 300, 117), (3, 33, 16), (2, 5, 40), (1, 17, 3)])
def test_other_types_are_copied(backend: CPUBackend, dtype: str, batch: int, rows: int, columns: int) -> None:
    case = typed_case(dtype, batch, rows, columns)
    expected = case.arrays["x"].swapaxes(1, 2).reshape(-1)
    np.testing.assert_array_equal(run_tuned(backend, case), expected)


def test_slim_matrices_of_other_types_and_epilogues_over_them_stay_generic(backend: CPUBackend) -> None:
    slim, scaled = typed_case("int64", 1, 300, 3), typed_case("int64", 1, 40, 40)
    assert slim.compute is not None
    assert slim.compute.hint is not None
    slim.compute.hint.operands[0].signature = ((1, 1), (300, 301), (3, 3))
    assert scaled.compute is not None
    scaled.compute.epilogue = acc("int64") + arg(3, "int64")
    for case in (slim, scaled):
        with pytest.raises(AssertionError):
            tuned_plan(backend, case)
