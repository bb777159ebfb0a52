"""Long reductions shared by several lanes: the same results, from kernels that have more elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.compiler.plan import Compute
from engine.compiler.split_reduction import SplitThresholds, split_reductions
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import Expr, arg, index, lit, reduce, unary
from engine.kernels.kernel import kernel_call
from engine.kernels.size_recorder import SizeRecorder
from engine.kernels.value import Value

FLOAT32 = np.dtype(np.float32)
WIDTH = SplitThresholds(threads=256, terms=64, work=0, with_open_spaces=True)


def tensor(array: np.ndarray) -> Value:
    return Value("x", array.shape, array.dtype, tuple((n, n) for n in array.shape))


def step(space: tuple[int, ...], body: Expr, is_open: bool = False) -> Compute:
    compute = Compute(Value("y", space, FLOAT32), space, body, "layer", "Test")
    compute.extents = tuple((n, n + is_open) for n in space)
    return compute


def parts_of(compute: Compute, width: SplitThresholds = WIDTH, fan_in: int = 8) -> list[Compute]:
    made: list[Value] = []

    def temporary(shape: tuple[int, ...], dtype: np.dtype) -> Value:
        made.append(Value(f"t{len(made)}", shape, dtype))
        return made[-1]

    return split_reductions(compute, width, fan_in, temporary)


def run(parts: list[Compute], x: np.ndarray) -> np.ndarray:
    arrays = {"x": x.reshape(-1)}
    for part in parts:
        kernel, values, inputs = kernel_call(part.formula(), len(part.space), part.output.dtype)
        found = evaluate(kernel, part.space, values, [arrays[v.name] for v in inputs])
        arrays[part.output.name] = found.reshape(-1)
    return arrays["y"].reshape(parts[-1].space)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("terms", [64, 700, 1024, 40_009])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_rows(kind: str, terms: int) -> None:
    x = draw(3, terms)
    value = tensor(x)
    parts = parts_of(step((3,), reduce(kind, value.dim(1), lambda r: value[index(0), r])))
    assert len(parts) > 1
    lanes = parts[0].space[1]
    assert 3 * lanes <= WIDTH.threads
    expected = x.astype(np.float64).sum(1) if kind == "sum" else x.max(1)
    np.testing.assert_allclose(run(parts, x), expected, rtol=1e-4, atol=1e-3)


def test_neighbouring_lanes_read_neighbouring_terms_or_columns() -> None:
    x = draw(2, 500, 5)
    value = tensor(x)
    columns = reduce("sum", value.dim(1), lambda r: value[index(0), r, index(1)])
    parts = parts_of(step((2, 5), columns))
    assert parts[0].space[1:] == (2, 5)
    np.testing.assert_allclose(run(parts, x), x.sum(1), rtol=1e-4, atol=1e-4)
    rows = reduce("sum", tensor(x.reshape(2, -1)).dim(1), lambda r: tensor(x.reshape(2, -1))[index(0), r])
    assert parts_of(step((2,), rows))[0].space[0] == 2


def test_loops_within_each_other_are_one_reduction() -> None:
    x = draw(3, 4, 300)
    value = tensor(x)

    def total(a: Expr) -> Expr:
        return reduce("sum", value.dim(2), lambda r: value[a, index(0), r])

    parts = parts_of(step((4,), reduce("sum", value.dim(0), total) / lit(2.0, "float32")))
    assert len(parts) > 1
    np.testing.assert_allclose(run(parts, x), x.sum((0, 2)) / 2, rtol=1e-4, atol=1e-4)


def test_one_for_several_elements_is_computed_once() -> None:
    x = draw(5, 400)
    value = tensor(x)

    def formula(o: Expr, c: Expr) -> Expr:
        return unary("exp", value[o, c] - reduce("max", value.dim(1), lambda r: value[o, r]))

    parts = parts_of(step((5, 400), formula(index(0), index(1))))
    assert [len(part.space) for part in parts] == [2, 1, 2]
    np.testing.assert_allclose(run(parts, x), np.exp(x - x.max(1, keepdims=True)), rtol=1e-5)


def test_results_are_the_same_every_time() -> None:
    x = draw(2, 3000)
    value = tensor(x)
    compute = step((2,), reduce("sum", value.dim(1), lambda r: value[index(0), r]))
    np.testing.assert_array_equal(run(parts_of(compute), x), run(parts_of(compute), x))


@pytest.mark.parametrize(("elements", "lanes"), [(1, 20), (40, 5), (5000, 1)])
def test_an_open_space_has_lanes_as_its_size_wants(elements: int, lanes: int) -> None:
    recorder = SizeRecorder()
    rows: Any = recorder.input(3)
    value = Value("x", (rows, 640), FLOAT32, ((3, 4), (640, 640)))
    body = reduce("sum", value.dim(1), lambda r: value[index(0), r])
    extents = ((3, 4, rows),)
    compute = Compute(Value("y", (rows,), FLOAT32), (rows,), body, "layer", "Test", extents=extents)
    parts = parts_of(compute)
    assert not recorder.guards
    assert len(parts) == 2
    assert recorder.program(parts[0].space)(elements) == [elements, lanes]
    closed = SplitThresholds(threads=256, terms=64, work=0, with_open_spaces=False)
    assert parts_of(compute, closed) == [compute]


def test_what_is_not_worth_it_stays_whole() -> None:
    x = draw(4, 500)
    value = tensor(x)

    def compute(extent: Expr, rows: int = 4) -> Compute:
        body = reduce("sum", extent, lambda r: value[index(0) % lit(4), r])
        return step((rows,), body)

    assert len(parts_of(compute(value.dim(1)))) == 2
    for short in (compute(arg(500)), compute(arg(50, fixed=True)), compute(value.dim(1), 200)):
        assert parts_of(short) == [short]
    work = SplitThresholds(threads=256, terms=64, work=2001, with_open_spaces=True)
    whole = compute(value.dim(1))
    assert parts_of(whole, work) == [whole]


def test_a_kernel_reads_no_more_tensors_than_it_may() -> None:
    x = draw(4, 500)
    value = tensor(x)
    body = reduce("sum", value.dim(1), lambda r: value[index(0), r]) + value[index(0), lit(0)]
    compute = step((4,), body)
    assert len(parts_of(compute, fan_in=2)) == 2
    assert parts_of(compute, fan_in=1) == [compute]
