"""Elementary functions against float64, in units of the last place."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.codegen.tuned_kernel import TunedKernel
from engine.device.cl.device import CLDevice
from engine.kernels.expr import acc, unary
from tests.engine.backends.steps import matmul_compute, result_of, tuned_plan, value

pytestmark = pytest.mark.opencl

SPECIAL = [0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e-45, 3e38, 88.7, 89.0, -87.5, -103.9, -105.0]


@pytest.mark.parametrize(
    ("name", "expected", "bound"),
    [
        ("exp", np.exp, 1.1),
        ("log", np.log, 1.1),
        ("tanh", np.tanh, 2.6),
        ("erf", np.vectorize(math.erf), 1.3),
        ("abs", np.abs, 0.0),
    ],
)
def test_errors(
    cl_device: CLDevice, name: str, expected: Callable[[np.ndarray], np.ndarray], bound: float
) -> None:
    """In a group of one work-item, as the epilogue of a product with 1."""
    backend = OpenCLBackend(cl_device, form="cpu")
    scales = np.repeat([0.01, 1.0, 5.0, 40.0], 5000)
    drawn = np.random.default_rng(3).standard_normal(scales.size) * scales
    x = np.concatenate([drawn, SPECIAL]).astype(np.float32)
    one, row = np.ones((1, 1, 1), np.float32), x.reshape(1, 1, -1)
    product = matmul_compute(value("one", one), value("x", row), (1, 1, x.size, 1), (1, 1, 1), (0, x.size, 1))
    product.epilogue = unary(name, acc("float32"))
    plan = tuned_plan(backend, product)
    assert any("K_ALONE" in step.kernel.text for step in plan.steps if isinstance(step.kernel, TunedKernel))
    found = result_of(backend, plan, {"one": one, "x": row}, product.output).reshape(-1)
    backend.dispose()
    with np.errstate(all="ignore"):
        wide = expected(x.astype(np.float64))
        exact = wide.astype(np.float32)
    # Below these, a unit is coarser than what is computed.
    are_normal = np.isfinite(exact) & (np.abs(exact) > 2e-38)
    units = np.spacing(np.abs(exact[are_normal]))
    assert np.all(np.abs(found[are_normal] - wide[are_normal]) <= bound * units)
    np.testing.assert_allclose(found[~are_normal], exact[~are_normal], rtol=0, atol=1e-38)
