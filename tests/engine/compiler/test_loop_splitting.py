"""Formulas whose loops are too long for one kernel: counted, and split into several that do the same."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compiler.loop_splitting import rounds_of, split
from engine.compiler.plan import Compute
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import (
    FLAT,
    Expr,
    arg,
    cast,
    fold,
    index,
    lit,
    load,
    maximum,
    minimum,
    reduce,
    select,
)
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value

FLOAT32 = np.dtype(np.float32)
SPACE = (3, 4)


def nested(outer: int, inner: int) -> Expr:
    def row(r: Expr) -> Expr:
        return reduce("sum", inner, lambda s: cast(s + r, "float32"))

    return reduce("sum", outer, row)


def test_a_loop_ends_in_a_round_of_its_own() -> None:
    once = reduce("max", lit(3), lambda r: cast(r, "float32"))
    assert rounds_of(once, ()) == 4
    assert rounds_of(nested(5, 7), ()) == 5 * (1 + 8) + 1
    shared = nested(5, 7)
    assert rounds_of(shared + shared, ()) == 5 * (1 + 8) + 1
    assert rounds_of(shared + once, ()) == 5 * (1 + 8) + 1 + 4
    assert rounds_of(cast(arg(1), "float32"), ()) == 0


def test_what_does_not_change_in_a_loop_runs_before_it() -> None:
    fixed = reduce("sum", 7, lambda s: cast(s, "float32"))
    assert rounds_of(reduce("sum", 5, lambda r: cast(r, "float32") * fixed), ()) == 6 + 8


def test_extents_that_are_computed_count_as_the_largest_that_they_can_be() -> None:
    def of(extent: Expr) -> int:
        return rounds_of(reduce("sum", extent, lambda r: cast(r, "float32")), (10, 20)) - 1

    data = load(Value("lengths", (10,), np.dtype(np.int64)), index(0))
    assert of(index(1) + lit(1)) == 20
    assert of(arg(30) - index(0)) == 30
    assert of(minimum(cast(data, "index"), arg(12))) == 12
    assert of(maximum(index(0) * lit(3), lit(5))) == 27
    assert of(select(index(0) < lit(4), index(1) // lit(2), lit(2))) == 9
    assert of(FLAT % lit(6)) == 5
    assert of(cast(data, "index")) == 1


X = np.random.default_rng(3).normal(size=(*SPACE, 30, 7)).astype(np.float32)


def read(x: Value) -> dict[str, Expr]:
    """Formulas over (3, 4), each with a loop of up to 30 rounds or more."""
    i, j = index(0), index(1)

    def total(r: Expr) -> Expr:
        return reduce("sum", 7, lambda s: x[i, j, r, s])

    def first_peak(r: Expr, best: Expr, where: Expr) -> tuple[Expr, Expr]:
        better = total(r) > best
        return select(better, total(r), best), select(better, r, where)

    peak = fold(30, (lit(-1e9, "float32"), lit(0)), first_peak)
    top = reduce("max", 30, lambda r: x[lit(1), j, r, lit(2)])
    return {
        "sum": reduce("sum", 30, lambda r: x[i, j, r, lit(0)]),
        "max of sums": reduce("max", 30, total),
        "two loops": reduce("sum", 30, total) / reduce("sum", 30, lambda r: x[i, j, r, lit(1)]),
        "along one axis": top - x[i, j, lit(0), lit(0)],
        "up to a sum": reduce("max", minimum(cast(top, "index") * lit(20), 30), lambda r: x[i, j, r, lit(0)]),
        "up to an index": reduce("sum", i * lit(10) + j, lambda r: x[i, j, r, lit(0)]),
        "flat": reduce("min", 30, lambda r: x.at(FLAT * arg(210) + r)),
        "where the peak is": cast(peak[1], "float32") + peak[0],
        "running": fold(j * lit(9), (total(lit(0)),), lambda r, c: (c * 0.5 + x[i, j, r, lit(3)],))[0],
    }  # fmt: skip


@pytest.mark.parametrize("most", [9, 20])
@pytest.mark.parametrize("name", [*read(Value("x", X.shape, FLOAT32))])
def test_a_split_formula_yields_the_same(name: str, most: int) -> None:
    x = Value("x", X.shape, FLOAT32)
    body = read(x)[name]
    output = Value("y", SPACE, FLOAT32)
    kernel, values, _ = kernel_call(body, len(SPACE), FLOAT32)
    expected = evaluate(kernel, SPACE, values, [X])
    count = 0

    def temporary(shape: tuple[int, ...], dtype: np.dtype) -> Value:
        nonlocal count
        count += 1
        return Value(f"t{count}", shape, dtype)

    parts = split(Compute(output, SPACE, body, "layer", "Op"), most, temporary)
    assert parts is not None
    assert (len(parts) > 1) == (rounds_of(body, SPACE) > most)
    held = {"x": X}
    for part in parts:
        assert rounds_of(part.body, part.space) <= most
        kernel, values, inputs = kernel_call(part.body, len(part.space), part.output.dtype)
        held[part.output.name] = evaluate(kernel, part.space, values, [held[v.name] for v in inputs])
    np.testing.assert_allclose(held["y"].reshape(-1), expected.reshape(-1), rtol=1e-5)


def test_what_is_short_enough_stays_as_it_is() -> None:
    compute = Compute(Value("y", (2,), FLOAT32), (2,), nested(5, 7), "layer", "Op")
    assert split(compute, 46, lambda shape, dtype: pytest.fail("no tensor is needed")) == [compute]


def test_a_round_that_needs_the_one_before_cannot_be_split() -> None:
    def step(r: Expr, carried: Expr) -> tuple[Expr]:
        return (reduce("sum", 50, lambda s: cast(s, "float32") * carried),)

    body = fold(3, (lit(1.0, "float32"),), step)[0]
    compute = Compute(Value("y", (2,), FLOAT32), (2,), body, "layer", "Op")
    assert split(compute, 20, lambda shape, dtype: Value("t", shape, dtype)) is None
