"""Serialization of plans and graphs: streams of integers, floats, names and array bytes.

A `Column` says how values of one type are written. `column_of` derives that from the type: records are
written field by field, as their fields are annotated. Streams have one type each, so what is read has the
right one. Checked are the names of a record's fields, names from closed
tables, sizes, and that arrays are inside the file, or inside those that the reader has too (`owners`), which
are referred to. No code is read: a function call is a name of `engine.compiler.plan.STORABLE` and arguments
of the types that the function is annotated with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, islice, repeat
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from engine.base.dtypes import STORAGE_TYPES, as_dtype
from engine.base.shapes import DynamicTensorShape
from engine.compiler.plan import STORABLE
from engine.kernels.expr import IterationNumber
from engine.runtime.plan_store.streams import DEEPEST, Column, NotStorableError, StreamReader, StreamWriter, T

_TYPES = {name: as_dtype(name) for name in (*STORAGE_TYPES, "object", "void", "complex64", "complex128")}


class _Integers(Column[int]):
    """Integers that 64 bits hold, not below `least`."""

    def __init__(self, least: int | None = None) -> None:
        self._least = least

    def write(self, values: Sequence[int], file: StreamWriter) -> None:
        file.integers += values if {int}.issuperset(map(type, values)) else map(_as_integer, values)

    def read(self, count: int, file: StreamReader) -> list[int]:
        found = file.integers(count)
        if self._least is not None and found and min(found) < self._least:
            raise ValueError("an integer is too small")
        return found


class _Reals(Column[float]):
    """Floats."""

    def write(self, values: Sequence[float], file: StreamWriter) -> None:
        file.reals += map(float, values)

    def read(self, count: int, file: StreamReader) -> list[float]:
        return file.reals(count)


class _Numbers(Column[int | float]):
    """Integers and floats: where floats and numbers of runs are, the floats, and integers for all."""

    def write(self, values: Sequence[int | float], file: StreamWriter) -> None:
        places = [place for place, value in enumerate(values) if isinstance(value, float)]
        runs = [place for place, value in enumerate(values) if type(value) is IterationNumber]
        Many(SIZE).write([places, runs], file)
        REAL.write([values[place] for place in places], file)
        INTEGER.write([0 if isinstance(value, float) else value for value in values], file)

    def read(self, count: int, file: StreamReader) -> list[int | float]:
        places, runs = Many(SIZE).read(2, file)
        reals = file.reals(len(places))
        found: list[int | float] = [*file.integers(count)]
        for place, real in zip(places, reals, strict=True):
            found[place] = real
        for place in runs:
            found[place] = IterationNumber()
        return found


class _Names(Column[str]):
    """Texts."""

    def write(self, values: Sequence[str], file: StreamWriter) -> None:
        file.integers += map(file.number, values)

    def read(self, count: int, file: StreamReader) -> list[str]:
        found = file.integers(count)
        if found and min(found) < 0:
            raise ValueError("a name has no number")
        return [*map(file.names.__getitem__, found)]


class Converted(Column[T]):
    """Values that are written as those of another column."""

    def __init__(self, column: Column[Any], encode: Callable[[T], Any], decode: Callable[[Any], T]) -> None:
        self._column = column
        self._encode = encode
        self._decode = decode

    def write(self, values: Sequence[T], file: StreamWriter) -> None:
        self._column.write([*map(self._encode, values)], file)

    def read(self, count: int, file: StreamReader) -> list[T]:
        return [*map(self._decode, self._column.read(count, file))]


@cache
def _type_name(dtype: np.dtype) -> str:
    if _TYPES.get(dtype.name) != dtype:
        raise NotStorableError(f"{dtype} is a type without a name")
    return dtype.name


class Maybe(Column[T | None]):
    """Values of a column, or None."""

    def __init__(self, column: Column[T]) -> None:
        self._column = column

    def write(self, values: Sequence[T | None], file: StreamWriter) -> None:
        FLAG.write([value is not None for value in values], file)
        self._column.write([value for value in values if value is not None], file)

    def read(self, count: int, file: StreamReader) -> list[T | None]:
        flags = FLAG.read(count, file)
        left = iter(self._column.read(flags.count(True), file))
        return [next(left) if flag else None for flag in flags]


class Many(Column[Sequence[T]]):
    """Sequences of any length, of values of one column; they are read as tuples."""

    def __init__(self, column: Column[T]) -> None:
        self._column = column

    def write(self, values: Sequence[Sequence[T]], file: StreamWriter) -> None:
        SIZE.write([*map(len, values)], file)
        self._column.write([*chain.from_iterable(values)], file)

    def read(self, count: int, file: StreamReader) -> list[Sequence[T]]:
        lengths = SIZE.read(count, file)
        left = iter(self._column.read(sum(lengths), file))
        return [*map(tuple, map(islice, repeat(left), lengths))]


class Pairs(Column[Mapping[Any, Any]]):
    """Mappings: their keys and their values, each of one column; they are read as dicts."""

    def __init__(self, key: Column[Any], value: Column[Any]) -> None:
        self._keys = Many(key)
        self._value = value

    def write(self, values: Sequence[Mapping[Any, Any]], file: StreamWriter) -> None:
        self._keys.write([*map(tuple, values)], file)
        self._value.write([item for mapping in values for item in mapping.values()], file)

    def read(self, count: int, file: StreamReader) -> list[Mapping[Any, Any]]:
        keys = self._keys.read(count, file)
        left = iter(self._value.read(sum(map(len, keys)), file))
        return [dict(zip(names, left, strict=False)) for names in keys]


class Records(Column[T]):
    """A column of records: `make` is called with one value of each column.

    Where `make` is a record's class, fields without a column have that of their annotation.
    """

    def __init__(self, make: Callable[..., T], /, **columns: Column[Any]) -> None:
        fields = getattr(make, "__match_args__", (*columns,))
        self._make = make
        self._columns = {name: columns.get(name) or column_of(_types(make)[name]) for name in fields}
        self._title = ",".join(self._columns)

    def write(self, values: Sequence[T], file: StreamWriter) -> None:
        if values:
            NAME.write([self._title], file)
            for name, column in self._columns.items():
                column.write([getattr(value, name) for value in values], file)

    def read(self, count: int, file: StreamReader) -> list[T]:
        if not count:
            return []
        if NAME.read(1, file) != [self._title]:
            raise ValueError("a record has other fields")
        return self._made([column.read(count, file) for column in self._columns.values()])

    def _made(self, columns: list[list[Any]]) -> list[T]:
        return [*map(self._make, *columns)]


class Tuples(Records[Any]):
    """Records that are read as plain tuples, which takes a third of the time."""

    def _made(self, columns: list[list[Any]]) -> list[Any]:
        return [*zip(*columns, strict=True)]


class _Array(NamedTuple):
    """Where an array is: at a byte of an owner, or, where that is '', of the file; texts are listed.

    `strides` are empty where one element follows another.
    """

    owner: str
    dtype: np.dtype
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Arrays(Column[np.ndarray]):
    """Arrays; those inside the reader's own are views of these."""

    def write(self, values: Sequence[np.ndarray], file: StreamWriter) -> None:
        _PLACES.write([self._place(array, file) for array in values], file)
        NAME.write([text for array in values if array.dtype == object for text in array.reshape(-1)], file)

    def _place(self, array: np.ndarray, file: StreamWriter) -> _Array:
        if array.dtype == object:
            return _Array("", array.dtype, 0, array.shape, ())
        found = file.owner(array)
        if found is None:
            return _Array("", array.dtype, file.place(array.tobytes()), array.shape, ())
        name, start = found
        return _Array(
            name, array.dtype, start, array.shape, () if array.flags.c_contiguous else array.strides
        )

    def read(self, count: int, file: StreamReader) -> list[np.ndarray]:
        places = _PLACES.read(count, file)
        return [_texts(x[3], file) if x[1] is _TEXT else _view(x, file) for x in places]


