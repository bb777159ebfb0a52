"""Small models made on the spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from engine import Model, ModelLoader

Dims = Sequence[int | str | None]
Declared = Mapping[str, tuple[str, Dims | None]]
"""Name -> (dtype name, dimensions)."""


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """One layer."""
    return helper.make_node(op_type, inputs, outputs, name=outputs[0] + "_layer", **attributes)


def branch(*nodes: onnx.NodeProto, **constants: np.ndarray) -> onnx.GraphProto:
    """A graph that a layer runs: it takes what is around it and yields what its last layer does."""
    result = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    return helper.make_graph(nodes, nodes[-1].name, [], [result], known)


def proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Declared,
    outputs: Declared,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> bytes:
    """A model file's bytes."""

    def declare(items: Declared) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)
            for name, (dtype, dims) in items.items()
        ]

    graph = helper.make_graph(
        list(nodes), "made", declare(inputs), declare(outputs),
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )  # fmt: skip
    versions = {"": opset, **{n.domain: 1 for n in nodes if n.domain}}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*version) for version in versions.items()], ir_version=9
    )
    return bytes(model.SerializeToString())


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Declared,
    outputs: Declared,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> Model:
    """A loaded model."""
    return ModelLoader.load(proto(nodes, inputs, outputs, constants, opset))


def mlp(sizes: Sequence[int], seed: int = 0, batch: int | str = "batch") -> bytes:
    """A policy network: Gemm and Tanh layers, as PyTorch exports them."""
    rng = np.random.default_rng(seed)
    nodes, constants, value = [], {}, "x"
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        constants[f"w{i}"] = rng.normal(0, rows**-0.5, (columns, rows)).astype(np.float32)
        constants[f"b{i}"] = rng.normal(0, 0.1, columns).astype(np.float32)
        last = i == len(sizes) - 2
        nodes.append(node("Gemm", [value, f"w{i}", f"b{i}"], ["y" if last else f"g{i}"], transB=1))
        if not last:
            nodes.append(node("Tanh", [f"g{i}"], [f"t{i}"]))
        value = f"t{i}"
    return proto(
        nodes, {"x": ("float32", [batch, sizes[0]])}, {"y": ("float32", [batch, sizes[-1]])}, constants
    )
