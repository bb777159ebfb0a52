"""Queries on a graph for passes that match patterns of layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engine.base.dtypes import integer_range
from engine.graph.model import Layer, Model

BYTES = ("int8", "uint8")

_FLOAT = 1
"""ONNX's number for float32."""


@dataclass(frozen=True, eq=False)
class Levels:
    """A quantised 8-bit value: its name, and its constant scale and zero point.

    Of a QuantizeLinear, the name is that of the floats.
    """

    name: str
    scale_name: str
    zero_name: str
    scale: np.ndarray
    zero: np.ndarray

    @property
    def names(self) -> tuple[str, str, str]:
        """As a layer of integers takes them."""
        return self.name, self.scale_name, self.zero_name

    @property
    def ends(self) -> tuple[int, int]:
        """The lowest and the highest level."""
        return integer_range(self.zero.dtype.name)

    @property
    def is_exact(self) -> bool:
        """Whether there is one positive scale and quantisation inverts dequantisation exactly."""
        if self.scale.size != 1 or self.zero.size != 1 or not self.scale.item() > 0:
            return False
        every, zero = np.arange(self.ends[0], self.ends[1] + 1), np.int64(self.zero.item())
        with np.errstate(all="ignore"):
            floats = (every - zero).astype(np.float32) * self.scale.reshape(-1)
            return np.array_equal(np.rint(floats / self.scale.reshape(-1)) + zero, every)

    def has_levels_of(self, other: Levels) -> bool:
        """Whether scale and zero point equal those of `other`."""
        pairs = (self.scale, other.scale), (self.zero, other.zero)
        return all(a.dtype == b.dtype and a.size == b.size and a.tobytes() == b.tobytes() for a, b in pairs)

    def of(self, name: str) -> Levels:
        """Other bytes with the same scale and zero point."""
        return replace(self, name=name)


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

    def levels(self, layer: Layer) -> Levels | None:
        """Scale and zero point of a layer between floats and bytes; None for any other, and for blocks."""
        if (
            layer.op_type not in ("QuantizeLinear", "DequantizeLinear")
            or layer.domain
            or len(layer.inputs) < 3
        ):
            return None
        if any(layer.attributes.get(name) for name in ("block_size", "precision")):
            return None
        if layer.op_type == "DequantizeLinear" and layer.attributes.get("output_dtype", _FLOAT) not in (
            0,
            _FLOAT,
        ):
            return None
        scale, zero = (self.constant(name) for name in layer.inputs[1:3])
        if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype.name not in BYTES:
            return None
        return Levels(layer.inputs[0], layer.inputs[1], layer.inputs[2], scale, zero)

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
