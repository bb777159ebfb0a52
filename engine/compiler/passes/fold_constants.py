"""Constant folding: layers whose inputs are all constants become constants, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from engine.base.errors import EngineError
from engine.compiler.builders import ShapeBuilder
from engine.compiler.passes.fuse_qdq import is_joinable
from engine.compiler.passes.patterns import Patterns
from engine.graph.model import Layer, Model
from engine.kernels.value import Value
from engine.operators import OPERATORS


def fold_constants(model: Model) -> Model:
    """Evaluate layers that do not depend on the model's inputs, up to the fold limit.

    So do weights whose products backends may compute in integers, until they have chosen.
    """
    patterns = Patterns(model)
    return _folded(model, lambda layer: not is_joinable(layer, patterns))


def fold_weights(model: Model) -> Model:
    """Fold what `fold_constants` leaves, for backends without integer products."""
    return _folded(model, lambda layer: layer.op_type == "DequantizeLinear")


def _folded(model: Model, wanted: Callable[[Layer], bool]) -> Model:
    constants = dict(model.constants)
    kept = fold_layers(model.layers, constants, wanted)
    if len(kept) == len(model.layers):
        return model
    return model.replace(layers=tuple(kept), constants=constants)


def fold_layers(
    layers: Iterable[Layer],
    constants: dict[str, np.ndarray],
    wanted: Callable[[Layer], bool] = lambda _: True,
    builder: type[ShapeBuilder] = ShapeBuilder,
) -> list[Layer]:
    """Return the remaining layers; add the outputs of the folded ones to `constants`."""
    kept: list[Layer] = []
    for layer in layers:
        results = None if layer.subgraphs or not wanted(layer) else _evaluate(layer, constants, builder)
        if results is None:
            kept.append(layer)
        else:
            constants.update(results)
    return kept


def _evaluate(
    layer: Layer, constants: dict[str, np.ndarray], make_builder: type[ShapeBuilder]
) -> dict[str, np.ndarray] | None:
    if not all(name in constants for name in layer.inputs if name):
        return None
    operator = OPERATORS.find(layer.domain, layer.op_type, layer.version)
    if operator is None or operator.precision == "random" or operator.kind != "kernel":
        return None
    inputs = [_known(name, constants[name]) if name else None for name in layer.inputs]
    builder = make_builder(layer, True, [bool(name) for name in layer.outputs])
    try:
        outputs = operator.build(builder, tuple(inputs))
    except (EngineError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError):
        # A layer that cannot run is reported when it is planned, with its shapes.
        return None
    results = {}
    for name, value in zip(layer.outputs, outputs, strict=False):
        if name:
            if not isinstance(value, Value) or value.known is None:
                return None
            results[name] = value.known
    return results


def _known(name: str, array: np.ndarray) -> Value:
    return Value(name, array.shape, array.dtype, None, array)
