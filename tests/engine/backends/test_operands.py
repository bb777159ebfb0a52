"""Products and convolutions of other operands than known float32 weights: tuned kernels take them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.backends.base import Backend
from engine.backends.opencl import OpenCLBackend
from engine.device.cl.device import CLDevice
from engine.kernels.value import Value
from tests.engine.backends.steps import (
    conv_compute,
    conv_expected,
    matmul_compute,
    result_of,
    tuned_plan,
    value,
)
from tests.engine.backends.test_tuned import CONVOLUTIONS
from tests.engine.conftest import answers
from tests.graphs import node, proto


def of_type(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.issubdtype(np.dtype(dtype), np.integer):
        limits = np.iinfo(np.int8 if dtype == "int32" else dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.spread("form", "dtype")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_with_computed_weights(form: Backend, name: str, dtype: str) -> None:
    x_shape, w_shape, strides, dilations, pads, ends, group = CONVOLUTIONS[name]
    x, w = of_type(x_shape, dtype, 1), of_type(w_shape, dtype, 2)
    compute = conv_compute(value("x", x), value("w", w), strides, dilations, pads, ends, group)
    compute.output = Value("y", compute.space, np.dtype(np.int32 if "int" in dtype else np.float32))
    if isinstance(form, OpenCLBackend) and form.form == "gpu" and w_shape[0] // group < 4:
        pytest.skip("a tile would be nearly empty: the generic kernel is the faster one")
    got = result_of(form, tuned_plan(form, compute), {"x": x, "w": w}, compute.output)
    expected = conv_expected(x, w, strides, dilations, pads, ends, group)
    if "int" in dtype:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1.0, np.abs(expected).max()))


@pytest.mark.spread("form")
@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
@pytest.mark.parametrize("sizes", [(1, 5, 7, 9), (1, 1, 12, 64), (3, 8, 12, 16), (2, 70, 65, 33)])
@pytest.mark.parametrize("types", [("int32", "int32"), ("uint8", "int8"), ("float16", "float16")])
def test_products(form: Backend, types: tuple[str, str], sizes: tuple[int, ...], known: bool) -> None:
    batch, m, n, k = sizes
    a, b = of_type((batch, m, k), types[0], 3), of_type((batch, k, n), types[1], 4)
    strides = (m * k, k, 1), (k * n, n, 1)
    compute = matmul_compute(value("a", a), value("b", b, known=known), (batch, m, n, k), *strides)
    dtype = np.float32 if types[0] == "float16" else np.int32
    compute.output = Value("y", compute.space, np.dtype(dtype))
    got = result_of(form, tuned_plan(form, compute), {"a": a, "b": b}, compute.output)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=0, atol=0 if dtype is np.int32 else 2e-5 * k)


def test_sums_of_large_integers_wrap(form: Backend) -> None:
    a, b = of_type((1, 4, 40), "int32", 5) * (1 << 22), of_type((1, 40, 8), "int32", 6) * 1000
    compute = matmul_compute(value("a", a), value("b", b), (1, 4, 8, 40), (160, 40, 1), (320, 8, 1))
    compute.output = Value("y", compute.space, np.dtype(np.int32))
    got = result_of(form, tuned_plan(form, compute), {"a": a, "b": b}, compute.output)
    expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.opencl
def test_products_of_doubles(cl_device: CLDevice) -> None:
    if not cl_device.info.has_double:
        pytest.skip("a device without float64")
    for form in ("cpu", "gpu"):
        backend = OpenCLBackend(cl_device, form=form)
        a, b = of_type((2, 9, 33), "float64", 14), of_type((1, 33, 21), "float64", 15)
        compute = matmul_compute(value("a", a), value("b", b), (2, 9, 21, 33), (297, 33, 1), (0, 21, 1))
        compute.output = Value("y", compute.space, np.dtype(np.float64))
        got = result_of(backend, tuned_plan(backend, compute), {"a": a, "b": b}, compute.output)
        np.testing.assert_allclose(got, a @ b, rtol=0, atol=1e-13)
        backend.dispose()


PLACES = [
    pytest.param("gl", marks=pytest.mark.gl),
    pytest.param("opencl", marks=pytest.mark.opencl),
]


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
@pytest.mark.parametrize("zeros", ["one", "rows and columns"])
def test_zero_points(device: Any, known: bool, zeros: str) -> None:
    """Products deeper than float32 could add up exactly."""
    m, n, k = 9, 21, 700
    a, b = of_type((m, k), "uint8", 7), of_type((k, n), "int8", 8)
    is_one = zeros == "one"
    a_zero, b_zero = of_type(() if is_one else (m,), "uint8", 9), of_type(() if is_one else (n,), "int8", 10)
    given = {"a": a, "az": a_zero} | ({} if known else {"b": b, "bz": b_zero})
    constants = {"b": b, "bz": b_zero} if known else {}
    source = proto(
        [node("MatMulInteger", ["a", "b", "az", "bz"], ["y"])],
        {name: (x.dtype.name, list(x.shape)) for name, x in given.items()},
        {"y": ("int32", [m, n])},
        constants,
    )
    with Worker(
        ModelLoader.load(source), BackendType.GPU_COMPUTE, device=device, allow_fallback=False
    ) as worker:
        (got,) = answers(worker, given)
    left = a.astype(np.int64) - (a_zero if is_one else a_zero[:, None])
    np.testing.assert_array_equal(got, left @ (b.astype(np.int64) - b_zero))


@pytest.mark.parametrize("device", PLACES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
def test_padding_is_the_zero_point(device: Any, known: bool) -> None:
    x, w = of_type((1, 6, 9, 11), "uint8", 11), of_type((8, 3, 3, 3), "int8", 12)
    x_zero, w_zero = np.array(117, np.uint8), of_type((8,), "int8", 13)
    given = {"x": x} | ({} if known else {"w": w})
    source = proto(
        [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=[1, 1, 1, 1], group=2)],
        {name: (a.dtype.name, list(a.shape)) for name, a in given.items()},
        {"y": ("int32", [1, 8, 9, 11])},
        {"xz": x_zero, "wz": w_zero} | ({"w": w} if known else {}),
    )
    with Worker(
        ModelLoader.load(source), BackendType.GPU_COMPUTE, device=device, allow_fallback=False
    ) as worker:
        (got,) = answers(worker, given)
    shifted = x.astype(np.int64) - x_zero, w.astype(np.int64) - w_zero[:, None, None, None]
    np.testing.assert_array_equal(got, conv_expected(*shifted, (1, 1), (1, 1), (1, 1), (1, 1), 2))
