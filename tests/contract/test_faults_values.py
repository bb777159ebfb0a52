"""Networks that yield NaN and infinity: readbacks show them, casts are defined, nothing breaks."""

from __future__ import annotations

import numpy as np
import pytest

from engine import ModelLoader
from tests.contract.faults import CHANNELS, open_worker
from tests.graphs import model, node, proto
from tests.peer import open_session

pytestmark = pytest.mark.gl

Request = pytest.FixtureRequest
SPECIAL = np.array([[np.nan, np.inf, -np.inf, 0, -1, 2, 1e38, 5]], np.float32)


@pytest.mark.parametrize("channel", CHANNELS)
def test_what_is_not_a_number_arrives_as_such_and_is_gone_with_the_next_schedule(
    request: Request, channel: str
) -> None:
    nodes = [
        *(node(op, ["x"], [op]) for op in ("Relu", "Sigmoid", "Softmax", "Exp", "Abs", "Sqrt", "LogSoftmax")),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("MatMul", ["x", "w"], ["product"]),
        node("IsNaN", ["product"], ["nan"]),
    ]
    names = [n.output[0] for n in nodes]
    outputs = {name: ("bool" if name == "nan" else "float32", None) for name in names}
    data = proto(nodes, {"x": ("float32", [1, 8])}, outputs, {"w": np.ones((8, 3), np.float32)})
    session = open_session(data)
    worker = open_worker(request, ModelLoader.load(data), channel)
    for x in (SPECIAL, np.ones((1, 8), np.float32), SPECIAL):
        worker.schedule(x)
        expected = session.run(names, {"x": x})
        for name, right in zip(names, expected, strict=True):
            found = worker.peek_output(name).download_to_array()
            np.testing.assert_allclose(found, right, rtol=1e-4, equal_nan=True, err_msg=name)


@pytest.mark.parametrize("channel", CHANNELS)
def test_casts_of_what_no_integer_holds_are_the_same_everywhere(request: Request, channel: str) -> None:
    """0 for NaN, the ends of the range for infinity and what lies beyond: ONNX leaves it open."""
    nodes = [node("Cast", ["x"], ["int32"], to=6), node("Cast", ["x"], ["bool"], to=9)]
    casts = model(nodes, {"x": ("float32", [1, 8])}, {"int32": ("int32", None), "bool": ("bool", None)})
    worker = open_worker(request, casts, channel)
    worker.schedule(SPECIAL)
    most, least = 2**31 - 1, -(2**31)
    assert worker.peek_output("int32").download_to_array().tolist() == [[0, most, least, 0, -1, 2, most, 5]]
    assert worker.peek_output("bool").download_to_array().tolist() == [[True] * 3 + [False] + [True] * 4]


@pytest.mark.spread
@pytest.mark.parametrize("where", ["scores", "all scores", "a box", "an infinite box"])
@pytest.mark.parametrize("channel", CHANNELS)
def test_suppression_goes_on_beside_what_is_not_a_number(request: Request, channel: str, where: str) -> None:
    data = proto(
        [node("NonMaxSuppression", ["b", "s", "n", "iou", "low"], ["y"])],
        {"b": ("float32", [1, 6, 4]), "s": ("float32", [1, 1, 6])},
        {"y": ("int64", None)},
        {"n": np.array([4]), "iou": np.array([0.5], np.float32), "low": np.array([0.1], np.float32)},
    )
    boxes = np.random.default_rng(0).random((1, 6, 4), np.float32)
    boxes[..., 2:] = boxes[..., :2] + 0.1
    scores = np.array([[[0.9, 0.95, 0.8, 0.7, 0.6, 0.2]]], np.float32)
    if where == "scores":
        scores[..., [1, 4]] = np.nan
    elif where == "all scores":
        scores[:] = np.nan
    else:
        boxes[:, 1] = np.nan if where == "a box" else np.inf
    session = open_session(data)
    (expected,) = session.run(None, {"b": boxes, "s": scores})
    worker = open_worker(request, ModelLoader.load(data), channel)
    worker.schedule(boxes, scores)
    assert worker.peek_output().download_to_array().tolist() == expected.tolist()
