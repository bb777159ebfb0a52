"""Layer normalisation fusion: the up to nine layers of exporters before opset 17 become one."""

from __future__ import annotations

import numpy as np

from engine.compiler.passes.patterns import Patterns, other_input, replace_layers
from engine.graph.model import Layer, Model

_VERSION = 17


def fuse_layer_norm(model: Model) -> Model:
    """Replace the layers of a layer normalization by LayerNormalization (Ba et al., 2016).

    They compute (x - mean) / sqrt(mean of squared differences + epsilon) * scale + shift over the last axis.
    Scale and shift are constants of at most one axis.
    """
    graph = Patterns(model)
    made: dict[str, Layer] = {}
    gone: set[str] = set()
    constants: dict[str, np.ndarray] = {}
    for layer in model.layers:
        found = _norm_at(graph, layer) if layer.op_type == "Sqrt" and not layer.domain else None
        if found is None:
            continue
        x, epsilon, dtype, parts = found
        scale = _constant_behind(graph, parts, "Mul")
        if not scale:
            scale = f"{parts[-1].name}/ones"
            constants[scale] = np.ones(1, dtype)
        shift = _constant_behind(graph, parts, "Add")
        last = parts[-1]
        inputs = (x, scale, shift) if shift else (x, scale)
        attributes = {"axis": -1, "epsilon": epsilon}
        made[last.name] = Layer(
            "LayerNormalization", last.name, inputs, last.outputs, attributes, "", _VERSION
        )
        gone.update(part.name for part in parts)
    return replace_layers(model, made, gone, constants) if made else model


def _norm_at(graph: Patterns, root: Layer) -> tuple[str, float, np.dtype, list[Layer]] | None:
    """Input, epsilon and its type, and the layers around a square root up to the division."""
    sum_of = graph.maker(root.inputs[0], "Add")
    if sum_of is None or len(graph.readers(sum_of.outputs[0])) != 1:
        return None
    for name in sum_of.inputs:
        array, epsilon = graph.constant(name), graph.scalar(name)
        variance = graph.maker(other_input(sum_of, name), "ReduceMean")
        if array is not None and epsilon is not None and variance is not None:
            break
    else:
        return None
    square = _square(graph, variance)
    quotient = graph.reader(root.outputs[0], "Div")
    if square is None or quotient is None or quotient.inputs[1] != root.outputs[0]:
        return None
    centred = graph.maker(square.inputs[0], "Sub")
    if centred is None or not _is_last_mean(graph, variance):
        return None
    x, mean_name = centred.inputs
    mean = graph.maker(mean_name, "ReduceMean")
    if mean is None or mean.inputs[0] != x or not _is_last_mean(graph, mean):
        return None
    parts = [mean, centred, square, variance, sum_of, root]
    # Some write the difference twice.
    divided = graph.maker(quotient.inputs[0], "Sub")
    if divided is None or divided.inputs != centred.inputs:
        return None
    if divided.name != centred.name:
        parts.append(divided)
    inside = {part.name for part in [*parts, quotient]}
    for part in parts:
        readers = graph.readers(part.outputs[0])
        if not readers or any(reader.name not in inside for reader in readers):
            return None
    return x, epsilon, array.dtype, [*parts, quotient]


def _square(graph: Patterns, variance: Layer) -> Layer | None:
    power = graph.maker(variance.inputs[0], "Pow")
    if power is not None:
        return power if graph.scalar(power.inputs[1]) == 2.0 else None
    product = graph.maker(variance.inputs[0], "Mul")
    return product if product is not None and product.inputs[0] == product.inputs[1] else None


def _is_last_mean(graph: Patterns, layer: Layer) -> bool:
    """Whether a ReduceMean reduces the last axis with keepdims."""
    axes = layer.attributes.get("axes")
    if axes is None and len(layer.inputs) > 1 and layer.inputs[1]:
        axes = graph.constant(layer.inputs[1])
    return axes is not None and [int(a) for a in axes] == [-1] and bool(layer.attributes.get("keepdims", 1))


def _constant_behind(graph: Patterns, parts: list[Layer], op_type: str) -> str:
    """The constant that the next layer joins to the last part's output; that layer becomes the last part."""
    last = parts[-1].outputs[0]
    layer = graph.reader(last, op_type)
    if layer is None:
        return ""
    name = other_input(layer, last)
    array = graph.constant(name)
    if array is None or array.ndim > 1:
        return ""
    parts.append(layer)
    return name
