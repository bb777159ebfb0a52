"""float32 networks in half precision, as converters write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

DTYPES: dict[str, np.dtype] = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

_SIZES = {"Resize": 2, "Upsample": 1}
"""Layers with an input that is float32 in any case."""


def halved(source: str | bytes, dtype: str = "float16") -> bytes:
    """The network with inputs, outputs, weights and conversions in half precision."""
    model = onnx.load_model_from_string(source) if isinstance(source, bytes) else onnx.load(Path(source))
    code = helper.np_dtype_to_tensor_dtype(DTYPES[dtype])
    for graph in _graphs(model.graph):
        stays = {n.input[p] for n in graph.node if (p := _SIZES.get(n.op_type, 9)) < len(n.input)}
        for tensor in graph.initializer:
            if tensor.name not in stays:
                _halve(tensor, dtype)
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.name not in stays and value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = code
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.TENSOR and node.output[0] not in stays:
                    _halve(attribute.t, dtype)
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = code
    return bytes(model.SerializeToString())


def halved_inputs(inputs: Mapping[str, np.ndarray], dtype: str = "float16") -> dict[str, np.ndarray]:
    """What such a network takes."""
    return {name: a.astype(DTYPES[dtype]) if a.dtype == np.float32 else a for name, a in inputs.items()}


def _halve(tensor: TensorProto, dtype: str) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(DTYPES[dtype])
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)
