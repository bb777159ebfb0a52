"""The semantics of index spaces, loops and reductions on every target."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from engine.base.dtypes import (
    FLOAT_TYPES,
    ArithmeticType,
    arithmetic_type,
)
from engine.kernels.expr import (
    FLAT,
    Expr,
    acc,
    arg,
    cast,
    eq,
    floor_div,
    floor_mod,
    fold,
    index,
    lit,
    maximum,
    reduce,
    select,
    substitute,
)
from engine.kernels.value import Value
from tests.engine.kernels.runners import Runner, run_on_cpu
from tests.engine.kernels.test_semantics import I32, I64, INF, NAN, U32, U64, elementwise, needs, rarer, run


def test_indices(runner: Runner) -> None:
    """A transpose, a broadcast, the flat position and integer division of indices, in three dimensions."""
    x = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    b = np.arange(3, dtype=np.float32) * 100
    X, B = Value("x", x.shape, x.dtype), Value("b", b.shape, b.dtype)
    formula = (
        X[index(1), index(2), index(0)]
        + B[index(2)]
        + cast(FLAT * 1000, "float32")
        + cast(index(0) // 2 + index(0) % 2 * 7, "float32")
    )
    got, _ = run(runner, formula, "float32", (5, 2, 3), {X: x, B: b})
    i = np.arange(5)[:, None, None]
    expected = x.transpose(2, 0, 1) + b + 1000 * np.arange(30).reshape(5, 2, 3) + i // 2 + i % 2 * 7
    np.testing.assert_array_equal(got, expected.reshape(-1))


def test_indices_of_any_sign(runner: Runner) -> None:
    i = index(0) - 5
    formula = cast(floor_div(i, arg(3)) * 100 + floor_mod(i, arg(3)), "float32")
    got, _ = run(runner, formula, "float32", (11,), {})
    np.testing.assert_array_equal(got, [(k - 5) // 3 * 100 + (k - 5) % 3 for k in range(11)])


def test_padding_reads_nothing_outside(runner: Runner) -> None:
    x = np.arange(1.0, 5.0, dtype=np.float32)
    X = Value("x", x.shape, x.dtype)
    i = index(0) - 2
    formula = X.load_where((i >= 0) & (i < 4), (i,), -9.0)
    got, _ = run(runner, formula, "float32", (8,), {X: x})
    np.testing.assert_array_equal(got, [-9, -9, 1, 2, 3, 4, -9, -9])


def test_an_empty_space(runner: Runner) -> None:
    got, _ = run(runner, cast(index(1), "float32"), "float32", (0, 4), {})
    assert got.size == 0


def test_arguments_of_every_type(runner: Runner) -> None:
    given: list[tuple[Any, ArithmeticType]] = [
        (0.1, "float32"),
        (0.1, "float64"),
        (-7, "int32"),
        (U32, "uint32"),
    ]
    given += [(I64, "int64"), (U64, "uint64"), (-5, "index")]
    for value, dtype in given:
        if dtype in runner.types:
            stored = (
                "int64"
                if dtype == "index" and "int64" in runner.types
                else "int32"
                if dtype == "index"
                else dtype
            )
            body = arg(value, dtype) if dtype != "index" else cast(arg(value), arithmetic_type(stored))
            got, _ = run(runner, body, stored, (3,), {})
            np.testing.assert_array_equal(got, np.full(3, value, stored))


@pytest.mark.spread("dtype")
@pytest.mark.parametrize("dtype", ["float32", "int32", *rarer("float64", "int64", "uint32")])
@pytest.mark.parametrize(("kind", "neutral"), [("sum", 0), ("prod", 1), ("max", None), ("min", None)])
def test_reductions(runner: Runner, kind: str, neutral: float | None, dtype: ArithmeticType) -> None:
    """Rows of a matrix, of which each element takes one more: the first takes none."""
    needs(runner, dtype)
    x = (np.arange(12).reshape(3, 4) - (0 if dtype == "uint32" else 5)).astype(dtype)
    X = Value("x", x.shape, x.dtype)
    formula = reduce(kind, index(1), lambda r: X[index(0), r])
    got, evaluated = run(runner, formula, dtype, (3, 5), {X: x})
    np.testing.assert_array_equal(got, evaluated)
    function: Any = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[kind]
    whole = got.reshape(3, 5)
    for taken in range(1, 5):
        np.testing.assert_array_equal(whole[:, taken], function(x[:, :taken], axis=1).astype(dtype))
    if neutral is None:
        info: Any = np.finfo(dtype) if dtype in FLOAT_TYPES else np.iinfo(dtype)
        ends = (-INF, INF) if dtype in FLOAT_TYPES else (info.min, info.max)
        neutral = ends[kind == "min"]
    np.testing.assert_array_equal(whole[:, 0], np.full(3, neutral, dtype))


def test_nan_survives_reductions(runner: Runner) -> None:
    x = np.array([1.0, NAN, 3.0, 2.0], np.float32)
    X = Value("x", x.shape, x.dtype)
    for kind in ("sum", "prod", "max", "min"):
        got, _ = run(runner, reduce(kind, 4, lambda r: X[r]), "float32", (1,), {X: x})
        assert np.isnan(got[0]), kind


@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_two_numbers_are_combined_on_the_cpu_as_by_numpy(kind: str) -> None:
    """To the bit, though NumPy evaluation accumulates in float64 and the CPU backend need not."""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((2, 4000)) * 10.0 ** rng.integers(-30, 18, (2, 4000))).astype(np.float32)
    y = rng.standard_normal((2, 4000)).astype(np.float32)
    X, Y = Value("x", x.shape, x.dtype), Value("y", y.shape, y.dtype)
    formula = reduce(kind, 2, lambda r: X[r, index(0)] * Y[r, index(0)])
    got, evaluated = run(Runner(run_on_cpu), formula, "float32", (4000,), {X: x, Y: y})
    np.testing.assert_array_equal(got, evaluated)
    assert len(np.unique(got)) > 2000


def test_any_and_all(runner: Runner) -> None:
    x = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0]], bool)
    X = Value("x", x.shape, x.dtype)
    for kind, expected in (("max", [1, 1, 0]), ("sum", [1, 1, 0]), ("min", [0, 1, 0]), ("prod", [0, 1, 0])):
        got, _ = run(runner, reduce(kind, 3, lambda r: X[index(0), r]), "bool", (3,), {X: x})
        np.testing.assert_array_equal(got, np.array(expected, bool), err_msg=kind)


def test_nested_reductions_share_what_does_not_change(runner: Runner) -> None:
    """A matrix product, plus a sum of which each step holds another sum."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (4, 6)).astype(np.float32), rng.integers(-4, 5, (6, 3)).astype(np.float32)
    A, B = Value("a", a.shape, a.dtype), Value("b", b.shape, b.dtype)
    product = reduce("sum", 6, lambda k: A[index(0), k] * B[k, index(1)])
    nested = reduce("sum", 3, lambda i: B[i, index(1)] * reduce("max", 4, lambda j: A[j, i]))
    got, _ = run(runner, product + nested, "float32", (4, 3), {A: a, B: b})
    np.testing.assert_array_equal(got.reshape(4, 3), a @ b + (b[:3] * a.max(0)[:3, None]).sum(0))


