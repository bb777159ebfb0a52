"""Numeric arrays with symbolic entries, for `engine.backends.plan_template`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.base.dtypes import ArithmeticType
from engine.compiler.memory_planner import share
from engine.kernels.c_printer import saturate
from engine.kernels.size import Number, Size, as_float

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
    """32-bit words with symbolic entries: the arguments of a template's steps, one after another.

    divided: the words of some sizes, an array for each: the sizes, and behind them what divides by them.
    """

    def __init__(self, numbers: Variables, divided: Callable[[np.ndarray], tuple[np.ndarray, ...]]) -> None:
        self._blocks: list[np.ndarray] = []
        self._count = 0
        self._divided = divided
        self._integers, self._floats = SymbolicArray(numbers), SymbolicArray(numbers, is_float=True)
        self._sizes = SymbolicArray(numbers)
        self._places: list[tuple[int, int, int]] = []
        self._float_places: list[int] = []
        self._size_places: list[int] = []

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
                self._floats.add(value)
                self._float_places.append(place)
            else:
                self._integers.add(value)
                self._places.append((place, saturate(-(2**63), kind), saturate(2**63, kind)))

    def divide_by(self, place: int, size: Number) -> None:
        """Mark the words of a size, if it is symbolic."""
        if isinstance(size, Size):
            self._sizes.add(size)
            self._size_places.append(place)

    def close(self) -> Callable[[Values], np.ndarray]:
        """Return a function that fills in the symbolic values."""
        whole = np.concatenate([np.zeros(0, np.int32), *self._blocks])
        places, low, high = np.array(self._places, np.int64).reshape(-1, 3).T.copy()
        float_places, size_places = (np.array(x, np.int64) for x in (self._float_places, self._size_places))
        integers, floats, sizes = (each.close() for each in (self._integers, self._floats, self._sizes))

        def filled(values: Values) -> np.ndarray:
            words = whole.copy()
            words[places] = check_limits(integers(values), low, high).astype(np.uint32).view(np.int32)
            words.view(np.float32)[float_places] = floats(values)
            for k, column in enumerate(self._divided(sizes(values))):
                words[size_places + k] = column
            return words

        return filled


def columns(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Unzip pairs."""
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def owned(buffers: Mapping[str, DeviceBuffer], names: Iterable[str], own: type[B]) -> dict[str, B]:
    """The named buffers, checked to belong to this backend."""
    found: dict[str, B] = {}
    for name in names:
        buffer = buffers[name]
        assert isinstance(buffer, own), f"{type(buffer).__name__} belongs to another backend"
        found[name] = buffer
    return found


class Slots:
    """The assignment of temporaries to shared buffers.

    of: the slot of each temporary.
    """

    def __init__(self, of: Sequence[int]) -> None:
        self.of = np.array(of, np.int64)
        self._order = np.argsort(self.of, kind="stable")
        self._begins = np.flatnonzero(np.diff(self.of[self._order], prepend=-1))

    def largest(self, sizes: np.ndarray) -> np.ndarray:
        """The largest size in each slot."""
        return np.maximum.reduceat(sizes[self._order], self._begins) if len(sizes) else sizes


class SymbolicSlots(Slots):
    """Slots of one arena."""

    def __init__(
        self, hints: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]], alignment: int
    ) -> None:
        """Choose slots by what temporaries take while planning; slots start at multiples of `alignment`."""
        slot_of, _ = share(hints, lifetimes)
        super().__init__([slot_of[name] for name in hints])
        self._alignment = alignment

    def sizes(self, sizes: np.ndarray) -> np.ndarray:
        """The size of each slot for given sizes of temporaries."""
        found: np.ndarray = -(-self.largest(sizes) // self._alignment) * self._alignment
        return found

    def places(self, sizes: np.ndarray) -> tuple[np.ndarray, int]:
        """The offset of each temporary for given sizes, and the total size."""
        if not len(sizes):
            return sizes, 0
        ends = np.cumsum(self.sizes(sizes))
        starts = np.concatenate(([0], ends[:-1]))
        return starts[self.of], int(ends[-1])
