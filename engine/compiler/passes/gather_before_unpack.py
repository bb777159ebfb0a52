"""Moves Gather before the unpacking of a table: an embedding needs few of many rows."""

from __future__ import annotations

import numpy as np

from engine.compiler.passes.patterns import Patterns
from engine.graph.model import Layer, Model

_BY_ELEMENT = frozenset(("Add", "Cast", "DequantizeLinear", "Div", "Mul", "Sub"))
"""Layers that unpack a table element by element."""


def gather_before_unpack(model: Model) -> Model:
    """Gather(unpack(table), rows) -> unpack(Gather(table), rows), where tables are too large to be folded."""
    graph = Patterns(model)
    layers: list[Layer] = []
    for layer in model.layers:
        layers += _rows_unpacked(graph, layer) or [layer]
    return model if len(layers) == len(model.layers) else model.replace(layers=tuple(layers))


def _rows_unpacked(graph: Patterns, gather: Layer) -> list[Layer] | None:
    """The layers for a Gather along the first axis of what is computed from constants; None for others."""
    # What another layer reads as a whole is unpacked anyway.
    readers = graph.readers(gather.inputs[0]) if _reads_rows(gather) else ()
    if not readers or not all(map(_reads_rows, readers)):
        return None
    chain: list[Layer] = []
    names = [gather.inputs[0]]
    for name in names:
        if graph.constant(name) is not None:
            continue
        made = [found for op_type in _BY_ELEMENT if (found := graph.maker(name, op_type)) is not None]
        if not made or made[0] in chain or (chain and len(graph.readers(name)) != 1):
            return None
        chain.append(made[0])
        names += filter(None, made[0].inputs)
    tables = {name: array for name in names if (array := graph.constant(name)) is not None}
    if not chain or not _have_rows(chain, tables):
        return None
    rank = max(array.ndim for array in tables.values())
    read = [name for name, array in tables.items() if array.ndim == rank]
    mark = f"/rows of {gather.outputs[0]}"
    renamed = {name: name + mark for name in (*read, *(layer.outputs[0] for layer in chain))}
    renamed[chain[0].outputs[0]] = gather.outputs[0]
    gathers = [
        gather.replace(name=renamed[name], inputs=(name, gather.inputs[1]), outputs=(renamed[name],))
        for name in read
    ]
    unpacking = [
        layer.replace(
            name=layer.name + mark,
            inputs=tuple(renamed.get(name, name) for name in layer.inputs),
            outputs=(renamed[layer.outputs[0]],),
        )
        for layer in reversed(chain)
    ]
    return [*gathers, *unpacking]


def _reads_rows(layer: Layer) -> bool:
    return layer.op_type == "Gather" and not layer.domain and layer.attributes.get("axis", 0) == 0


def _have_rows(chain: list[Layer], tables: dict[str, np.ndarray]) -> bool:
    """Whether constants have the rows of one table, or fewer axes and so the same elements for all rows."""
    for layer in chain:
        if layer.op_type == "DequantizeLinear":
            # A scale for each row would need another axis where there are several of them.
            parameters = [tables.get(name) for name in layer.inputs[1:] if name]
            if any(array is None or array.size > 1 or array.ndim > 1 for array in parameters):
                return False
    rank = max(array.ndim for array in tables.values())
    shapes = [array.shape for array in tables.values() if array.ndim == rank]
    try:
        whole = np.broadcast_shapes(*(array.shape for array in tables.values()))
    except ValueError:
        return False
    return rank > 1 and whole in shapes and all(shape[0] == whole[0] for shape in shapes)
