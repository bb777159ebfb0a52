"""Planes resized to the nearest elements, against NumPy: pairs, repeated rows, any places, every size."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.kernels.expr import arg, cast, index
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.cpu.hinted import Case, run_tuned
from tests.engine.conftest import MakeWorker
from tests.graphs import Declared, model, node

I32 = np.dtype(np.int32)


def nearest_case(dtype: str, outer: int, rows: np.ndarray, columns: np.ndarray, width: int) -> Case:
    """Planes of `width` columns, and of as many rows as `rows` reads. The table has other entries, too."""
    case, shape = Case(width), (outer, int(rows.max()) + 1, width)
    case.value("x", shape)
    case.arrays["x"] = (case.arrays["x"] * 50).astype(dtype)
    x = Value("x", shape, case.arrays["x"].dtype)
    case.arrays["places"] = np.concatenate([[7, 7, 7], columns, rows]).astype(np.int32)
    places = Value("places", case.arrays["places"].shape, I32)
    first_row = 3 + len(columns)
    row, column = (
        cast(places[arg(first) + index(axis),], "index") for first, axis in ((first_row, 1), (3, 2))
    )
    body = x.at(index(0) * arg(shape[1] * width) + row * arg(width) + column)
    attributes = {
        "out_rows": len(rows), "out_columns": len(columns), "row_places": first_row, "column_places": 3,
    }  # fmt: skip
    hint = Hint("resize_nearest", (x, places), attributes)
    return case.finish((outer, len(rows), len(columns)), body, hint, None, x.dtype)


def expected(case: Case, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return case.arrays["x"][:, rows][:, :, columns].reshape(-1)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool", "float16", "int32", "int64", "float64"])
@pytest.mark.parametrize("width", [1, 5, 16, 67, 200])
def test_twice_as_many(backend: CPUBackend, dtype: str, width: int) -> None:
    rows, columns = np.arange(14) // 2, np.arange(2 * width) // 2
    case = nearest_case(dtype, 3, rows, columns, width)
    np.testing.assert_array_equal(run_tuned(backend, case), expected(case, rows, columns))


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64"])
@pytest.mark.parametrize("count", [1, 26, 51, 90])
def test_any_places(backend: CPUBackend, dtype: str, count: int) -> None:
    """In any order, and pairs but for the last one."""
    rng = np.random.default_rng(count)
    rows = np.sort(rng.integers(0, 9, 40))
    almost = np.arange(52) // 2
    almost[-1] = 0
    for columns in (rng.integers(0, 26, count), almost):
        case = nearest_case(dtype, 2, rows, columns, 26)
        np.testing.assert_array_equal(run_tuned(backend, case), expected(case, rows, columns))


def test_many_rows_are_cut(backend: CPUBackend) -> None:
    rows, columns = np.arange(3000) // 3, np.arange(300) // 2
    case = nearest_case("float32", 1, rows, columns, 150)
    np.testing.assert_array_equal(run_tuned(backend, case), expected(case, rows, columns))


def test_what_follows_reads_the_result(make_worker: MakeWorker) -> None:
    x = np.random.default_rng(5).normal(size=(2, 3, 9, 11)).astype(np.float32)
    constants = {"scales": np.array([1, 1, 2, 2], np.float32), "bias": np.array(0.5, np.float32)}
    where = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [
        node("Resize", ["x", "", "scales"], ["r"], mode="nearest", **where),
        node("Add", ["r", "bias"], ["a"]),
        node("Relu", ["a"], ["y"]),
    ]
    inputs: Declared = {"x": ("float32", [2, 3, "h", "w"])}
    source = model(nodes, inputs, {"y": ("float32", [2, 3, None, None])}, constants)
    worker = make_worker(source, "cpu")
    worker.schedule(x)
    kernels = [step.kernel for plan in worker._plans for s in plan.segments for step in s.plan.steps]
    assert "resize_nearest" in [getattr(kernel, "name", "") for kernel in kernels]
    wanted = np.maximum(x.repeat(2, axis=2).repeat(2, axis=3) + np.float32(0.5), 0)
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), wanted)
