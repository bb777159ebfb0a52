"""Loops that a counter ends become loops of a known number of iterations.

TensorFlow's exporter writes `while i < n` with the counter, the limit and all weights as states, and computes
in each iteration whether another one follows. Here states that no iteration changes become names of the graph
around the loop, counters are computed from an iteration's number, and so is the number of all iterations. One
iteration then stands for all, at any length, and weights are constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_

import numpy as np

from engine.base.dtypes import INT64
from engine.compiler.passes.remove_dead_layers import remove_dead_layers
from engine.graph.model import Layer, Model
from engine.graph.new_layers import NewLayers, names_in
from engine.operators.casting import ONNX_TYPES
from engine.operators.loop_bodies import MOST_RUNS, always_goes_on

_INTEGERS = ("int32", "int64")
_EXACT = (*_INTEGERS, "float32", "float64")
"""Types to which a number of iterations converts without rounding: `MOST_RUNS` at most."""
_CODES = {name: code for code, name in ONNX_TYPES.items()}
_MOVING = frozenset(("Identity", "Reshape", "Squeeze", "Unsqueeze"))
"""Layers that keep a single element."""
_SAME_TYPE = _MOVING | {"Add", "Concat", "Div", "Gather", "Max", "Min", "Mul", "Slice", "Sub"}
"""Layers whose output has the type of their first input."""
_COMPARING = {"Less": (1, 0), "LessOrEqual": (1, 1), "Greater": (-1, 0), "GreaterOrEqual": (-1, 1)}
"""The sign and the number of each comparison of a and b that holds if `sign * (b - a) + number > 0`."""


def count_loops(model: Model) -> Model:
    """Loop(states, counters, condition) -> Loop(count, states), in subgraphs as well."""
    return _Graph(model, None).counted()


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


class _Graph:
    """A graph and those around it, and what their scalars are.

    Args:
        sums: What inputs of a loop's body are; None for states that are neither counters nor stay.
    """

    def __init__(
        self, model: Model, outer: _Graph | None, sums: Mapping[str, Sum | None] | None = None
    ) -> None:
        self.model = model
        self.outer = outer
        self._sums = sums
        self._makers = model.producers()
        self._inputs = {item.name: item for item in model.inputs}

    def counted(self) -> Model:
        """The graph with its loops counted, those of subgraphs first."""
        layers: list[Layer] = []
        constants = dict(self.model.constants)
        for layer in self.model.layers:
            if layer.subgraphs:
                layer = layer.with_subgraphs(lambda body: _Graph(body, self).counted())
            is_loop = layer.op_type == "Loop" and not layer.domain
            found = _Loop(self, layer).counted() if is_loop else None
            layers += [layer] if found is None else found.layers
            constants |= {} if found is None else found.constants
        if len(layers) == len(self.model.layers) and all(map(is_, layers, self.model.layers)):
            return self.model
        return self.model.replace(layers=tuple(layers), constants=constants)

    @cached_property
    def taken(self) -> set[str]:
        """The names in use."""
        return names_in(self.model)

    def home(self, name: str) -> _Graph | None:
        """The graph that defines a name."""
        if name in self._makers or name in self._inputs or name in self.model.constants:
            return self
        return None if self.outer is None else self.outer.home(name)

    def maker(self, name: str) -> Layer | None:
        """The layer of this graph that yields a value, through those that keep it, if it is one of ONNX's."""
        layer = self._makers.get(self.root(name))
        return None if layer is None or layer.domain else layer

    def root(self, name: str) -> str:
        """The value of this graph that Identity layers hand on."""
        while (layer := self._makers.get(name)) is not None and layer.op_type == "Identity":
            name = layer.inputs[0]
        return name

    def constant(self, name: str) -> np.ndarray | None:
        """The elements of a constant."""
        home = self.home(name)
        return None if home is None else home.model.constants.get(name)

    def value(self, name: str) -> Sum | None:
        """A scalar as a sum; None where that is not possible, or it is not known to be an integer."""
        home = self.home(name)
        if home is not self:
            return None if home is None else home.value(name)
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
        home = self.home(name)
        if home is not self:
            return home is not None and home._is_whole(name)
        if name in self._inputs:
            return self._inputs[name].dtype.name in _INTEGERS
        if name in self.model.constants:
            return self.model.constants[name].dtype.name in _INTEGERS
        layer = self._makers[name]
        if layer.op_type == "Cast":
            return _type_after(layer) in _INTEGERS
        is_same = layer.op_type in _SAME_TYPE and self._is_whole(layer.inputs[0])
        return not layer.domain and (layer.op_type in ("Shape", "Size") or is_same)

    def conditions(self, name: str) -> list[Sum] | None:
        """Sums that all are positive exactly if a condition holds; None where that is not possible."""
        home = self.home(name)
        if home is not self:
            return None if home is None else home.conditions(name)
        if (array := self.model.constants.get(name)) is not None:
            return [] if array.all() else None
        layer = self.maker(name)
        if layer is None:
            is_own = self._sums is not None and len(self.model.inputs) > 1
            return [] if is_own and self.root(name) == self.model.inputs[1].name else None
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


