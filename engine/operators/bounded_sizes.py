"""Operators that accept tensors with data-dependent sizes (an upper bound plus a count).

A bounded tensor has room for more entries along one axis than are meant. An operator that treats the entries
along that axis one by one can work on the whole room, and its output is bounded in turn: the rules here say
along which axis. For every other operator the plan stops until the size is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.graph.model import Layer
from engine.kernels.value import Entry, Value

Elements = Callable[[Value], np.ndarray | None]
BoundRule = Callable[[Layer, Sequence[Entry], Elements], int | None]
"""The bounded axis of the outputs, or None where the operator needs the exact size."""


def tensors(entries: Sequence[Entry]) -> list[Value]:
    """The inputs that are there and are tensors."""
    return [x for x in entries if isinstance(x, Value)]


def broadcast(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Elementwise: the same axis, if nothing else has a size of its own there."""
    given = tensors(entries)
    rank = max(x.rank for x in given)
    axes = {x.bound.axis - x.rank + rank for x in given if x.bound is not None}
    axis = axes.pop()
    others = [x for x in given if x.bound is None and axis - rank + x.rank >= 0]
    alone = all(x.shape[axis - rank + x.rank] == 1 for x in others)
    return axis if alone and not axes else None


def permuted(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Transpose: where `perm` puts the axis."""
    (x,) = tensors(entries)
    assert x.bound is not None
    order = [a % x.rank for a in layer.attributes.get("perm", range(x.rank)[::-1])]
    return order.index(x.bound.axis)


def _axes(layer: Layer, entries: Sequence[Entry], elements: Elements, position: int = 1) -> list[int] | None:
    """The axes that a layer names, in an attribute or in the input at `position`."""
    if "axes" in layer.attributes:
        return [*layer.attributes["axes"]]
    given = entries[position] if len(entries) > position else None
    found = elements(given) if isinstance(given, Value) else None
    return None if found is None else [int(a) for a in found.reshape(-1)]


def squeezed(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Squeeze: the axis index decreases by the number of removed axes before it."""
    x, axes = tensors(entries)[0], _axes(layer, entries, elements)
    if x.bound is None or not axes or x.bound.axis in [a % x.rank for a in axes]:
        return None
    return x.bound.axis - sum(a % x.rank < x.bound.axis for a in axes)


def unsqueezed(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Unsqueeze: the axis index increases by the number of inserted axes before it."""
    x, axes = tensors(entries)[0], _axes(layer, entries, elements)
    if x.bound is None or not axes:
        return None
    rank = x.rank + len(axes)
    kept = [a for a in range(rank) if a not in [b % rank for b in axes]]
    return kept[x.bound.axis]


def sliced(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Slice: the same axis, if others are cut."""
    x = tensors(entries)[0]
    axes = _axes(layer, entries, elements, 3)
    if x.bound is None or axes is None or x.bound.axis in [a % x.rank for a in axes]:
        return None
    return x.bound.axis


def joined(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Concat along another axis: the same axis, if all are bounded there."""
    given = tensors(entries)
    axes = {None if x.bound is None else x.bound.axis for x in given}
    axis = axes.pop()
    return None if axes or axis == layer.attributes.get("axis", 0) % given[0].rank else axis


def gathered(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """Gather: bounded indices give a bounded axis of slices; bounded data must be cut along another axis."""
    data, indices = tensors(entries)
    axis = layer.attributes.get("axis", 0) % max(data.rank, 1)
    if data.bound is None:
        return None if indices.bound is None else axis + indices.bound.axis
    if indices.bound is not None or data.bound.axis == axis:
        return None
    return data.bound.axis + (indices.rank - 1 if data.bound.axis > axis else 0)


def gathered_nd(layer: Layer, entries: Sequence[Entry], elements: Elements) -> int | None:
    """GatherND with bounded indices: the same axis, unless it is the one that holds positions."""
    data, indices = tensors(entries)
    if data.bound is not None or indices.bound is None or layer.attributes.get("batch_dims", 0):
        return None
    return indices.bound.axis if indices.bound.axis < indices.rank - 1 else None
