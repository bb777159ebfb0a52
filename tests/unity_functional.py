"""What Unity's functional methods compute, by NumPy, to compare the Unity page's translations with."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Expected = Callable[..., Any]


def compiled(formula: str, inputs: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A formula such as `Add(x, Mul(y, 2.0))` as a model: calls are nodes, keywords their attributes."""
    graph = _Graph()
    result = graph.value(ast.parse(formula, mode="eval").body)
    used = [name for name in inputs if name in graph.names]
    assert set(graph.names) <= set(inputs), f"{formula}: what is {set(graph.names) - set(inputs)}?"
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(inputs[name].dtype), inputs[name].shape
        )
        for name in used
    ]
    output = helper.make_empty_tensor_value_info(result)
    made = helper.make_graph(graph.nodes, "formula", given, [output], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


class _Graph:
    """Nodes in the order in which they are met."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.names: set[str] = set()

    def value(self, node: ast.expr) -> str:
        """The name of the value that an expression yields."""
        if isinstance(node, ast.Name):
            self.names.add(node.id)
            return node.id
        if not isinstance(node, ast.Call):
            literal = ast.literal_eval(node)
            if literal is None:
                return ""
            array = np.array(literal)
            array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
            self.constants.append(numpy_helper.from_array(array, f"constant{len(self.constants)}"))
            return self.constants[-1].name
        assert isinstance(node.func, ast.Name)
        inputs = [self.value(argument) for argument in node.args]
        attributes = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        output = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(node.func.id, inputs, [output], **attributes))
        return output


@dataclass(frozen=True)
class Case:
    """The inputs that a method is tried with, and what it yields; random ones have a check instead."""

    inputs: dict[str, np.ndarray]
    expected: Expected | None = None
    holds: Expected | None = None


_random = np.random.default_rng(7)


def _floats(*shape: int, low: float = 0.2, high: float = 2.0) -> np.ndarray:
    return _random.uniform(low, high, shape).astype(np.float32)


def _case(expected: Expected, **inputs: np.ndarray) -> Case:
    """With x, y and w of shape (2, 3, 4) where nothing else is given."""
    given = {"x": _floats(2, 3, 4), "y": _floats(2, 3, 4), "w": _floats(2, 3, 4)}
    given |= {"a": _random.random((2, 3)) < 0.5, "b": _random.random((2, 3)) < 0.5}
    return Case({**given, **inputs}, expected)


def _drawn(holds: Expected, **inputs: np.ndarray) -> Case:
    """Random numbers: (40, 50) of them."""
    return Case({"x": np.zeros((40, 50), np.float32), **inputs}, holds=holds)


def _like(mean: float, deviation: float) -> Expected:
    return lambda v: v.shape == (40, 50) and abs(v.mean() - mean) < 0.3 and abs(v.std() / deviation - 1) < 0.1


def _uniform(v: Any) -> bool:
    return v.shape == (40, 50) and 0 <= v.min() < 0.05 and 0.95 < v.max() < 1


def _dice(v: Any) -> bool:
    return v.shape == (40, 50) and v.dtype == np.int64 and set(np.unique(v)) == set(range(6))


def _normalized(x: Any, mean: Any, variance: Any, scale: Any, bias: Any) -> Any:
    shape = (1, -1, *[1] * (x.ndim - 2))
    unit = (x - mean) / np.sqrt(variance + 1e-5)
    return unit * scale.reshape(shape) + bias.reshape(shape)


def _convolved(x: Any, w: Any) -> Any:
    """Without padding, stride 1, one picture: x (1, C, H, W), w (M, C, h, w)."""
    windows = np.lib.stride_tricks.sliding_window_view(x[0], w.shape[2:], axis=(1, 2))
    return np.einsum("chwij,mcij->mhw", windows, w)[None]


def _spread(x: Any, w: Any) -> Any:
    """A transposed convolution: every element of x (1, C, H, W) lays down its w (C, M, h, w)."""
    h, width = w.shape[2:]
    out = np.zeros((1, w.shape[1], x.shape[2] + h - 1, x.shape[3] + width - 1))
    for i in range(x.shape[2]):
        for j in range(x.shape[3]):
            out[0, :, i : i + h, j : j + width] += np.einsum("c,cmij->mij", x[0, :, i, j], w)
    return out


def _halved(reduce: Expected) -> Expected:
    return lambda x: reduce(x.reshape(1, 3, 2, 2, 2, 2), axis=(3, 5))


def _doubled(x: Any) -> Any:
    """Each axis of a picture at twice the size, between the centres of pixels."""
    for axis in (2, 3):
        size = x.shape[axis]
        at = (np.arange(2 * size) + 0.5) / 2 - 0.5
        x = np.apply_along_axis(lambda row, at=at, n=size: np.interp(at, np.arange(n), row), axis, x)
    return x


_index = np.array([[[2, 0, 1, 2]], [[0, 1, 1, 0]]])
_picture = _floats(1, 3, 4, 4)
_gauge = np.array([0, 5, 5, 23])


def _scattered(x: Any, y: Any, i: Any, adds: bool) -> Any:
    out = x.copy()
    for place in np.ndindex(i.shape):
        where = (place[0], i[place], place[2])
        out[where] = y[place] + (out[where] if adds else 0)
    return out


CASES: dict[str, Case] = {
    "AsStrided": _case(lambda x, i: x.ravel()[i], i=_gauge),
    "Zeros": _case(lambda: np.zeros((2, 3))),
    "ZerosLike": _case(lambda x: np.zeros_like(x)),
    "Ones": _case(lambda: np.ones((2, 3))),
    "OnesLike": _case(lambda x: np.ones_like(x)),
    "Full": _case(lambda: np.full((2, 3), 7.0)),
    "FullLike": _case(lambda x: np.full_like(x, 7.0)),
    "ARange": _case(lambda: np.arange(0, 10, 3)),
    "LinSpace": _case(lambda: np.linspace(1, 2, 5)),
    "LogSpace": _case(lambda: np.logspace(0, 1, 5)),
    "Gather": _case(lambda x, i: np.take_along_axis(x, i, 1), i=_index),
    "IndexSelect": _case(lambda x, i: x[:, i], i=np.array([2, 0])),
    "MoveDim": _case(lambda x: np.moveaxis(x, 0, 2)),
    "Permute": _case(lambda x: x.transpose(2, 0, 1)),
    "Transpose": _case(lambda x: x.swapaxes(1, 2)),
    "Narrow": _case(lambda x: x[:, :, 1:3]),
    "Select": _case(lambda x: x[:, :, 1]),
    "Scatter": _case(lambda x, i, y: _scattered(x, y, i, False), i=_index[:, :, :1], y=_floats(2, 1, 1)),
    "ScatterAdd": _case(lambda x, i, y: _scattered(x, y, i, True), i=_index, y=_floats(2, 1, 4)),
    "SelectScatter": _case(lambda x, y: np.stack((x[:, 0], y, x[:, 2]), axis=1), y=_floats(2, 4)),
    "SliceScatter": _case(lambda x, y: np.concatenate((x[:, :1], y, x[:, 2:]), axis=1), y=_floats(2, 1, 4)),
    "Stack": _case(lambda x, y: np.stack((x, y))),
    "Take": _case(lambda x, i: np.take(x, i), i=_gauge),
    "Normal": _drawn(_like(2, 3)),
    "NormalLike": _drawn(_like(2, 3)),
    "RandN": _drawn(_like(0, 1)),
    "RandNLike": _drawn(_like(0, 1)),
    "Rand": _drawn(_uniform),
    "RandLike": _drawn(_uniform),
    "RandInt": _drawn(_dice),
    "RandIntLike": _drawn(_dice),
    "RandomChoice": _drawn(
        lambda v: v.shape == (1, 9) and set(v.ravel()) <= {5.0, 8.0}, x=np.array([5, 8], np.float32)
    ),
    "Atan2": _case(lambda y, x: np.arctan2(y, x), x=_floats(2, 3, low=-2), y=_floats(2, 3, low=-2)),
    "Clamp": _case(lambda x: x.clip(-1, 0.5), x=_floats(2, 3, low=-2)),
    "Deg2Rad": _case(lambda x: np.deg2rad(x)),
    "Rad2Deg": _case(lambda x: np.rad2deg(x)),
    "Expm1": _case(lambda x: np.expm1(x)),
    "FloatPower": _case(lambda x, y: np.float_power(x, y)),
    "FloorDivide": _case(lambda x, y: x // y, x=_floats(2, 3, low=-9, high=9), y=_floats(2, 3)),
    "FMod": _case(lambda x, y: np.fmod(x, y), x=_floats(2, 3, low=-9, high=9), y=_floats(2, 3)),
    "Remainder": _case(
        lambda x, y: np.remainder(x, y),
        x=_floats(2, 3, low=-9, high=9),
        y=_floats(2, 3),
        i=np.array([[3, 5]]),
    ),
    "Frac": _case(lambda x: x - np.trunc(x), x=_floats(2, 3, low=-9, high=9)),
    "Trunc": _case(lambda x: np.trunc(x), x=_floats(2, 3, low=-9, high=9)),
    "Lerp": _case(lambda x, w, y: x * (1 - w) + y * w),
    "Log10": _case(lambda x: np.log10(x)),
    "Log1P": _case(lambda x: np.log1p(x)),
    "Log2": _case(lambda x: np.log2(x)),
    "LogAddExp": _case(lambda x, y: np.logaddexp(x, y)),
    "LogicalAnd": _case(lambda a, b: np.logical_and(a, b)),
    "LogicalNot": _case(lambda a: np.logical_not(a)),
    "LogicalOr": _case(lambda a, b: np.logical_or(a, b)),
    "LogicalXor": _case(lambda a, b: np.logical_xor(a, b)),
    "Positive": _case(lambda x: +x),
    "Clone": _case(lambda x: x.copy()),
    "RSqrt": _case(lambda x: 1 / np.sqrt(x)),
    "Square": _case(lambda x: np.square(x)),
    "ReduceVariance": _case(lambda x: x.var(axis=1, keepdims=True)),
    "GreaterEqual": _case(lambda x, y: np.greater_equal(x, y)),
    "LessEqual": _case(lambda x, y: np.less_equal(x, y)),
    "NotEqual": _case(lambda x, y: np.not_equal(x, y), y=np.ones((2, 3, 4), np.float32)),
    "IsFinite": _case(lambda x: np.isfinite(x), x=np.array([1, math.inf, -math.inf, math.nan], np.float32)),
    "AtLeast1D": _case(lambda x: np.atleast_1d(x), x=np.array(2, np.float32)),
    "AtLeast2D": _case(lambda x: np.atleast_2d(x), x=_floats(5)),
    "AtLeast3D": _case(lambda x: np.atleast_3d(x), x=_floats(5, 2)),
    "BroadcastTo": _case(lambda x: np.broadcast_to(x, (2, 3, 4)), x=_floats(3, 1)),
    "Diagonal": _case(lambda x: x.diagonal(), x=_floats(4, 4)),
    "Flip": _case(lambda x: np.flip(x, 2)),
    "FlipLR": _case(lambda x: np.fliplr(x)),
    "FlipUD": _case(lambda x: np.flipud(x)),
    "Ravel": _case(lambda x: x.ravel()),
    "TriL": _case(lambda x: np.tril(x)),
    "TriU": _case(lambda x: np.triu(x)),
    "Conv1D": _case(
        lambda x, w: _convolved(x[:, :, None], w[:, :, None])[:, :, 0], x=_floats(1, 2, 6), w=_floats(3, 2, 3)
    ),
    "Conv2D": _case(lambda x, w: _convolved(x, w), x=_picture, w=_floats(2, 3, 3, 2)),
    "Conv3D": _case(
        lambda x, w: _convolved(x[:, :, 0], w[:, :, 0])[:, :, None],
        x=_picture[:, :, None],
        w=_floats(2, 3, 1, 3, 2),
    ),
    "Conv1Transpose1D": _case(
        lambda x, w: _spread(x[:, :, None], w[:, :, None])[:, :, 0], x=_floats(1, 2, 6), w=_floats(2, 3, 3)
    ),
    "Conv1Transpose2D": _case(lambda x, w: _spread(x, w), x=_picture, w=_floats(3, 2, 3, 2)),
    "Conv1Transpose3D": _case(
        lambda x, w: _spread(x[:, :, 0], w[:, :, 0])[:, :, None],
        x=_picture[:, :, None],
        w=_floats(3, 2, 1, 3, 2),
    ),
    "AvgPool2D": _case(_halved(np.mean), x=_picture),
    "MaxPool2D": _case(_halved(np.max), x=_picture),
    "Relu6": _case(lambda x: np.minimum(np.maximum(x, 0), 6), x=_floats(9, low=-9, high=9)),
    "BatchNorm": _case(
        lambda x, scale, bias, mean, variance: _normalized(
            x, mean[:, None, None], variance[:, None, None], scale, bias
        ),
        x=_picture,
        scale=_floats(3),
        bias=_floats(3),
        mean=_floats(3),
        variance=_floats(3),
    ),
    "InstanceNorm": _case(
        lambda x, scale, bias: _normalized(
            x, x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True), scale, bias
        ),
        x=_picture,
        scale=_floats(3),
        bias=_floats(3),
    ),
    "LocalResponseNorm": _case(
        lambda x: (
            x
            / (1 + 1e-4 / 3 * np.stack([(x[:, max(c - 1, 0) : c + 2] ** 2).sum(1) for c in range(3)], axis=1))
            ** 0.75
        ),
        x=_picture,
    ),
    "PixelShuffle": _case(
        lambda x: x.reshape(1, 1, 2, 2, 3, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 6, 6),
        x=_floats(1, 4, 3, 3),
    ),
    "PixelUnshuffle": _case(
        lambda x: x.reshape(1, 3, 2, 2, 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 12, 2, 2), x=_picture
    ),
    "Interpolate": _case(_doubled, x=_picture),
    "NMS": _case(
        lambda boxes, scores: np.array([[0, 0, 1], [0, 0, 2]]),  # the first box lies nearly on the second
        boxes=np.array([[[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]]], np.float32),
        scores=np.array([[[0.5, 0.9, 0.7]]], np.float32),
    ),
    "BroadcastArgs": _case(lambda s, t: np.maximum(s, t), s=np.array([1, 3]), t=np.array([2, 1])),
    "Dense": _case(lambda x, w, b: x @ w + b, x=_floats(2, 3), w=_floats(3, 4), b=_floats(4)),
    "DequantizeUint8": _case(
        lambda q, p: (q.astype(int) - int(p)) * 0.5, q=np.array([0, 9], np.uint8), p=np.array(4, np.uint8)
    ),
    "FloorDiv": _case(lambda x, y: x // y),
    "TrueDiv": _case(lambda x, y: x / y),
    "GeluFast": _case(lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "MatMul2D": _case(lambda x, w: x @ w, x=_floats(2, 3), w=_floats(3, 4)),
    "ScalarMad": _case(lambda x: x * 2 + 3),
    "ScaleBias": _case(lambda x, w, b: x * w + b, b=_floats(4)),
}
"""By method, or by layer of Unity's own. `expected` is given the inputs that its parameters name."""

SAME_FORMULA = {
    **dict.fromkeys(("AvgPool1D", "AvgPool3D"), "AvgPool2D"),
    **dict.fromkeys(("MaxPool1D", "MaxPool3D"), "MaxPool2D"),
}
"""One operator does for every number of axes, with as many sizes."""
