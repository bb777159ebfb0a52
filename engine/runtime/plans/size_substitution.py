"""Closures that substitute sizes into tensors and traces with symbolic sizes.

Each function `of_...` appends the numbers that it needs to a list, and returns a function that takes the
values of the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.compiler.plan_walk import Trace
from engine.compiler.walk import Call, Stop
from engine.graph.model import Model
from engine.kernels.evaluate_sizes import holds_sizes
from engine.kernels.size import Number
from engine.kernels.value import Bound, Entry, ListValue, Value, leaves

Values = Sequence[Any]


def of_value(value: Value, numbers: list[Number]) -> Callable[[Values], Value]:
    """Return a function that fills in a tensor's shape, known elements and bound."""
    begin = len(numbers)
    numbers += value.shape
    end = len(numbers)
    name, dtype, known = value.root.name, value.dtype, value.known
    count, axis = None, 0
    if known is not None and holds_sizes(value):
        numbers += known.reshape(-1).tolist()
    stop = len(numbers)
    if value.bound is not None:
        axis, count = value.bound.axis, of_value(value.bound.count, numbers)

    if count is None and stop == end:
        return lambda values: Value.of_sizes(name, tuple(values[begin:end]), dtype, known)

    def filled(values: Values) -> Value:
        shape = tuple(values[begin:end])
        elements = known if stop == end else np.array(values[end:stop], dtype).reshape(shape)
        made = Value.of_sizes(name, shape, dtype, elements)
        if count is not None:
            made.bound = Bound(axis, count(values))
        return made

    return filled


def of_values(given: Sequence[Value], numbers: list[Number]) -> Callable[[Values], tuple[Value, ...]]:
    """`of_value` for several tensors."""
    each = [of_value(value, numbers) for value in given]
    return lambda values: tuple([filled(values) for filled in each])


def of_entry(entry: Entry, numbers: list[Number]) -> Callable[[Values], Entry]:
    """A tensor, a sequence, or an empty optional."""
    if entry is None:
        return lambda values: None
    if isinstance(entry, ListValue):
        items = of_values(entry.items, numbers)
        return lambda values: replace(entry, items=items(values))
    return of_value(entry, numbers)


class TraceTemplate:
    """The named entries of a trace, and its stop, to be filled in together or one by one.

    Attributes:
        entries: A function for each entry.
        shapes: Which of the numbers are the shape of each entry that is a tensor.
    """

    def __init__(self, trace: Trace, names: Collection[str], numbers: list[Number]) -> None:
        self.entries: dict[str, Callable[[Values], Entry]] = {}
        self.shapes: dict[str, slice] = {}
        for name, entry in trace.values.items():
            if name not in names:
                continue
            if isinstance(entry, Value):
                self.shapes[name] = slice(len(numbers), len(numbers) + entry.rank)
            self.entries[name] = of_entry(entry, numbers)
        self._received = of_values(trace.received, numbers)
        self._stop = None if trace.stop is None else of_stop(trace.stop, numbers)
        self._layer = trace.layer  # reports say at which layer a plan stops

    def filled(self, values: Values) -> Trace:
        """The trace."""
        found = {name: entry(values) for name, entry in self.entries.items()}
        end = None if self._stop is None else self._stop(values)
        return Trace(found, [], {}, [], end, [], self._received(values), self._layer)


def of_stop(stop: Stop, numbers: list[Number]) -> Callable[[Values], Stop]:
    """Return a function that fills in a stop for data and its NumPy function, if any."""
    needs = of_values(stop.needs, numbers)
    call = stop.call
    if call is None:
        return lambda values: replace(stop, needs=needs(values))
    inputs = [of_entry(entry, numbers) for entry in call.inputs]
    layer, operator = call.layer, call.operator

    def filled(values: Values) -> Stop:
        return Stop(needs(values), Call(layer, operator, tuple(entry(values) for entry in inputs)))

    return filled


def shown_in(trace: Trace, model: Model) -> set[str]:
    """The names of the buffers in which a model's outputs are."""
    return {v.root.name for item in model.outputs for v in leaves(trace.values[item.name])}


def outer_names(model: Model) -> set[str]:
    """The names of a model's inputs and outputs."""
    return {item.name for item in model.inputs} | {item.name for item in model.outputs}