def test_a_loop_with_carried_values(runner: Runner) -> None:
    """Fibonacci numbers: both values become new ones at once. No step at index 0."""
    a, b = fold(index(0), [lit(0, "int32"), lit(1, "int32")], lambda r, x, y: (y, x + y))
    got, _ = run(runner, a + b * lit(1000, "int32"), "int32", (8,), {})
    np.testing.assert_array_equal(got, [1000, 1001, 2001, 3002, 5003, 8005, 13008, 21013])


def test_a_search_in_a_loop(runner: Runner) -> None:
    """ArgMax, first of equals, as a fold over rows."""
    x = np.array([[3, 9, 9, 1], [5, 2, 1, 0], [NAN, 1, 2, 0]], np.float32)
    X = Value("x", x.shape, x.dtype)

    def step(r: Expr, best: Expr, where: Expr) -> list[Expr]:
        v = X[index(0), r]
        better = v > best
        return [select(better, v, best), select(better, cast(r, "int32"), where)]

    _, where = fold(4, [lit(-INF, "float32"), lit(0, "int32")], step)
    got, _ = run(runner, where, "int32", (3,), {X: x})
    np.testing.assert_array_equal(got, [1, 0, 2])


def test_a_reduction_inside_a_fold(runner: Runner) -> None:
    """Carried values may be used in an inner loop."""
    (total,) = fold(
        index(0),
        [lit(1, "int32")],
        lambda r, t: [reduce("sum", 3, lambda k: t * lit(2, "int32") + cast(k + r, "int32"))],
    )
    got, _ = run(runner, total, "int32", (4,), {})
    expected = [1]
    for r in range(3):
        expected.append(sum(expected[-1] * 2 + k + r for k in range(3)))
    np.testing.assert_array_equal(got, expected)


def test_both_sides_of_a_select_are_evaluated_safely(runner: Runner) -> None:
    a, b = np.array([7, I32, 5], np.int32), np.array([0, -1, 2], np.int32)
    got, _ = elementwise(
        runner, lambda x, y: select(eq(y, lit(0, "int32")), lit(-1, "int32"), x / y), "int32", a, b
    )
    np.testing.assert_array_equal(got, [-1, I32, 2])


def test_an_epilogue_is_part_of_the_formula(runner: Runner) -> None:
    x = np.array([-1.0, 2.0], np.float32)
    X = Value("x", x.shape, x.dtype)
    whole = substitute(maximum(acc("float32"), 0.0) * 3.0, lambda e: X.at(FLAT) if e.op == "acc" else None)
    got, _ = run(runner, whole, "float32", (prod(x.shape),), {X: x})
    np.testing.assert_array_equal(got, [0.0, 6.0])
