"""Resizing along one axis on GL compute, each way of reading tensors, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import acc, cast, lit, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import biased, result_of, tuned_plan, value

pytestmark = [
    pytest.mark.gl,
    pytest.mark.parametrize("form", ["texels", "storage", "minimal"], indirect=True),
]

FIRST = 3
"""Where the tables begin that are read."""


def compute_of(arrays: dict[str, np.ndarray], out: int, taps: int, dtype: str = "float32") -> Compute:
    outer, size, inner = arrays["x"].shape
    attributes = {
        "outer": outer, "size": size, "out": out, "inner": inner, "first": FIRST, "taps": taps,
        "is_innermost": inner == 1, "is_inner_static": True,
    }  # fmt: skip
    output = Value("y", (outer, out, inner), np.dtype(dtype))
    operands = tuple(value(name, arrays[name]) for name in ("x", "rows", "weights"))
    hint = Hint("resample", operands, attributes)
    return Compute(output, output.shape, lit(0.0, "float32"), "layer", "Resize", hint)


def drawn(shape: tuple[int, ...], out: int, taps: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    draw = np.random.default_rng(out)
    count = FIRST + taps * out
    return {
        "x": draw.integers(0, 200, shape).astype(dtype),
        "rows": draw.integers(0, shape[1], count).astype(np.int32),
        "weights": draw.standard_normal(count).astype(np.float32),
        "bias": draw.standard_normal(out).astype(np.float32),
    }


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16"])
@pytest.mark.parametrize(
    ("shape", "out", "taps"),
    [((1, 1, 1), 1, 1), ((2, 5, 7), 9, 2), ((3, 4, 64), 3, 4), ((7, 20, 1), 33, 2), ((64, 6, 1), 5, 16)],
)
def test_one_axis(form: Backend, shape: tuple[int, ...], out: int, taps: int, dtype: str) -> None:
    arrays = drawn(shape, out, taps, dtype)
    compute = compute_of(arrays, out, taps)
    compute.epilogue = biased(value("bias", arrays["bias"]), 1)
    rows, weights = (arrays[name][FIRST:].reshape(taps, out) for name in ("rows", "weights"))
    terms = weights[None, :, :, None].astype(np.float64) * arrays["x"][:, rows].astype(np.float64)
    expected = np.maximum(terms.sum(1) + arrays["bias"][:, None], 0)
    found = result_of(form, tuned_plan(form, compute), arrays, compute.output)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("dtype", "inner"), [("uint8", 8), ("float16", 6), ("int8", 4)])
def test_narrow_outputs_are_stored_by_words(form: Backend, dtype: str, inner: int) -> None:
    arrays = drawn((3, 5, inner), 7, 2)
    arrays["weights"] = np.abs(arrays["weights"]) / 16
    compute = compute_of(arrays, 7, 2, dtype)
    if dtype != "float16":
        compute.epilogue = cast(unary("floor", acc("float32")), "int32")
    rows, weights = (arrays[name][FIRST:].reshape(2, 7) for name in ("rows", "weights"))
    expected = (weights[None, :, :, None] * arrays["x"][:, rows]).sum(1)
    found = result_of(form, tuned_plan(form, compute), arrays, compute.output)
    if dtype == "float16":
        np.testing.assert_allclose(found, expected, rtol=2e-3)
    else:
        assert np.abs(found.astype(np.float64) - np.floor(expected)).max() <= 1


@pytest.mark.parametrize(("dtype", "shape"), [("uint8", (3, 5, 6)), ("float16", (8, 5, 1))])
def test_narrow_outputs_of_other_sizes_are_left(form: Backend, dtype: str, shape: tuple[int, ...]) -> None:
    compute = compute_of(drawn(shape, 7, 2), 7, 2, dtype)
    tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not form.tune(compute, tuner)


def test_what_is_left_to_the_generic_kernel(form: Backend) -> None:
    compute = compute_of(drawn((2, 5, 7), 9, 40), 9, 40)
    tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not form.tune(compute, tuner)
    assert not tuner.steps
