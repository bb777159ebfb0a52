"""Tuned kernels against the same sums in float64, in the forms for CPUs and for GPUs, over many shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.opencl import OpenCLBackend
from engine.compiler.plan import Compute, Tuner
from engine.device.cl.device import CLDevice
from engine.kernels.expr import FLAT, acc, index, lit, load, maximum
from tests.engine.backends.steps import (
    chain_plan,
    conv_compute,
    conv_expected,
    matmul_compute,
    pool_compute,
    pool_expected,
    result_of,
    tuned_plan,
    value,
)

pytestmark = pytest.mark.opencl

RNG = np.random.default_rng(7)


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def tuned(cl_device: CLDevice, request: pytest.FixtureRequest) -> Iterator[OpenCLBackend]:
    backend = OpenCLBackend(cl_device, form=request.param)
    yield backend
    backend.dispose()


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(backend: OpenCLBackend, step: Compute, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Through its tuned kernels."""
    return result_of(backend, tuned_plan(backend, step), arrays, step.output)


def assert_agree(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    error = np.abs(got - expected).max() / max(1.0, np.abs(expected).max())
    assert error < 1e-5, f"off by {error}"


CONVOLUTIONS: dict[str, Any] = {
    # x, w, strides, dilations, pads, ends, group
    "pointwise": ((2, 5, 7, 9), (8, 5, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "pointwise on one element": ((1, 40, 1, 1), (10, 40, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "pointwise in exact tiles": ((1, 3, 4, 8), (64, 3, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "3x3 same": ((2, 4, 13, 11), (7, 4, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "3x3 valid": ((1, 3, 20, 40), (6, 3, 3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "uneven padding": ((1, 3, 6, 5), (13, 3, 2, 4), (1, 1), (1, 1), (0, 3), (1, 0), 1),
    "strided": ((1, 3, 23, 18), (9, 3, 3, 3), (2, 2), (1, 1), (0, 1), (1, 0), 1),
    "stride beyond the kernel": ((1, 6, 17, 16), (5, 6, 2, 1), (3, 2), (1, 1), (0, 0), (0, 0), 1),
    "dilated": ((1, 3, 16, 21), (20, 3, 3, 2), (1, 1), (2, 5), (2, 0), (2, 0), 1),
    "strided and dilated": ((1, 3, 22, 19), (5, 3, 3, 3), (2, 3), (3, 2), (3, 1), (2, 1), 1),
    "grouped": ((2, 8, 9, 9), (20, 4, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 2),
    "one axis": ((2, 4, 33), (6, 4, 5), (2,), (1,), (2,), (2,), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(tuned: OpenCLBackend, name: str) -> None:
    x_shape, w_shape, strides, dilations, pads, ends, group = CONVOLUTIONS[name]
    geometry = (strides, dilations, pads, ends, group)
    x, w = normal(*x_shape), normal(*w_shape)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    assert_agree(run(tuned, step, {"x": x, "w": w}), conv_expected(x, w, *geometry))


@pytest.mark.parametrize("outputs", [6, 12, 18])
def test_depthwise_convolutions(cl_device: CLDevice, outputs: int) -> None:
    backend = OpenCLBackend(cl_device, form="cpu")
    x, w = normal(2, 6, 15, 12), normal(outputs, 1, 3, 3)
    geometry = ((2, 1), (1, 1), (1, 1), (1, 1), 6)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    assert_agree(run(backend, step, {"x": x, "w": w}), conv_expected(x, w, *geometry))
    backend.dispose()


def test_a_convolution_with_its_epilogue(tuned: OpenCLBackend) -> None:
    x, w, bias, residual = normal(2, 5, 10, 10), normal(8, 5, 3, 3), normal(8), normal(2, 8, 10, 10)
    geometry = ((1, 1), (1, 1), (1, 1), (1, 1), 1)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    # A bias by channel, a residual by position, and a formula over another axis.
    biased = acc("float32") + value("bias", bias)[index(1)]
    by_row = load(value("bias", bias), index(2) % lit(8))
    step.epilogue = maximum(biased, lit(0.0, "float32")) + load(value("residual", residual), FLAT) * by_row
    arrays = {"x": x, "w": w, "bias": bias, "residual": residual}
    expected = np.maximum(conv_expected(x, w, *geometry) + bias[:, None, None], 0)
    expected += residual * bias[np.arange(10) % 8][:, None]
    assert_agree(run(tuned, step, arrays), expected)


PRODUCTS: dict[str, Any] = {
    # (batch, m, n, k), a transposed, b transposed, b known, one b for the batch
    "square": ((1, 70, 70, 70), False, False, False, False),
    "known weights": ((1, 33, 50, 19), False, False, True, False),
    "known transposed weights": ((1, 1, 100, 65), False, True, True, False),
    "one row": ((1, 1, 40, 300), False, False, False, False),
    "one column": ((1, 40, 1, 30), False, False, False, False),
    "both transposed": ((1, 20, 35, 17), True, True, False, False),
    "batches": ((3, 9, 20, 16), False, False, False, False),
    "batches of attention": ((4, 16, 16, 8), False, True, False, False),
    "batches and one matrix": ((3, 7, 18, 5), False, False, True, True),
    "no terms": ((1, 3, 4, 0), False, False, False, False),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(tuned: OpenCLBackend, name: str) -> None:
    sizes, a_turned, b_turned, known, one_b = PRODUCTS[name]
    batch, m, n, k = sizes
    a = normal(batch, k, m) if a_turned else normal(batch, m, k)
    slices = 1 if one_b else batch
    b = normal(slices, n, k) if b_turned else normal(slices, k, n)
    a_strides = (m * k, 1, m) if a_turned else (m * k, k, 1)
    b_step = 0 if one_b else n * k
    b_strides = (b_step, 1, k) if b_turned else (b_step, n, 1)
    step = matmul_compute(value("a", a), value("b", b, known), sizes, a_strides, b_strides)
    left = a.transpose(0, 2, 1) if a_turned else a
    right = b.transpose(0, 2, 1) if b_turned else b
    expected = left.astype(np.float64) @ right.astype(np.float64)
    assert_agree(run(tuned, step, {"a": a, "b": b}), expected)


def test_a_product_with_its_epilogue(tuned: OpenCLBackend) -> None:
    a, b, bias, scale = normal(2, 9, 20), normal(2, 20, 37), normal(37), normal(9)
    step = matmul_compute(value("a", a), value("b", b), (2, 9, 37, 20), (180, 20, 1), (740, 37, 1))
    step.epilogue = acc("float32") * value("scale", scale)[index(1)] + value("bias", bias)[index(2)]
    expected = (a.astype(np.float64) @ b) * scale[:, None] + bias
    assert_agree(run(tuned, step, {"a": a, "b": b, "bias": bias, "scale": scale}), expected)


POOLS: dict[str, Any] = {
    # x, kernel, strides, dilations, pads, ends, out, include_pad
    "2x2": ((2, 3, 12, 40), (2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (6, 20), False),
    "overlapping, with padding": ((1, 3, 9, 35), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (5, 18), True),
    "a window beyond the end": ((1, 2, 7, 7), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0), (4, 4), True),
    "dilated, uneven": ((1, 2, 11, 50), (2, 3), (1, 1), (2, 3), (1, 0), (0, 2), (10, 46), False),
    "wide steps": ((1, 2, 5, 60), (1, 2), (1, 3), (1, 1), (0, 0), (0, 0), (5, 20), False),
    "a vector of outputs": ((1, 2, 5, 16), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (5, 16), False),
    "one more": ((1, 2, 5, 17), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (5, 17), False),
    "one less": ((1, 2, 5, 15), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (5, 15), True),
    "windows side by side": ((2, 2, 28, 42), (14, 14), (14, 14), (1, 1), (0, 0), (0, 0), (2, 3), False),
    "more padding than input": ((1, 2, 3, 18), (5, 9), (1, 1), (1, 1), (2, 4), (2, 4), (3, 18), False),
    "taps far outside": ((1, 2, 3, 16), (1, 3), (1, 1), (1, 20), (0, 20), (0, 20), (3, 16), False),
    "narrower than a vector": ((1, 2, 3, 10), (1, 7), (1, 1), (1, 1), (0, 6), (0, 6), (3, 16), False),
    "one axis": ((2, 3, 20), (3,), (1,), (1,), (1,), (1,), (20,), False),
}


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("name", POOLS)
def test_pooling(tuned: OpenCLBackend, name: str, kind: str) -> None:
    shape, *geometry = POOLS[name]
    x = normal(*shape)
    step = pool_compute(value("x", x), kind, *geometry)
    assert_agree(run(tuned, step, {"x": x}), pool_expected(x, kind, *geometry))


def test_pooling_keeps_nan_and_infinity(tuned: OpenCLBackend) -> None:
    x = normal(1, 1, 4, 70)
    x[0, 0, 1, 5], x[0, 0, 3, 20], x[0, 0, 2:, 30:32] = np.nan, np.inf, -np.inf
    geometry = ((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (2, 35))
    got = run(tuned, pool_compute(value("x", x), "max", *geometry), {"x": x})
    np.testing.assert_array_equal(got.reshape(2, 35), x[0, 0].reshape(2, 2, 35, 2).max((1, 3)))


def test_a_long_step_is_cut_into_dispatches(tuned: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backends.opencl.tuned._MAX_MULTIPLICATIONS", 200_000)
    x, w = normal(2, 6, 30, 30), normal(30, 6, 3, 3)
    geometry = ((1, 1), (1, 1), (1, 1), (1, 1), 1)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    assert_agree(run(tuned, step, {"x": x, "w": w}), conv_expected(x, w, *geometry))


def test_the_generic_kernel_agrees_too(backend: OpenCLBackend) -> None:
    x, w = normal(2, 3, 9, 8), normal(5, 3, 3, 2)
    geometry = ((2, 1), (1, 2), (1, 0), (0, 1), 1)
    step = conv_compute(value("x", x), value("w", w), *geometry)
    assert_agree(
        result_of(backend, chain_plan([step]), {"x": x, "w": w}, step.output), conv_expected(x, w, *geometry)
    )


def test_kernels_do_not_depend_on_sizes(tuned: OpenCLBackend) -> None:
    def keys(height: int, width: int) -> list[str]:
        x, w = normal(1, 4, height, width), normal(8, 4, 3, 3)
        step = conv_compute(value("x", x), value("w", w, known=True), (2, 2), (1, 1), (1, 1), (1, 1), 1)
        step.epilogue = acc("float32") * load(value("s", normal(width)), index(3) % lit(5))
        tuner = Tuner(step, lambda name, make: name, lambda elements, dtype: "scratch")
        assert tuned.tune(step, tuner)
        return [s.kernel.key for s in tuner.steps]

    assert keys(10, 12) == keys(31, 200)


def test_what_is_left_to_the_generic_kernel(tuned: OpenCLBackend) -> None:
    x, w = normal(1, 2, 4, 4, 4), normal(3, 2, 1, 1, 1)
    volume = conv_compute(value("x", x), value("w", w, known=True), (1,) * 3, (1,) * 3, (0,) * 3, (0,) * 3, 1)
    tuner = Tuner(volume, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not tuned.tune(volume, tuner)
    assert tuner.steps == []


def test_kernels_for_graphics_cards_need_groups_and_local_memory(cl_device: CLDevice) -> None:
    a, b = normal(1, 8, 8), normal(1, 8, 8)
    strides = (64, 8, 1)
    compute = matmul_compute(value("a", a), value("b", b), (1, 8, 8, 8), strides, strides)
    for group, memory in ((128, 1 << 15), (256, 1 << 13)):
        device = CLDevice()
        device.limits = replace(device.limits, max_work_group_size=group, local_memory=memory)
        backend = OpenCLBackend(device, form="gpu")
        assert not backend.tune(compute, Tuner(compute, no_constant, no_temporary))
        backend.dispose()
        device.dispose()
    backend = OpenCLBackend(cl_device, form="gpu")
    assert backend.tune(compute, Tuner(compute, no_constant, no_temporary))
    backend.dispose()


def no_constant(name: str, make: Callable[[], np.ndarray]) -> str:
    raise AssertionError(name)


def no_temporary(elements: int, dtype: np.dtype) -> str:
    raise AssertionError(elements)
