"""Convolutions of few outputs per group on processors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.backends.opencl import OpenCLBackend
from engine.backends.opencl.kernels import depthwise_conv
from engine.compiler.plan import Compute
from engine.device.cl.device import CLDevice
from engine.kernels.expr import FLAT, acc, index, load
from tests.engine.backends.steps import conv_compute, conv_expected, result_of, tuned_plan, value
from tests.engine.backends.test_tuned import assert_close
from tests.engine.conftest import MakeWorker
from tests.engine.operators.single import one_layer

pytestmark = pytest.mark.opencl

Geometry = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]
"""Strides, dilations, padding at both ends, and groups."""

RNG = np.random.default_rng(11)


@pytest.fixture
def processor(cl_device: CLDevice) -> Iterator[OpenCLBackend]:
    backend = OpenCLBackend(cl_device, form="cpu")
    yield backend
    backend.dispose()


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(backend: OpenCLBackend, step: Compute, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Through one tuned kernel."""
    plan = tuned_plan(backend, step)
    assert len(plan.steps) == 1
    return result_of(backend, plan, arrays, step.output)


@pytest.mark.parametrize(
    ("x", "w", "geometry"),
    [
        ((2, 6, 15, 12), (6, 1, 3, 3), ((1, 1), (1, 1), (1, 1), (1, 1), 6)),
        ((1, 3, 7, 7), (6, 1, 5, 5), ((1, 1), (1, 1), (2, 2), (2, 2), 3)),
        ((1, 4, 9, 10), (2, 2, 3, 3), ((1, 1), (1, 1), (1, 1), (1, 1), 2)),
        ((1, 2, 40, 33), (2, 1, 3, 3), ((2, 2), (1, 1), (0, 1), (1, 0), 2)),
        ((2, 2, 30, 61), (2, 1, 2, 5), ((2, 3), (3, 2), (1, 4), (0, 2), 2)),
        ((1, 2, 5, 9), (2, 1, 7, 3), ((1, 1), (1, 2), (6, 5), (6, 5), 2)),
        ((1, 2, 3, 501), (2, 1, 3, 9), ((1, 1), (1, 3), (1, 12), (1, 12), 2)),
        ((1, 2, 90, 300), (2, 1, 3, 3), ((1, 1), (1, 1), (1, 1), (1, 1), 2)),
        ((1, 3, 600), (3, 1, 31), ((2,), (1,), (15,), (15,), 3)),
    ],
)
def test_geometries(
    processor: OpenCLBackend, x: tuple[int, ...], w: tuple[int, ...], geometry: Geometry
) -> None:
    image, weights, bias = normal(*x), normal(*w), normal(w[0])
    for known in (True, False):
        weight_value = value("w", weights, known=known)
        step = conv_compute(value("x", image), weight_value, *geometry, value("bias", bias))
        expected = conv_expected(image, weights, *geometry) + bias.reshape(-1, *[1] * (len(x) - 2))
        arrays = {"x": image, "w": weights, "bias": bias}
        assert_close(run(processor, step, arrays), np.maximum(expected, 0))


def test_many_bands_of_rows(processor: OpenCLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise_conv, "_WORK", 1)
    x, w = normal(1, 2, 40, 40), normal(2, 1, 5, 3)
    geometry = ((1, 1), (1, 1), (2, 1), (2, 1), 2)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    assert_close(run(processor, step, {"x": x, "w": w}), conv_expected(x, w, *geometry))


def test_an_epilogue_with_positions(processor: OpenCLBackend) -> None:
    x, w, scale, residual = normal(1, 3, 9, 20), normal(3, 1, 3, 3), normal(20), normal(1, 3, 9, 20)
    geometry = ((1, 1), (1, 1), (1, 1), (1, 1), 3)
    step = conv_compute(value("x", x), value("w", w, known=True), *geometry)
    step.epilogue = acc("float32") * value("scale", scale)[index(3)] + load(value("residual", residual), FLAT)
    arrays = {"x": x, "w": w, "scale": scale, "residual": residual}
    assert_close(run(processor, step, arrays), conv_expected(x, w, *geometry) * scale + residual)


def test_kernels_do_not_depend_on_sizes(processor: OpenCLBackend) -> None:
    def keys(height: int, width: int) -> list[str]:
        x, w = normal(1, 4, height, width), normal(4, 1, 3, 3)
        step = conv_compute(value("x", x), value("w", w, known=True), (2, 2), (1, 1), (1, 1), (1, 1), 4)
        return [s.kernel.key for s in tuned_plan(processor, step).steps]

    assert keys(10, 12) == keys(31, 700)


@pytest.mark.parametrize("zeros", ["", "x", "xw"])
@pytest.mark.parametrize("known", [(), (1, 2, 3)])
def test_bytes_with_zero_points(make_worker: MakeWorker, zeros: str, known: tuple[int, ...]) -> None:
    x = RNG.integers(0, 256, (2, 3, 9, 21)).astype(np.uint8)
    w = RNG.integers(-128, 128, (3, 1, 3, 3)).astype(np.int8)
    x_zero, w_zero = np.uint8(130), np.array([3, -4, 5], np.int8)
    arrays = [x, w, np.array(x_zero)] if zeros else [x, w]
    arrays += [w_zero] if "w" in zeros else []
    attributes = {"group": 3, "pads": [1, 1, 1, 1]}
    known = tuple(k for k in known if k < len(arrays))
    worker = make_worker(one_layer("ConvInteger", arrays, attributes, known=known), "opencl")
    worker.schedule({f"x{k}": a for k, a in enumerate(arrays) if k not in known})
    wide = x.astype(int) - (int(x_zero) if zeros else 0)
    weights = w.astype(int) - (w_zero.astype(int).reshape(3, 1, 1, 1) if "w" in zeros else 0)
    expected = conv_expected(wide, weights, (1, 1), (1, 1), (1, 1), (1, 1), 3)
    np.testing.assert_array_equal(worker.peek_output("y0").download_to_array(), expected)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(make_worker: MakeWorker, dtype: str) -> None:
    x, w = normal(1, 3, 9, 21).astype(dtype), normal(3, 1, 3, 3).astype(dtype)
    worker = make_worker(one_layer("Conv", [x, w], {"group": 3, "pads": [1, 1, 1, 1]}), "opencl")
    worker.schedule({"x0": x, "x1": w})
    expected = conv_expected(x, w, (1, 1), (1, 1), (1, 1), (1, 1), 3)
    found = worker.peek_output("y0").download_to_array()
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float16" else 1e-12, atol=1e-3)