def _texts(shape: tuple[int, ...], file: StreamReader) -> np.ndarray:
    texts = NAME.read(math.prod(shape), file)
    array: np.ndarray = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def _view(place: Any, file: StreamReader) -> np.ndarray:
    name, dtype, start, shape, strides = place
    if not name:
        found: np.ndarray = np.frombuffer(file.bytes_at(start, math.prod(shape) * dtype.itemsize), dtype)
        found = np.not_equal(found.view(np.uint8), 0) if dtype is _BOOL else found.copy()
        found = found.reshape(shape)
        found.flags.writeable = False
        return found
    owner = file.owner(name)
    if not start and owner.shape == shape and owner.dtype == dtype:
        if owner.strides == strides if strides else owner.flags.c_contiguous:
            return owner
    size = math.prod(shape) * dtype.itemsize
    end = start + size
    if strides:
        end = start + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + dtype.itemsize
    if not size or max(size, end) > owner.nbytes:
        raise ValueError("an array lies outside the one that it is a part of")
    return np.ndarray(shape, dtype, file.bytes_of(name), start, strides or None)


def _bytes_as_array(value: bytes) -> np.ndarray:
    return np.frombuffer(value, np.uint8) if value else _NONE


class Constant(Column[T]):
    """One value, which the reader knows: nothing else can be written."""

    def __init__(self, value: T) -> None:
        self._value = value

    def write(self, values: Sequence[T], file: StreamWriter) -> None:
        if any(value != self._value for value in values):
            raise NotStorableError(f"not everything is {self._value}")

    def read(self, count: int, file: StreamReader) -> list[T]:
        return [self._value] * count


