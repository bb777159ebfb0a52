"""Arguments of a user's job: tensors and arrays as addresses and sizes, numbers as words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from engine.backends.tensor_data import JobMemory
from engine.base.errors import InputError
from engine.runtime.tensor import Tensor

MOST_AXES = 4

NUMBA_NAMES = {
    "bool": "boolean",
    **{n: n for n in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()},
}
"""Numba's names of element types."""


@dataclass(frozen=True, slots=True)
class JobArgument:
    """The type of an argument: an array's dtype and rank, or a number's dtype (rank 0)."""

    dtype: str
    rank: int

    @property
    def words(self) -> int:
        """How many words it takes: an address and sizes, or a value."""
        return 1 + self.rank

    def text(self, pointer: str, word: int) -> str:
        """Source text that reads the argument from the words, from index `word` on."""
        if self.rank:
            sizes = "".join(f"_gameglue_i64(args, {word + 1 + axis}), " for axis in range(self.rank))
            return f"_gameglue_array({pointer}(_gameglue_i64(args, {word})), ({sizes}))"
        if self.dtype.startswith("float"):
            return f"_gameglue_types.{self.dtype}(_gameglue_f64(args, {word}))"
        if self.dtype == "bool":
            return f"(_gameglue_i64(args, {word}) != 0)"
        return f"_gameglue_types.{self.dtype}(_gameglue_i64(args, {word}))"


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Arguments of one call: their types, packed words and the memory that they refer to."""

    kinds: tuple[JobArgument, ...]
    words: list[int]
    memories: list[JobMemory]
    first_size: int | None


def bind(
    arguments: Sequence[Any], titles: Sequence[str], written: Callable[[str, int], bool], names: Sequence[str]
) -> BoundArguments:
    """Pack arguments into words. Raises `InputError` that names an invalid one."""
    kinds: list[JobArgument] = []
    words: list[int] = []
    memories: list[JobMemory] = []
    first_size: int | None = None
    for value, title, name in zip(arguments, titles, names, strict=True):
        kind = argument_type(value, title)
        kinds.append(kind)
        if not kind.rank:
            words.append(_number_word(value, kind))
            continue
        memory = _memory(value, title, written(name, kind.rank))
        shape = memory.array.shape
        memories.append(memory)
        words += (memory.array.__array_interface__["data"][0], *shape)
        if first_size is None:
            first_size = shape[0]
    return BoundArguments(tuple(kinds), words, memories, first_size)


def argument_type(value: Any, title: str) -> JobArgument:
    """The argument type that code is compiled for. Raises `InputError`."""
    kind = type(value)
    if kind is Tensor or isinstance(value, np.ndarray):
        rank = len(value.sizes) if kind is Tensor else value.ndim
        return _array_kind(value.dtype, rank, title)
    if kind is float:
        return _FLOAT
    if kind is bool or kind is np.bool_:
        return _BOOL
    if kind is int:
        return _INT
    if isinstance(value, np.generic) and value.dtype.name in NUMBA_NAMES:
        return JobArgument(value.dtype.name, 0)
    raise InputError(f"{title} is a {kind.__name__}; jobs take tensors on the CPU, numpy arrays and numbers")


_FLOAT, _BOOL, _INT = JobArgument("float64", 0), JobArgument("bool", 0), JobArgument("int64", 0)


@lru_cache(1024)
def _array_kind(dtype: np.dtype, rank: int, title: str) -> JobArgument:
    if dtype.name not in NUMBA_NAMES or not dtype.isnative:
        raise InputError(f"{title} has elements of type {dtype}; jobs take {', '.join(NUMBA_NAMES)}")
    if not 1 <= rank <= MOST_AXES:
        raise InputError(f"{title} has {rank} axes; jobs take 1 to {MOST_AXES}: reshape it")
    return JobArgument(dtype.name, rank)


def _number_word(value: Any, kind: JobArgument) -> int:
    if kind.dtype.startswith("float"):
        return int(np.float64(value).view(np.int64))
    number = int(value)
    if not -(1 << 63) <= number < 1 << 64:
        raise InputError(f"the number {number} has more than 64 bits")
    return number if number < 1 << 63 else number - (1 << 64)


def _memory(value: Tensor | np.ndarray, title: str, writes: bool) -> JobMemory:
    memory = JobMemory(value) if isinstance(value, np.ndarray) else value.for_job(writes)
    if memory is None:
        raise InputError(
            f"{title} is on a GPU, out of reach for jobs; CPUTensorData.pin(tensor) brings it to the CPU"
        )
    flags = memory.array.flags
    if not flags.c_contiguous:
        raise InputError(f"{title} is not in row-major order; numpy.ascontiguousarray makes a copy")
    if writes and not flags.writeable:
        raise InputError(f"{title} may be written by the job, and the array is read-only")
    return memory
