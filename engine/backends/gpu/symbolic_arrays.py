"""Numeric arrays with symbolic entries, for `engine.backends.plan_template`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.base.dtypes import ArithmeticType
from engine.compiler.memory_planner import share
from engine.kernels.c_printer import saturate
from engine.kernels.size import Number, Size, as_float, hint_of, largest

B = TypeVar("B", bound=DeviceBuffer)

Values = tuple[np.ndarray, np.ndarray]
"""The symbolic numbers' values: the integers, and the floats."""


class Variables:
    """The symbolic numbers of a template, each once; integers come first."""

    def __init__(self) -> None:
        self._integers: list[Size] = []
        self._floats: list[Size] = []
        self._indices: dict[str, int] = {}

    def index(self, size: Size) -> int:
        """The position of a number among those of its type."""
        found = self._indices.get(size.name)
        if found is None:
            those = self._floats if isinstance(size.hint, float) else self._integers
            found = self._indices[size.name] = len(those)
            those.append(size)
        return found

    @property
    def numbers(self) -> tuple[Number, ...]:
        """All numbers, in the order of the input of `values`."""
        return (*self._integers, *self._floats)

    def values(self, numbers: Sequence[int | float]) -> Values:
        """Their values as arrays. Raises `OverflowError` for integers beyond 32 bits, signed or not."""
        count = len(self._integers)
        integers = np.array(numbers[:count], np.int64)
        check_limits(integers, -(2**31), 2**32 - 1)
        return integers, np.array(numbers[count:], np.float64)


def check_limits(integers: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """The integers. Raises `OverflowError` if one is out of its limits."""
    if ((integers < low) | (integers > high)).any():
        raise OverflowError("this backend has 32-bit integers")
    return integers


class SymbolicArray:
    """An array of integers or floats with symbolic elements, under construction."""

    def __init__(self, numbers: Variables, is_float: bool = False) -> None:
        self._numbers = numbers
        self._is_float = is_float
        self._given: list[Any] = []
        self._places: list[int] = []
        self._indices: list[int] = []

    def __len__(self) -> int:
        return len(self._given)

    def add(self, number: Any) -> int:
        """Append a number and return its index."""
        if isinstance(number, Size):
            own = as_float(number) if self._is_float else math.trunc(number)
            self._places.append(len(self._given))
            self._indices.append(self._numbers.index(own))
            number = 0
        self._given.append(number)
        return len(self._given) - 1

    def close(self) -> Callable[[Values], np.ndarray]:
        """Return a function that fills in the symbolic values."""
        whole = np.array(self._given, np.float64 if self._is_float else np.int64)
        places, indices = np.array(self._places, np.int64), np.array(self._indices, np.int64)
        part = int(self._is_float)

        def filled(values: Values) -> np.ndarray:
            array = whole.copy()
            array[places] = values[part][indices]
            return array

        return filled


class SymbolicWords:
    """32-bit words with symbolic entries: the arguments of a template's steps, one after another."""

    def __init__(self, numbers: Variables) -> None:
        self._blocks: list[np.ndarray] = []
        self._count = 0
        self._numbers = numbers
        # Places of words, each with the index of its number; and the limits of each index.
        self._integers: list[tuple[int, int]] = []
        self._floats: list[tuple[int, int]] = []
        self._limits: dict[tuple[int, int, int], None] = {}

    def add(self, words: np.ndarray) -> int:
        """Append words, int32; returns the position of the first."""
        self._blocks.append(words)
        self._count += len(words)
        return self._count - len(words)

    def fill_in(self, begin: int, types: Sequence[ArithmeticType], values: Sequence[Number]) -> None:
        """Mark symbolic values to be filled in from a word on."""
        for place, (kind, value) in enumerate(zip(types, values, strict=True), begin):
            if not isinstance(value, Size):
                continue
            if kind in ("float32", "float64"):
                self._floats.append((place, self._numbers.index(as_float(value))))
            else:
                index = self._numbers.index(math.trunc(value))
                self._integers.append((place, index))
                self._limits[index, saturate(-(2**63), kind), saturate(2**63, kind)] = None

    def close(self) -> Callable[[Values], np.ndarray]:
        """Return a function that fills in the symbolic values."""
        whole = np.concatenate([np.zeros(0, np.int32), *self._blocks])
        limited, low, high = np.array([*self._limits], np.int64).reshape(-1, 3).T.copy()
        places, indices = columns(self._integers)
        float_places, float_indices = columns(self._floats)

        def filled(values: Values) -> np.ndarray:
            integers, floats = values
            check_limits(integers[limited], low, high)
            words = whole.copy()
            words[places] = integers.astype(np.uint32).view(np.int32)[indices]
            words.view(np.float32)[float_places] = floats.astype(np.float32)[float_indices]
            return words

        return filled


def columns(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The first numbers of some pairs, and the second ones."""
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def owned(buffers: Mapping[str, DeviceBuffer], names: Iterable[str], own: type[B]) -> dict[str, B]:
    """Some of the buffers, which are a backend's own."""
    found: dict[str, B] = {}
    for name in names:
        buffer = buffers[name]
        assert isinstance(buffer, own), f"{type(buffer).__name__} belongs to another backend"
        found[name] = buffer
    return found


class SymbolicSlots:
    """What temporaries of symbolic sizes share in turn.

    Attributes:
        of: The slot of each temporary.
        sizes: The size of each slot.
    """

    def __init__(
        self, sizes: Mapping[str, Any], lifetimes: Mapping[str, tuple[int, int]], alignment: int
    ) -> None:
        """Choose slots by what temporaries take while planning; their sizes are multiples of `alignment`."""
        slot_of, _ = share({name: hint_of(size) for name, size in sizes.items()}, lifetimes)
        self.of = [slot_of[name] for name in sizes]
        inside: dict[int, list[Any]] = {}
        for slot, size in zip(self.of, sizes.values(), strict=True):
            inside.setdefault(slot, []).append(size)
        self.sizes = [-(-largest(*inside[slot]) // alignment) * alignment for slot in range(len(inside))]

    def places(self) -> tuple[list[Any], Any]:
        """The offset of each temporary in memory that has all slots, and the total size."""
        *starts, total = accumulate(self.sizes, initial=0)
        return [starts[slot] for slot in self.of], total
