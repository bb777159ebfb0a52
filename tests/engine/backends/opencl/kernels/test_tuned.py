"""Tuned kernels of the forms for CPUs and for GPUs: their epilogues, and where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

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
    result_of,
    tuned_plan,
    value,
)
from tests.engine.backends.test_tuned import assert_close

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


@pytest.mark.parametrize("outputs", [6, 12, 18])
def test_depthwise_convolutions(cl_device: CLDevice, outputs: int) -> None:
    backend = OpenCLBackend(cl_device, form="cpu")
    x, w = normal(2, 6, 15, 12), normal(outputs, 1, 3, 3)
    geometry = ((2, 1), (1, 1), (1, 1), (1, 1), 6)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    assert_close(run(backend, step, {"x": x, "w": w}), conv_expected(x, w, *geometry))
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
    assert_close(run(tuned, step, arrays), expected)


def test_a_product_without_terms(tuned: OpenCLBackend) -> None:
    a, b = normal(1, 3, 0), normal(1, 0, 4)
    step = matmul_compute(value("a", a), value("b", b), (1, 3, 4, 0), (0, 1, 1), (0, 4, 1))
    assert_close(run(tuned, step, {"a": a, "b": b}), np.zeros((1, 3, 4)))


def test_a_product_with_its_epilogue(tuned: OpenCLBackend) -> None:
    a, b, bias, scale = normal(2, 9, 20), normal(2, 20, 37), normal(37), normal(9)
    step = matmul_compute(value("a", a), value("b", b), (2, 9, 37, 20), (180, 20, 1), (740, 37, 1))
    step.epilogue = acc("float32") * value("scale", scale)[index(1)] + value("bias", bias)[index(2)]
    expected = (a.astype(np.float64) @ b) * scale[:, None] + bias
    assert_close(run(tuned, step, {"a": a, "b": b, "bias": bias, "scale": scale}), expected)


def test_pooling_keeps_nan_and_infinity(tuned: OpenCLBackend) -> None:
    x = normal(1, 1, 4, 70)
    x[0, 0, 1, 5], x[0, 0, 3, 20], x[0, 0, 2:, 30:32] = np.nan, np.inf, -np.inf
    geometry = ((2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (2, 35))
    got = run(tuned, pool_compute(value("x", x), "max", *geometry), {"x": x})
    np.testing.assert_array_equal(got.reshape(2, 35), x[0, 0].reshape(2, 2, 35, 2).max((1, 3)))


def test_a_long_step_is_cut_into_dispatches(tuned: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.backends.opencl.codegen.tuned_kernel._MAX_MULTIPLICATIONS", 200_000)
    x, w = normal(2, 6, 30, 30), normal(30, 6, 3, 3)
    geometry = ((1, 1), (1, 1), (1, 1), (1, 1), 1)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    assert_close(run(tuned, step, {"x": x, "w": w}), conv_expected(x, w, *geometry))


def test_the_generic_kernel_agrees_too(backend: OpenCLBackend) -> None:
    x, w = normal(2, 3, 9, 8), normal(5, 3, 3, 2)
    geometry = ((2, 1), (1, 2), (1, 0), (0, 1), 1)
    step = conv_compute(value("x", x), value("w", w), *geometry)
    assert_close(
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
