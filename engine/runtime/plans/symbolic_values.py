"""Computed data as symbolic values of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.compiler.value_conversion import arrays_in
from engine.compiler.walk import Elements
from engine.kernels.size_recorder import SizeRecorder

MOST_ELEMENTS = 16
"""Elements of the largest tensor whose elements are open: a handful of sizes, counts and positions."""


class SymbolicValues(NamedTuple):
    """The values of a plan's symbolic numbers, in order, and a key of all else that it depends on."""

    numbers: tuple[int, ...]
    decided: tuple[object, ...]


def digest(array: np.ndarray) -> object:
    """The elements, as part of a key."""
    return tuple(array.reshape(-1)) if array.dtype == object else array.tobytes()


def _is_open(array: np.ndarray) -> bool:
    """Whether elements become symbolic: integers do; conditions do not, because they select layers."""
    return array.dtype.kind in "iu" and 0 < array.size <= MOST_ELEMENTS


def of_elements(known: Elements) -> SymbolicValues:
    """Return the symbolic numbers of known elements."""
    numbers: list[int] = []
    decided: list[object] = []
    for name, array in sorted(known.items()):
        if _is_open(array):
            numbers += array.reshape(-1).tolist()
            decided.append((name, array.shape))
        else:
            decided.append((name, array.shape, digest(array)))
    return SymbolicValues(tuple(numbers), tuple(decided))


def opened_elements(known: Elements, recorder: SizeRecorder) -> Elements:
    """Return the elements with the symbolic ones as inputs of a recorder."""
    found = {}
    for name, array in sorted(known.items()):
        found[name] = array
        if _is_open(array):
            sizes = [recorder.input(number) for number in array.reshape(-1).tolist()]
            found[name] = np.array(sizes, object).reshape(array.shape)
    return found


def of_results(results: Sequence[Any]) -> SymbolicValues:
    """Return the symbolic numbers of a NumPy function's results: their sizes."""
    numbers: list[int] = []
    for array in arrays_in(results):
        if array.dtype != object:
            numbers += array.shape
    return SymbolicValues(tuple(numbers), tuple(map(_form, results)))


def of_data(known: Elements, results: Sequence[Any] | None) -> SymbolicValues:
    """The symbolic numbers of what a stop has waited for: elements, or a NumPy function's results."""
    return of_elements(known) if results is None else of_results(results)


def _form(result: Any) -> object:
    """What a plan depends on in a NumPy function's result besides its sizes: types and strings."""
    if isinstance(result, list):
        return tuple(map(_form, result))
    if result is None:
        return None
    array = np.asarray(result)
    return (array.shape, digest(array)) if array.dtype == object else (array.ndim, array.dtype.name)


def opened_shape(recorder: SizeRecorder, array: np.ndarray) -> tuple[Any, ...]:
    """Return the shape of a NumPy function's result, with its sizes as inputs of a recorder."""
    return array.shape if array.dtype == object else tuple(map(recorder.input, array.shape))
