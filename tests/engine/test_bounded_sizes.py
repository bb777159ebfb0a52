"""Sizes that data decides: outputs are trimmed when read back, and only what needs the exact size waits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
import pytest

from engine import Model, ModelLoader
from engine.compiler.interpreter import interpret
from engine.kernels.expr import Expr, cast, eq, fold, lit, reduce, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import OPERATORS, operator
from tests.engine.conftest import MakeWorker

HEAD = '<ir_version: 9, opset_import: ["": 18, "tests": 1]>\n'


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """An operator that exists during a test only: the elements of a vector above 0, and where they were."""

    @operator("Positive", domain="tests")
    def positive(k: Builder, x: Value) -> tuple[Value, ...]:
        size = x.shape[0]

        def source(i: Expr) -> Expr:
            def step(r: Expr, seen: Expr, at: Expr) -> tuple[Expr, Expr]:
                hit = x[r] > 0.0
                return select(hit, seen + lit(1), seen), select(hit & eq(seen, i), r, at)

            return cast(fold(size, (lit(0), lit(0)), step)[1], "int64")

        where = k.compute((size,), np.dtype(np.int64), source)
        kept = k.compute((size,), x.dtype, lambda i: x[cast(where[i], "index")])
        count = k.compute(
            (1,), np.dtype(np.int64), lambda i: reduce("sum", size, lambda r: cast(x[r] > 0.0, "int64"))
        )
        return k.counted(kept, 0, count), k.counted(where, 0, count)

    yield
    OPERATORS._by_name.pop(("tests", "Positive"))


def load(text: str) -> Model:
    return ModelLoader.load(onnx.parser.parse_model(HEAD + text).SerializeToString())


FOLLOWED = """g (float[n] x, float[n, 2] rows) => (float[m, 2] y, float[1, m] z) {
    kept, at = tests.Positive(x)
    y = Gather(rows, at)
    two = Constant<value = float {2}>()
    doubled = Mul(kept, two)
    axis = Constant<value = int64[1] {1}>()
    column = Unsqueeze(doubled, axis)
    z = Transpose<perm = [1, 0]>(column)
}"""

NEEDED = """g (float[n] x) => (float[m] y, float mean, int64[1] size) {
    kept, at = tests.Positive(x)
    e = Exp(kept)
    mean = ReduceMean<keepdims = 0>(e)
    size = Shape(kept)
    y = Softmax<axis = 0>(kept)
}"""

CASES = ([0.5, -1.0, 2.0, -3.0, 4.0], [-1.0, -2.0], [3.0, 1.0], [1.0])


@pytest.mark.spread
@pytest.mark.parametrize("numbers", CASES)
def test_what_goes_entry_by_entry_does_not_wait(
    numbers: list[float], channel: str, make_worker: MakeWorker
) -> None:
    x = np.array(numbers, np.float32)
    rows = np.arange(2 * len(x), dtype=np.float32).reshape(-1, 2)
    worker = make_worker(load(FOLLOWED), channel)
    worker.schedule(x, rows)
    expected = {"y": rows[x > 0], "z": 2 * x[x > 0][None]}
    evaluated = interpret(load(FOLLOWED), {"x": x, "rows": rows})
    for name, answer in expected.items():
        output = worker.peek_output(name)
        output.readback_request()
        actual = output.download_to_array()
        assert output.shape == answer.shape
        np.testing.assert_array_equal(actual, answer)
        np.testing.assert_array_equal(evaluated[name], answer)
        np.testing.assert_array_equal(worker.copy_output(name).download_to_array(), answer)
    assert worker.plan_report().waits == ()


@pytest.mark.spread
@pytest.mark.parametrize("numbers", CASES)
def test_what_needs_the_exact_size_learns_it(
    numbers: list[float], channel: str, make_worker: MakeWorker
) -> None:
    x = np.array(numbers, np.float32)
    worker = make_worker(load(NEEDED), channel)
    for array in (x, np.flip(x).copy(), np.abs(x)):
        kept = array[array > 0]
        if not kept.size:
            continue
        worker.schedule(array)
        soft = np.exp(kept) / np.exp(kept).sum()
        np.testing.assert_allclose(worker.peek_output("y").download_to_array(), soft, atol=1e-5)
        np.testing.assert_allclose(
            worker.peek_output("mean").download_to_array(), np.exp(kept).mean(), rtol=1e-5
        )
        assert worker.peek_output("size").download_to_array().tolist() == [len(kept)]


def test_an_output_of_such_a_size_feeds_another_worker(channel: str, make_worker: MakeWorker) -> None:
    x = np.array([1.0, -1.0, 2.0], np.float32)
    first = make_worker(load(NEEDED), channel)
    first.schedule(x)
    second = make_worker(load("g (float[n] x) => (float[n] y) { y = Neg(x) }"), channel)
    second.schedule(first.copy_output("y"))
    actual = second.peek_output().download_to_array()
    np.testing.assert_allclose(actual, -np.exp([1, 2]) / np.exp([1, 2]).sum(), atol=1e-5)
