"""Products in bytes: exact where operands are whole numbers that bytes hold, and near enough where not."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu.backend import CPUBackend
from engine.backends.cpu.kernels.convolution import low_precision_conv
from engine.backends.cpu.kernels.matmul import low_precision_matmul
from engine.backends.cpu.kernels.matmul.low_precision import quantise_columns
from engine.backends.cpu.kernels.matmul.precision import Arithmetic, Unit, matrix_units
from engine.device.jobs.system import JobSystem
from engine.kernels.expr import FLAT, acc, lit
from engine.kernels.hint import Hint
from tests.engine.backends.cpu.hinted import Case, matmul_case, out_size, run_tuned, tuned_plan
from tests.engine.backends.steps import conv_expected


@pytest.fixture(params=["amx", "avx512", "avx2"])
def int8(request: pytest.FixtureRequest, jobs: JobSystem, monkeypatch: pytest.MonkeyPatch) -> CPUBackend:
    """A backend for each unit that multiplies bytes, whatever the size of a product."""
    unit: Unit = request.param
    if unit not in matrix_units("int8"):
        pytest.skip(f"this processor multiplies no bytes by {unit}")
    monkeypatch.setattr(low_precision_matmul, "_LEAST_FLOPS", 0.0)
    monkeypatch.setattr(low_precision_conv, "_LEAST_FLOPS", 0.0)
    backend = CPUBackend(jobs, precision="int8")
    backend.arithmetics = (Arithmetic("int8", unit),)
    return backend


def _whole_numbers(rng: np.random.Generator, shape: Sequence[int], low: int, high: int) -> np.ndarray:
    """Whole numbers, many of which are the lowest and highest: every range is from `low` to `high`."""
    numbers = rng.integers(low, high + 1, shape)
    where = rng.random(shape)
    return np.where(where < 0.15, low, np.where(where > 0.85, high, numbers)).astype(np.float32)


def _set_known(case: Case, name: str, array: np.ndarray) -> None:
    case.arrays[name][...] = array  # the array that the operand knows


@pytest.mark.parametrize("low", [0, -100, -255])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 32, 64), (17, 40, 100), (40, 300, 130), (3, 20, 9000)])
def test_products_of_whole_numbers_are_exact(int8: CPUBackend, m: int, n: int, k: int, low: int) -> None:
    case = matmul_case(m + n, 1, m, n, k, known=True)
    rng = np.random.default_rng(m)
    _set_known(case, "a", _whole_numbers(rng, (1, m, k), low, low + 255))
    # Columns have a scale each, here 2, 4 or 8.
    steps = 2.0 ** rng.integers(1, 4, n)
    _set_known(case, "b", _whole_numbers(rng, (1, k, n), -127, 127) * steps)
    (step,) = tuned_plan(int8, case).steps
    assert getattr(step.kernel, "name", "") == "matmul_int8"
    got = run_tuned(int8, case).reshape(m, n)
    expected = case.arrays["a"][0].astype(np.float64) @ case.arrays["b"][0].astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6 * 255 * 127 * 8 * np.sqrt(k))


@pytest.mark.parametrize("shape", [(40, 64, 96), (5, 300, 700)])
def test_rows_have_ranges_of_their_own(int8: CPUBackend, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    case = matmul_case(4, 1, m, n, k, known=True, epilogue="column bias")
    _set_known(case, "a", case.arrays["a"] * 10.0 ** np.linspace(-3, 3, m)[None, :, None])
    got = run_tuned(int8, case).reshape(m, n).astype(np.float64)
    product = case.arrays["a"][0].astype(np.float64) @ case.arrays["b"][0].astype(np.float64)
    expected = np.maximum(product + case.arrays["bias"], 0)
    scale = np.abs(product).max(axis=1)
    assert (np.abs(got - expected).max(axis=1) < 0.03 * scale).all()


def test_rows_of_zeros_and_of_one_number(int8: CPUBackend) -> None:
    case = matmul_case(5, 1, 4, 32, 64, known=True)
    _set_known(case, "a", np.array([0.0, 3.0, -2.0, 1e-38])[None, :, None] * np.ones((1, 4, 64)))
    got = run_tuned(int8, case).reshape(4, 32)
    expected = case.arrays["a"][0] @ case.arrays["b"][0]
    np.testing.assert_allclose(got, expected, atol=0.1)
    np.testing.assert_array_equal(got[0], 0)


def test_what_is_not_finite_stays_in_its_row(int8: CPUBackend) -> None:
    case = matmul_case(6, 1, 6, 32, 64, known=True)
    case.arrays["a"][0, 2, 5] = np.inf
    case.arrays["a"][0, 4, 5] = np.nan
    got = run_tuned(int8, case).reshape(6, 32)
    assert not np.isfinite(got[2]).any()
    expected = case.arrays["a"][0] @ case.arrays["b"][0]
    rows = [0, 1, 3, 5]
    np.testing.assert_allclose(got[rows], expected[rows], atol=0.1)


@pytest.mark.parametrize("low", [0, -100])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "given"),
    [
        ((2, 9, 11, 64), (20, 64, 1, 1), {}),
        ((1, 13, 12, 70), (40, 70, 3, 3), {"pads": (1, 1), "ends": (1, 1)}),
        ((1, 14, 15, 130), (33, 130, 3, 3), {"pads": (1, 1), "ends": (0, 1), "strides": (2, 2)}),
        ((1, 12, 13, 32), (600, 32, 2, 3), {"dilations": (2, 2)}),
    ],
)
def test_convolutions_of_whole_numbers_are_exact(
    int8: CPUBackend, x_shape: tuple[int, ...], w_shape: tuple[int, ...], given: dict[str, Any], low: int
) -> None:
    attributes: dict[str, Any] = {
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": (0, 0),
        "ends": (0, 0),
        **given,
    }
    ends = attributes.pop("ends")
    case = Case(prod(x_shape))
    x, w = case.value("x", x_shape), case.value("w", w_shape, known=True)
    _set_known(case, "x", _whole_numbers(case.rng, x_shape, low, low + 255))
    _set_known(case, "w", _whole_numbers(case.rng, w_shape, -127, 127))
    out = tuple(
        map(
            out_size,
            x_shape[1:3],
            w_shape[2:],
            attributes["strides"],
            attributes["dilations"],
            attributes["pads"],
            ends,
        )
    )
    space = (x_shape[0], *out, w_shape[0])
    hint = Hint("conv", (x, w), {**attributes, "group": 1, "channels_last": True, "x_first": False})
    case.finish(space, lit(0.0, "float32"), hint, None)
    assert case.compute is not None
    other = case.value("other", space)
    case.compute.epilogue = acc("float32") + other.at(FLAT)
    (step,) = tuned_plan(int8, case).steps
    assert getattr(step.kernel, "name", "") == "conv_int8"
    got = run_tuned(int8, case).reshape(space)
    planes = np.moveaxis(case.arrays["x"], -1, 1)
    windows = attributes["strides"], attributes["dilations"], attributes["pads"]
    sums = conv_expected(planes, case.arrays["w"], *windows, ends, 1)
    expected = np.moveaxis(sums, 1, -1) + case.arrays["other"]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_what_bytes_do_not_take_goes_to_bfloat16(jobs: JobSystem) -> None:
    if not matrix_units("int8") or not matrix_units("bf16"):
        pytest.skip("this processor has not both")
    backend = CPUBackend(jobs, precision="int8")
    plan = tuned_plan(backend, matmul_case(7, 1, 64, 64, 256, known=True, trans_a=True))
    assert [getattr(step.kernel, "name", "") for step in plan.steps] == ["matmul_bf16"]


def test_columns_are_quantised_one_by_one() -> None:
    weights = np.array([[[1.0, 100.0, 0.0], [-0.5, 25.4, 0.0]]], np.float32)
    numbers, steps = quantise_columns(weights)
    np.testing.assert_array_equal(numbers[0], [[127, 127, 0], [-64, 32, 0]])
    np.testing.assert_allclose(steps, [1 / 127, 100 / 127, 1.0], rtol=1e-6)
