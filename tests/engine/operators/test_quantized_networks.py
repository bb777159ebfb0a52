"""Whole networks as onnxruntime's tools quantise them, in its three formats, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

from engine import ModelLoader
from tests.engine.conftest import MakeWorker, answers
from tests.peer import open_session

SHAPE = (2, 3, 12, 12)
FORMATS = ("operators", "pairs", "dynamic")
"""Quantised layers; float layers between QuantizeLinear and DequantizeLinear; ranges found at run time."""


def network() -> onnx.ModelProto:
    """Two convolutions, a residual, a join, pools, and a matrix product."""
    draw = np.random.default_rng(1)
    sizes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (5, 16), "b3": (5,)}
    weights = [
        numpy_helper.from_array((draw.standard_normal(s) * 0.3).astype(np.float32), n)
        for n, s in sizes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["sum"]),
        helper.make_node("Sigmoid", ["sum"], ["s"]),
        helper.make_node("Concat", ["s", "r1"], ["both"], axis=1),
        helper.make_node("MaxPool", ["both"], ["mp"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["mp"], ["ap"], kernel_shape=[2, 2]),
        helper.make_node("GlobalAveragePool", ["ap"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["z"], transB=1),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE[1:]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class Samples(quantization.CalibrationDataReader):
    """Inputs from which the tools learn the ranges of tensors."""

    def __init__(self) -> None:
        draw = np.random.default_rng(2)
        self.left: Iterator[np.ndarray] = iter(
            [draw.standard_normal(SHAPE).astype(np.float32) for _ in range(4)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """One set of inputs, or None at the end."""
        x = next(self.left, None)
        return None if x is None else {"x": x}


def quantise(form: str, folder: Path) -> Path:
    """The network's file in one of the formats."""
    source, target = folder / "network.onnx", folder / f"{form}.onnx"
    onnx.save(network(), source)
    if form == "dynamic":
        quantization.quantize_dynamic(source, target)
    else:
        pairs = form == "pairs"
        quantization.quantize_static(
            source,
            target,
            Samples(),
            quant_format=quantization.QuantFormat.QDQ if pairs else quantization.QuantFormat.QOperator,
            activation_type=quantization.QuantType.QInt8 if pairs else quantization.QuantType.QUInt8,
            per_channel=not pairs,
        )
    return target


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
def test_quantised_networks(form: str, channel: str, make_worker: MakeWorker, tmp_path: Path) -> None:
    path = quantise(form, tmp_path)
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    session = open_session(path)
    (found,) = answers(make_worker(ModelLoader.load(path), channel), x)
    # The output is quantised too: one level is 1/255.
    assert np.abs(found - np.asarray(session.run(None, {"x": x})[0])).max() <= 0.004
