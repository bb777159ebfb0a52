"""Trip counts: loops that end by a counter become loops with a known number of iterations.

TensorFlow's exporter writes `while i < n` with the counter, the limit and all weights as states, and computes
in each iteration whether another one follows. Here states that no iteration changes become names of the graph
around the loop, counters are computed from an iteration's number, and so is the number of all iterations. One
iteration then stands for all, at any length, and weights are constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_

import numpy as np

from engine.base.dtypes import INT64
from engine.compiler.passes.affine_scalars import INTEGERS, ScalarScope, Sum
from engine.compiler.passes.remove_dead_layers import remove_dead_layers
from engine.graph.model import Layer, Model, Output
from engine.graph.new_layers import NewLayers
from engine.operators.casting import ONNX_TYPES
from engine.operators.loop_bodies import MOST_RUNS, never_ends_early

_CODES = {name: code for code, name in ONNX_TYPES.items()}


def count_loops(model: Model) -> Model:
    """Loop(states, counters, condition) -> Loop(count, states), in subgraphs as well."""
    return _counted(ScalarScope(model, None))


def _counted(scope: ScalarScope) -> Model:
    """A graph with its loops counted, those of subgraphs first."""
    model = scope.model
    layers: list[Layer] = []
    constants = dict(model.constants)
    for given in model.layers:
        layer = given
        if layer.subgraphs:
            layer = layer.with_subgraphs(lambda body: _counted(ScalarScope(body, scope)))
        is_loop = layer.op_type == "Loop" and not layer.domain
        found = _Loop(scope, layer).counted() if is_loop else None
        layers += [layer] if found is None else found.layers
        constants |= {} if found is None else found.constants
    if len(layers) == len(model.layers) and all(map(is_, layers, model.layers)):
        return model
    return model.replace(layers=tuple(layers), constants=constants)


def _stacks(reader: Layer, inside: ScalarScope, piece: str) -> bool:
    """Whether a layer joins tensors of a sequence that all have one shape, as has each `piece` in a body."""
    if reader.op_type != "ConcatFromSequence" or reader.domain:
        return False
    layer = inside.maker(piece)
    if reader.attributes.get("new_axis") == 1 or layer is None or layer.op_type != "Unsqueeze":
        return reader.attributes.get("new_axis") == 1
    # Along the axis that it has just got, a tensor has one entry.
    axes = layer.attributes.get("axes") or inside.constant(layer.inputs[1])
    return axes is not None and [*axes] == [reader.attributes["axis"]] and axes[0] >= 0


class _Loop:
    """A Loop, its states and its condition."""

    def __init__(self, scope: ScalarScope, layer: Layer) -> None:
        self.scope = scope
        self.layer = layer
        self.most, self.condition, *self.states = (*layer.inputs, "", "")[: max(2, len(layer.inputs))]
        (self.body,) = layer.subgraphs
        self.made = NewLayers(layer.name, scope.taken)
        self.inner = NewLayers(layer.name, scope.taken)

    def counted(self) -> NewLayers | None:
        """The layers and constants in its place; None for a loop that stays."""
        states = self.states
        if len(self.body.inputs) != len(states) + 2 or len(self.body.outputs) < len(states) + 1:
            return None
        inside = ScalarScope(self.body, self.scope)
        ends = [inside.root(output.name) for output in self.body.outputs[1 : len(states) + 1]]
        stay = {n for n, end in enumerate(ends) if states[n] and end == self.body.inputs[n + 2].name}
        steps = {n: step for n, end in enumerate(ends) if (step := self._step(inside, n, end)) is not None}
        count = self._count(self._sums(stay, steps))
        if count is None:
            steps = {}
        lists = {
            n: name for n, end in enumerate(ends) if (name := self._appended(inside, n, end)) is not None
        }
        if not stay and not steps and not lists and (count is None or never_ends_early(self.body)):
            return None
        self.most = self.most if count is None else count
        for n in stay:
            self.inner.add("Identity", [states[n]], [self.body.inputs[n + 2].name])
            if n < len(self.layer.outputs) and self.layer.outputs[n]:
                self.made.add("Identity", [states[n]], [self.layer.outputs[n]])
        for n, step in steps.items():
            self._add_counter(n, step)
        gone = {*stay, *steps, *lists}
        self._add_loop([n for n in range(len(states)) if n not in gone], lists, count is not None)
        return self.made

    def _step(self, inside: ScalarScope, number: int, end: str) -> np.ndarray | None:
        """What an iteration adds to a state: an integer without axes; None for other states."""
        layer = inside.maker(end)
        if layer is None or layer.op_type not in ("Add", "Sub") or not self.states[number]:
            return None
        a, b = map(inside.root, layer.inputs)
        name = self.body.inputs[number + 2].name
        if layer.op_type == "Add" and b == name:
            a, b = b, a
        step = inside.constant(b) if a == name else None
        if step is None or step.dtype.name not in INTEGERS or step.ndim:
            return None
        return step if layer.op_type == "Add" else np.array(-step)

    def _appended(self, inside: ScalarScope, number: int, end: str) -> str | None:
        """What each iteration adds to the end of an empty sequence that is only stacked; else None."""
        name, layer = self.body.inputs[number + 2].name, inside.maker(end)
        start, (result,) = self.scope.maker(self.states[number]), self.layer.outputs[number:][:1] or ("",)
        if layer is None or layer.op_type != "SequenceInsert" or len(layer.inputs) != 2 or not result:
            return None
        readers = self.scope.readers.get(result, ())
        is_alone = layer.inputs[0] == name and inside.readers.get(name) == (layer,)
        is_empty = start is not None and start.op_type == "SequenceEmpty"
        is_stacked = bool(readers) and all(_stacks(reader, inside, layer.inputs[1]) for reader in readers)
        is_read = end != self.body.outputs[number + 1].name or end in inside.readers
        return layer.inputs[1] if is_alone and is_empty and is_stacked and not is_read else None

    def _sums(self, stay: Iterable[int], steps: Mapping[int, np.ndarray]) -> dict[str, Sum | None]:
        """What the body's inputs are."""
        run, _, *names = [item.name for item in self.body.inputs]
        sums: dict[str, Sum | None] = {run: Sum(of_run=1), **dict.fromkeys(names)}
        for n in stay:
            sums[names[n]] = self.scope.value(self.states[n])
        for n, step in steps.items():
            start = self.scope.value(self.states[n])
            sums[names[n]] = None if start is None else start.plus(Sum(of_run=int(step)))
        return sums

    def _count(self, sums: Mapping[str, Sum | None]) -> str | None:
        """The number of iterations, if the condition is handed on or compares counters with what stays."""
        inside = ScalarScope(self.body, self.scope, sums)
        conditions = inside.conditions(self.body.outputs[0].name)
        if conditions is None or any(each.of_run >= 0 for each in conditions):
            return None
        if not conditions and not self.most:
            return None
        # Such as `i < n` with the number that a counter has before the first iteration.
        before = self.scope.conditions(self.condition) if self.condition else []
        limit = self.scope.value(self.most) if self.most else None
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
        first = self.scope.constant(start)
        is_zero = first is not None and not first.ndim and not first
        terms = [] if step == 1 else [("Mul", lambda: made.constant(step))]
        terms += [] if is_zero else [("Add", lambda: start)]
        found = made.add("Cast", [runs], () if terms else [output], {"to": _CODES[step.dtype.name]})
        for place, (op_type, other) in enumerate(terms):
            found = made.add(op_type, [found, other()], [output] if place == len(terms) - 1 else ())

    def _add_loop(self, left: Sequence[int], lists: Mapping[int, str], is_counted: bool) -> None:
        """Add the loop with the states that are left; tensors of `lists` are stacked."""
        body, count, own = self.body, len(self.states), len(self.inner.layers)
        stacks = [self.inner.add("Identity", [name]) for name in lists.values()]
        goes_on, *after = body.outputs
        if is_counted:
            # The condition may be an output of its own as well.
            goes_on = goes_on.replace(name=self.inner.add("Identity", [body.inputs[1].name]))
        changed = body.replace(
            inputs=(*body.inputs[:2], *(body.inputs[n + 2] for n in left)),
            outputs=(
                goes_on,
                *(after[n] for n in left),
                *after[count:],
                *(Output(name, None, None) for name in stacks),
            ),
            layers=(*self.inner.layers[:own], *body.layers, *self.inner.layers[own:]),
            constants={**body.constants, **self.inner.constants},
        )
        inputs = [self.most, self.condition, *(self.states[n] for n in left)]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = (*self.layer.outputs, *[""] * (len(after) - len(self.layer.outputs)))
        self.made.layers.append(
            self.layer.replace(
                inputs=tuple(inputs),
                outputs=(*(outputs[n] for n in left), *outputs[count:], *(outputs[n] for n in lists)),
                attributes={**self.layer.attributes, "body": remove_dead_layers(changed)},
            )
        )
