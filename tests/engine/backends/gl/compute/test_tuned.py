"""Tuned kernels against NumPy's arithmetic in float64, over shapes, strides and ways of reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.compiler.plan import Compute, Tuner
from engine.device.gl.device import GLDevice
from tests.engine.backends.gl.test_tuned import assert_close
from tests.engine.backends.steps import (
    biased,
    conv_compute,
    matmul_compute,
    pool_compute,
    pool_expected,
    result_of,
    tuned_plan,
    value,
)

pytestmark = pytest.mark.gl

POOLS: dict[str, Any] = {
    # x, kernel, strides, dilations, pads, ends, out, include_pad
    "3x3": ((2, 3, 9, 13), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (9, 13), False),
    "3x3 with padding": ((1, 3, 9, 12), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (9, 12), True),
    "stride 2": ((1, 3, 9, 35), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (5, 18), True),
    "a window beyond the end": ((1, 2, 7, 7), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0), (4, 4), True),
    "dilated, uneven": ((1, 2, 11, 50), (2, 3), (1, 1), (2, 2), (1, 0), (0, 2), (10, 48), False),
    "more padding than input": ((1, 2, 3, 3), (5, 7), (1, 1), (1, 1), (2, 3), (2, 3), (3, 3), False),
    "one axis": ((2, 3, 21), (3,), (1,), (1,), (1,), (1,), (21,), False),
}


def test_large_weights_are_cut_into_slices(minimal_device: GLDevice) -> None:
    # What OpenGL 4.3 guarantees: 16 MiB a storage block; the weights take 17.
    backend = GLComputeBackend(minimal_device, texels=True)
    rng = np.random.default_rng(2)
    a = rng.standard_normal((1, 2, 1024)).astype(np.float32)
    b = rng.standard_normal((1, 1024, 4352)).astype(np.float32)
    compute = matmul_compute(
        value("a", a), value("b", b, known=True), (1, 2, 4352, 1024), (2048, 1024, 1), (0, 4352, 1), None
    )
    assert backend.refusal(compute) is None
    plan = tuned_plan(backend, compute)
    assert len(plan.steps) == 2
    assert all(array.nbytes <= 1 << 24 for array in plan.constants.values())
    assert_close(result_of(backend, plan, {"a": a}, compute.output), a.astype(np.float64) @ b)


def test_new_sizes_need_no_new_kernels(backend: GLComputeBackend) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    b = rng.standard_normal((1, 16, 24)).astype(np.float32)
    keys = []
    for height, width, rows in ((9, 11, 3), (32, 20, 17)):
        x = np.zeros((1, 4, height, width), np.float32)
        a = np.zeros((1, rows, 16), np.float32)
        sizes = ((1, 1), (1, 1), (1, 1), (1, 1))
        conv = conv_compute(value("x", x, static=False), value("w", w, known=True), *sizes, 1, None)
        product = matmul_compute(
            value("a", a, static=False), value("b", b, known=True), (1, rows, 24, 16), (rows * 16, 16, 1),
            (0, 24, 1), None,
        )  # fmt: skip
        keys.append([tuned_plan(backend, c).steps[0].kernel.key for c in (conv, product)])
    assert keys[0] == keys[1]


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("name", POOLS)
def test_pools_of_overlapping_windows(backend: GLComputeBackend, name: str, kind: str) -> None:
    shape, *geometry = POOLS[name]
    rng = np.random.default_rng(5)
    x, bias = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)
    step = pool_compute(value("x", x), kind, *geometry)
    step = Compute(
        step.output, step.space, step.body, step.layer, step.op_type, step.hint, biased(value("b", bias), 1)
    )
    got = result_of(backend, tuned_plan(backend, step), {"x": x, "b": bias}, step.output)
    expected = pool_expected(x, kind, *geometry) + bias.reshape(-1, *[1] * (len(shape) - 2))
    assert_close(got, np.maximum(expected, 0))


def test_pools_keep_nan_and_infinity(backend: GLComputeBackend) -> None:
    x = np.random.default_rng(6).standard_normal((1, 1, 4, 30)).astype(np.float32)
    x[0, 0, 1, 5], x[0, 0, 3, 20], x[0, 0, :, 10:16] = np.nan, np.inf, -np.inf
    geometry = ((2, 3), (1, 1), (1, 1), (0, 0), (0, 0), (3, 28))
    step = pool_compute(value("x", x), "max", *geometry)
    got = result_of(backend, tuned_plan(backend, step), {"x": x}, step.output)
    np.testing.assert_array_equal(got, pool_expected(x, "max", *geometry))


def test_pools_that_share_nothing_are_left_to_the_generic_kernel(backend: GLComputeBackend) -> None:
    x = np.zeros((1, 2, 40, 40), np.float32)
    for geometry in (((2, 2), (2, 2)), ((20, 20), (20, 20)), ((3, 3), (3, 4))):
        out = [(40 - k) // s + 1 for k, s in zip(*geometry, strict=True)]
        step = pool_compute(value("x", x), "max", *geometry, (1, 1), (0, 0), (0, 0), out)
        tuner = Tuner(step, lambda name, make: name, lambda elements, dtype: "scratch")
        assert not backend.tune(step, tuner)
