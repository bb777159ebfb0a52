"""Pools of all element types against NumPy, with what computes their input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import FLAT, cast, lit
from engine.kernels.value import Value
from tests.engine.backends.steps import F32, pool_compute, pool_expected, result_of, tuned_plan, value

pytestmark = pytest.mark.gl

# Input, kernel, strides, dilations, pads, ends, out, include_pad.
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "rows of whole words": ((1, 2, 6, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (6, 8), False),
    "rows that end within a word": ((2, 3, 5, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (5, 7), True),
    "rows shorter than a word": ((1, 5, 4, 5), (2, 3), (1, 2), (1, 1), (0, 0), (0, 0), (3, 2), False),
    "rows of one result": ((1, 3, 9, 3), (2, 3), (1, 1), (1, 1), (0, 0), (0, 0), (8, 1), False),
    "windows beside each other": ((1, 3, 6, 10), (2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (3, 5), False),
    "in columns only": ((1, 2, 11, 6), (5, 1), (1, 1), (1, 1), (2, 0), (2, 0), (11, 6), False),
    "one axis": ((2, 3, 19), (3,), (1,), (2,), (2,), (2,), (19,), False),
}


def test_pools_keep_nan_and_infinity(backend: GLComputeBackend) -> None:
    x = np.random.default_rng(6).standard_normal((1, 1, 4, 30)).astype(np.float32)
    x[0, 0, 1, 5], x[0, 0, 3, 20], x[0, 0, :, 10:16] = np.nan, np.inf, -np.inf
    geometry = ((2, 3), (1, 1), (1, 1), (0, 0), (0, 0), (3, 28))
    step = pool_compute(value("x", x), "max", *geometry)
    got = result_of(backend, tuned_plan(backend, step), {"x": x}, step.output)
    np.testing.assert_array_equal(got, pool_expected(x, "max", *geometry))


def test_pools_that_share_nothing(backend: GLComputeBackend) -> None:
    """Software renderers read each element once, graphics cards neighbours in neighbouring threads."""
    x = np.zeros((1, 2, 40, 40), np.float32)
    for geometry in (((2, 2), (2, 2)), ((20, 20), (20, 20)), ((3, 3), (3, 4))):
        out = [(40 - k) // s + 1 for k, s in zip(*geometry, strict=True)]
        step = pool_compute(value("x", x), "max", *geometry, (1, 1), (0, 0), (0, 0), out)
        tuner = Tuner(step, lambda name, make: name, lambda elements, dtype: "scratch")
        assert backend.tune(step, tuner) == (backend.texels and geometry[0] != (20, 20))


@pytest.mark.parametrize("kind", ["max", "average"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_halves_share_words(backend: GLComputeBackend, name: str, kind: str) -> None:
    shape, *geometry = GEOMETRIES[name]
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float16)
    step = pool_compute(value("x", x), kind, *geometry)
    step = replace(step, output=Value("y", step.space, x.dtype))
    got = result_of(backend, tuned_plan(backend, step), {"x": x}, step.output)
    expected = pool_expected(x.astype(np.float64), kind, *geometry).astype(np.float16)
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_largest_integers(backend: GLComputeBackend, name: str, dtype: type) -> None:
    shape, *geometry = GEOMETRIES[name]
    limits = np.iinfo(dtype)
    x = np.random.default_rng(8).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    step = pool_compute(value("x", x), "max", *geometry)
    step = replace(step, output=Value("y", step.space, x.dtype), body=lit(0, "int32"))
    if not backend.texels and name == "windows beside each other" and dtype == np.int32:
        return
    got = result_of(backend, tuned_plan(backend, step), {"x": x}, step.output)
    np.testing.assert_array_equal(got, pool_expected(x, "max", *geometry))


@pytest.mark.parametrize("name", ["rows that end within a word", "one axis"])
def test_what_computes_the_input_is_part_of_the_kernel(backend: GLComputeBackend, name: str) -> None:
    shape, *geometry = GEOMETRIES[name]
    x = np.random.default_rng(9).integers(0, 256, shape, np.uint8)
    scale, zero = np.array([0.125], np.float32), np.array([100], np.uint8)
    read, step_size, offset = value("x", x), value("scale", scale), value("zero", zero)
    numbers = Value("numbers", shape, F32)
    apart = cast(read.at(FLAT), "int32") - cast(offset.at(lit(0)), "int32")
    formula = cast(apart, "float32") * step_size.at(lit(0))
    producer = Compute(numbers, shape, formula, "before", "DequantizeLinear", elementwise=True)
    step = pool_compute(numbers, "average", *geometry)
    for output in (step.output, Value("y", step.space, np.dtype(np.float16))):
        plan = tuned_plan(backend, replace(step, output=output), producer)
        assert sorted(plan.steps[0].inputs) == ["scale", "x", "zero"]
        got = result_of(backend, plan, {"x": x, "scale": scale, "zero": zero}, output)
        expected = pool_expected((x.astype(np.float64) - 100) * 0.125, "average", *geometry)
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2e-3, atol=2e-3)
