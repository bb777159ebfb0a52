"""Operators that are NumPy functions: the plan stops for them, and goes on with what they yield."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper

from engine import ModelLoader, ShapeError, UnsupportedLayerError, Worker
from engine.compiler.interpreter import interpret
from engine.operators.registry import OPERATORS, operator
from tests.engine.conftest import MakeWorker, answers

DOMAIN = "tests"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Three operators that exist during a test only."""

    @operator("Distinct", kind="numpy", domain=DOMAIN)
    def distinct(x: np.ndarray, *, least: int = 0) -> tuple[np.ndarray, np.ndarray]:
        if x.ndim != 1:
            raise ValueError(f"takes a vector, not {x.shape}")
        values, counts = np.unique(x, return_counts=True)
        return values[counts >= least], counts[counts >= least]

    @operator("Words", kind="numpy", domain=DOMAIN)
    def words(x: np.ndarray) -> np.ndarray:
        return np.array([f"{v:g}" for v in x], object)

    @operator("Halves", kind="numpy", domain=DOMAIN)
    def halves(x: np.ndarray) -> list[np.ndarray]:
        return [x[: len(x) // 2], x[len(x) // 2 :]]

    yield
    for name in ("Distinct", "Words", "Halves"):
        OPERATORS._by_name.pop((DOMAIN, name))


def load(nodes: list[object], outputs: list[tuple[str, int]]) -> bytes:
    x = helper.make_tensor_value_info("x", 1, ["n"])
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph(nodes, "made", [x], made)  # type: ignore[arg-type]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def distinct_model() -> bytes:
    """Arithmetic before, between and after two calls."""
    return load(
        [
            helper.make_node("Round", ["x"], ["r"]),
            helper.make_node("Distinct", ["r"], ["v", "c"], domain=DOMAIN, least=1),
            helper.make_node("Exp", ["v"], ["e"]),
            helper.make_node("Distinct", ["e"], ["w", "d"], domain=DOMAIN, least=2),
            helper.make_node("Mul", ["e", "e"], ["y"]),
            helper.make_node("Cast", ["c"], ["f"], to=1),
            helper.make_node("Mul", ["f", "v"], ["z"]),
        ],
        [("y", 1), ("z", 1), ("w", 1)],
    )


@pytest.mark.parametrize("x", [[1.2, 3.4, 0.8, 3.1, -2.0], [5.0], [0.1, 0.2, 0.3]])
def test_what_it_yields_goes_on_on_the_backend(x: list[float], channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(ModelLoader.load(distinct_model()), channel, allow_fallback=True)
    for values in (x, [*x, 9.0], x):
        array = np.array(values, np.float32)
        worker.schedule(array)
        v, c = np.unique(np.round(array), return_counts=True)
        expected = {"y": np.exp(v) ** 2, "z": c * v, "w": np.empty(0, np.float32)}
        evaluated = interpret(ModelLoader.load(distinct_model()), {"x": array})
        for name, answer in expected.items():
            actual = worker.peek_output(name).download_to_array()
            np.testing.assert_allclose(actual, answer, rtol=1e-4)
            np.testing.assert_allclose(evaluated[name], answer, rtol=1e-5)


def test_it_is_reported_as_a_fallback(channel: str, make_worker: MakeWorker) -> None:
    worker = make_worker(ModelLoader.load(distinct_model()), channel, allow_fallback=True)
    answers(worker, np.array([1, 2, 3], np.float32))
    fallbacks = [(f.op_type, f.bytes_down) for f in worker.plan_report().fallbacks]
    assert fallbacks == ([] if channel == "cpu" else [("Distinct", 12), ("Distinct", 12)])
    if channel != "cpu":
        with pytest.raises(UnsupportedLayerError, match="Distinct.*NumPy function"):
            make_worker(ModelLoader.load(distinct_model()), channel, allow_fallback=False)


def test_scheduling_does_not_wait_for_it(channel: str, make_worker: MakeWorker) -> None:
    """Schedules queue behind the call, and each gets its own answer."""
    worker = make_worker(ModelLoader.load(distinct_model()), channel, allow_fallback=True)
    pending = []
    for n in (2, 5, 3):
        worker.schedule(np.arange(n, dtype=np.float32))
        output = worker.peek_output("z")
        output.readback_request()
        pending.append((n, output))
    for n, output in pending:
        np.testing.assert_allclose(output.download_to_array(), np.arange(n), rtol=1e-4)


def test_text_and_sequences_come_out(channel: str, make_worker: MakeWorker) -> None:
    data = load(
        [
            helper.make_node("Neg", ["x"], ["n"]),
            helper.make_node("Words", ["n"], ["t"], domain=DOMAIN),
            helper.make_node("Halves", ["n"], ["h"], domain=DOMAIN),
            helper.make_node("Reshape", ["t", "shape"], ["rows"]),
            helper.make_node("Shape", ["n"], ["size"]),
            helper.make_node("Concat", ["minus", "size"], ["shape"], axis=0),
        ],
        [("rows", 8), ("h", 1)],
    )
    proto = onnx.load_from_string(data)
    proto.graph.initializer.append(helper.make_tensor("minus", 7, [1], [1]))
    sequence = helper.make_tensor_sequence_value_info("h", 1, None)
    del proto.graph.output[1]
    proto.graph.output.append(sequence)
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel, allow_fallback=True)
    worker.schedule(np.array([1, 2.5, 3], np.float32))
    assert worker.peek_output("rows").download_to_array().tolist() == [["-1", "-2.5", "-3"]]
    first, second = worker.peek_output("h", list)
    assert first.download_to_array().tolist() == [-1]
    assert second.download_to_array().tolist() == [-2.5, -3]
    copies = worker.copy_output("h", list)
    worker.schedule(np.zeros(2, np.float32))
    assert [c.download_to_array().tolist() for c in copies] == [[-1], [-2.5, -3]]


def test_what_it_refuses_names_the_layer() -> None:
    data = load(
        [
            helper.make_node("Unsqueeze", ["x", "axis"], ["u"]),
            helper.make_node("Distinct", ["u"], ["v", "c"], domain=DOMAIN, name="these"),
        ],
        [("v", 1)],
    )
    proto = onnx.load_from_string(data)
    proto.graph.initializer.append(helper.make_tensor("axis", 7, [1], [0]))
    worker = Worker(ModelLoader.load(proto.SerializeToString()))

    def run() -> None:
        answers(worker, np.zeros(3, np.float32))

    with pytest.raises(ShapeError, match=r"layer 'these' \(tests.Distinct\): takes a vector, not \(1, 3\)"):
        run()
    worker.dispose()
