"""The pass `channels_last` keeps every answer (by onnxruntime), and transposes where regions end only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from engine import Model, ModelLoader
from engine.compiler.interpreter import interpret
from engine.compiler.passes import channels_last
from engine.graph.model import CONTRIB
from engine.operators.layout import CHANNELS_LAST
from tests.graphs import branch, node, proto
from tests.networks import reference, smooth

RNG = np.random.default_rng(7)
SHAPE = (2, 3, 6, 5)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.4, shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def rewritten(source: bytes) -> tuple[Model, Counter[str]]:
    changed = channels_last(ModelLoader.load(source))
    changed.check()
    return changed, Counter(layer.op_type for layer in changed.layers)


def same_answers(source: bytes, shape: Sequence[int] = SHAPE) -> Counter[str]:
    feeds = {"x": smooth(tuple(shape), 1, -1.0, 1.0)}
    expected = reference(source, feeds)
    changed, counts = rewritten(source)
    found = interpret(changed, feeds)
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, atol=2e-5, rtol=1e-5, err_msg=name)
    return counts


def around(
    middle: Sequence[onnx.NodeProto],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
    channels: int = 8,
) -> bytes:
    """x -> a convolution -> "a" -> the layers under test -> "b" -> a convolution -> y."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        *middle,
        node("Conv", ["b", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    known = {"w": weights(8, 3, 3, 3), "v": weights(5, channels, 3, 3), **(constants or {})}
    return proto(nodes, {"x": ("float32", list(SHAPE))}, {"y": ("float32", None)}, known, opset)


PADS = ints(0, 0, 1, 2, 0, 0, 0, 1)
NORM = {name: np.abs(weights(8)) + 0.5 for name in ("s", "o", "m", "d")}


@pytest.mark.parametrize(
    ("op_type", "attributes", "constants", "opset"),
    [
        ("Relu", {}, {}, 18),
        ("LeakyRelu", {"alpha": 0.2}, {}, 18),
        ("Clip", {}, {"low": np.float32(-0.3), "high": np.float32(0.4)}, 18),
        ("Dropout", {}, {}, 18),
        ("Add", {}, {"c": weights(8, 1, 1)}, 18),
        ("Mul", {}, {"c": weights(1, 8, 1, 1)}, 18),
        ("Sub", {}, {"c": weights(1)}, 18),
        ("Div", {}, {"c": np.abs(weights(6, 5)) + 1}, 18),
        ("PRelu", {}, {"c": weights(8, 1, 1)}, 18),
        ("BatchNormalization", {"epsilon": 1e-3}, NORM, 18),
        ("InstanceNormalization", {"epsilon": 1e-3}, {"s": NORM["s"], "o": NORM["o"]}, 18),
        ("LRN", {"size": 5, "alpha": 0.5}, {}, 18),
        ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}, {}, 18),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, {}, 18),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, {}, 18),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, {}, 18),
        ("GlobalAveragePool", {}, {}, 18),
        ("GlobalMaxPool", {}, {}, 18),
        ("ReduceMean", {"keepdims": 1}, {"axes": ints(2, -1)}, 18),
        ("ReduceMax", {"axes": [3], "keepdims": 1}, {}, 13),
        ("Softmax", {"axis": 1}, {}, 18),
        ("LogSoftmax", {"axis": -1}, {}, 18),
        ("Pad", {}, {"p": PADS}, 18),
        ("Pad", {"mode": "reflect"}, {"p": PADS}, 18),
        ("Pad", {"pads": [int(n) for n in PADS], "value": 0.5}, {}, 10),
        ("Slice", {}, {"from": ints(1, 0), "to": ints(5, 4), "axes": ints(2, -1)}, 18),
        ("Resize", {"mode": "nearest"}, {"": ints(), "sc": floats(1, 1, 2, 3)}, 18),
        ("Resize", {"mode": "linear"}, {"": ints(), "sc": floats(2, 1.5), "axes": ints()}, 18),
        ("Upsample", {"mode": "nearest"}, {"sc": floats(1, 1, 2, 3)}, 9),
        ("ConvTranspose", {"strides": [2, 2], "pads": [1, 0, 0, 1]}, {"t": weights(8, 8, 3, 2)}, 18),
        ("Conv", {"group": 8, "pads": [1, 1, 1, 1]}, {"t": weights(8, 1, 3, 3), "tb": weights(8)}, 18),
        ("Conv", {"strides": [2, 1], "dilations": [1, 2]}, {"t": weights(8, 8, 3, 2), "tb": weights(8)}, 18),
    ],
)  # fmt: skip
def test_between_convolutions_nothing_is_transposed(
    op_type: str, attributes: dict[str, Any], constants: dict[str, np.ndarray], opset: int
) -> None:
    if "axes" in constants and op_type == "Resize":
        constants = {name: array for name, array in constants.items() if name != "axes"}
        attributes = {**attributes, "axes": [2, 3]}
    layer = node(op_type, ["a", *constants], ["b"], **attributes)
    counts = same_answers(around([layer], {k: v for k, v in constants.items() if k}, opset))
    assert counts["Transpose"] == 1, counts


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu"])
@pytest.mark.parametrize("residual", [[], ["a"]])
def test_fused_convolutions(activation: str, residual: list[str]) -> None:
    params = {"activation_params": [0.2]} if activation == "LeakyRelu" else {}
    fused = node(
        "FusedConv", ["a", "f", "g", *residual], ["b"], domain=CONTRIB, activation=activation,
        pads=[1, 1, 1, 1], **params,
    )  # fmt: skip
    source = onnx.load_from_string(around([fused], {"f": weights(8, 8, 3, 3), "g": weights(8)}))
    source.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    counts = same_answers(source.SerializeToString())
    assert counts["Transpose"] == 1  # of the output