class _Loop:
    """A Loop, its states and its condition."""

    def __init__(self, graph: _Graph, layer: Layer) -> None:
        self.graph = graph
        self.layer = layer
        self.most, self.condition, *self.states = (*layer.inputs, "", "")[: max(2, len(layer.inputs))]
        (self.body,) = layer.subgraphs
        self.made = NewLayers(layer.name, graph.taken)
        self.inner = NewLayers(layer.name, graph.taken)

    def counted(self) -> NewLayers | None:
        """The layers and constants in its place; None for a loop that stays."""
        states = self.states
        if len(self.body.inputs) != len(states) + 2 or len(self.body.outputs) < len(states) + 1:
            return None
        inside = _Graph(self.body, self.graph)
        ends = [inside.root(output.name) for output in self.body.outputs[1 : len(states) + 1]]
        stay = {n for n, end in enumerate(ends) if states[n] and end == self.body.inputs[n + 2].name}
        steps = {n: step for n, end in enumerate(ends) if (step := self._step(inside, n, end)) is not None}
        count = self._count(self._sums(stay, steps))
        if count is None:
            steps = {}
        if not stay and not steps and (count is None or always_goes_on(self.body)):
            return None
        self.most = self.most if count is None else count
        for n in stay:
            self.inner.add("Identity", [states[n]], [self.body.inputs[n + 2].name])
            if n < len(self.layer.outputs) and self.layer.outputs[n]:
                self.made.add("Identity", [states[n]], [self.layer.outputs[n]])
        for n, step in steps.items():
            self._add_counter(n, step)
        self._add_loop([n for n in range(len(states)) if n not in stay and n not in steps], count is not None)
        return self.made

    def _step(self, inside: _Graph, number: int, end: str) -> np.ndarray | None:
        """What an iteration adds to a state: an integer without axes; None for other states."""
        layer = inside.maker(end)
        if layer is None or layer.op_type not in ("Add", "Sub") or not self.states[number]:
            return None
        a, b = map(inside.root, layer.inputs)
        name = self.body.inputs[number + 2].name
        if layer.op_type == "Add" and b == name:
            a, b = b, a
        step = inside.constant(b) if a == name else None
        if step is None or step.dtype.name not in _INTEGERS or step.ndim:
            return None
        return step if layer.op_type == "Add" else np.array(-step)

    def _sums(self, stay: Iterable[int], steps: Mapping[int, np.ndarray]) -> dict[str, Sum | None]:
        """What the body's inputs are."""
        run, _, *names = [item.name for item in self.body.inputs]
        sums: dict[str, Sum | None] = {run: Sum(of_run=1), **dict.fromkeys(names)}
        for n in stay:
            sums[names[n]] = self.graph.value(self.states[n])
        for n, step in steps.items():
            start = self.graph.value(self.states[n])
            sums[names[n]] = None if start is None else start.plus(Sum(of_run=int(step)))
        return sums

    def _count(self, sums: Mapping[str, Sum | None]) -> str | None:
        """The number of iterations, if the condition is handed on or compares counters with what stays."""
        inside = _Graph(self.body, self.graph, sums)
        conditions = inside.conditions(self.body.outputs[0].name)
        if conditions is None or any(each.of_run >= 0 for each in conditions):
            return None
        if not conditions and not self.most:
            return None
        # Such as `i < n` with the number that a counter has before the first iteration.
        before = self.graph.conditions(self.condition) if self.condition else []
        limit = self.graph.value(self.most) if self.most else None
        counts: list[str] = []
        if self.most and (not conditions or limit is None or limit.names or limit.number < MOST_RUNS):
            counts.append(self.most)
        for each in conditions:
            first = each.at(-1)
            is_due = before is not None and first in before
            runs = self._divided(self._number(first if is_due else each.at(0)), -each.of_run)
            counts.append(runs if is_due else self._add("Add", runs, self._constant(1)))
        implied = [limit, *(each.at(-1) for each in conditions)]
        if before is not None and all(each.is_positive or each in implied for each in before):
            self.condition = ""
        return counts[0] if len(counts) == 1 else self._add("Min", *counts)

    def _add(self, op_type: str, *inputs: str) -> str:
        return self.made.add(op_type, inputs)

    def _constant(self, number: int) -> str:
        return self.made.constant(np.array(number, INT64))

    def _number(self, found: Sum) -> str:
        """A sum, computed by layers."""
        total = self._constant(found.number) if found.number or not found.names else ""
        for name, count in found.names.items():
            number = self.made.add("Cast", [name], (), {"to": _CODES["int64"]})
            term = number if abs(count) == 1 else self._add("Mul", number, self._constant(count))
            if not total:
                total = term if count != -1 else self._add("Neg", term)
            else:
                total = self._add("Sub" if count == -1 else "Add", total, term)
        return total

    def _divided(self, number: str, step: int) -> str:
        """How often a step fits in a number before that is used up; 0 for negative numbers."""
        positive = self._add("Max", number, self._constant(0))
        if step == 1:
            return positive
        return self._add("Div", self._add("Add", positive, self._constant(step - 1)), self._constant(step))

    def _add_counter(self, number: int, step: np.ndarray) -> None:
        """Compute a state from the number of an iteration, and its last value from that of all."""
        run, _, *names = [item.name for item in self.body.inputs]
        self._moved(self.inner, number, step, run, names[number])
        if number < len(self.layer.outputs) and self.layer.outputs[number]:
            runs = self._add("Max", self.most, self._constant(0))
            if self.condition:
                runs = self._add("Where", self.condition, runs, self._constant(0))
            runs = self._add("Reshape", runs, self.made.constant(np.zeros(0, np.int64)))
            self._moved(self.made, number, step, runs, self.layer.outputs[number])

    def _moved(self, made: NewLayers, number: int, step: np.ndarray, runs: str, output: str) -> None:
        """Add the layers for a state after some iterations."""
        start = self.states[number]
        first = self.graph.constant(start)
        is_zero = first is not None and not first.ndim and not first
        terms = [] if step == 1 else [("Mul", lambda: made.constant(step))]
        terms += [] if is_zero else [("Add", lambda: start)]
        found = made.add("Cast", [runs], () if terms else [output], {"to": _CODES[step.dtype.name]})
        for place, (op_type, other) in enumerate(terms):
            found = made.add(op_type, [found, other()], [output] if place == len(terms) - 1 else ())

    def _add_loop(self, left: Sequence[int], is_counted: bool) -> None:
        """Add the loop with the states that are left."""
        body, count = self.body, len(self.states)
        goes_on, *after = body.outputs
        if is_counted:
            goes_on = goes_on.replace(name=body.inputs[1].name)
        changed = body.replace(
            inputs=(*body.inputs[:2], *(body.inputs[n + 2] for n in left)),
            outputs=(goes_on, *(after[n] for n in left), *after[count:]),
            layers=(*self.inner.layers, *body.layers),
            constants={**body.constants, **self.inner.constants},
        )
        inputs = [self.most, self.condition, *(self.states[n] for n in left)]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = (*self.layer.outputs[:count], *[""] * (count - len(self.layer.outputs)))
        self.made.layers.append(
            self.layer.replace(
                inputs=tuple(inputs),
                outputs=(*(outputs[n] for n in left), *self.layer.outputs[count:]),
                attributes={**self.layer.attributes, "body": remove_dead_layers(changed)},
            )
        )
