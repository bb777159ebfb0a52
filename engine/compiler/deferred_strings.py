"""String tensors that layers only move: as indices into a string table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.base.dtypes import INT64, TEXT
from engine.kernels.value import Entry, TextValue, Value, leaves


def positions_in(entries: Sequence[Entry]) -> list[Value]:
    """The positions of the strings of unread text."""
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
    """Replace the text input at `place` by indices; also returns the table.

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
