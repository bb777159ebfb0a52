"""Stable sorting by blocks and merges, in each form of the tuned kernels, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.gpu.sorts import BLOCK, EACH
from engine.compiler.plan import Compute
from engine.kernels.expr import acc, lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, tuned_plan, value


def sorted_positions(
    form: Backend,
    x: np.ndarray,
    keep: int,
    descending: bool = False,
    lengths: np.ndarray | None = None,
    static: bool = True,
    more: int = 0,
    listed: np.ndarray | None = None,
) -> np.ndarray:
    """The positions that the tuned kernels find, with `more` added by an epilogue."""
    given = {"x": x, "lengths": lengths, "listed": listed}
    arrays = {name: array for name, array in given.items() if array is not None}
    operands = tuple(value(name, array, static=static) for name, array in arrays.items())
    output = Value("y", (x.shape[0], keep, x.shape[2]), np.dtype(np.int32))
    hint = Hint("sort", operands, {"descending": descending, "keep": keep})
    compute = Compute(output, output.shape, lit(0, "int32"), "layer", "TopK", hint)
    if more:
        compute.epilogue = acc("int32") + lit(more, "int32")
    return result_of(form, tuned_plan(form, compute), arrays, output)


def expected_positions(x: np.ndarray, keep: int, descending: bool = False) -> np.ndarray:
    """Stable, NaN largest."""
    keys = np.where(np.isnan(x.astype(np.float64)), np.inf, x.astype(np.float64) * 0.5)
    return np.argsort(-keys if descending else keys, axis=1, kind="stable")[:, :keep]


def few_values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Numbers of which many are equal."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


COUNTS = (
    1, 2, EACH - 1, EACH, EACH + 1, 3 * EACH, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5,
    4 * BLOCK, 4 * BLOCK + 1, 8 * BLOCK + 7,
)  # fmt: skip


@pytest.mark.spread("form", "descending")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_rows_of_any_length(form: Backend, count: int, descending: bool) -> None:
    x = few_values((3, count, 1), "float32", count)
    got = sorted_positions(form, x, count, descending)
    np.testing.assert_array_equal(got, expected_positions(x, count, descending))


@pytest.mark.spread("form")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("inner", [1, 5])
def test_types_along_a_middle_axis(form: Backend, dtype: str, inner: int) -> None:
    x = few_values((2, 90, inner), dtype, inner)
    np.testing.assert_array_equal(sorted_positions(form, x, 90, more=3), expected_positions(x, 90) + 3)


@pytest.mark.parametrize(("count", "keep"), [(40, 7), (300, 17), (BLOCK + 9, 900), (3 * BLOCK, 2000)])
def test_the_first_ones(form: Backend, count: int, keep: int) -> None:
    x = few_values((4, count, 1), "int32", keep)
    got = sorted_positions(form, x, keep, descending=True)
    np.testing.assert_array_equal(got, expected_positions(x, keep, descending=True))


def test_extreme_keys_come_in_order(form: Backend) -> None:
    numbers = [np.nan, 0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1e-45, 0.0, np.nan, np.inf]
    x = np.resize(np.array(numbers, np.float32), (1, 70, 1))
    for descending in (False, True):
        keys = np.nan_to_num(x.astype(np.float64), nan=1e300, posinf=1e200, neginf=-1e200)
        keys = -keys if descending else keys
        expected = np.argsort(keys, axis=1, kind="stable")
        np.testing.assert_array_equal(sorted_positions(form, x, 70, descending), expected)
    ends = np.resize(np.array([2**31 - 1, -(2**31), 0], np.int32), (1, 70, 1))
    np.testing.assert_array_equal(sorted_positions(form, ends, 70), np.argsort(ends, 1, kind="stable"))


@pytest.mark.spread("form")
@pytest.mark.parametrize("is_listed", [False, True], ids=["all", "listed"])
@pytest.mark.parametrize("count", [50, 1500, 5000])
def test_rows_with_lengths_of_their_own(form: Backend, count: int, is_listed: bool) -> None:
    x = few_values((4, count, 1), "float32", count)
    x[:, ::7] = np.nan
    lengths = np.array([0, 1, count // 2, count])
    listed = np.stack([np.random.default_rng(row).permutation(count) for row in range(4)]).astype(np.int32)
    for descending in (False, True):
        got = sorted_positions(form, x, count, descending, lengths, listed=listed if is_listed else None)
        for row, found, length, places in zip(x, got, lengths.tolist(), listed, strict=True):
            own = places[:length] if is_listed else np.arange(length)
            expected = own[expected_positions(row[None, own], length, descending)[0]]
            np.testing.assert_array_equal(found[:length], expected)
            assert not found[length:].any()


def test_rows_of_a_size_that_varies_have_the_kernels_of_longer_ones(form: Backend) -> None:
    kernels = []
    for count in (20, 3 * BLOCK):
        x = few_values((2, count, 1), "float32", count)
        operands = (value("x", x, static=False),)
        output = Value("y", x.shape, np.dtype(np.int32))
        hint = Hint("sort", operands, {"descending": False, "keep": count})
        plan = tuned_plan(form, Compute(output, x.shape, lit(0, "int32"), "layer", "TopK", hint))
        kernels.append({step.kernel.key for step in plan.steps})
        np.testing.assert_array_equal(
            sorted_positions(form, x, count, static=False), expected_positions(x, count)
        )
    assert kernels[0] == kernels[1]
