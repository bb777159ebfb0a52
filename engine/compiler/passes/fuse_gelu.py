"""GELU fusion: the five layers that older exporters write become one."""

from __future__ import annotations

from math import sqrt

from engine.compiler.passes.patterns import Patterns, other_input, replace_layers
from engine.graph.model import Layer, Model

_VERSION = 20


def fuse_gelu(model: Model) -> Model:
    """x / 2 * (1 + erf(x / sqrt(2))), its factors in any order -> Gelu (Hendrycks and Gimpel, 2016)."""
    graph = Patterns(model)
    made: dict[str, Layer] = {}
    gone: set[str] = set()
    for layer in model.layers:
        found = _gelu_at(graph, layer) if layer.op_type == "Erf" and not layer.domain else None
        if found is not None:
            x, parts = found
            last = parts[-1]
            made[last.name] = Layer("Gelu", last.name, (x,), last.outputs, {}, "", _VERSION)
            gone.update(part.name for part in parts)
    return replace_layers(model, made, gone, {}) if made else model


def _gelu_at(graph: Patterns, bell: Layer) -> tuple[str, list[Layer]] | None:
    """The input of the GELU around an Erf, and its layers, of which the last yields its output."""
    scaled = graph.maker(bell.inputs[0], "Div") or graph.maker(bell.inputs[0], "Mul")
    if scaled is None or len(graph.readers(scaled.outputs[0])) != 1:
        return None
    x = graph.times(scaled, sqrt(0.5))
    plus = graph.reader(bell.outputs[0], "Add")
    if x is None or plus is None or graph.scalar(other_input(plus, bell.outputs[0])) != 1.0:
        return None
    parts = [scaled, bell, plus]
    product = graph.reader(plus.outputs[0], "Mul")
    if product is None:
        return None
    parts.append(product)
    factor = other_input(product, plus.outputs[0])
    if factor == x or graph.scalar(factor) == 0.5:
        # (1 + erf) * x * 0.5, or (1 + erf) * 0.5 * x.
        last = graph.reader(product.outputs[0], "Mul")
        if last is None:
            return None
        rest = other_input(last, product.outputs[0])
        return (x, [*parts, last]) if (graph.scalar(rest) == 0.5 if factor == x else rest == x) else None
    half = graph.maker(factor, "Mul") or graph.maker(factor, "Div")
    if half is None or len(graph.readers(factor)) != 1 or graph.times(half, 0.5) != x:
        return None
    return x, [scaled, bell, plus, half, product]
