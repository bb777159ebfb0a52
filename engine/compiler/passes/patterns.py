"""Queries on a graph for passes that match patterns of layers."""

from __future__ import annotations

import numpy as np

from engine.graph.model import Layer, Model


class Patterns:
    """A graph indexed by value: its producer, its only consumer, its constant elements."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.outputs = {output.name for output in model.outputs}
        self._producers = model.producers()
        self._consumers = model.consumers()

    def maker(self, name: str, op_type: str) -> Layer | None:
        """The layer that produces a value, if it has this ONNX operator."""
        layer = self._producers.get(name)
        return layer if layer is not None and layer.op_type == op_type and not layer.domain else None

    def readers(self, name: str) -> tuple[Layer, ...]:
        """The layers that read a value; empty if it is also an output of the model."""
        return () if name in self.outputs else self._consumers.get(name, ())

    def reader(self, name: str, op_type: str) -> Layer | None:
        """The only layer that reads a value, if it has this ONNX operator."""
        readers = self.readers(name)
        if len(readers) != 1 or readers[0].op_type != op_type or readers[0].domain:
            return None
        return readers[0]

    def constant(self, name: str) -> np.ndarray | None:
        """The elements of a constant."""
        return self.model.constants.get(name)

    def scalar(self, name: str) -> float | None:
        """The element of a one-element constant that broadcasts without changing a shape."""
        array = self.constant(name)
        return (
            float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.ndim < 2 else None
        )

    def times(self, layer: Layer, factor: float) -> str | None:
        """x of a layer that computes x * factor, or x / (1 / factor)."""
        for x, number in (layer.inputs, layer.inputs[::-1]) if layer.op_type == "Mul" else ():
            if (found := self.scalar(number)) is not None and np.isclose(found, factor, rtol=1e-6, atol=0):
                return x
        if layer.op_type == "Div":
            found = self.scalar(layer.inputs[1])
            if found is not None and np.isclose(found, 1 / factor, rtol=1e-6, atol=0):
                return layer.inputs[0]
        return None


def other_input(layer: Layer, name: str) -> str:
    """The other one of two inputs, given that `name` is one of them."""
    first, second = layer.inputs
    return second if first == name else first


def replace_layers(
    model: Model, made: dict[str, Layer], gone: set[str], constants: dict[str, np.ndarray]
) -> Model:
    """Replace layers by name with those in `made`, and remove those in `gone`."""
    layers = [made.get(layer.name, layer) for layer in model.layers if layer.name not in gone - set(made)]
    return model.replace(layers=tuple(layers), constants={**model.constants, **constants})
