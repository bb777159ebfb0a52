"""Batch-norm folding: the scale goes into the convolution's weights, the shift into its bias."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.compiler.passes.patterns import Patterns, replace_layers
from engine.compiler.plan import storable
from engine.device.native import NativeSource
from engine.device.native.parallel_range import call_in_parts
from engine.device.native.prelude import PRELUDE
from engine.graph.model import Layer, Model


def fold_batch_norm(model: Model) -> Model:
    """Fold BatchNormalization into the preceding Conv or ConvTranspose if nothing else reads its output.

    y = (conv(x) - mean) * s + b with s = scale / sqrt(var + epsilon) is a convolution with weights w * s
    and bias (bias - mean) * s + b (Ioffe and Szegedy, 2015). Computed in float64, stored as the weights are.
    """
    graph, constants, makers = Patterns(model), dict(model.constants), dict(model.constant_factories)
    made: dict[str, Layer] = {}
    gone: set[str] = set()
    for norm in model.layers:
        if norm.op_type != "BatchNormalization" or norm.domain or norm.attributes.get("training_mode", 0):
            continue
        if len(norm.outputs) != 1 or not norm.attributes.get("spatial", 1):
            continue
        conv = graph.maker(norm.inputs[0], "Conv") or graph.maker(norm.inputs[0], "ConvTranspose")
        if conv is None or len(graph.readers(norm.inputs[0])) != 1:
            continue
        bias_name = conv.inputs[2] if len(conv.inputs) > 2 else ""
        names = [conv.inputs[1], *norm.inputs[1:], *([bias_name] if bias_name else [])]
        if not all(name in constants for name in names):
            continue
        weights = constants[conv.inputs[1]]
        scale, shift, mean, var = (constants[name].astype(np.float64) for name in norm.inputs[1:5])
        factor = scale / np.sqrt(var + float(norm.attributes.get("epsilon", 1e-5)))
        bias = constants[bias_name].astype(np.float64) if bias_name else np.zeros_like(mean)
        groups = int(conv.attributes.get("group", 1)) if conv.op_type == "ConvTranspose" else 0
        if groups and factor.size != groups * weights.shape[1]:
            continue
        w_name, b_name = f"{conv.name}/weights*{norm.name}", f"{conv.name}/bias+{norm.name}"
        makers[w_name] = partial(scaled, weights, factor, groups)
        constants[w_name] = makers[w_name]()
        constants[b_name] = ((bias - mean) * factor + shift).astype(weights.dtype)
        made[conv.name] = conv.replace(inputs=(conv.inputs[0], w_name, b_name), outputs=norm.outputs)
        gone.add(norm.name)
    if not made:
        return model
    return replace_layers(model, made, gone, constants).replace(constant_factories=makers)


@storable
def scaled(weights: np.ndarray, factor: np.ndarray, groups: int) -> np.ndarray:
    """Multiply each output channel of a convolution's weights.

    With groups, they are those of a transposed one, where channels are along another axis.
    """
    if not groups:
        return _product(weights, factor.reshape(-1, *(1,) * (weights.ndim - 1)))
    # (C, M/group, ...): the input channels of group g yield output channels g * M/group and on.
    per_group = weights.shape[1]
    by_group = weights.reshape(groups, weights.shape[0] // groups, per_group, *weights.shape[2:])
    shaped = factor.reshape(groups, 1, per_group, *(1,) * (weights.ndim - 2))
    return _product(by_group, shaped).reshape(weights.shape)


def _product(weights: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The product computed in float64 and stored in the weights' type, without a copy of them in float64."""
    result = np.empty(weights.shape, weights.dtype)
    if factor.size == len(weights) and weights.nbytes >= _LARGE and _is_plain_float32(weights):
        _scale_rows(weights, factor, result)
        return result
    return np.multiply(weights, factor, out=result, dtype=np.float64, casting="unsafe")


def _is_plain_float32(array: np.ndarray) -> bool:
    return array.dtype == np.float32 and array.dtype.isnative and array.flags.c_contiguous


def _scale_rows(weights: np.ndarray, factor: np.ndarray, result: np.ndarray) -> None:
    """NumPy would convert through buffers on one thread, in four times the time."""
    factors = np.ascontiguousarray(factor, np.float64)
    addresses = [int(array.ctypes.data) for array in (weights, factors, result)]
    words = np.array([*addresses, weights[0].size], np.int64)
    call_in_parts(SCALE_ROWS, words, len(weights), result.nbytes)


_LARGE = 1 << 20
"""Bytes from which on native code is worth loading."""

_TEXT = """
# Elements of a file may be at any address.
load_any = _make_load(_types.float32, _FLOAT, 1)


def scale_rows(args, begin, end):
    source, factors, target, size = arg_i64(args, 0), arg_i64(args, 1), arg_i64(args, 2), arg_i64(args, 3)
    for row in range(begin, end):
        factor = load_f64(factors, row)
        for i in range(row * size, (row + 1) * size):
            store_f32(target, i, _types.float64(load_any(source, i)) * factor)
"""

SCALE_ROWS = NativeSource("scale_rows", PRELUDE + _TEXT, "scale_rows")
