"""Converts a layer's tensors, sequences and optionals between `Value` and arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.base.dtypes import INT64, TEXT
from engine.compiler.builders import ShapeBuilder
from engine.kernels.value import Entry, ListValue, MapsValue, ObjectsValue, TextValue, Value, leaves


def mapped(entry: Entry, change: Callable[[Value], Value]) -> Entry:
    """An entry with each of its tensors changed."""
    if isinstance(entry, ListValue):
        items = tuple(map(change, entry.items))
        return replace(entry, items=items, rows=entry.rows if items == entry.items else None)
    return None if entry is None else change(entry)


def positions_in(entries: Sequence[Entry]) -> list[Value]:
    """The positions of strings that only outputs have so far."""
    return [entry.positions for entry in entries if isinstance(entry, TextValue)]


def with_strings(
    entries: Sequence[Entry], elements: Callable[[Value], np.ndarray | None]
) -> tuple[Entry, ...]:
    """Entries with text as tensors of strings, where the elements of its positions are known."""

    def tensor(entry: Entry) -> Entry:
        known = elements(entry.positions) if isinstance(entry, TextValue) else None
        if not isinstance(entry, TextValue) or known is None and entry.positions.size:
            return entry
        at = entry.positions
        strings = np.empty(at.shape, TEXT) if known is None else entry.objects(known)
        return Value(f"{at.name} text", at.shape, TEXT, at.signature, strings)

    return tuple([tensor(entry) for entry in entries])


def moved_text(
    entries: tuple[Entry, ...], place: int, elements: Callable[[Value], np.ndarray | None], name: str
) -> tuple[tuple[Entry, ...], np.ndarray | None]:
    """Inputs of a layer that moves the one at `place`: of strings the positions, beside the names there.

    No names where it is no text, or where all inputs are known, so that the host moves the strings. `name` is
    of the tensor that is made.
    """
    text = entries[place] if 0 <= place < len(entries) else None
    if isinstance(text, TextValue):
        at, names = text.positions, text.names
    elif isinstance(text, Value) and text.dtype == TEXT and (known := elements(text)) is not None:
        if all(elements(value) is not None for value in leaves(*entries)):
            return entries, None
        places = np.arange(text.size).reshape(text.shape)
        at, names = Value(name, text.shape, INT64, text.signature, places), known.reshape(-1)
    else:
        return entries, None
    return (*entries[:place], at, *entries[place + 1 :]), names


def known_or_empty(value: Value) -> np.ndarray:
    """The elements of a tensor, or zeros of its shape and type if they are unknown."""
    if value.known is None:
        return np.empty(value.shape, value.dtype)
    return value.known


def as_arrays(entry: Entry, elements: Callable[[Value], np.ndarray]) -> Any:
    """An entry as a NumPy function takes it."""
    if isinstance(entry, ObjectsValue):
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
