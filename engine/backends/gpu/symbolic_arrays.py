"""Numeric arrays with symbolic entries, for `engine.backends.plan_template`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.base.dtypes import ArithmeticType
from engine.base.memory.out_of_memory import MOST_BYTES
from engine.compiler.memory_planner import assign_slots
from engine.kernels.c_printer import saturate
from engine.kernels.size import Number, Size, as_float, hint_of, largest

B = TypeVar("B", bound=DeviceBuffer)

LEAST, MOST = -(2**31), 2**32 - 1
"""The limits of integers, signed or not."""


class Values(NamedTuple):
    """The symbolic numbers' values, and the arrays of a template that native code has filled in already."""

    integers: np.ndarray
    floats: np.ndarray
    arrays: Sequence[np.ndarray] | None = None


class Variables:
    """The symbolic numbers of a template, each once, and what is filled in by them; integers come first.

    Attributes:
        arrays: The arrays with such entries.
    """

    def __init__(self) -> None:
        self._integers: list[Size] = []
        self._floats: list[Size] = []
        self._indices: dict[str, int] = {}
        self._limits: list[tuple[int, int]] = []
        self.arrays: list[ArrayTemplate] = []

    def index(self, size: Size, low: int = LEAST, high: int = MOST) -> int:
        """The position of a number among those of its type; the limits are those of an integer here."""
        is_float = isinstance(size.hint, float)
        found = self._indices.get(size.name)
        if found is None:
            those = self._floats if is_float else self._integers
            found = self._indices[size.name] = len(those)
            those.append(size)
            if not is_float:
                self._limits.append((low, high))
        elif not is_float:
            before = self._limits[found]
            self._limits[found] = max(low, before[0]), min(high, before[1])
        return found

    @cached_property
    def limits(self) -> np.ndarray:
        """The least and the largest values of integers, once all are there."""
        return np.array(self._limits, np.int64).reshape(-1, 2)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """All numbers, in the order of the input of `values`."""
        return (*self._integers, *self._floats)

    def values(self, numbers: Sequence[int | float]) -> Values:
        """Their values as arrays. Raises `OverflowError` for integers beyond their limits."""
        count = len(self._integers)
        integers, (low, high) = np.array(numbers[:count], np.int64), self.limits.T
        if ((integers < low) | (integers > high)).any():
            raise OverflowError("this backend has 32-bit integers")
        return Values(integers, np.array(numbers[count:], np.float64))


class ArrayTemplate:
    """An array that is filled in: integers and floats, each place with the index of its number.

    Called with values, it returns a new array; with those of a native call, the one that this has filled in.
    """

    def __init__(
        self,
        numbers: Variables,
        whole: np.ndarray,
        integers: Sequence[tuple[int, int]],
        floats: Sequence[tuple[int, int]],
    ) -> None:
        self.whole = whole
        self.integers, self.floats = columns(integers), columns(floats)
        self._is_wide = whole.itemsize == 8
        self._number = len(numbers.arrays)
        numbers.arrays.append(self)

    @classmethod
    def of_rows(
        cls, numbers: Variables, table: np.ndarray, filled: Iterable[tuple[int, int, Sequence[Number]]]
    ) -> ArrayTemplate:
        """A table with such numbers from a row and column on; those that are known are written into it."""
        entries: list[tuple[int, int]] = []
        for row, first, given in filled:
            for column, number in enumerate(given, first):
                if isinstance(number, Size):
                    entries.append((row * table.shape[1] + column, numbers.index(number)))
                else:
                    table[row, column] = number
        return cls(numbers, table, entries, ())

    def __call__(self, values: Values) -> np.ndarray:
        if values.arrays is not None:
            return values.arrays[self._number]
        found = self.whole.copy()
        integers = values.integers if self._is_wide else values.integers.astype(np.uint32).view(np.int32)
        flat = found.reshape(-1).view(integers.dtype)
        flat[self.integers[0]] = integers[self.integers[1]]
        flat.view(np.float64 if self._is_wide else np.float32)[self.floats[0]] = values.floats[self.floats[1]]
        return found


class SymbolicArray:
    """An array of integers or floats with symbolic elements, under construction.

    Integers have 32 bits, signed or not, other than where they are bytes of memory.
    """

    def __init__(self, numbers: Variables, is_float: bool = False, are_bytes: bool = False) -> None:
        self._numbers = numbers
        self._is_float = is_float
        self._limits = (0, MOST_BYTES) if are_bytes else (LEAST, MOST)
        self._given: list[Any] = []
        self._entries: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._given)

    def add(self, number: Any) -> int:
        """Append a number and return its index."""
        if isinstance(number, Size):
            own = as_float(number) if self._is_float else math.trunc(number)
            self._entries.append((len(self._given), self._numbers.index(own, *self._limits)))
            number = 0
        self._given.append(number)
        return len(self._given) - 1

    def close(self, *shape: int) -> ArrayTemplate:
        """Return the array template; a size of -1 in `shape` is inferred."""
        whole = np.array(self._given, np.float64 if self._is_float else np.int64).reshape(shape or -1)
        entries = ([], self._entries) if self._is_float else (self._entries, [])
        return ArrayTemplate(self._numbers, whole, *entries)


class SymbolicWords:
    """32-bit words with symbolic entries: the arguments of a template's steps, one after another."""

    def __init__(self, numbers: Variables) -> None:
        self._blocks: list[np.ndarray] = []
        self._count = 0
        self._numbers = numbers
        self._integers: list[tuple[int, int]] = []
        self._floats: list[tuple[int, int]] = []

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
                limits = saturate(LEAST, kind), saturate(MOST, kind)
                self._integers.append((place, self._numbers.index(math.trunc(value), *limits)))

    def close(self) -> ArrayTemplate:
        """Return what fills in the symbolic values."""
        whole = np.concatenate([np.zeros(0, np.int32), *self._blocks])
        return ArrayTemplate(self._numbers, whole, self._integers, self._floats)


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


class SymbolicSlots:
    """The assignment of temporaries of symbolic sizes to shared buffers.

    Attributes:
        of: The slot of each temporary.
        sizes: The size of each slot.
    """

    def __init__(
        self, sizes: Mapping[str, Any], lifetimes: Mapping[str, tuple[int, int]], alignment: int
    ) -> None:
        """Choose slots by what temporaries take while planning; their sizes are multiples of `alignment`."""
        slot_of, _ = assign_slots({name: hint_of(size) for name, size in sizes.items()}, lifetimes)
        self.of = [slot_of[name] for name in sizes]
        inside: dict[int, list[Any]] = {}
        for slot, size in zip(self.of, sizes.values(), strict=True):
            inside.setdefault(slot, []).append(size)
        self.sizes = [-(-largest(*inside[slot]) // alignment) * alignment for slot in range(len(inside))]

    def places(self) -> tuple[list[Any], Any]:
        """The offset of each temporary in memory that has all slots, and the total size."""
        *starts, total = accumulate(self.sizes, initial=0)
        return [starts[slot] for slot in self.of], total
