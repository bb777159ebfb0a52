"""One-layer models: the shortest way from an operator, arrays and attributes to what the engine computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.base.shapes import DynamicTensorShape
from engine.compiler.interpreter import interpret
from engine.compiler.trace import Tracer
from engine.graph.model import Input, Layer, Model, Output
from engine.kernels.kernel import kernel_call

NEWEST = 25
"""The opset under which a layer is read unless a test says otherwise."""


def one_layer(
    op_type: str,
    arrays: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = NEWEST,
    outputs: int = 1,
    known: Sequence[int] = (),
    dynamic: Sequence[int] = (),
    domain: str = "",
) -> Model:
    """A model of the layer "it". Inputs at the positions `known` are constants; those at `dynamic` have
    every size above 1 left open, equal sizes under one name.
    """
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    inputs = []
    for position, array in enumerate(arrays):
        if array is None or position in known:
            continue
        dims = tuple(f"n{n}" if position in dynamic and n > 1 else n for n in array.shape)
        inputs.append(Input(names[position], array.dtype, DynamicTensorShape(dims)))
    constants = {names[p]: np.asarray(arrays[p]) for p in known if arrays[p] is not None}
    made = tuple(f"y{i}" for i in range(outputs))
    opsets = {"": opset, domain: 1} if domain else {"": opset}
    layer = Layer(op_type, "it", tuple(names), made, dict(attributes or {}), domain, opsets[domain])
    return Model(
        "one", tuple(inputs), tuple(Output(n, None, None) for n in made), (layer,), constants, opsets
    )


def run(
    op_type: str,
    arrays: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    known: Sequence[int] = (),
    **options: Any,
) -> list[np.ndarray]:
    """The outputs of `one_layer`, computed by evaluating its formulas."""
    model = one_layer(op_type, arrays, attributes, known=known, **options)
    given = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in known}
    found = interpret(model, given)
    return [found[o.name] for o in model.outputs]


def structures(model: Model, shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """The kernels that a model needs at the given input shapes, as digests of their structure."""
    trace = Tracer(model).trace({name: tuple(shape) for name, shape in shapes.items()})
    assert trace.stop is None, f"it waits for the elements of {trace.stop.needs}"
    return [kernel_call(c.formula(), len(c.space), c.output.dtype).kernel.key for c in trace.computes]
