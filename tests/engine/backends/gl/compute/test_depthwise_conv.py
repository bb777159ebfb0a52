"""Depthwise convolutions of narrow integers against NumPy, which read and store bytes themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.gl.compute.backend import GLComputeBackend
from engine.kernels.expr import acc, cast, index, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import conv_compute, conv_expected, result_of, tuned_plan, value

pytestmark = pytest.mark.gl

# Input, weights, strides, dilations, pads, ends, groups.
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "rows of whole words": ((1, 2, 6, 8), (2, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 2),
    "rows that end within a word": ((2, 3, 5, 7), (3, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 3),
    "rows shorter than a word": ((1, 5, 4, 5), (5, 1, 2, 3), (1, 2), (1, 1), (0, 0), (0, 0), 5),
    "two outputs of a channel": ((2, 3, 9, 6), (6, 1, 5, 5), (2, 2), (1, 1), (2, 1), (1, 2), 3),
    "dilations": ((1, 2, 9, 11), (2, 1, 3, 2), (1, 1), (2, 3), (2, 3), (2, 0), 2),
    "one axis": ((2, 3, 19), (3, 1, 3), (1,), (2,), (2,), (2,), 3),
}


@pytest.mark.parametrize("stored", [np.int32, np.uint8, np.int16])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_integers(backend: GLComputeBackend, name: str, dtype: type, stored: type) -> None:
    shape, weights_shape, *geometry = GEOMETRIES[name]
    rng, limits = np.random.default_rng(4), np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    w = rng.integers(-128, 127, weights_shape, np.int8, endpoint=True)
    x_zero: np.ndarray = np.array([100], dtype)
    w_zero = rng.integers(-9, 9, weights_shape[0], np.int8)
    bias = rng.integers(-500, 500, weights_shape[0], np.int32)
    apart = w.astype(np.int32) - w_zero.reshape(-1, *[1] * (w.ndim - 1))
    wide = conv_expected(x.astype(np.int32) - 100, apart, *geometry)
    expected = np.rint(wide).astype(np.int64) + bias.reshape(-1, *[1] * (x.ndim - 2))
    for known in (True, False):
        weights, offset = value("w", w, known=known), value("w_zero", w_zero, known=known)
        read, zero = value("x", x), value("x_zero", x_zero)
        step = conv_compute(Value("x", shape, np.dtype(np.int32)), value("w", apart), *geometry)
        assert step.hint is not None
        attributes = {**step.hint.attributes, "zeros": (True, True)}
        step.hint = Hint("conv_integer", (read, weights, zero, offset), attributes)
        step.body = lit(0, "int32")
        step.epilogue = cast(acc("int32") + value("bias", bias)[index(1)], "int32")
        step = replace(step, output=Value("y", step.space, np.dtype(stored)))
        plan = tuned_plan(backend, step)
        assert "x" in plan.steps[-1].inputs
        arrays = {"x": x, "w": w, "x_zero": x_zero, "w_zero": w_zero, "bias": bias}
        got = result_of(backend, plan, arrays, step.output)
        np.testing.assert_array_equal(got, expected.astype(stored))
