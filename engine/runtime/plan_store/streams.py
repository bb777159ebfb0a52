"""The bytes of a stored plan: a writer and a reader that columns of values use."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from engine.base.errors import EngineError

LARGEST_INLINE = 1 << 23
"""Bytes of arrays that a file may hold: small ones, and weights that were computed from the model's."""

DEEPEST = 32
"""Levels of values in values: tuples in tuples, subgraphs in subgraphs."""

UNREADABLE = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError,
    EngineError,
)  # fmt: skip
"""What reading a file raises that was damaged in a way that its digest does not show."""


_HEAD = np.dtype("<u4")
_HEADS = 4
_SMALL, _LARGE, _REAL = np.dtype("<i2"), np.dtype("<i8"), np.dtype("<f8")
_ELSEWHERE = -(1 << 15)
"""In the place of an integer that needs more than 16 bits: the next one of a list."""

T = TypeVar("T")


class NotStorableError(Exception):
    """A value cannot be serialized."""


class Column(Protocol[T]):
    """How values of one type are written."""

    def write(self, values: Sequence[T], file: StreamWriter) -> None:
        """Append the values; raises `NotStorableError` or one of `UNREADABLE` if that fails."""
        ...

    def read(self, count: int, file: StreamReader) -> list[T]:
        """The next values; raises one of `UNREADABLE` if there are none."""
        ...


class StreamWriter:
    """Collects a file's content. Arrays inside `owners` are stored as references."""

    def __init__(self, owners: Mapping[str, np.ndarray]) -> None:
        self.integers: list[int] = []
        self.reals: list[float] = []
        self.depth = 0
        self._names: dict[str, int] = {}
        self._arrays: list[bytes] = []
        self._size = 0
        self._owners = owners
        spans = [(*_span(x), name) for name, x in owners.items() if x.size and x.dtype != object]
        self._spans = sorted(spans)
        self._starts = [start for start, _, _ in self._spans]

    def body(self, column: Column[T], value: T) -> bytes:
        """Encode a value as bytes; raises `NotStorableError`."""
        try:
            column.write([value], self)
            names = json.dumps([*self._names], separators=(",", ":")).encode()
            small = [n if _ELSEWHERE < n < -_ELSEWHERE else _ELSEWHERE for n in self.integers]
            large = [n for n in self.integers if not _ELSEWHERE < n < -_ELSEWHERE]
            streams: list[np.ndarray] = [
                np.array(large, _LARGE),
                np.array(self.reals, _REAL),
                np.array(small, _SMALL),
            ]
        except UNREADABLE as error:
            raise NotStorableError(str(error)) from error
        head = np.array([*map(len, streams), len(names)], _HEAD)
        return b"".join([head.tobytes(), *(stream.tobytes() for stream in streams), names, *self._arrays])

    def number(self, name: str) -> int:
        """The number of an interned text."""
        if type(name) is not str:
            raise NotStorableError(f"{name!r} is no text")
        return self._names.setdefault(name, len(self._names))

    def place(self, data: bytes) -> int:
        """The offset of the bytes after the streams."""
        start, self._size = self._size, self._size + len(data)
        if self._size > LARGEST_INLINE:
            raise NotStorableError("it holds weights that the model does not")
        self._arrays.append(data)
        return start

    def owner(self, array: np.ndarray) -> tuple[str, int] | None:
        """The owner of an array's memory and the byte offset in it; None if there is none."""
        if not array.size or array.dtype == object or min(array.strides, default=0) < 0:
            return None
        start, end = _span(array)
        position = bisect_right(self._starts, start) - 1
        if position < 0:
            return None
        first, last, name = self._spans[position]
        owner = self._owners[name]
        if not _is_plain(owner):
            is_alike = (array.shape, array.strides, array.dtype) == (owner.shape, owner.strides, owner.dtype)
            return (name, 0) if is_alike and start == first else None
        return (name, start - first) if end <= last and array.nbytes <= owner.nbytes else None


class StreamReader:
    """Reads a file's content by columns; raises one of `UNREADABLE` for other files."""

    def __init__(self, body: bytes, owners: Mapping[str, np.ndarray]) -> None:
        large, reals, small, names = np.frombuffer(body, _HEAD, _HEADS).tolist()
        end = _HEAD.itemsize * _HEADS
        streams = []
        for count, dtype in ((large, _LARGE), (reals, _REAL), (small, _SMALL)):
            streams.append(np.frombuffer(body, dtype, count, end))
            end += count * dtype.itemsize
        self._integers: list[int] = streams[2].tolist()
        places = np.flatnonzero(streams[2] == _ELSEWHERE).tolist()
        for place, value in zip(places, streams[0].tolist(), strict=True):
            self._integers[place] = value
        self._reals: list[float] = streams[1].tolist()
        self.names: list[str] = json.loads(body[end : end + names].decode())
        if type(self.names) is not list or not {str}.issuperset(map(type, self.names)):
            raise ValueError("the names are no texts")
        self._data = memoryview(body)[end + names :]
        self._next = self._next_real = self.depth = 0
        self._owners = dict(owners)
        self._makers: dict[str, Callable[[], np.ndarray]] = {}
        self._flat: dict[str, np.ndarray] = {}

    def value(self, column: Column[T]) -> T:
        """The value that the file holds."""
        (value,) = column.read(1, self)
        if self._next != len(self._integers) or self._next_real != len(self._reals):
            raise ValueError("there is more than one value")
        return value

    def integers(self, count: int) -> list[int]:
        """The next integers."""
        start, self._next = self._next, self._next + count
        if self._next > len(self._integers):
            raise ValueError("the file ends early")
        return self._integers[start : self._next]

    def reals(self, count: int) -> list[float]:
        """The next floats."""
        start, self._next_real = self._next_real, self._next_real + count
        if self._next_real > len(self._reals):
            raise ValueError("the file ends early")
        return self._reals[start : self._next_real]

    def bytes_at(self, start: int, size: int) -> memoryview:
        """Bytes after the streams."""
        if start + size > len(self._data):
            raise ValueError("an array lies outside the file")
        return self._data[start : start + size]

    def add_makers(self, makers: Mapping[str, Callable[[], np.ndarray]]) -> None:
        """Further arrays, made when one is first referred to."""
        self._makers.update(makers)

    def owner(self, name: str) -> np.ndarray:
        """An array that the reader has. Raises `LookupError` where there is none of this name."""
        if name not in self._owners:
            self._owners[name] = self._makers[name]()
        return self._owners[name]

    def bytes_of(self, name: str) -> np.ndarray:
        """The bytes of an array that the reader has. Raises `ValueError` unless its elements lie in order."""
        if name not in self._flat:
            owner = self.owner(name)
            if not _is_plain(owner):
                raise ValueError("an array has parts only where its elements lie in order")
            self._flat[name] = owner.reshape(-1).view(np.uint8)
            self._flat[name].flags.writeable = False
        return self._flat[name]


def _span(array: np.ndarray) -> tuple[int, int]:
    """The address range of an array's elements."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def _is_plain(array: np.ndarray) -> bool:
    """Whether an array is contiguous in row-major order."""
    return array.dtype != object and bool(array.flags.c_contiguous) and bool(array.size)
