"""Symbolic plans that stop for data: what follows is planned once for all data of the same structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

from engine import Model, ModelLoader, Worker
from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plans.test_new_shapes import weights
from tests.engine.runtime.plans.test_symbolic_plans import (
    Feeds,
    Inputs,
    answers,
    compile_now,
    count_plans,
    plan_statically,
)
from tests.graphs import node, proto
from tests.random_graphs import RandomGraph

Draw = Callable[[np.random.Generator], Feeds]


def parsed(text: str) -> bytes:
    header = '<ir_version: 9, opset_import: ["": 18]>\n'
    source: bytes = onnx.parser.parse_model(header + text).SerializeToString()
    return source


def uniform(rng: np.random.Generator, *shape: int, low: float = -2.2, high: float = 1.0) -> np.ndarray:
    return rng.uniform(low, high, shape).astype(np.float32)


def length(rng: np.random.Generator) -> int:
    return int(rng.integers(1, 34))


UNIQUE = """g (float[n] x) => (float[m] y, int64[m] places) {
    values, places = Unique(x)
    y = Exp(values)
}"""

HALVES = """g (float[n] x) => (float[m] y) <int64[1] two = {2}, int64[1] zero = {0}> {
    most = ReduceMax<keepdims = 1>(x)
    count = Cast<to = 7>(most)
    head = Slice(x, zero, count)
    total = ReduceSum<keepdims = 1>(head)
    number = Cast<to = 7>(total)
    size = Abs(number)
    zeros = ConstantOfShape(size)
    y = Add(zeros, total)
}"""

BRANCHES = """g (float[n] x) => (float[m] y) <float low = {0.0}> {
    total = ReduceSum<keepdims = 0>(x)
    is_high = Greater(total, low)
    picked = If(is_high) <
        then_branch = high () => (float[a] out) { picked_1 = Sin(x) out = Concat<axis = 0>(picked_1, x) },
        else_branch = low () => (float[b] out) { out = Exp(x) }
    >
    y = Neg(picked)
}"""


def rows_network(rows: int | str) -> bytes:
    """The rows with positive elements, through layers that need to know how many there are."""
    nodes = [
        node("ReduceMax", ["x", "one"], ["most"], keepdims=0),
        node("Relu", ["most"], ["positive"]),
        node("NonZero", ["positive"], ["found"]),
        node("Transpose", ["found"], ["places"], perm=[1, 0]),
        node("GatherND", ["x", "places"], ["rows"]),
        node("MatMul", ["rows", "w"], ["m"]),
        node("Softmax", ["m"], ["y"], axis=0),
        node("Shape", ["m"], ["shape"]),
    ]
    inputs: Inputs = {"x": ("float32", [rows, 6])}
    outputs: Inputs = {"y": ("float32", None), "shape": ("int64", None), "found": ("int64", None)}
    return proto(nodes, inputs, outputs, {"one": np.array([1]), "w": weights(6, 5)})


def ranged_network(is_input: bool) -> bytes:
    """As many sines as a number says, which is an input or computed."""
    nodes = [
        node("Range", ["zero", "count", "one"], ["places"]),
        node("Cast", ["places"], ["f"], to=1),
        node("Sin", ["f"], ["y"]),
    ]
    if not is_input:
        nodes = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["count"], to=7), *nodes]
    inputs: Inputs = {"count": ("int64", [])} if is_input else {"x": ("float32", ["n"])}
    constants = {"zero": np.array(0), "one": np.array(1)}
    return proto(nodes, inputs, {"y": ("float32", None)}, constants)


def detector_network() -> bytes:
    """The best of some boxes, through layers that need to know how many there are."""
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["picked"]),
        node("Gather", ["picked", "two"], ["places"], axis=1),
        node("Squeeze", ["boxes", "nought"], ["all"]),
        node("Gather", ["all", "places"], ["best"], axis=0),
        node("MatMul", ["best", "w"], ["y"]),
        node("ReduceMean", ["y", "nought"], ["z"]),
    ]
    constants = {
        "most": np.array([50]), "overlap": np.array([0.5], np.float32), "two": np.array(2),
        "nought": np.array([0]), "w": weights(4, 3),
    }  # fmt: skip
    inputs: Inputs = {"boxes": ("float32", [1, "n", 4]), "scores": ("float32", [1, 2, "n"])}
    return proto(nodes, inputs, {"y": ("float32", None), "z": ("float32", None)}, constants)


def boxes(rng: np.random.Generator) -> Feeds:
    count = length(rng) + 1
    centres = uniform(rng, 1, count, 2, low=0.0, high=9.0)
    found = np.concatenate([centres - 1, centres + 1], -1)
    return {"boxes": found, "scores": uniform(rng, 1, 2, count, low=0.0)}


NETWORKS: dict[str, tuple[Callable[[], bytes], Draw]] = {
    "unique": (
        lambda: parsed(UNIQUE),
        lambda rng: {"x": rng.integers(0, 6, length(rng)).astype(np.float32)},
    ),
    "halves": (lambda: parsed(HALVES), lambda rng: {"x": uniform(rng, length(rng), low=0.5, high=9.0)}),
    "branches": (lambda: parsed(BRANCHES), lambda rng: {"x": uniform(rng, length(rng), low=-1.0)}),
    "rows": (lambda: rows_network("n"), lambda rng: {"x": uniform(rng, length(rng), 6)}),
    "fixed rows": (lambda: rows_network(40), lambda rng: {"x": uniform(rng, 40, 6)}),
    "ranged": (
        lambda: ranged_network(False),
        lambda rng: {"x": uniform(rng, length(rng), low=0.0, high=40.0)},
    ),
    "ranged by an input": (lambda: ranged_network(True), lambda rng: {"count": np.array(length(rng))}),
    "detector": (detector_network, boxes),
}
"""Models that stop for data, and what draws inputs for them."""

MOST_PLANS = 10
"""How often a model may be planned, of which more than half are guards that sizes of 0 and 1 ask for."""


@pytest.mark.parametrize("name", NETWORKS)
def test_other_data_is_not_planned_for(name: str, make_worker: MakeWorker) -> None:
    check_data(name, 30, "cpu", make_worker)


@pytest.mark.spread
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_nor_is_it_on_a_gpu(name: str, channel: str, make_worker: MakeWorker) -> None:
    check_data(name, 8, channel, make_worker)


def check_data(name: str, count: int, channel: str, make_worker: MakeWorker) -> None:
    source, draw = NETWORKS[name]
    model = ModelLoader.load(source())
    rng = np.random.default_rng(7)
    apart, worker = pair(model, channel, make_worker)
    planned = count_plans(worker)
    halfway = 0
    for turn in range(count):
        feeds = draw(rng)
        check_answers(worker, apart, feeds)
        halfway = len(planned) if turn == count // 2 else halfway
    assert len(planned) <= MOST_PLANS
    assert len(planned) - halfway <= 1


def pair(model: Model, channel: str, make_worker: MakeWorker) -> tuple[Worker, Worker]:
    """A worker that plans each size for itself, and one that does not, whose kernels are compiled at once."""
    options: dict[str, Any] = {"allow_fallback": True}
    apart, worker = (
        plan_statically(make_worker(model, channel, **options)),
        make_worker(model, channel, **options),
    )
    session = worker._session
    session.stored = session.file = None
    for backend in session.backends.values():
        compile_now(backend)
    return apart, worker


def check_answers(worker: Worker, apart: Worker, feeds: Feeds) -> None:
    expected = answers(apart, feeds)
    for one, other in zip(answers(worker, feeds), expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=str({k: v.shape for k, v in feeds.items()}))


@pytest.mark.spread
@pytest.mark.parametrize("name", NETWORKS)
def test_what_cannot_be_open_is_planned_apart(
    name: str, channel: str, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, draw = NETWORKS[name]
    rng = np.random.default_rng(9)
    apart, worker = pair(ModelLoader.load(source()), channel, make_worker)
    worker._session.symbolic_plans.release()

    def refuse(*arguments: Any) -> None:
        raise ShapeError("this operator takes no symbolic sizes")

    monkeypatch.setattr(worker._session.planner, "resume_symbolic", refuse)
    for _ in range(3):
        check_answers(worker, apart, draw(rng))


def test_reports_tell_of_stops(make_worker: MakeWorker) -> None:
    worker = make_worker(ModelLoader.load(rows_network("n")), "cpu")
    compile_now(worker._session.backends["native"])
    rng = np.random.default_rng(2)
    for _ in range(3):
        answers(worker, {"x": uniform(rng, length(rng), 6)})
    assert worker._session.symbolic_plans.ready
    (wait,) = worker.plan_report().waits
    assert (wait.op_type, wait.bytes_down) == ("MatMul", 8)


def test_data_beyond_what_a_plan_may_leave_open_decides_it(make_worker: MakeWorker) -> None:
    """A sequence of sizes as long as this is part of the plan's structure."""
    nodes = [
        node("Cast", ["x"], ["sizes"], to=7),
        node("ReduceSum", ["sizes", "zero"], ["total"], keepdims=1),
        node("Expand", ["one", "total"], ["y"]),
        node("Split", ["y", "sizes"], [f"part{i}" for i in range(20)], axis=0),
    ]
    outputs: Inputs = {f"part{i}": ("float32", None) for i in range(20)}
    constants = {"zero": np.array([0]), "one": np.ones(1, np.float32)}
    model = ModelLoader.load(proto(nodes, {"x": ("float32", [20])}, outputs, constants))
    apart, worker = pair(model, "cpu", make_worker)
    rng = np.random.default_rng(4)
    for _ in range(4):
        check_answers(worker, apart, {"x": rng.integers(1, 9, 20).astype(np.float32)})


