"""Steps that a work-item computes alone, in strips of a row, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.codegen.repeated_kernel import print_merged
from engine.compiler.plan import Compute
from engine.kernels.expr import FLAT, Expr, arg, cast, index, lit, load, reduce, unary
from engine.kernels.value import Value
from tests.engine.backends.steps import F32, chain_plan, result_of, value
from tests.engine.backends.test_tuned import assert_close

pytestmark = pytest.mark.opencl

RNG = np.random.default_rng(2)


def alone(backend: OpenCLBackend, computes: list[Compute], arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Through one kernel of one work-item."""
    plan = chain_plan(computes)
    plan.steps = [print_merged(plan.steps, 1)]
    return result_of(backend, plan, arrays, computes[-1].output)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 300, 5), (3, 128, 600), (2, 7, 1), (1, 129, 0)])
def test_a_layer(backend: OpenCLBackend, rows: int, columns: int, depth: int, transposed: bool) -> None:
    x, w = RNG.standard_normal((rows, depth)), RNG.integers(-100, 100, (depth, columns))
    zeros = RNG.integers(-100, 100, columns)
    stored = w.T if transposed else w
    arrays: dict[str, np.ndarray] = {
        "x": x.astype(np.float32), "w": np.ascontiguousarray(stored).astype(np.int8),
        "zeros": zeros.astype(np.int8), "bias": RNG.standard_normal(columns).astype(np.float32),
    }  # fmt: skip
    values = {name: value(name, array) for name, array in arrays.items()}
    strides = (1, depth) if transposed else (columns, 1)

    def term(r: Expr) -> Expr:
        weight = (
            load(values["w"], r * arg(strides[0]) + index(1) * arg(strides[1])) - values["zeros"][index(1)]
        )
        return values["x"][index(0), r] * cast(weight, "float32")

    total = reduce("sum", depth, term) + values["bias"][index(1)]
    product = Value("product", (rows, columns), F32)
    layer = Compute(product, product.shape, total, "product", "MatMul")
    output = Value("y", product.shape, F32)
    finish = unary("tanh", load(product, FLAT) * 0.001)
    got = alone(backend, [layer, Compute(output, output.shape, finish, "y", "Tanh")], arrays)
    expected = x @ (w - zeros) + arrays["bias"]
    assert_close(got, np.tanh(expected * 0.001))


def test_reductions_of_other_kinds(backend: OpenCLBackend) -> None:
    x = RNG.integers(-9, 9, (5, 40)).astype(np.int32)
    given, output = value("x", x), Value("y", (5,), np.dtype(np.int32))
    parts = [reduce(kind, 40, lambda r: given[index(0), r]) for kind in ("max", "min", "sum", "prod")]
    body = parts[0] + parts[1] * lit(100, "int32") + parts[2] * lit(1000, "int32") + parts[3]
    got = alone(backend, [Compute(output, output.shape, body, "y", "Reduce")], {"x": x})
    expected = x.max(1) + x.min(1) * 100 + x.sum(1) * 1000 + x.prod(1, dtype=np.int32)
    np.testing.assert_array_equal(got, expected)
