"""Finds the inputs of a model whose elements, not only shapes, decide its plan."""

from __future__ import annotations

from engine.compiler.trace import Tracer
from engine.graph.model import Layer, Model


def host_inputs(model: Model, tracer: Tracer) -> frozenset[str]:
    """Inputs on whose elements a plan depends.

    These are inputs that a layer reads on the host, and integers from which such an input is computed.
    """
    needed: set[str] = set()
    direct: set[str] = set()
    for layer in reversed(model.layers):
        direct.update(_read_on_host(layer, tracer))
        needed.update(direct)
        if layer.op_type not in ("Shape", "Size") and needed.intersection(layer.outputs):
            needed.update(layer.dependencies)
    names = (
        i.name
        for i in model.inputs
        if i.dtype == object
        or i.kind == "map"
        or i.name in direct
        or (i.name in needed and i.dtype.kind in "iub")
    )
    return frozenset(names)


def _read_on_host(layer: Layer, tracer: Tracer) -> set[str]:
    """Names of tensors that a layer, or a layer in its subgraphs, reads on the host."""
    operator = tracer.operator_of(layer)
    found = {layer.inputs[i] for i in operator.host_positions(layer)} - {""}
    for body in layer.subgraphs:
        inside: set[str] = set()
        for inner in reversed(body.layers):
            inside |= _read_on_host(inner, tracer)
            if inside.intersection(inner.outputs):
                inside.update(inner.dependencies)
        # An input of the body may be any input of the layer.
        if inside.intersection(item.name for item in body.inputs):
            found.update(n for n in layer.inputs if n)
        found |= inside
    return found
