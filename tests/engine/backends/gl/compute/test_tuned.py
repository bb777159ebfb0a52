"""Tuned kernels against NumPy's arithmetic in float64, over shapes, strides and ways of reading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.compiler.plan import Compute
from engine.device.gl.device import GLDevice
from engine.kernels.expr import lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import (
    F32,
    biased,
    conv_compute,
    matmul_compute,
    result_of,
    tuned_plan,
    value,
)
from tests.engine.backends.test_tuned import assert_close

pytestmark = pytest.mark.gl


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


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
@pytest.mark.parametrize("sizes", [(9, 7, 5), (70, 12, 8), (1, 6, 4), (5, 1, 3)])
def test_squared_distances(
    backend: GLComputeBackend, sizes: tuple[int, int, int], known: bool, static: bool
) -> None:
    (m, n, k), rng = sizes, np.random.default_rng(8)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, m, k), (1, n, k)))
    compute = matmul_compute(
        value("a", a, static=static), value("b", b, known=known, static=static), (1, m, n, k),
        (m * k, k, 1), (0, 1, k),
    )  # fmt: skip
    assert compute.hint is not None
    compute.hint = replace(compute.hint, kind="squared_distances")
    got = result_of(backend, tuned_plan(backend, compute), {"a": a, "b": b}, compute.output)
    assert_close(got, ((a[0, :, None].astype(np.float64) - b) ** 2).sum(-1)[None])


@pytest.mark.parametrize("columns", [4, 12])
def test_complex_products(gl_device: GLDevice, columns: int) -> None:
    backend, rng = GLComputeBackend(gl_device, texels=True), np.random.default_rng(9)
    x, by = (rng.standard_normal(s).astype(np.float32) for s in ((5, 3, 2, columns), (3, 2, columns)))
    bias = rng.standard_normal(columns).astype(np.float32)
    hint = Hint("complex_product", (value("x", x), value("by", by)), {})
    compute = Compute(
        Value("y", x.shape, F32), x.shape, lit(0.0, "float32"), "layer", "DFT", hint,
        biased(value("bias", bias), 3),
    )  # fmt: skip
    arrays = {"x": x, "by": by, "bias": bias}
    got = result_of(backend, tuned_plan(backend, compute), arrays, compute.output)
    exact = (x[:, :, 0] + 1j * x[:, :, 1].astype(np.complex128)) * (by[:, 0] + 1j * by[:, 1])
    assert_close(got, np.maximum(np.stack([exact.real, exact.imag], 2) + bias, 0))


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
