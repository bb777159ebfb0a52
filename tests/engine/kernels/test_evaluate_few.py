"""A few integers are worked out from a formula as NumPy works them out from the kernel."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.kernels.evaluate import evaluate
from engine.kernels.evaluate_sizes import evaluate_few
from engine.kernels.expr import Expr, arg, binary, cast, compare, index, lit, select
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value

INT64 = np.dtype(np.int64)
SPACE = (2, 3)


def _random(rng: random.Random, values: list[Value], depth: int) -> Expr:
    """A random formula of int64 over some tensors of `SPACE`."""
    if depth == 0:
        leaf = rng.randrange(4)
        if leaf == 0:
            return lit(rng.randint(-9, 9), "int64")
        if leaf == 1:
            return arg(rng.randint(-9, 9), "int64")
        if leaf == 2:
            return cast(index(rng.randrange(2)), "int64")
        return rng.choice(values)[index(0), index(1)]
    a, b = (_random(rng, values, depth - 1) for _ in range(2))
    op = rng.choice(("add", "sub", "mul", "div", "rem", "min", "max", "select"))
    if op == "select":
        return select(compare(rng.choice(("lt", "eq", "ge")), a, b), b, _random(rng, values, depth - 1))
    return binary(op, a, b)


def _by_numpy(body: Expr) -> np.ndarray:
    kernel, arguments, inputs = kernel_call(body, len(SPACE), INT64)
    arrays = [value.known for value in inputs if value.known is not None]
    return evaluate(kernel, SPACE, arguments, arrays).reshape(SPACE)


@pytest.mark.parametrize("seed", range(40))
def test_random_formulas_come_to_the_same(seed: int) -> None:
    rng, elements = random.Random(seed), np.random.default_rng(seed)
    values = [Value(f"x{k}", SPACE, INT64, None, elements.integers(-99, 99, SPACE)) for k in range(2)]
    body = _random(rng, values, 3)
    found = evaluate_few(body, SPACE, Value("y", SPACE, INT64))
    assert found is not None
    assert found.dtype == INT64
    np.testing.assert_array_equal(found, _by_numpy(body))


def test_what_wraps_is_left_to_numpy() -> None:
    x = Value("x", SPACE, INT64, None, np.full(SPACE, 1 << 40))
    body = x[index(0), index(1)] * x[index(0), index(1)]
    assert evaluate_few(body, SPACE, Value("y", SPACE, INT64)) is None


def test_what_nobody_knows_is_not_worked_out() -> None:
    x = Value("x", SPACE, INT64)
    assert evaluate_few(x[index(0), index(1)], SPACE, Value("y", SPACE, INT64)) is None
