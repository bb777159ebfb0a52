"""The measure that the field suite judges by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from tests.field.agreement import (
    bound,
    computes_in_halves,
    difference,
    in_order_of,
    with_nudged_weights,
    without_rounding,
)
from tests.field.feeds import Feed, read_feeds, write_feeds

NAN, INF = float("nan"), float("inf")


def floats(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        (floats([1, 2]), floats([1, 2.5]), 0.2),
        (floats([0, 0.5]), floats([0, 0]), 0.5),
        (floats([NAN, INF]), floats([NAN, INF]), 0),
        (floats([NAN, 1]), floats([1, 1]), INF),
        (floats([INF]), floats([-INF]), INF),
        (np.array([7]), np.array([8]), 0.125),
        (floats([]), floats([]), 0),
        (np.array(["a", "b"], object), np.array(["a", "b"]), 0),
        (np.array(["a", "c"], object), np.array(["a", "b"]), 1),
        ([floats([1]), floats([2])], [floats([1]), floats([3])], 1 / 3),
        ([{"a": 0.5}, {"a": 1.0}], [{"a": 0.5}, {"a": 0.5}], 0.5),
        (None, None, 0),
    ],
)
def test_the_difference(actual: Any, expected: Any, error: float) -> None:
    assert difference(actual, expected) == pytest.approx(error)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (floats([1]), floats([[1]])),
        (floats([1]), np.array([1.0])),
        ([floats([1])], []),
        ({"a": 1.0}, {"b": 1.0}),
        (None, floats([1])),
    ],
)
def test_what_cannot_be_compared(actual: Any, expected: Any) -> None:
    with pytest.raises(ValueError, match="expected .*, got "):
        difference(actual, expected)


def test_rows_without_an_order_are_compared_as_sets() -> None:
    expected = {"boxes": floats([[1, 2], [3, 4], [3, 4]]), "classes": np.array([7, 8, 9])}
    order = [2, 0, 1]
    actual = {name: array[order] for name, array in expected.items()}
    moved = in_order_of(actual, expected)
    assert all(difference(moved[name], answer) == 0 for name, answer in expected.items())
    # A row that occurs once is found once, and outputs keep their rows together.
    wrong = {**actual, "classes": np.array([9, 8, 7])}
    moved = in_order_of(wrong, expected)
    assert max(difference(moved[name], answer) for name, answer in expected.items()) > 0.1
    assert in_order_of({"boxes": floats([[1, 2]])}, {"boxes": floats([[1, 2], [3, 4]])})["boxes"].shape == (
        1,
        2,
    )


def test_the_bound() -> None:
    assert bound("cpu", False, 0) == 1e-5
    assert bound("opencl", False, 0) == 1e-4
    assert bound("cpu", True, 0) == 2e-3
    assert bound("cpu", False, 1e-3) == 4e-3


def test_half_precision_is_found_inside_branches() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] a) {CAST}, else_branch = e () => (float[2] b) {b = Neg (x)}
          >
        }
    """
    assert not computes_in_halves(onnx.parser.parse_model(text.replace("CAST", "a = Abs (x)")))
    halves = "h = Cast <to = 10> (x) a = Cast <to = 1> (h)"
    assert computes_in_halves(onnx.parser.parse_model(text.replace("CAST", halves)))


def test_onnxruntime_may_be_kept_from_rounding() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1, 32] x, uint8[8, 1, 16] w, float[8] s) => (float[1, 8] y) {
            y = com.microsoft.MatMulNBits <K = 32, N = 8, bits = 4, block_size = 32, accuracy_level = 4> (
                x, w, s)
        }
    """
    model = onnx.parser.parse_model(text)
    assert without_rounding(model)
    assert [a.i for a in model.graph.node[0].attribute if a.name == "accuracy_level"] == [1]
    assert not without_rounding(model)


def test_inputs_go_through_files(tmp_path: Any) -> None:
    feeds: list[Feed] = [{"x:0": floats([n]), "words": np.array(["a", "bc"], object)} for n in range(2)]
    write_feeds(tmp_path / "m.onnx", feeds)
    write_feeds(tmp_path / "m2.onnx", feeds[:1])
    found = read_feeds(tmp_path / "m.onnx")
    assert [feed["x:0"].tolist() for feed in found] == [[0.0], [1.0]]
    assert found[0]["words"].dtype == object
    assert found[0]["words"].tolist() == ["a", "bc"]
    assert len(read_feeds(tmp_path / "m2.onnx")) == 1


def test_weights_move_by_their_last_bits() -> None:
    graph = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (int64[2] i) => (float[2] y) <float[3] w = {1, 2, 3}, int64[1] k = {0}, float[1] s = {2}> {
            x = Gather(w, i) y = Resize(x, , s) }"""
    )
    moved = with_nudged_weights(graph, 1)
    w, k, s = (onnx.numpy_helper.to_array(tensor) for tensor in moved.graph.initializer)
    np.testing.assert_allclose(w, [1, 2, 3], rtol=2e-6)
    assert (w != floats([1, 2, 3])).any()
    assert k.tolist() == [0]
    assert s.tolist() == [2.0]