def test_a_fused_convolution_that_adds_a_constant_keeps_the_model_s_order() -> None:
    fused = node("FusedConv", ["a", "f", "", "z"], ["b"], domain=CONTRIB, activation="Relu")
    known = {"f": weights(8, 8, 1, 1), "z": weights(2, 8, 6, 5)}
    source = onnx.load_from_string(around([fused], known))
    source.opset_import.append(onnx.helper.make_opsetid(CONTRIB, 1))
    changed, _ = rewritten(source.SerializeToString())
    assert [layer.domain for layer in changed.layers if layer.op_type == "FusedConv"] == [CONTRIB]
    same_answers(source.SerializeToString())


@pytest.mark.parametrize("op_type", ["Add", "Mul", "Max", "Sum"])
def test_residuals_stay_inside(op_type: str) -> None:
    middle = [node("Relu", ["a"], ["r"]), node(op_type, ["a", "r"], ["b"])]
    assert same_answers(around(middle))["Transpose"] == 1


def test_branches_are_joined_along_the_channels() -> None:
    middle = [
        node("Sigmoid", ["a"], ["s"]),
        node("Split", ["a", "sizes"], ["p", "q"], axis=1),
        node("Concat", ["s", "q", "p"], ["b"], axis=1),
    ]
    counts = same_answers(around(middle, {"sizes": ints(3, 5)}, channels=16))
    assert counts["Transpose"] == 1, counts


def test_a_gate_for_each_channel() -> None:
    middle = [
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Conv", ["g", "k"], ["h"]),
        node("HardSigmoid", ["h"], ["i"]),
        node("Mul", ["a", "i"], ["b"]),
    ]
    assert same_answers(around(middle, {"k": weights(8, 8, 1, 1)}))["Transpose"] == 1


def test_a_gate_by_way_of_matrices() -> None:
    middle = [
        node("ReduceMean", ["a"], ["g"], axes=[2, 3], keepdims=0),
        node("Gemm", ["g", "k"], ["h"]),
        node("Reshape", ["h", "shape"], ["i"]),
        node("Mul", ["a", "i"], ["b"]),
    ]
    constants = {"k": weights(8, 8), "shape": ints(2, 8, 1, 1)}
    assert same_answers(around(middle, constants, opset=13))["Transpose"] == 2


def test_the_model_s_own_transposes_are_used() -> None:
    nodes = [
        node("Transpose", ["x"], ["f"], perm=[0, 3, 1, 2]),
        node("Conv", ["f", "w"], ["a"]),
        node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        node("Reshape", ["t", "shape"], ["y"]),
    ]
    source = proto(
        nodes, {"x": ("float32", [2, 4, 3, 6])}, {"y": ("float32", None)},
        {"w": weights(5, 6, 1, 1), "shape": ints(2, -1, 5)},
    )  # fmt: skip
    same_answers(source, (2, 4, 3, 6))
    changed, _ = rewritten(source)
    (conv,) = (layer for layer in changed.layers if layer.op_type == "Conv")
    assert conv.inputs[0] == "x"
    last = next(layer for layer in changed.layers if layer.outputs == ("t",))
    assert last.attributes["perm"] == (0, 1, 2, 3)


