"""The check that the engine has every operator that a model uses; all gaps are told at once."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import ModelImportError
from engine.model import Layer, Model, qualified_op

Supported = Callable[[str, str, int], str | None]
"""(domain, op_type, opset version) -> None, or the reason why the engine cannot run such a layer."""

_NAMED_LAYERS = 3


def check_supported(model: Model, supported: Supported) -> None:
    """Raise one `ModelImportError` that lists every operator of `model` that `supported` refuses."""
    layers: dict[tuple[str, str, int], list[Layer]] = {}
    for layer in model.walk():
        layers.setdefault((layer.domain, layer.op_type, layer.version), []).append(layer)
    gaps = [(key, reason) for key in sorted(layers) if (reason := supported(*key)) is not None]
    if not gaps:
        return
    lines = [f"{model.source}: {len(gaps)} of the {len(layers)} operators cannot run:"]
    for (domain, op_type, version), reason in gaps:
        found = layers[domain, op_type, version]
        names = ", ".join(f"'{layer.name}'" for layer in found[:_NAMED_LAYERS])
        more = f" and {len(found) - _NAMED_LAYERS} more" if len(found) > _NAMED_LAYERS else ""
        operator = f"{qualified_op(domain, op_type)} (opset {version})"
        lines.append(f"  {operator} x{len(found)}: {reason}; layers {names}{more}")
    lines.append(
        "Export the model again without them (a newer opset or decomposition by the exporter often does), "
        "or cut the graph with onnx.utils.extract_model before the first of these layers."
    )
    raise ModelImportError("\n".join(lines))