class OneOf(Column[Any]):
    """Values of several types, each with a column; those of each type are written together."""

    def __init__(self, *kinds: tuple[type, Column[Any]]) -> None:
        self._kinds = kinds

    def write(self, values: Sequence[Any], file: StreamWriter) -> None:
        file.depth += 1
        if file.depth > DEEPEST:
            raise NotStorableError("values are nested too deeply")
        kinds = [self._kind_of(value) for value in values]
        SIZE.write(kinds, file)
        for kind in dict.fromkeys(kinds):
            _, column = self._kinds[kind]
            column.write([value for value, other in zip(values, kinds, strict=True) if other == kind], file)
        file.depth -= 1

    def _kind_of(self, value: Any) -> int:
        for number, (kind, _) in enumerate(self._kinds):
            if isinstance(value, kind):
                return number
        raise NotStorableError(f"{type(value).__name__} is no type that a file can hold")

    def read(self, count: int, file: StreamReader) -> list[Any]:
        file.depth += 1
        if file.depth > DEEPEST:
            raise ValueError("values are nested too deeply")
        kinds = SIZE.read(count, file)
        found = {}
        for kind, times in Counter(kinds).items():
            found[kind] = iter(self._kinds[kind][1].read(times, file))
        file.depth -= 1
        return [next(found[kind]) for kind in kinds]


class Trees(OneOf):
    """A column of nested values: numbers, strings, None, tuples, and values of further types."""

    def __init__(self, *others: tuple[type, Column[Any]]) -> None:
        super().__init__(
            (NoneType, Constant(None)), (bool, FLAG), (int, INTEGER), (float, REAL), (str, NAME),
            (tuple, Many(self)), (tuple, Many(INTEGER)), *others,
        )  # fmt: skip

    def _kind_of(self, value: Any) -> int:
        is_integral = type(value) is tuple and {int}.issuperset(map(type, value))
        return _INTEGRAL if is_integral else super()._kind_of(value)


class _Calls(Column[Callable[[], Any]]):
    """A column of deferred calls of storable functions; arguments are stored by function."""

    def write(self, values: Sequence[Callable[[], Any]], file: StreamWriter) -> None:
        calls: dict[str, list[tuple[Any, ...]]] = {}
        names = []
        for value in values:
            if not isinstance(value, partial) or value.keywords:
                raise NotStorableError(f"{value} is no call of a storable function")
            names.append(_name_of(value.func))
            calls.setdefault(names[-1], []).append(value.args)
        NAME.write(names, file)
        for name, given in calls.items():
            columns = _arguments(name)
            for column, arguments in zip(columns, zip(*given, strict=True), strict=True):
                column.write(arguments, file)

    def read(self, count: int, file: StreamReader) -> list[Callable[[], Any]]:
        names = NAME.read(count, file)
        calls: dict[str, Iterator[tuple[Any, ...]]] = {}
        for name, times in Counter(names).items():
            calls[name] = zip(*(column.read(times, file) for column in _arguments(name)), strict=True)
        return [partial(STORABLE[name], *next(calls[name])) for name in names]


def _name_of(made: Any) -> str:
    name = STORABLE.name_of(made)
    if name is None:
        raise NotStorableError(f"{made} is not storable")
    return name


@cache
def _arguments(name: str) -> list[Column[Any]]:
    """The columns of a function's arguments, by the types that it is annotated with."""
    types = _types(STORABLE[name])
    return [column_of(kind) for argument, kind in types.items() if argument != "return"]


_types = cache(get_type_hints)


@cache
def column_of(kind: Any) -> Column[Any]:
    """The column of values of a type, as annotations write it. Raises `TypeError` where there is none."""
    origin, parts = get_origin(kind), get_args(kind)
    plain = _PLAIN.get(kind) or _PLAIN.get(origin)
    if plain is not None:
        return plain
    if origin is Literal:
        return Converted(SIZE, parts.index, parts.__getitem__)
    if origin in (Union, UnionType):
        (other,) = set(parts) - {NoneType}
        return Maybe(column_of(other))
    if origin in (tuple, Sequence):
        return Many(column_of(parts[0]))
    if origin in (dict, Mapping):
        return Pairs(*map(column_of, parts))
    if origin is Callable:
        return CALL
    if not (isinstance(kind, type) and kind.__module__.startswith("engine.")):
        raise TypeError(f"{kind} is no type that a file can hold")
    return Records(kind)


_BOTH = (False, True)
_TEXT, _BOOL = _TYPES["object"], _TYPES["bool"]
_INTEGRAL = 6
_NONE = np.empty(0, np.uint8)

INTEGER = _Integers()
SIZE = _Integers(least=0)
REAL = _Reals()
NUMBER = _Numbers()
FLAG = Converted(SIZE, int, _BOTH.__getitem__)
NAME = _Names()
DTYPE = Converted(NAME, _type_name, _TYPES.__getitem__)
ARRAY = _Arrays()
BYTES = Converted(ARRAY, _bytes_as_array, np.ndarray.tobytes)
CALL = _Calls()

_PLAIN: dict[Any, Column[Any]] = {
    bool: FLAG, int: INTEGER, float: REAL, str: NAME, bytes: BYTES, np.dtype: DTYPE, np.ndarray: ARRAY,
    DynamicTensorShape: Converted(Trees(), tuple, DynamicTensorShape),
}  # fmt: skip
_PLACES = Tuples(_Array, start=SIZE, shape=Many(SIZE), strides=Many(SIZE))


def _as_integer(value: Any) -> int:
    if not isinstance(value, int | np.integer):
        raise NotStorableError(f"{value!r} is no integer")
    return int(value)
