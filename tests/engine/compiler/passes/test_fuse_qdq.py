"""Layers between DequantizeLinear and QuantizeLinear in integers, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import BackendType, ModelLoader, Worker
from engine.compiler.passes import fuse_qdq
from tests.peer import open_session

RNG = np.random.default_rng(0)


def quantised_model(
    nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, Any], shape: Sequence[int], output: str
) -> bytes:
    """A model whose input x is quantised, with the scales and zero points that the tests' nodes name."""
    constants = {
        "s": np.float32(0.02), "z": np.uint8(120), "ws": np.float32(0.01), "wz": np.int8(0),
        "ys": np.float32(0.1), "low": np.uint8(0), **arrays,
    }  # fmt: skip
    ends = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
    ]
    graph = helper.make_graph(
        [*ends, *nodes], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=output)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


def layers_and_answers(model: bytes, x: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The joined model's layers, the engine's answer and onnxruntime's."""
    asset = ModelLoader.load(model)
    joined = [layer.op_type for layer in fuse_qdq(asset).layers]
    with Worker(asset, BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
    session = open_session(model)
    return joined, found, session.run(None, {"x": x})[0]


WEIGHTS = [
    helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
]


@pytest.mark.parametrize(("zero", "is_joined"), [("low", True), ("z", False)])
def test_a_convolution_takes_the_relu_that_levels_contain(zero: str, is_joined: bool) -> None:
    arrays = {
        "w": RNG.integers(-127, 128, (5, 3, 3, 3)).astype(np.int8),
        "b": (RNG.integers(-900, 900, 5) * (np.float32(0.02) * np.float32(0.01))).astype(np.float32),
    }
    nodes = [
        *WEIGHTS,
        helper.make_node("Conv", ["xd", "wd", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", zero], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "ys", zero], ["y"]),
    ]
    x = RNG.standard_normal((1, 3, 8, 9)).astype(np.float32)
    joined, found, expected = layers_and_answers(quantised_model(nodes, arrays, x.shape, "y"), x)
    assert ("QLinearConv" in joined) == is_joined
    assert ("Relu" in joined) != is_joined
    # Where floats are rounded to levels, onnxruntime's own may fall on the other side.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 if is_joined else 0.1001)


def test_products_of_matrices_in_integers() -> None:
    arrays = {"w": RNG.integers(-127, 128, (20, 6)).astype(np.int8)}
    x = RNG.standard_normal((4, 20)).astype(np.float32)
    product = helper.make_node("MatMul", ["xd", "wd"], ["y"])
    joined, found, expected = layers_and_answers(
        quantised_model([*WEIGHTS, product], arrays, x.shape, "y"), x
    )
    assert "MatMulIntegerToFloat" in joined
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    ends = [
        helper.make_node("QuantizeLinear", ["y", "ys", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "ys", "z"], ["o"]),
    ]
    model = quantised_model([*WEIGHTS, product, *ends], arrays, x.shape, "o")
    joined, found, expected = layers_and_answers(model, x)
    assert "QLinearMatMul" in joined
    np.testing.assert_array_equal(found, expected)
    turned = {"w": np.ascontiguousarray(arrays["w"].T), "b": np.zeros(6, np.float32)}
    gemm = helper.make_node("Gemm", ["xd", "wd", "b"], ["y"], transB=1)
    joined, found, expected = layers_and_answers(
        quantised_model([*WEIGHTS, gemm, *ends], turned, x.shape, "o"), x
    )
    assert "QGemm" in joined
    np.testing.assert_array_equal(found, expected)


def test_a_bias_between_units_stays_a_float() -> None:
    arrays = {"w": RNG.integers(-127, 128, (5, 3, 1, 1)).astype(np.int8), "b": np.full(5, 1e-4, np.float32)}
    nodes = [
        *WEIGHTS,
        helper.make_node("Conv", ["xd", "wd", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["y"]),
    ]
    model = quantised_model(nodes, arrays, (1, 3, 4, 4), "y")
    assert "Conv" in [layer.op_type for layer in fuse_qdq(ModelLoader.load(model)).layers]