@pytest.mark.parametrize("seed", range(300, 303))
def test_random_graphs_that_stop_answer_the_same(seed: int, make_worker: MakeWorker) -> None:
    check_random_graph(seed, "cpu", make_worker)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(400, 500))
def test_many_random_graphs_that_stop_answer_the_same(seed: int, make_worker: MakeWorker) -> None:
    check_random_graph(seed, "cpu", make_worker)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(400, 420))
@pytest.mark.parametrize("channel", ["gl_compute", "gl_pixel", "opencl"], indirect=True)
def test_random_graphs_that_stop_do_so_on_a_gpu(seed: int, channel: str, make_worker: MakeWorker) -> None:
    check_random_graph(seed, channel, make_worker)


def check_random_graph(seed: int, channel: str, make_worker: MakeWorker) -> None:
    graph = RandomGraph(seed, 8, stops=True)
    apart, worker = pair(ModelLoader.load(graph.source), channel, make_worker)
    rng = np.random.default_rng(seed)
    for feeds in [*graph.feeds, *graph.feeds]:
        # Other elements, so that other numbers of them are picked.
        drawn = {name: x + rng.normal(0, 0.5, x.shape).astype(x.dtype) if x.dtype.kind == "f" else x
                 for name, x in feeds.items()}  # fmt: skip
        check_answers(worker, apart, drawn)
