"""Scan: a body that runs over slices of tensors, with carried state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.base.errors import ShapeError
from engine.graph.model import UNTYPED, Input, Layer, Model, Output
from engine.graph.new_layers import NewLayers, names_in
from engine.kernels.expr import Expr, arg
from engine.kernels.value import Entry, Value
from engine.operators.builder import Builder
from engine.operators.counted_loops import CountedIterations
from engine.operators.loop_bodies import slice_at
from engine.operators.registry import operator


def one_for_each(k: Builder, name: str, given: Sequence[int], count: int) -> Sequence[int]:
    """An attribute with an entry for each of `count` tensors; absent it is 0 for all."""
    if given and len(given) != count:
        k.error(f"its {name} has {len(given)} entries for {count} tensors")
    return given or (0,) * count


@operator("Scan", kind="control", since=9)
class Scan(CountedIterations):
    """A body run over the slices of the last `num_scan_inputs` inputs, with a state that it hands on."""

    def __init__(
        self, k: Builder, *inputs: Value, body: Model, num_scan_inputs: int,
        scan_input_axes: Sequence[int] = (), scan_input_directions: Sequence[int] = (),
        scan_output_axes: Sequence[int] = (), scan_output_directions: Sequence[int] = (),
    ) -> None:  # fmt: skip
        first = len(inputs) - num_scan_inputs
        if num_scan_inputs < 1 or first < 0 or len(body.inputs) != len(inputs):
            k.error(f"its {len(inputs)} inputs do not fit num_scan_inputs {num_scan_inputs} and its body")
        self.scanned = inputs[first:]
        axes = one_for_each(k, "scan_input_axes", scan_input_axes, num_scan_inputs)
        self.axes = [k.axis(a, x.rank) for a, x in zip(axes, self.scanned, strict=True)]
        self.reverse = one_for_each(k, "scan_input_directions", scan_input_directions, num_scan_inputs)
        outputs = len(body.outputs) - first
        self.output_axes = one_for_each(k, "scan_output_axes", scan_output_axes, outputs)
        self.output_reverse = one_for_each(k, "scan_output_directions", scan_output_directions, outputs)
        sizes = [x.shape[a] for x, a in zip(self.scanned, self.axes, strict=True)]
        if any(n != sizes[0] for n in sizes):
            k.error(f"its inputs have different lengths {sorted(set(sizes))} along the axes to scan")
        super().__init__(body, sizes[0], inputs[:first])

    def inputs(self, k: Builder, number: int | Expr, states: Sequence[Entry]) -> tuple[Entry, ...]:
        last = arg(self.count - 1) if isinstance(number, Expr) else self.count - 1
        at = [last - number if reverse else number for reverse in self.reverse]
        slices = (slice_at(k, x, a, p) for x, a, p in zip(self.scanned, self.axes, at, strict=True))
        return (*states, *slices)

    def results(self, k: Builder) -> tuple[Entry, ...]:
        ways = enumerate(zip(self.output_axes, map(bool, self.output_reverse), strict=True))
        return (*self.last_states(k), *(self.stacked(k, number, *way) for number, way in ways))

    def live_values(self) -> tuple[Entry, ...]:
        return (*self.scanned, *super().live_values())


@operator("Scan", kind="rewritten", until=8)
def scan_with_batches(
    layer: Layer, sequence_lens: str = "", *inputs: str,
    body: Model, num_scan_inputs: int, directions: Sequence[int] = (),
) -> Layer:  # fmt: skip
    """Scan with a batch axis: nested scans over axis 0 and axis 1.

    Behind a sequence that is shorter than others, states stay as they are and outputs are 0.
    """
    if not 0 < num_scan_inputs <= len(inputs) or len(body.inputs) != len(inputs):
        raise ShapeError(
            f"{layer}: its {len(inputs)} inputs do not fit num_scan_inputs {num_scan_inputs} and its body"
        )
    if directions and len(directions) != num_scan_inputs:
        count = len(directions)
        raise ShapeError(f"{layer}: its directions has {count} entries for {num_scan_inputs} tensors")
    first = len(inputs) - num_scan_inputs
    parts = ScanLayers(layer, body)
    given = [parts.name(item.name) for item in body.inputs]
    entry = [*given]
    taken = [*inputs]
    if sequence_lens:
        taken.append(sequence_lens)
        given.append(parts.name("length"))
        for k, is_reversed in enumerate(directions or (0,) * num_scan_inputs, first):
            if is_reversed:
                entry[k] = parts.reversed(entry[k], given[-1])
        entry.insert(first, parts.is_before(given[-1], entry[first]))
        body, directions = parts.held(body, first), ()
        num_scan_inputs += 1
    outputs = [parts.name(item.name) for item in body.outputs]
    attributes = {"body": body, "num_scan_inputs": num_scan_inputs}
    parts.add("Scan", entry, outputs, {**attributes, "scan_input_directions": tuple(directions)})
    whole = Model(
        layer.name,
        tuple([Input(name, UNTYPED, None) for name in given]),
        tuple([Output(name, item.dtype, None) for name, item in zip(outputs, body.outputs, strict=True)]),
        tuple(parts.layers),
        parts.constants,
    )
    attributes = {"body": whole, "num_scan_inputs": len(taken)}
    return layer.replace(inputs=tuple(taken), attributes=attributes, version=ScanLayers.VERSION)


class ScanLayers(NewLayers):
    """Builds subgraphs around a body, with names that the body does not use."""

    def __init__(self, layer: Layer, body: Model) -> None:
        super().__init__(layer.name, names_in(body))
        self._layer = layer

    def reversed(self, x: str, length: str) -> str:
        """The first `length` entries of a tensor from their end on."""
        axis = self.constant(np.array([0]))
        rows = self.add("Unsqueeze", [x, axis])
        lengths = self.add("Unsqueeze", [length, axis])
        back = self.add("ReverseSequence", [rows, lengths], (), {"batch_axis": 0, "time_axis": 1})
        return self.add("Squeeze", [back, axis])

    def is_before(self, length: str, x: str) -> str:
        """For each entry of a tensor, whether its number is below `length`."""
        zero = self.constant(np.array(0))
        size = self.add("Gather", [self.add("Shape", [x]), zero])
        numbers = self.add("Range", [zero, size, self.constant(np.array(1))])
        return self.add("Less", [numbers, length])

    def held(self, body: Model, states: int) -> Model:
        """A body with a flag after its states: if it is false, states are kept and outputs are 0."""
        own = ScanLayers(self._layer, body)
        own.layers += body.layers
        flag = own.name("is due")
        none = own.constant(np.array(0, np.float32))
        outputs = []
        for k, output in enumerate(body.outputs):
            other = body.inputs[k].name if k < states else own.add("CastLike", [none, output.name])
            outputs.append(output.replace(name=own.add("Where", [flag, output.name, other])))
        inputs = (*body.inputs[:states], Input(flag, np.dtype(bool), None), *body.inputs[states:])
        constants = {**body.constants, **own.constants}
        return body.replace(
            inputs=inputs, outputs=tuple(outputs), layers=tuple(own.layers), constants=constants
        )
