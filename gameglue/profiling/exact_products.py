"""Exact integer products from onnxruntime, for comparison."""

from __future__ import annotations

import platform
from collections.abc import Container

import numpy as np
import onnx

from engine.device.processor import cpu_features


def products_saturate() -> bool:
    """Whether onnxruntime's sums of uint8 times int8 saturate at 16 bits here: on x86-64 without VNNI."""
    has_vnni = not {"avx_vnni", "avx512_vnni"}.isdisjoint(cpu_features())
    return platform.machine() in ("x86_64", "AMD64") and not has_vnni


_INT8_WEIGHTS = {
    "ConvInteger": ((1, 3),),
    "DequantizeLinear": ((0, 2),),
    "DynamicQuantizeLSTM": ((1, 9), (2, 11)),
    "DynamicQuantizeMatMul": ((1, 3),),
    "MatMulInteger": ((1, 3),),
    "MatMulIntegerToFloat": ((1, 5),),
    "QAttention": ((1, 7),),
    "QGemm": ((3, 5),),
    "QLinearConv": ((3, 5),),
    "QLinearMatMul": ((3, 5),),
}
"""Which inputs of a layer are weights and their zero points."""


def with_unsigned_weights(model: onnx.ModelProto) -> bool:
    """Convert constant int8 weights to equivalent uint8 ones where they meet uint8 inputs.

    Products of uint8 and uint8 are exact everywhere. (onnxruntime's own `session.x64quantprecision` does the
    same with its optimisations only, and fails where layers share a zero point.)

    Returns:
        Whether there are any.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    used_otherwise: set[str] = set()
    for node in model.graph.node:
        weights = dict(_INT8_WEIGHTS.get(node.op_type, ()))
        if weights and node.op_type.startswith("Q") and _is_int8(constants.get(node.input[2])):
            weights = {}
        for place, name in enumerate(node.input):
            if place in weights:
                uses.setdefault(name, []).append((node, weights[place]))
            else:
                used_otherwise.add(name)
        for attribute in node.attribute:
            used_otherwise.update(_names(attribute.g))
    turned = [
        name
        for name, layers in uses.items()
        if _is_int8(constants.get(name))
        and name not in used_otherwise
        and all(_known_zero(node, zero, constants) for node, zero in layers)
    ]
    for name in turned:
        constants[name].CopyFrom(_unsigned(onnx.numpy_helper.to_array(constants[name]), name))
        for node, zero in uses[name]:
            node.input.extend([""] * (zero + 1 - len(node.input)))
            given = constants.get(node.input[zero])
            # A scale comes before, with as many elements, or another zero point.
            shape = constants.get(node.input[zero - 1], onnx.TensorProto()).dims
            array = np.zeros(shape, np.int8) if given is None else onnx.numpy_helper.to_array(given)
            # Other layers may share what is given.
            node.input[zero] = f"{name} zero point of {node.output[0]}"
            model.graph.initializer.append(_unsigned(array, node.input[zero]))
    return bool(turned)


def _known_zero(node: onnx.NodeProto, place: int, known: Container[str]) -> bool:
    """Whether a zero point is a constant, or absent."""
    name = node.input[place] if place < len(node.input) else ""
    return not name or name in known


def _names(graph: onnx.GraphProto) -> set[str]:
    """What the layers of a subgraph read."""
    inner = (_names(attribute.g) for node in graph.node for attribute in node.attribute)
    return {name for node in graph.node for name in node.input}.union(*inner)


def _is_int8(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == onnx.TensorProto.INT8


def _unsigned(array: np.ndarray, name: str) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array((array.astype(np.int16) + 128).astype(np.uint8), name)
