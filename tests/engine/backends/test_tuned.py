"""Tuned kernels of the GPU backends against NumPy's arithmetic in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.gl.compute.backend import GLComputeBackend
from engine.kernels.expr import FLAT, acc, arg, cast, index, unary
from engine.kernels.value import Value
from tests.engine.backends.steps import (
    biased,
    conv_compute,
    conv_expected,
    matmul_compute,
    pool_compute,
    pool_expected,
    result_of,
    tuned_plan,
    value,
)

# x, w, strides, dilations, pads, ends, group
CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "3x3": ((1, 5, 13, 15), (9, 5, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "3x3 on rows of whole texels": ((2, 5, 13, 16), (8, 5, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "3x3 without padding": ((1, 4, 9, 21), (16, 4, 3, 3), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "stride 2, padded at the end": ((1, 3, 12, 14), (8, 3, 3, 3), (2, 2), (1, 1), (0, 0), (1, 1), 1),
    "stride 3 with a kernel of 2": ((1, 3, 16, 19), (8, 3, 2, 2), (3, 3), (1, 1), (0, 0), (0, 0), 1),
    "7x7 stride 2": ((1, 3, 20, 24), (8, 3, 7, 7), (2, 2), (1, 1), (3, 3), (3, 3), 1),
    "dilated": ((1, 3, 15, 21), (5, 3, 3, 3), (1, 1), (2, 3), (2, 3), (2, 3), 1),
    "a row kernel": ((1, 6, 4, 50), (4, 6, 1, 5), (1, 2), (1, 1), (0, 2), (0, 2), 1),
    "a column kernel": ((1, 6, 50, 3), (4, 6, 5, 1), (2, 1), (1, 1), (2, 0), (2, 0), 1),
    "more padding than input": ((1, 2, 2, 3), (3, 2, 3, 3), (1, 1), (1, 1), (4, 5), (5, 4), 1),
    "groups": ((2, 12, 9, 9), (20, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 4),
    "groups of one output": ((1, 12, 9, 9), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 4),
    "depthwise": ((2, 6, 9, 21), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 6),
    "depthwise 5x5 stride 2": ((1, 6, 19, 24), (6, 1, 5, 5), (2, 2), (1, 1), (2, 2), (2, 2), 6),
    "depthwise with two outputs each": ((1, 5, 9, 9), (10, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 5),
    "pointwise": ((2, 8, 7, 9), (13, 8, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "pointwise on whole texels": ((2, 8, 8, 6), (8, 8, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "pointwise, odd channels": ((1, 7, 6, 6), (5, 7, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "pointwise with a stride": ((1, 5, 9, 11), (8, 5, 1, 1), (2, 2), (1, 1), (0, 0), (0, 0), 1),
    "pointwise with padding": ((1, 4, 6, 6), (8, 4, 1, 1), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    "pointwise in groups": ((2, 8, 7, 9), (10, 4, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 2),
    "one axis": ((2, 6, 41), (9, 6, 3), (2,), (1,), (1,), (1,), 1),
    "one axis, pointwise": ((2, 6, 40), (9, 6, 1), (1,), (1,), (0,), (0,), 1),
    "pointwise on one element": ((1, 40, 1, 1), (10, 40, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "pointwise in exact tiles": ((1, 3, 4, 8), (64, 3, 1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1),
    "uneven padding": ((1, 3, 6, 5), (13, 3, 2, 4), (1, 1), (1, 1), (0, 3), (1, 0), 1),
    "stride beyond the kernel": ((1, 6, 17, 16), (5, 6, 2, 1), (3, 2), (1, 1), (0, 0), (0, 0), 1),
    "strided and dilated": ((1, 3, 22, 19), (5, 3, 3, 3), (2, 3), (3, 2), (3, 1), (2, 1), 1),
    "deep": ((1, 300, 4, 5), (4, 300, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
}


LEFT: dict[str, set[str]] = {
    "pixel": {"depthwise with two outputs each"},
    "gpu": {
        "more padding than input", "groups of one output", "depthwise", "depthwise 5x5 stride 2",
        "depthwise with two outputs each",
    },
}  # fmt: skip
"""Convolutions with few channels in a group or few elements, which a form leaves to the generic kernel."""


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


def convolve(backend: Backend, case: tuple[Any, ...], seed: int, static: bool = True) -> None:
    """Run a convolution with bias and rectifier, and compare."""
    x_shape, w_shape, strides, dilations, pads, ends, group = case
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, w_shape))
    b = rng.standard_normal(w_shape[0]).astype(np.float32)
    compute = conv_compute(
        value("x", x, static=static), value("w", w, known=True), strides, dilations, pads, ends, group,
        value("b", b, known=True),
    )  # fmt: skip
    got = result_of(backend, tuned_plan(backend, compute), {"x": x, "w": w, "b": b}, compute.output)
    sums = conv_expected(x, w, strides, dilations, pads, ends, group)
    assert_close(got, np.maximum(sums + b.reshape(-1, *[1] * (x.ndim - 2)), 0))


@pytest.mark.spread("tuned_backend")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(
    tuned_backend: Backend, request: pytest.FixtureRequest, name: str, static: bool
) -> None:
    if name in LEFT.get(request.node.callspec.params["tuned_backend"], ()):
        with pytest.raises(AssertionError, match="no rule took"):
            convolve(tuned_backend, CONVOLUTIONS[name], len(name), static)
        return
    convolve(tuned_backend, CONVOLUTIONS[name], len(name), static)


MATRICES = {
    "odd": (1, 5, 7, 9),
    "one row": (1, 1, 10, 64),
    "one row, odd": (1, 1, 5, 3),
    "whole texels": (3, 8, 12, 16),
    "larger than a tile": (2, 70, 65, 33),
    "square": (1, 64, 64, 64),
    "one column": (2, 9, 1, 20),
    "attention": (4, 16, 16, 8),
}


def test_padding_does_not_touch_what_lies_outside(tuned_backend: Backend) -> None:
    # The neighbours of a row in memory are other rows: full of NaN, they must not leak through the padding.
    x = np.full((1, 4, 3, 8), np.nan, np.float32)
    x[0, :, 1] = np.arange(8)
    w = np.zeros((4, 4, 1, 3), np.float32)
    w[:, 0] = [1, 10, 100]
    compute = conv_compute(value("x", x), value("w", w, known=True), (1, 1), (1, 1), (0, 1), (0, 1), 1, None)
    got = result_of(tuned_backend, tuned_plan(tuned_backend, compute), {"x": x}, compute.output)[0, 0]
    padded = np.pad(x[0, 0, 1], 1)
    np.testing.assert_array_equal(got[1], padded[:-2] + 10 * padded[1:-1] + 100 * padded[2:])
    assert np.isnan(got[[0, 2]]).all()


@pytest.mark.spread("tuned_backend", "second")
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("second", ["constant", "shared", "batched"])
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
@pytest.mark.parametrize("name", MATRICES)
def test_products(tuned_backend: Backend, name: str, transposed: str, second: str, static: bool) -> None:
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
    got = result_of(tuned_backend, tuned_plan(tuned_backend, compute), arrays, compute.output)
    left = np.swapaxes(a, 1, 2) if "a" in transposed else a
    right = np.swapaxes(b, 1, 2) if "b" in transposed else b
    assert_close(got, np.maximum(left.astype(np.float64) @ right + bias, 0))


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("width", [8, 6])
def test_products_of_interleaved_heads(tuned_backend: Backend, width: int, heads: int, static: bool) -> None:
    rows, columns = 12, 20
    rng = np.random.default_rng(width)
    a, b = (rng.standard_normal((n, heads, width)).astype(np.float32) for n in (rows, columns))
    compute = matmul_compute(
        value("a", a, static=static), value("b", b, static=static), (heads, rows, columns, width),
        (width, heads * width, 1), (width, 1, heads * width),
    )  # fmt: skip
    got = result_of(tuned_backend, tuned_plan(tuned_backend, compute), {"a": a, "b": b}, compute.output)
    assert_close(got, np.einsum("mhk,nhk->hmn", a.astype(np.float64), b))
    compute = matmul_compute(
        value("a", a, static=static), value("b", b, static=static), (heads, width, width, rows),
        (width, 1, heads * width), (width, heads * width, 1),
    )  # fmt: skip
    got = result_of(tuned_backend, tuned_plan(tuned_backend, compute), {"a": a, "b": b}, compute.output)
    assert_close(got, np.einsum("khm,khn->hmn", a.astype(np.float64), b[:rows]))


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("columns", [1, 3, 4])
def test_many_small_products(tuned_backend: Backend, columns: int, static: bool) -> None:
    rng = np.random.default_rng(columns)
    a, b = (rng.standard_normal((150, 4, n)).astype(np.float32) for n in (4, columns))
    compute = matmul_compute(
        value("a", a, static=static), value("b", b, static=static), (150, 4, columns, 4),
        (16, 4, 1), (4 * columns, columns, 1),
    )  # fmt: skip
    got = result_of(tuned_backend, tuned_plan(tuned_backend, compute), {"a": a, "b": b}, compute.output)
    assert_close(got, a.astype(np.float64) @ b)


@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("known", [True, False], ids=["known", "computed"])
def test_integer_products_wrap_at_32_bits(form: Backend, known: bool, columns: int) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-(1 << 20), 1 << 20, shape) for shape in ((1, 9, 12), (1, 12, columns)))
    compute = matmul_compute(
        value("a", a), value("b", b, known=known), (1, 9, columns, 12), (108, 12, 1), (0, columns, 1)
    )
    compute.output = Value("y", compute.space, a.dtype)
    got = result_of(form, tuned_plan(form, compute), {"a": a, "b": b}, compute.output)
    np.testing.assert_array_equal(got, (a @ b).astype(np.int32))


def test_epilogues_read_other_tensors_and_store_other_types(tuned_backend: Backend) -> None:
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
    got = result_of(tuned_backend, tuned_plan(tuned_backend, compute), arrays, compute.output)
    assert got.dtype == np.int8
    exact = (a.astype(np.float64) @ b)[0] * 2 + other
    away_from_ties = np.abs(exact - np.floor(exact) - 0.5) > 1e-4
    expected = (np.rint(exact) + scale[:, None]).astype(np.int8)
    np.testing.assert_array_equal(got[0][away_from_ties], expected[away_from_ties])


def test_other_types_are_left_to_generic_kernels(tuned_backend: Backend) -> None:
    a, b = np.ones((1, 2, 4), np.uint32), np.ones((1, 4, 4), np.uint32)
    compute = matmul_compute(value("a", a), value("b", b), (1, 2, 4, 4), (8, 4, 1), (0, 4, 1), None)
    with pytest.raises(AssertionError, match="no rule took"):
        tuned_plan(tuned_backend, compute)


POOLS: dict[str, tuple[Any, ...]] = {
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
    "in columns only": ((2, 3, 21, 10), (13, 1), (1, 1), (1, 1), (6, 0), (6, 0), (21, 10), True),
    "in columns, dilated": ((1, 2, 23, 9), (5, 1), (2, 1), (2, 1), (3, 0), (2, 0), (10, 9), False),
    "overlapping in columns": ((1, 2, 9, 12), (3, 2), (1, 2), (1, 1), (1, 0), (1, 0), (9, 6), True),
    "one axis": ((2, 3, 20), (3,), (1,), (1,), (1,), (1,), (20,), False),
}

APART = {"windows side by side", "taps far outside"}
"""Pools whose neighbours reach far without sharing, for which GL compute has the generic kernel only."""

BESIDE = {"2x2", "wide steps"}
"""Pools whose windows share nothing, for which graphics cards have the generic kernel only."""


@pytest.mark.spread("form")
@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("name", POOLS)
def test_pools(form: Backend, name: str, kind: str) -> None:
    shape, *geometry = POOLS[name]
    rng = np.random.default_rng(5)
    x, bias = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)
    compute = pool_compute(value("x", x), kind, *geometry)
    compute.epilogue = biased(value("b", bias), 1)
    is_refused = isinstance(form, GLComputeBackend) and name in (APART if form.texels else APART | BESIDE)
    if is_refused:
        with pytest.raises(AssertionError, match="no rule took"):
            tuned_plan(form, compute)
        return
    got = result_of(form, tuned_plan(form, compute), {"x": x, "b": bias}, compute.output)
    expected = pool_expected(x, kind, *geometry) + bias.reshape(-1, *[1] * (len(shape) - 2))
    assert_close(got, np.maximum(expected, 0))
