"""Layers that a rewrite adds to a graph, with names that it does not use yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.graph.model import Layer, Model


def names_in(graph: Model) -> set[str]:
    """All names that a graph and its subgraphs define or take from outside."""
    found = set(graph.captures)
    for each in (graph, *(body for layer in graph.walk() for body in layer.subgraphs)):
        found.update(each.constants, (item.name for item in each.inputs), each.captures)
        found.update(name for layer in each.layers for name in layer.outputs)
    return found


class NewLayers:
    """Layers and constants for a graph.

    Args:
        name: What the names of the layers begin with.
        taken: The names in use, to which new ones are added.
    """

    VERSION = 18
    """The operator set that they are of."""

    def __init__(self, name: str, taken: set[str]) -> None:
        self.layers: list[Layer] = []
        self.constants: dict[str, np.ndarray] = {}
        self._name = name
        self._taken = taken

    def name(self, like: str) -> str:
        """Return an unused name."""
        name, number = like, 2
        while name in self._taken:
            name, number = f"{like} ({number})", number + 1
        self._taken.add(name)
        return name

    def constant(self, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        name = self.name("constant")
        self.constants[name] = array
        return name

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a layer; the name of its first output, which is a new one unless outputs are given."""
        outputs = tuple(outputs) or (self.name(op_type),)
        name = f"{self._name} {op_type} {len(self.layers)}"
        made = Layer(op_type, name, tuple(inputs), outputs, attributes or {}, "", self.VERSION)
        self.layers.append(made)
        return outputs[0]
