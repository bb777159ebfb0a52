"""What onnxruntime makes of a single layer: an answer independent of the engine's definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper


def by_onnxruntime(
    op_type: str,
    arrays: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    outputs: int = 1,
) -> list[np.ndarray]:
    """The layer's outputs."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, made, **(attributes or {}))
    outs = [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph([node], "one", infos, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {name: a for name, a in zip(names, arrays, strict=True) if a is not None}
    return [np.asarray(y) for y in session.run(None, feeds)]