@pytest.mark.parametrize("group", [2, 4])
def test_grouped_convolutions_keep_the_model_s_order(group: int) -> None:
    middle = [node("Conv", ["a", "g"], ["b"], group=group)]
    changed, _ = rewritten(around(middle, {"g": weights(8, 8 // group, 1, 1)}))
    assert [layer.domain for layer in changed.layers if layer.op_type == "Conv"] == [
        CHANNELS_LAST,
        "",
        CHANNELS_LAST,
    ]
    same_answers(around(middle, {"g": weights(8, 8 // group, 1, 1)}))


@pytest.mark.parametrize(
    ("inputs", "outputs", "is_behind", "stays"),
    [(130, 4, False, True), (130, 5, False, False), (128, 5, False, True), (6, 4, True, False)],
)
def test_small_products_keep_the_model_s_order_unless_channels_are_last(
    inputs: int, outputs: int, is_behind: bool, stays: bool
) -> None:
    before = [node("Conv", ["x", "w"], ["a"])] if is_behind else [node("Concat", ["x"] * 2, ["a"], axis=1)]
    known = {"w": weights(inputs, inputs // 2, 1, 1), "v": weights(outputs, inputs, 1, 1)}
    nodes = [*before, node("Conv", ["a", "v"], ["y"])]
    shape = [SHAPE[0], inputs // 2, *SHAPE[2:]]
    source = proto(nodes, {"x": ("float32", shape)}, {"y": ("float32", None)}, known)
    changed, _ = rewritten(source)
    assert (changed.layers[-1].op_type == "Conv") == stays
    same_answers(source, shape)


def test_wide_groups_of_windows_have_their_channels_last() -> None:
    middle = [node("Conv", ["a", "g"], ["b"], group=2, pads=[1, 1, 1, 1])]
    source = around(middle, {"g": weights(32, 4, 3, 3)}, channels=32)
    changed, _ = rewritten(source)
    assert [layer.domain for layer in changed.layers if layer.op_type == "Conv"] == [CHANNELS_LAST] * 3
    same_answers(source)


def test_values_in_between_may_be_outputs() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("Flatten", ["r"], ["y"]),
    ]
    outputs = dict.fromkeys(("y", "a", "r"), ("float32", None))
    source = proto(nodes, {"x": ("float32", list(SHAPE))}, outputs, {"w": weights(7, 3, 2, 2)})
    same_answers(source)


def test_one_axis() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[2, 0], dilations=[2], strides=[2]),
        node("Relu", ["a"], ["r"]),
        node("GlobalAveragePool", ["r"], ["y"]),
    ]
    source = proto(nodes, {"x": ("float32", [2, 5, 11])}, {"y": ("float32", None)}, {"w": weights(7, 5, 3)})
    same_answers(source, (2, 5, 11))


@pytest.mark.parametrize(
    ("after", "domain"),
    [
        (node("Flatten", ["b"], ["y"]), ""),
        (node("Neg", ["b"], ["y"]), ""),
        (node("MaxPool", ["b"], ["y"], kernel_shape=[2]), CHANNELS_LAST),
    ],
)
def test_a_short_first_convolution_keeps_the_model_s_order_where_nothing_else_gains(
    after: onnx.NodeProto, domain: str
) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], strides=[5]), node("Relu", ["a"], ["b"]), after]
    source = proto(nodes, {"x": ("float32", [2, 1, 61])}, {"y": ("float32", None)}, {"w": weights(20, 1, 10)})
    same_answers(source, (2, 1, 61))
    assert rewritten(source)[0].layers[0].domain == domain


def test_what_a_subgraph_reads_is_there() -> None:
    body = branch(node("Neg", ["a"], ["n"]))
    other = branch(node("Abs", ["a"], ["m"]))
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("ReduceMax", ["a"], ["top"], keepdims=0),
        node("Greater", ["top", "zero"], ["is"]),
        node("If", ["is"], ["y"], then_branch=body, else_branch=other),
    ]
    source = proto(
        nodes, {"x": ("float32", list(SHAPE))}, {"y": ("float32", None)},
        {"w": weights(7, 3, 2, 2), "zero": np.array(0, np.float32)},
    )  # fmt: skip
    same_answers(source)


def test_convolutions_of_subgraphs_are_rewritten() -> None:
    """Branches have weights of one name, and share others with the graph around them."""

    def convolved(name: str, own: np.ndarray) -> onnx.GraphProto:
        nodes = [
            node("Conv", ["a", "v"], [f"{name}1"], pads=[1, 1, 1, 1]),
            node("Relu", [f"{name}1"], [f"{name}2"]),
            node("Conv", [f"{name}2", "u"], [f"{name}3"]),
            node("Add", [f"{name}3", "plane"], [f"{name}4"]),
        ]
        return branch(*nodes, u=own)

    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("ReduceMax", ["a"], ["top"], keepdims=0),
        node("Greater", ["top", "limit"], ["is"]),
        node("If", ["is"], ["b"], then_branch=convolved("t", weights(5, 7, 1, 1)),
             else_branch=convolved("e", weights(5, 7, 1, 1))),
        node("Conv", ["a", "v"], ["c"], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["c"], ["d"]),
        node("ReduceMean", ["d"], ["e"], keepdims=0),
        node("Add", ["b", "e"], ["y"]),
    ]  # fmt: skip
    for limit in (-1e9, 1e9):
        source = proto(
            nodes, {"x": ("float32", list(SHAPE))}, {"y": ("float32", None)},
            {"w": weights(7, 3, 2, 2), "v": weights(7, 7, 3, 3), "plane": weights(5, 4),
             "limit": np.array(limit, np.float32)},
        )  # fmt: skip
        same_answers(source)
        bodies = [body for layer in rewritten(source)[0].layers for body in layer.subgraphs]
        assert len(bodies) == 2
        assert all(sum(layer.domain == CHANNELS_LAST for layer in body.layers) == 2 for body in bodies)


def test_half_precision_is_computed_in_float32() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"])]
    source = proto(
        nodes, {"x": ("float16", [2, 5, 6, 5])}, {"y": ("float16", None)},
        {"w": weights(7, 5, 2, 2).astype(np.float16)},
    )  # fmt: skip
    assert CHANNELS_LAST in [layer.domain for layer in rewritten(source)[0].layers]
