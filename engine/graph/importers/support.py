"""Checks that every layer of a model is supported, and reports all gaps at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from engine.base.errors import ModelImportError
from engine.graph.importers.unsupported_operators import export_advice
from engine.graph.model import Layer, Model, qualified_op

Constants = Mapping[str, np.ndarray]
Supported = Callable[[Layer, Constants], str | None]
"""None for a layer that the engine can run, given the constants around it, else the reason why it cannot."""

_NAMED_LAYERS = 3


def check_supported(model: Model, supported: Supported) -> None:
    """Raise one `ModelImportError` that lists every operator of `model` that `supported` refuses."""
    gaps: dict[tuple[str, int, str], list[Layer]] = {}
    for layer, constants in _walk(model, {}):
        reason = supported(layer, constants)
        if reason is not None:
            operator = qualified_op(layer.domain, layer.op_type)
            gaps.setdefault((operator, layer.version, reason), []).append(layer)
    if not gaps:
        return
    count = sum(map(len, gaps.values()))
    lines = [f"{model.source}: the engine cannot run {count} of the {sum(1 for _ in model.walk())} layers:"]
    options: dict[str, list[str]] = {}
    for (operator, version, reason), layers in sorted(gaps.items()):
        names = ", ".join(f"'{layer.name}'" for layer in layers[:_NAMED_LAYERS])
        more = f" and {len(layers) - _NAMED_LAYERS} more" if len(layers) > _NAMED_LAYERS else ""
        if option := export_advice(layers[0].domain, layers[0].op_type):
            options.setdefault(option, []).append(operator)
        lines.append(f"  {operator} (opset {version}) x{len(layers)}: {reason}; layers {names}{more}")
    lines += [f"{', '.join(operators)}: {option}." for option, operators in options.items()]
    lines.append(
        "Export the model again without them (a newer opset or decomposition by the exporter often does), "
        "cut the graph with onnx.utils.extract_model before the first of these layers, or declare operators "
        "of your own with gameglue.operator."
    )
    raise ModelImportError("\n".join(lines))


def _walk(model: Model, outer: Constants) -> Iterator[tuple[Layer, Constants]]:
    """Every layer, those of subgraphs too, and the constants that it may read."""
    constants = {**outer, **model.constants}
    for layer in model.layers:
        yield layer, constants
        for body in layer.subgraphs:
            yield from _walk(body, constants)
