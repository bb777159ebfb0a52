"""Scalars as affine expressions of the iteration number: trip counts, counters, limits, conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from engine.graph.model import Layer, Model
from engine.graph.new_layers import names_in
from engine.operators.casting import ONNX_TYPES

INTEGERS = ("int32", "int64")
"""The types of counters."""
_EXACT = (*INTEGERS, "float32", "float64")
"""Types to which a number of iterations converts without rounding: `MOST_RUNS` at most."""
_MOVING = frozenset(("Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Layers that keep a single element."""
_SAME_TYPE = _MOVING | {"Add", "Concat", "Div", "Gather", "Max", "Min", "Mul", "Slice", "Sub"}
"""Layers whose output has the type of their first input."""
_COMPARING = {"Less": (1, 0), "LessOrEqual": (1, 1), "Greater": (-1, 0), "GreaterOrEqual": (-1, 1)}
"""The sign and the number of each comparison of a and b that holds if `sign * (b - a) + number > 0`."""


@dataclass(frozen=True)
class Sum:
    """An integer: a number, `of_run` times the number of an iteration, and multiples of named scalars."""

    number: int = 0
    of_run: int = 0
    names: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """The sum with a multiple of another one."""
        names = Counter(self.names)
        for name, count in other.names.items():
            names[name] += factor * count
        left = {name: count for name, count in names.items() if count}
        return Sum(self.number + factor * other.number, self.of_run + factor * other.of_run, left)

    def at(self, run: int) -> Sum:
        """The sum in an iteration."""
        return Sum(self.number + run * self.of_run, 0, self.names)

    @property
    def is_positive(self) -> bool:
        """Whether it is always above zero."""
        return not self.names and not self.of_run and self.number > 0


class ScalarScope:
    """The known scalars of a graph, and its enclosing scopes.

    Args:
        sums: What inputs of a loop's body are; None for states that are neither counters nor stay.
    """

    def __init__(
        self, model: Model, outer: ScalarScope | None, sums: Mapping[str, Sum | None] | None = None
    ) -> None:
        self.model = model
        self.outer = outer
        self._sums = sums
        self._makers = model.producers()
        self._inputs = {item.name: item for item in model.inputs}

    @cached_property
    def taken(self) -> set[str]:
        """The names in use."""
        return names_in(self.model)

    def defining_scope(self, name: str) -> ScalarScope | None:
        """The scope that defines a name."""
        if name in self._makers or name in self._inputs or name in self.model.constants:
            return self
        return None if self.outer is None else self.outer.defining_scope(name)

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Layer]]:
        """The layers that read each value, but for outputs of the graph, which others may read as well."""
        own = {output.name for output in self.model.outputs}
        return {name: layers for name, layers in self.model.consumers().items() if name not in own}

    def maker(self, name: str) -> Layer | None:
        """The layer of this graph that yields a value, through those that keep it, if it is one of ONNX's."""
        layer = self._makers.get(self.root(name))
        return None if layer is None or layer.domain else layer

    def root(self, name: str) -> str:
        """The value behind Identity layers."""
        while (layer := self._makers.get(name)) is not None and layer.op_type == "Identity":
            name = layer.inputs[0]
        return name

    def constant(self, name: str) -> np.ndarray | None:
        """The elements of a constant."""
        defining_scope = self.defining_scope(name)
        return None if defining_scope is None else defining_scope.model.constants.get(name)

    def value(self, name: str) -> Sum | None:
        """A scalar as a sum; None where that is not possible, or it is not known to be an integer."""
        defining_scope = self.defining_scope(name)
        if defining_scope is not self:
            return None if defining_scope is None else defining_scope.value(name)
        if (array := self.model.constants.get(name)) is not None:
            number = float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iuf" else 0.5
            return Sum(int(array.reshape(-1)[0])) if number.is_integer() else None
        if self._sums is not None and name in self._sums:
            return self._sums[name]
        layer = self._makers.get(name)
        found = None if layer is None or layer.domain else self._computed(layer)
        if found is None and self._sums is None and self._is_whole(name):
            return Sum(names={name: 1})
        return found

    def _computed(self, layer: Layer) -> Sum | None:
        if layer.op_type in _MOVING or (layer.op_type == "Cast" and _type_after(layer) in _EXACT):
            return self.value(layer.inputs[0])
        if layer.op_type not in ("Add", "Sub"):
            return None
        a, b = map(self.value, layer.inputs)
        return None if a is None or b is None else a.plus(b, 1 if layer.op_type == "Add" else -1)

    def _is_whole(self, name: str) -> bool:
        """Whether a tensor is known to hold integers."""
        defining_scope = self.defining_scope(name)
        if defining_scope is not self:
            return defining_scope is not None and defining_scope._is_whole(name)
        if name in self._inputs:
            return self._inputs[name].dtype.name in INTEGERS
        if name in self.model.constants:
            return self.model.constants[name].dtype.name in INTEGERS
        layer = self._makers[name]
        if layer.op_type == "Cast":
            return _type_after(layer) in INTEGERS
        is_same = layer.op_type in _SAME_TYPE and self._is_whole(layer.inputs[0])
        return not layer.domain and (layer.op_type in ("Shape", "Size") or is_same)

    def conditions(self, name: str) -> list[Sum] | None:
        """Sums that all are positive exactly if a condition holds; None where that is not possible."""
        defining_scope = self.defining_scope(name)
        if defining_scope is not self:
            return None if defining_scope is None else defining_scope.conditions(name)
        if (root := self.root(name)) != name:
            return self.conditions(root)
        if (array := self.model.constants.get(name)) is not None:
            return [] if array.all() else None
        layer = self.maker(name)
        if layer is None:
            is_own = self._sums is not None and len(self.model.inputs) > 1
            return [] if is_own and name == self.model.inputs[1].name else None
        if layer.op_type == "And":
            a, b = map(self.conditions, layer.inputs)
            return None if a is None or b is None else a + b
        if layer.op_type not in _COMPARING:
            return None
        left, right = map(self.value, layer.inputs)
        sign, number = _COMPARING[layer.op_type]
        if left is None or right is None:
            return None
        return [Sum(number).plus(right, sign).plus(left, -sign)]


def _type_after(layer: Layer) -> str:
    """The type that a Cast yields."""
    return ONNX_TYPES.get(layer.attributes["to"], "")
