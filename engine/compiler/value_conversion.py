"""Converts a layer's tensors, sequences and optionals between `Value` and arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.compiler.builders import ShapeBuilder
from engine.kernels.value import EncodedValue, Entry, ListValue, MapsValue, Value


def mapped(entry: Entry, change: Callable[[Value], Value]) -> Entry:
    """Apply a function to each tensor of an entry."""
    if isinstance(entry, ListValue):
        items = tuple(map(change, entry.items))
        return replace(entry, items=items, rows=entry.rows if items == entry.items else None)
    return None if entry is None else change(entry)


def known_or_empty(value: Value) -> np.ndarray:
    """The known elements of a tensor; an empty array if unknown, as only size 0 may be unknown here."""
    if value.known is None:
        return np.empty(value.shape, value.dtype)
    return value.known


def as_arrays(entry: Entry, elements: Callable[[Value], np.ndarray]) -> Any:
    """An entry as a NumPy function takes it."""
    if isinstance(entry, EncodedValue):
        found = entry.objects(elements(entry.items[0]))
        return found.tolist() if isinstance(entry, MapsValue) else found
    if isinstance(entry, ListValue):
        return [elements(v) for v in entry.items]
    return None if entry is None else elements(entry)


def arrays_in(results: Sequence[Any]) -> Iterator[np.ndarray]:
    """The arrays that a NumPy function yielded, those in lists one by one."""
    for result in results:
        if isinstance(result, list):
            yield from map(np.asarray, result)
        elif result is not None:
            yield np.asarray(result)


def as_entries(results: Sequence[Any], value: Callable[[np.ndarray], Value]) -> tuple[Entry, ...]:
    """Convert the results of a NumPy function to entries; each array becomes a tensor."""
    entries: list[Entry] = []
    for result in results:
        if isinstance(result, list):
            items = tuple(value(np.asarray(a)) for a in result)
            entries.append(ListValue(items, items[0].dtype if items else np.dtype(np.float32)))
        else:
            entries.append(None if result is None else value(np.asarray(result)))
    return tuple(entries)


def as_constants(builder: ShapeBuilder, results: Sequence[Any]) -> tuple[Entry, ...]:
    """Convert the results of a NumPy function to constants."""
    return as_entries(results, builder.constant)


def describe(entry: Entry) -> str:
    """An input as messages show it."""
    if isinstance(entry, MapsValue):
        return f"a sequence of {entry.items[0].shape[0]} maps"
    if isinstance(entry, ListValue):
        return f"a sequence of {len(entry.items)} {entry.dtype.name} tensors"
    return "none" if entry is None else f"{entry.dtype.name}{list(entry.shape)}"
