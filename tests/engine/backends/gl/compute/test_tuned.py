"""Tuned kernels against NumPy's arithmetic in float64, over shapes, strides and ways of reading."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.device.gl.device import GLDevice
from tests.engine.backends.steps import (
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
