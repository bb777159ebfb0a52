"""Transpose folding: a product reads its transposed operand in place."""

from __future__ import annotations

from engine.compiler.passes.patterns import Patterns, replace_layers
from engine.graph.model import CONTRIB, Layer, Model

_VERSION = 1


def fold_transposes(model: Model) -> Model:
    """MatMul of sides whose last two axes were swapped -> FusedMatMul, which swaps them as it reads.

    What nobody reads any more is left to `remove_dead_layers`.
    """
    graph = Patterns(model)
    made: dict[str, Layer] = {}
    for layer in model.layers:
        if layer.op_type != "MatMul" or layer.domain:
            continue
        swaps = [_swap(graph, name) for name in layer.inputs]
        if not any(swaps):
            continue
        inputs, flags = [], {}
        for side, name, swap in zip("AB", layer.inputs, swaps, strict=True):
            inputs.append(name if swap is None else swap.inputs[0])
            if swap is not None:
                flags[f"trans{side}"] = 1
        made[layer.name] = Layer(
            "FusedMatMul", layer.name, tuple(inputs), layer.outputs, flags, CONTRIB, _VERSION
        )
    return replace_layers(model, made, set(), {}) if made else model


def _swap(graph: Patterns, name: str) -> Layer | None:
    """The Transpose that makes a value by swapping the last two axes of another."""
    layer = graph.maker(name, "Transpose")
    perm = tuple(layer.attributes.get("perm", ())) if layer is not None else ()
    last = len(perm) - 1
    return layer if last > 0 and perm == (*range(last - 1), last, last - 1) else None
