"""Tuned kernels against NumPy's arithmetic in float64, over shapes, strides and ways of reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.gl_pixel.backend import GLPixelBackend
from engine.devices import GLDevice
from engine.kernels.expr import FLAT, acc, arg, cast, index, unary
from engine.kernels.value import Value
from tests.engine.backends.gl_compute.test_tuned import CONVOLUTIONS, MATRICES
from tests.engine.backends.steps import (
    conv_compute,
    conv_expected,
    matmul_compute,
    result_of,
    tuned_plan,
    value,
)

pytestmark = pytest.mark.gl

# Too narrow for blocks; the generic kernel is the faster one.
NARROW = {"depthwise with two outputs each"}


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 2e-5 * max(1.0, np.abs(expected).max())


def convolve(backend: GLPixelBackend, case: tuple[Any, ...], seed: int) -> None:
    x_shape, w_shape, strides, dilations, pads, ends, group = case
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, w_shape))
    b = rng.standard_normal(w_shape[0]).astype(np.float32)
    compute = conv_compute(
        value("x", x), value("w", w, known=True), strides, dilations, pads, ends, group,
        value("b", b, known=True),
    )  # fmt: skip
    got = result_of(backend, tuned_plan(backend, compute), {"x": x, "w": w, "b": b}, compute.output)
    sums = conv_expected(x, w, strides, dilations, pads, ends, group)
    assert_close(got, np.maximum(sums + b.reshape(-1, *[1] * (x.ndim - 2)), 0))


@pytest.mark.parametrize("name", sorted(set(CONVOLUTIONS) - NARROW))
def test_convolutions(plain_backend: GLPixelBackend, name: str) -> None:
    convolve(plain_backend, CONVOLUTIONS[name], len(name))


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


def test_padding_does_not_touch_what_lies_outside(plain_backend: GLPixelBackend) -> None:
    # The neighbours of a row in memory are other rows: full of NaN, they must not leak through the padding.
    x = np.full((1, 4, 3, 8), np.nan, np.float32)
    x[0, :, 1] = np.arange(8)
    w = np.zeros((4, 4, 1, 3), np.float32)
    w[:, 0] = [1, 10, 100]
    compute = conv_compute(value("x", x), value("w", w, known=True), (1, 1), (1, 1), (0, 1), (0, 1), 1, None)
    got = result_of(plain_backend, tuned_plan(plain_backend, compute), {"x": x}, compute.output)[0, 0]
    padded = np.pad(x[0, 0, 1], 1)
    np.testing.assert_array_equal(got[1], padded[:-2] + 10 * padded[1:-1] + 100 * padded[2:])
    assert np.isnan(got[[0, 2]]).all()


def test_narrow_groups_are_left_to_the_generic_kernel(plain_backend: GLPixelBackend) -> None:
    for name in NARROW:
        x_shape, w_shape, strides, dilations, pads, ends, group = CONVOLUTIONS[name]
        x, w = (
            value("x", np.zeros(x_shape, np.float32)),
            value("w", np.zeros(w_shape, np.float32), known=True),
        )
        compute = conv_compute(x, w, strides, dilations, pads, ends, group, None)
        with pytest.raises(AssertionError, match="no rule took"):
            tuned_plan(plain_backend, compute)


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("second", ["constant", "shared", "batched"])
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("name", MATRICES)
def test_products(
    plain_backend: GLPixelBackend, name: str, transposed: str, second: str, static: bool
) -> None:
    batch, m, n, k = MATRICES[name]
    rng = np.random.default_rng(len(name))
    a = rng.standard_normal((batch, k, m) if "a" in transposed else (batch, m, k)).astype(np.float32)
    many = batch if second == "batched" else 1
    b = rng.standard_normal((many, n, k) if "b" in transposed else (many, k, n)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    compute = matmul_compute(
        value("a", a, static=static), value("b", b, known=second == "constant", static=static),
        (batch, m, n, k),
        (m * k, 1, m) if "a" in transposed else (m * k, k, 1),
        (n * k if second == "batched" else 0, *((1, k) if "b" in transposed else (n, 1))),
        value("bias", bias),
    )  # fmt: skip
    arrays = {"a": a, "b": b, "bias": bias}
    got = result_of(plain_backend, tuned_plan(plain_backend, compute), arrays, compute.output)
    left = np.swapaxes(a, 1, 2) if "a" in transposed else a
    right = np.swapaxes(b, 1, 2) if "b" in transposed else b
    assert_close(got, np.maximum(left.astype(np.float64) @ right + bias, 0))


def test_epilogues_read_other_tensors_and_store_other_types(plain_backend: GLPixelBackend) -> None:
    rng = np.random.default_rng(1)
    a, b, other = (rng.standard_normal(s).astype(np.float32) for s in ((1, 6, 8), (1, 8, 5), (6, 5)))
    scale = np.arange(6, dtype=np.int32)
    compute = matmul_compute(
        value("a", a), value("b", b, known=True), (1, 6, 5, 8), (48, 8, 1), (0, 5, 1), None
    )
    other_value, scale_value = value("other", other), value("scale", scale)
    total = acc("float32") * arg(2.0, "float32") + other_value.at(FLAT)
    compute.epilogue = cast(unary("round", total), "int32") + scale_value[index(1)]
    compute.output = Value("y", compute.space, np.dtype(np.int8))
    arrays = {"a": a, "b": b, "other": other, "scale": scale}
    got = result_of(plain_backend, tuned_plan(plain_backend, compute), arrays, compute.output)
    assert got.dtype == np.int8
    exact = (a.astype(np.float64) @ b)[0] * 2 + other
    away_from_ties = np.abs(exact - np.floor(exact) - 0.5) > 1e-4
    expected = (np.rint(exact) + scale[:, None]).astype(np.int8)
    np.testing.assert_array_equal(got[0][away_from_ties], expected[away_from_ties])


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


def test_other_types_are_left_to_generic_kernels(plain_backend: GLPixelBackend) -> None:
    a, b = np.ones((1, 2, 4), np.int32), np.ones((1, 4, 4), np.int32)
    compute = matmul_compute(value("a", a), value("b", b), (1, 2, 4, 4), (8, 4, 1), (0, 4, 1), None)
    with pytest.raises(AssertionError, match="no rule took"):
        tuned_plan(plain_backend, compute)
