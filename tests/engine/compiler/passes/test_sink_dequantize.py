"""DequantizeLinear behind layers that move elements: the same answers, from bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from engine import BackendType, ModelLoader, Worker
from engine.compiler.passes import remove_dead_layers, sink_dequantize
from engine.graph.model import Model
from tests.engine.compiler.passes.test_fuse_qdq import quantised_model
from tests.peer import open_session

X = np.random.default_rng(0).standard_normal((2, 4, 6, 8)).astype(np.float32)


def requantised(
    op_type: str, inputs: Sequence[str], levels: Sequence[str] = ("s", "z"), **attributes: Any
) -> list[onnx.NodeProto]:
    """A layer, and its output as levels in y."""
    return [
        helper.make_node(op_type, inputs, ["f"], **attributes),
        helper.make_node("QuantizeLinear", ["f", *levels], ["y"]),
    ]


def sunk(model: Model) -> list[str]:
    return [layer.op_type for layer in remove_dead_layers(sink_dequantize(model)).layers]


def check(nodes: Sequence[onnx.NodeProto], arrays: dict[str, Any], output: str = "y") -> list[str]:
    """The layers behind the input's QuantizeLinear; the answers are onnxruntime's."""
    model = quantised_model(nodes, arrays, X.shape, output)
    asset = ModelLoader.load(model)
    with Worker(asset, BackendType.CPU) as worker:
        worker.schedule(X)
        found = worker.peek_output().download_to_array()
    (expected,) = open_session(model).run(None, {"x": X})
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    first, *rest = sunk(asset)
    assert first == "QuantizeLinear"
    return rest


LAYERS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "pool": ("MaxPool", ["xd"], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "reshape": ("Reshape", ["xd", "shape"], {}),
    "transpose": ("Transpose", ["xd"], {"perm": [0, 2, 3, 1]}),
    "slice": ("Slice", ["xd", "starts", "ends"], {}),
    "gather": ("Gather", ["xd", "rows"], {"axis": 2}),
    "concat": ("Concat", ["xd", "xd"], {"axis": 1}),
    "nearest": ("Resize", ["xd", "", "twice"], {}),
    "blocks": ("DepthToSpace", ["xd"], {"blocksize": 2}),
}
ARRAYS: dict[str, Any] = {
    "shape": np.array([2, 24, 8]),
    "starts": np.array([0, 1]),
    "ends": np.array([2, 3]),
    "rows": np.array([3, 0, 3]),
    "twice": np.array([1, 1, 2, 3], np.float32),
    "t": np.float32(0.035),
    "low": np.uint8(3),
    "endless": np.float32(np.inf),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_move_bytes(name: str) -> None:
    op_type, inputs, attributes = LAYERS[name]
    # The QuantizeLinear behind it has nothing to do but to name the model's output.
    assert check(requantised(op_type, inputs, **attributes), ARRAYS) == [op_type, "Identity"]
    others = check(requantised(op_type, inputs, ("t", "low"), **attributes), ARRAYS)
    if op_type != "Concat":
        assert others == [op_type, "DequantizeLinear", "QuantizeLinear"]


def test_chains_without_levels_between() -> None:
    nodes = [
        helper.make_node("MaxPool", ["xd"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t1"], perm=[0, 2, 3, 1]),
        helper.make_node("Split", ["t1"], ["a", "b"], axis=3),
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["aq"]),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["bq"]),
        helper.make_node("Concat", ["aq", "bq"], ["y"], axis=0),
    ]
    assert check(nodes, ARRAYS) == ["MaxPool", "Transpose", "Split", "Concat"]


def test_concatenated_levels_are_rounded_one_by_one() -> None:
    nodes = [
        helper.make_node("Sigmoid", ["xd"], ["g"]),
        helper.make_node("QuantizeLinear", ["g", "t", "low"], ["gq"]),
        helper.make_node("DequantizeLinear", ["gq", "t", "low"], ["gd"]),
        *requantised("Concat", ["xd", "gd"], axis=1),
    ]
    found = check(nodes, ARRAYS)
    assert "Concat" in found
    assert found.index("Concat") > len(found) - 1 - found[::-1].index("QuantizeLinear")
    # Both are bytes by then: what follows only names the output.
    assert found[-2:] == ["Concat", "Identity"]


def test_floats_that_others_read_stay() -> None:
    nodes = [
        helper.make_node("MaxPool", ["xd"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Exp", ["p"], ["e"]),
        helper.make_node("Add", ["d", "e"], ["y"]),
    ]
    model = ModelLoader.load(quantised_model(nodes, ARRAYS, X.shape, "y"))
    assert sunk(model)[1:3] == ["DequantizeLinear", "MaxPool"]


def test_layers_stay_where_bytes_would_have_other_answers() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["xq", "endless", "low"], ["d"]),
        *requantised("MaxPool", ["d"], ("endless", "low"), kernel_shape=[2, 2]),
    ]
    model = ModelLoader.load(quantised_model(nodes, ARRAYS, X.shape, "y"))
    assert sunk(model) == ["QuantizeLinear", "DequantizeLinear", "MaxPool", "QuantizeLinear"]
    # A window with gaps may lie in the padding as a whole.
    gaps = requantised("MaxPool", ["xd"], kernel_shape=[2, 2], dilations=[2, 2], pads=[1] * 4)
    model = ModelLoader.load(quantised_model(gaps, ARRAYS, X.shape, "y"))
    assert sunk(model) == ["QuantizeLinear", "DequantizeLinear", "MaxPool", "QuantizeLinear"]
