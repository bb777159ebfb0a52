"""Numeric arrays with symbolic entries, for `engine.backends.plan_template`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.compiler.memory_planner import share
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


class Slots:
    """What temporaries of symbolic sizes share in turn.

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
