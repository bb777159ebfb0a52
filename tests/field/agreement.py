"""How far two answers are apart: arrays of any type, sequences, maps and empty optionals.

The measure and the bounds are those of every test: max|a - b| / max(1, max|b|); 1e-5 on the CPU, 1e-4 on
the other backends, 2e-3 where anything is computed in half precision, and never less than four times the
difference between onnxruntime's optimised and unoptimised run, or between onnxruntime and float64 (see
`tests.field.truth`). A model that rounds to the steps of a
quantisation moves by a step where a value lies beside its edge, so there onnxruntime's runs with inputs
and weights changed in their last bits count, too. Both are changed: a quantised input hides from the layers
behind it what was changed before, and the biases of these layers do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
OWN_SHARE = 4
"""What is allowed, in differences between onnxruntime's own runs."""

NUDGES = 5
"""How many times a model that rounds to steps runs with inputs and weights changed in their last bits."""

NUDGE = np.float32(3e-7)
"""The size of a change. The gates of onnxruntime's LSTM are up to 1.4e-6 from float64."""


def bound(backend: str, in_halves: bool, own: float) -> float:
    """The error allowed for an output on a backend; `own` is onnxruntime's."""
    return max(2e-3 if in_halves else 1e-5 if backend.startswith("cpu") else 1e-4, OWN_SHARE * own)


def difference(actual: Any, expected: Any) -> float:
    """The error of an output. Raises `ValueError` where type, shape or length differ."""
    if expected is None or actual is None:
        if expected is not actual:
            raise ValueError(f"expected {_said(expected)}, got {_said(actual)}")
        return 0.0
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            raise ValueError(f"expected {_said(expected)}, got {_said(actual)}")
        return max((difference(a, b) for a, b in zip(actual, expected, strict=True)), default=0.0)
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or list(actual) != list(expected):
            raise ValueError(f"expected {_said(expected)}, got {_said(actual)}")
        return max((difference(actual[key], expected[key]) for key in expected), default=0.0)
    return _array_difference(np.asarray(actual), np.asarray(expected))


def _array_difference(actual: np.ndarray, expected: np.ndarray) -> float:
    is_text = expected.dtype.kind in "OSUT"
    if actual.shape != expected.shape or not is_text and actual.dtype != expected.dtype:
        raise ValueError(f"expected {_said(expected)}, got {_said(actual)}")
    if is_text:
        return float(np.any(actual.astype(str) != expected.astype(str)))
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    differs = ~((a == b) | np.isnan(a) & np.isnan(b))
    if not differs.any():
        return 0.0
    finite = b[np.isfinite(b)]
    scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
    apart = float(np.abs(a[differs] - b[differs]).max()) / scale
    return apart if np.isfinite(apart) else float("inf")


def rounds_to_steps(model: onnx.ModelProto) -> bool:
    """Whether a layer quantises what it is given."""
    return any(
        "QuantizeL" in node.op_type or node.op_type == "DynamicQuantizeMatMul" for node in model.graph.node
    )


def without_rounding(model: onnx.ModelProto) -> bool:
    """Have onnxruntime compute in float32 where a layer allows less; whether there is such a layer.

    `accuracy_level` says how far onnxruntime may round what it multiplies with quantised weights, and the
    processor decides whether it does: with level 4 to 8 bits, which moves the answers by 1e-2.
    """
    levels = [
        a for node in model.graph.node for a in node.attribute if a.name == "accuracy_level" and a.i > 1
    ]
    for level in levels:
        level.i = 1
    return bool(levels)


def is_unordered(model: onnx.ModelProto) -> bool:
    """Whether a TopK asks for no order: rows then come in any, in all outputs in the same one."""
    return any(
        node.op_type == "TopK" and any(a.name == "sorted" and a.i == 0 for a in node.attribute)
        for node in model.graph.node
    )


def in_order_of(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """The answers with their rows moved to where the expected ones have those most like them.

    Every output has to have the same number of rows; otherwise nothing is moved.
    """
    shapes = {(np.shape(actual[name]), np.shape(answer)) for name, answer in expected.items()}
    if any(len(shape) == 0 or shape != other for shape, other in shapes):
        return dict(actual)
    if len({shape[0] for shape, _ in shapes}) != 1:
        return dict(actual)
    found, wanted = (_rows(outputs, list(expected)) for outputs in (actual, expected))
    scale = np.maximum(1.0, abs(wanted).max(0, initial=0.0))
    left = np.ones(len(found), bool)
    order = []
    for row in wanted:
        apart = np.where(left, (abs(found - row) / scale).max(1), np.inf)
        order.append(int(apart.argmin()))
        left[order[-1]] = False
    return {name: np.asarray(actual[name])[order] for name in expected}


def _rows(outputs: Mapping[str, Any], names: list[str]) -> np.ndarray:
    arrays = [np.asarray(outputs[name], np.float64) for name in names]
    return np.concatenate([a.reshape(len(a), -1) for a in arrays], 1)


def nudged(feed: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The inputs with the last bits of their float32 numbers changed at random."""
    rng = np.random.default_rng(seed)
    return {name: _nudged(a, rng) if a.dtype == np.float32 else a for name, a in feed.items()}


def with_nudged_weights(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy of a model with the last bits of its float32 initializers changed at random, scales too."""
    rng = np.random.default_rng(seed)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    # Sizes are rounded down: 1.9999999 times a size is another one.
    resized = [node for node in copy.graph.node if node.op_type in ("Resize", "Upsample")]
    kept = {name for node in resized for name in node.input[1:]}
    for tensor in copy.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name not in kept:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(_nudged(array, rng), tensor.name))
    return copy


def _nudged(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return array * (1 + NUDGE * rng.standard_normal(array.shape, np.float32))


def computes_in_halves(model: onnx.ModelProto) -> bool:
    """Whether any weight, or any value that is cast, is float16 or bfloat16."""

    def of_graph(graph: onnx.GraphProto) -> bool:
        return any(t.data_type in HALVES for t in graph.initializer) or any(map(of_node, graph.node))

    def of_node(node: onnx.NodeProto) -> bool:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in HALVES:
                return True
            if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type in HALVES:
                return True
            if attribute.type == onnx.AttributeProto.GRAPH and of_graph(attribute.g):
                return True
        return False

    ends = (*model.graph.input, *model.graph.output)
    return any(end.type.tensor_type.elem_type in HALVES for end in ends) or of_graph(model.graph)


def _said(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
