"""Maps in the domain ai.onnx.ml: as outputs and as inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from engine import CPUTensorData, ModelLoader, Worker
from engine.base.errors import InputError, ShapeError
from engine.compiler.interpreter import interpret
from tests.engine.conftest import MakeWorker
from tests.engine.operators.ml.test_features import FLOAT, INT64, STRING, found, ml
from tests.onnx_cases import compare
from tests.peer import open_session


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)


def zip_map(x: np.ndarray, dims: Any = None, **attributes: Any) -> onnx.ModelProto:
    """Scores under their classes' names, the scores themselves, and which class has the largest one."""
    proto = ml("ZipMap", [x], [FLOAT], dims=dims, **attributes)
    key = STRING if "classlabels_strings" in attributes else INT64
    value = helper.make_tensor_type_proto(FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    del proto.graph.output[:]
    proto.graph.node[0].input[0] = "scores"
    proto.graph.node.insert(0, helper.make_node("Neg", ["x0"], ["scores"]))
    proto.graph.node.append(helper.make_node("ArgMax", ["scores"], ["best"], axis=-1, keepdims=0))
    proto.graph.output.append(onnx.ValueInfoProto(name="y0", type=maps))
    for name, code in (("scores", FLOAT), ("best", INT64)):
        proto.graph.output.append(helper.make_tensor_value_info(name, code, None))
    return proto


@pytest.mark.spread("attributes")
@pytest.mark.parametrize("attributes", [
    {"classlabels_strings": ["ape", "bee", "cat"]}, {"classlabels_int64s": [3, 1, 2]},
])  # fmt: skip
def test_maps_of_scores(attributes: dict[str, Any], channel: str, make_worker: MakeWorker) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    proto = zip_map(x, ("n", 3), **attributes)
    session = open_session(proto.SerializeToString())
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel)
    for count in (4, 1, 4, 0):
        rows = x[:count]
        worker.schedule(rows)
        expected = [] if not count else session.run(None, {"x0": rows})[0]
        tensor = worker.peek_output()
        assert (tensor.shape, tensor.dtype) == ((count,), np.dtype(object))
        tensor.readback_request()
        while not tensor.is_readback_request_done():
            pass
        maps = tensor.download_to_array().tolist()
        assert maps == expected
        assert [type(key) for one in maps for key in one] == [type(k) for one in expected for k in one]
        np.testing.assert_array_equal(worker.peek_output("scores").download_to_array(), -rows)
        np.testing.assert_array_equal(worker.peek_output("best").download_to_array(), (-rows).argmax(1))
        assert worker.take_outputs()["y0"] == expected


def test_maps_are_copied_and_pinned(x: np.ndarray) -> None:
    proto = zip_map(x, classlabels_int64s=[*range(x.shape[1])])
    model = ModelLoader.load(proto.SerializeToString())
    expected = [dict(enumerate(row)) for row in (-x).tolist()]
    assert interpret(model, {"x0": x})["y0"] == expected
    with Worker(model) as worker:
        worker.schedule(x)
        copied = worker.copy_output(0)
        assert CPUTensorData.pin(worker.peek_output()).array.tolist() == expected
        worker.schedule(x + 1)
    assert copied.download_to_array().tolist() == expected


def test_a_row_of_scores_makes_one_map() -> None:
    x = np.array([0.25, 0.75], np.float32)
    proto = ml("ZipMap", [x], [FLOAT], classlabels_strings=["a", "b"])
    proto.graph.output[0].ClearField("type")
    assert found(proto, [x]) == [[{"a": 0.25, "b": 0.75}]]


def test_maps_are_outputs_only() -> None:
    proto = zip_map(np.zeros((2, 2), np.float32), classlabels_int64s=[0, 1])
    proto.graph.node.append(helper.make_node("SequenceLength", ["y0"], ["count"]))
    proto.graph.output.append(helper.make_tensor_value_info("count", INT64, None))
    with pytest.raises(ShapeError, match="a sequence of maps, which only outputs may be"):
        found(proto, [np.zeros((2, 2), np.float32)])


def of_a_map(op_type: str, key: int, value: int, result: int, **attributes: Any) -> onnx.ModelProto:
    """A layer whose input is a map."""
    proto = ml(op_type, [np.zeros(1, np.float32)], [result], **attributes)
    given_ = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    del proto.graph.input[:]
    proto.graph.input.append(onnx.ValueInfoProto(name="x0", type=given_))
    return proto


VOCABULARY = {"string_vocabulary": ["c", "b", "a"]}


@pytest.mark.spread
@pytest.mark.parametrize(
    ("op_type", "feed", "result", "attributes"),
    [
        ("DictVectorizer", {"a": 1.5, "c": 2.0}, FLOAT, VOCABULARY),
        ("DictVectorizer", {"z": 1.5}, FLOAT, VOCABULARY),
        ("CastMap", {4: 1.5, 1: 2.0}, FLOAT, {}),
        ("CastMap", {4: 1.5, 1: 2.0}, INT64, {"cast_to": "TO_INT64"}),
        ("CastMap", {4: 1.5, 1: 2.0}, FLOAT, {"map_form": "SPARSE", "max_map": 6}),
    ],
)
def test_maps_as_inputs(
    op_type: str, feed: dict[Any, float], result: int, attributes: dict[str, Any], channel: str,
    make_worker: MakeWorker,
) -> None:  # fmt: skip
    key = STRING if op_type == "DictVectorizer" else INT64
    proto = of_a_map(op_type, key, FLOAT, result, **attributes)
    session = open_session(proto.SerializeToString())
    worker = make_worker(ModelLoader.load(proto.SerializeToString()), channel)
    for values in (feed, {name: -value for name, value in feed.items()}, dict(reversed(feed.items()))):
        (expected,) = session.run(None, {"x0": values})
        compare(found_in(proto, values), expected, 1e-5)
        worker.schedule({"x0": values})
        compare(worker.peek_output().download_to_array(), expected, 1e-5)


def found_in(proto: onnx.ModelProto, feed: Any) -> np.ndarray:
    """What the formulas yield for a map."""
    result: np.ndarray = interpret(ModelLoader.load(proto.SerializeToString()), {"x0": feed})["y0"]
    return result


def test_maps_of_text() -> None:
    """onnxruntime's interface takes no maps to text or to other numbers."""
    numbers = {"map_form": "SPARSE", "max_map": 3, "cast_to": "TO_INT64"}
    assert found_in(of_a_map("CastMap", INT64, STRING, INT64, **numbers), {1: "7"}).tolist() == [[0, 7, 0]]
    as_text = of_a_map("CastMap", INT64, FLOAT, STRING, cast_to="TO_STRING")
    assert found_in(as_text, {1: 0.5}).tolist() == [["0.5"]]
    words = of_a_map("DictVectorizer", INT64, STRING, STRING, int64_vocabulary=[5, 2])
    assert found_in(words, {2: "two"}).tolist() == [["", "two"]]


def test_a_map_is_given_as_a_dict() -> None:
    proto = of_a_map("DictVectorizer", STRING, FLOAT, FLOAT, **VOCABULARY)
    with Worker(ModelLoader.load(proto.SerializeToString())) as worker:
        with pytest.raises(InputError, match="input 'x0' is a map to float32: give a dict"):
            worker.schedule(x0=[1.0])
        with pytest.raises(InputError, match="no array of them"):
            worker.schedule(x0={"a": "many"})
