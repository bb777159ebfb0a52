"""Tuned kernels against NumPy's arithmetic in float64, over shapes, strides and ways of reading."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.gl.pixel.backend import GLPixelBackend
from engine.device.gl.device import GLDevice
from tests.engine.backends.steps import (
    conv_compute,
    matmul_compute,
    tuned_plan,
    value,
)
from tests.engine.backends.test_tuned import CONVOLUTIONS, convolve

pytestmark = pytest.mark.gl


@pytest.mark.parametrize("seed", range(12))
def test_convolutions_of_random_shapes(plain_backend: GLPixelBackend, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def pick(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    kernel, strides, dilations = ((pick(1, 4), pick(1, 4)) for _ in range(3))
    pads, ends = ((pick(0, 2), pick(0, 2)) for _ in range(2))
    size = tuple((k - 1) * d + 1 + pick(0, 12) for k, d in zip(kernel, dilations, strict=True))
    group = pick(1, 2)
    channels, outputs = pick(2, 9), pick(2, 20)
    x_shape, w_shape = (pick(1, 3), channels * group, *size), (outputs * group, channels, *kernel)
    convolve(plain_backend, (x_shape, w_shape, strides, dilations, pads, ends, group), seed)


def test_new_sizes_and_layers_need_no_new_cores(plain_backend: GLPixelBackend) -> None:
    """All convolutions and products share one core; what follows differs by its epilogue only."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((8, 4, 3, 3)).astype(np.float32)
    b = rng.standard_normal((1, 16, 24)).astype(np.float32)
    keys = []
    for height, width, rows in ((9, 11, 3), (32, 20, 17)):
        x, a = np.zeros((1, 4, height, width), np.float32), np.zeros((1, rows, 16), np.float32)
        sizes = ((1, 1), (1, 1), (1, 1), (1, 1))
        conv = conv_compute(value("x", x, static=False), value("w", w, known=True), *sizes, 1, None)
        product = matmul_compute(
            value("a", a, static=False), value("b", b, known=True), (1, rows, 24, 16), (rows * 16, 16, 1),
            (0, 24, 1), None,
        )  # fmt: skip
        keys.append([[s.kernel.key for s in tuned_plan(plain_backend, c).steps] for c in (conv, product)])
    assert keys[0] == keys[1]
    assert keys[0][0][1] == keys[0][1][1]


def test_minimum_limits(minimal_device: GLDevice) -> None:
    backend = GLPixelBackend(minimal_device)
    convolve(backend, CONVOLUTIONS["3x3"], 5)
    # 2**20 texels are the most; this one's scratch would take more.
    x, w = np.zeros((1, 4, 1500, 1500), np.float32), np.zeros((4, 4, 1, 1), np.float32)
    sizes = ((1, 1), (1, 1), (0, 0), (0, 0))
    compute = conv_compute(value("x", x), value("w", w, known=True), *sizes, 1, None)
    with pytest.raises(AssertionError, match="no rule took"):
        tuned_plan(backend, compute)
    backend.dispose()
