"""Dead layer elimination: removes layers and constants that no output depends on."""

from __future__ import annotations

from engine.graph.model import Layer, Model


def remove_dead_layers(model: Model) -> Model:
    """Keep the layers and constants that the outputs depend on."""
    needed = {output.name for output in model.outputs}
    kept: list[Layer] = []
    for layer in reversed(model.layers):
        if needed.intersection(layer.outputs):
            kept.append(layer)
            needed.update(layer.dependencies)
    constants = {name: array for name, array in model.constants.items() if name in needed}
    if len(kept) == len(model.layers) and len(constants) == len(model.constants):
        return model
    return model.replace(layers=tuple(reversed(kept)), constants=constants)
