"""The check that the engine can run every layer of a model; all gaps are told at once."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import ModelImportError
from engine.model import Layer, Model, qualified_op

Supported = Callable[[Layer], str | None]
"""None for a layer that the engine can run, else the reason why it cannot."""

_NAMED_LAYERS = 3


def check_supported(model: Model, supported: Supported) -> None:
    """Raise one `ModelImportError` that lists every operator of `model` that `supported` refuses."""
    gaps: dict[tuple[str, int, str], list[Layer]] = {}
    for layer in model.walk():
        reason = supported(layer)
        if reason is not None:
            operator = qualified_op(layer.domain, layer.op_type)
            gaps.setdefault((operator, layer.version, reason), []).append(layer)
    if not gaps:
        return
    count = sum(map(len, gaps.values()))
    lines = [f"{model.source}: the engine cannot run {count} of the {sum(1 for _ in model.walk())} layers:"]
    for (operator, version, reason), layers in sorted(gaps.items()):
        names = ", ".join(f"'{layer.name}'" for layer in layers[:_NAMED_LAYERS])
        more = f" and {len(layers) - _NAMED_LAYERS} more" if len(layers) > _NAMED_LAYERS else ""
        lines.append(f"  {operator} (opset {version}) x{len(layers)}: {reason}; layers {names}{more}")
    lines.append(
        "Export the model again without them (a newer opset or decomposition by the exporter often does), "
        "cut the graph with onnx.utils.extract_model before the first of these layers, or declare operators "
        "of your own with gameglue.operator."
    )
    raise ModelImportError("\n".join(lines))
