"""Weights in few bits become float32 matrices, and the answer stays what onnxruntime says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import ModelLoader
from engine.compiler.builders import ShapeBuilder
from engine.compiler.interpreter import interpret
from engine.compiler.passes import unpack_weights
from tests.graphs import node, proto
from tests.networks import reference

RNG = np.random.default_rng(6)


@pytest.fixture
def _nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these weights were too large for constant folding."""
    monkeypatch.setattr(ShapeBuilder, "fold_limit", 0)


def _product_of_bits(bits: int, zeros: str, bias: bool, depth: int = 70, columns: int = 24) -> bytes:
    blocks = -(-depth // 32)
    made: dict[str, np.ndarray] = {
        "q": RNG.integers(0, 256, (columns, blocks, 32 * bits // 8)).astype(np.uint8),
        "s": RNG.random(columns * blocks).astype(np.float32) / 8,
    }
    inputs = ["x", "q", "s"]
    if zeros == "packed":
        made["z"] = RNG.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8)
    elif zeros == "plain":
        made["z"] = RNG.random(columns * blocks).astype(np.float32) * 8
    inputs.append("z" if zeros else "")
    if bias:
        made["b"] = RNG.random(columns).astype(np.float32)
        inputs += ["", "b"]
    layer = helper.make_node(
        "MatMulNBits", inputs, ["y"], domain="com.microsoft", K=depth, N=columns, bits=bits, block_size=32
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, depth])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, columns])
    graph = helper.make_graph(
        [layer], "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in made.items()]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return onnx.ModelProto.SerializeToString(helper.make_model(graph, opset_imports=opsets, ir_version=9))


@pytest.mark.parametrize(
    ("bits", "zeros"), [(4, ""), (4, "packed"), (4, "plain"), (8, ""), (8, "packed")]
)  # onnxruntime knows no plain zero points beside 8 bits
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_packed_weights_become_plain(bits: int, zeros: str, bias: bool) -> None:
    source = _product_of_bits(bits, zeros, bias)
    changed = unpack_weights(ModelLoader.load(source))
    assert [layer.op_type for layer in changed.layers] == (["MatMul", "Add"] if bias else ["MatMul"])
    assert "q" not in changed.constants
    x = RNG.standard_normal((2, 3, 70)).astype(np.float32)
    expected = reference(source, {"x": x})["y"]
    got = interpret(changed, {"x": x})["y"]
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.usefixtures("_nothing_is_folded")
def test_large_weights_are_dequantised_and_cast_once() -> None:
    constants: dict[str, np.ndarray] = {
        "q": RNG.integers(-128, 128, (12, 20)).astype(np.int8), "s": RNG.random(20).astype(np.float32),
        "z": np.zeros(20, np.int8), "h": RNG.standard_normal((20, 8)).astype(np.float16),
    }  # fmt: skip
    source = proto(
        [
            node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=1),
            node("MatMul", ["x", "w"], ["a"]),
            node("Cast", ["h"], ["v"], to=TensorProto.FLOAT),
            node("Gemm", ["a", "v"], ["b"]),
            # No weights: what comes of it is as large as what it is made of.
            node("Cast", ["h"], ["wide"], to=TensorProto.FLOAT),
            node("ReduceSum", ["wide"], ["total"], keepdims=0),
            node("Add", ["b", "total"], ["y"]),
        ],
        {"x": ("float32", [5, 12])}, {"y": ("float32", [5, 8])}, constants,
    )  # fmt: skip
    model = ModelLoader.load(source)
    assert model.layers[0].op_type == "DequantizeLinear"
    changed = unpack_weights(model)
    left = [layer.op_type for layer in changed.layers]
    assert left == ["MatMul", "Gemm", "Cast", "ReduceSum", "Add"]
    assert changed.constants["w"].dtype == np.float32
    assert "q" not in changed.constants
    x = RNG.standard_normal((5, 12)).astype(np.float32)
    # Not by onnxruntime, which rounds the left side of such products to 8 bits.
    first = constants["q"].astype(np.float64) * constants["s"]
    second = constants["h"].astype(np.float64)
    expected = x @ first @ second + second.sum()
    np.testing.assert_allclose(interpret(changed, {"x": x})["y"], expected, rtol=1e-4, atol=1e-2)


def test_other_models_stay_as_they_are() -> None:
    source = proto(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": ("float32", [5, 12])}, {"y": ("float32", [5, 8])},
        {"w": np.zeros((12, 8), np.float32)},
    )  # fmt: skip
    model = ModelLoader.load(source)
    assert unpack_weights(model) is model


@pytest.mark.parametrize(("bits", "block"), [(2, 0), (4, 16), (8, 0)])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_experts_of_packed_weights_become_plain(bits: int, block: int, has_zeros: bool) -> None:
    experts, hidden, inner = 4, 32, 48
    constants: dict[str, np.ndarray] = {}
    for name, rows, columns in (("1", inner, hidden), ("2", hidden, inner)):
        blocks = columns // block if block else 1
        lines, count = ((experts, rows), blocks) if block else ((experts,), rows)
        constants |= {
            f"w{name}": RNG.integers(0, 256, (experts, rows, columns * bits // 8)).astype(np.uint8),
            f"s{name}": RNG.random((experts, rows, blocks) if block else (experts, rows)).astype(np.float32),
            f"z{name}": RNG.integers(0, 256, (*lines, -(-count * bits // 8))).astype(np.uint8),
        }
    zeros = ["z1", "z2"] if has_zeros else []
    more: dict[str, Any] = {"block_size": block} if block else {}
    layer = helper.make_node(
        "QMoE", ["x", "r", "w1", "s1", "", "w2", "s2", "", "", "", "", *zeros], ["y"], domain="com.microsoft",
        k=2, activation_type="gelu", expert_weight_bits=bits, **more,
    )  # fmt: skip
    sizes = (("x", hidden), ("r", experts), ("y", hidden))
    x, r, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [5, size]) for n, size in sizes)
    made = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([layer], "g", [x, r], [y], made)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    source = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    model = ModelLoader.load(source)
    changed = unpack_weights(model)
    assert [layer.op_type for layer in changed.layers] == ["MoE"]
    inputs = {"x": RNG.standard_normal((5, hidden)), "r": RNG.standard_normal((5, experts))}
    given = {name: array.astype(np.float32) for name, array in inputs.items()}
    got, expected = interpret(changed, given)["y"], interpret(model, given)["y"]
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())
