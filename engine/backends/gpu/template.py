"""`GPUTemplate`: the common base of templates on GPUs, whose numbers a native call computes at new sizes."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Program
from engine.backends.gpu.size_functions import divide_by
from engine.backends.gpu.symbolic_arrays import Values, Variables, owned
from engine.backends.growable_memory import GrowableMemory
from engine.backends.plan_template import FilledSizes, LookedUpNumbers
from engine.base.memory.aligned import address_of
from engine.device.native import NativeSource
from engine.device.native.background_function import BackgroundFunction
from engine.device.native.prelude import PRELUDE
from engine.kernels.size import Number
from engine.kernels.size_table import EVALUATE, WORDS, SizeTable
from engine.kernels.word_encoding import as_word

Needs = Sequence[tuple[GrowableMemory[Any, Any], Any]]
"""Shared memory, and how much of each is needed."""


class GPUTemplate(ABC):
    """A plan with symbolic sizes: recorded commands whose arguments are filled in."""

    _variables: Variables
    _latest: tuple[Sequence[int | float], Values, Any] | None = None

    def __init__(self, backend: Backend, outer: Sequence[str], own: type[DeviceBuffer]) -> None:
        """`outer` are the names of inputs, outputs and tables, whose buffers are of the type `own`."""
        self._own_backend = backend
        self._outer = outer
        self._own = own

    @cached_property
    def numbers(self) -> tuple[Number, ...]:
        """The symbolic numbers, integers first."""
        return self._variables.numbers

    @abstractmethod
    def place_temporaries(self, given: Values) -> Any:
        """Where temporaries are at some sizes, as the two methods below take it."""

    @abstractmethod
    def needs(self, placed: Any) -> Needs:
        """The shared memory for temporaries, and its size."""

    @abstractmethod
    def program(self, given: Values, placed: Any, outer: Sequence[Any]) -> Program:
        """The program for some sizes over these buffers. Raises `OverflowError`."""

    @abstractmethod
    def refill(self, program: Any, given: Values, placed: Any, outer: Sequence[Any]) -> None:
        """Turn a program into that of other sizes in the same memory.

        Raises `OverflowError`, and leaves it as it is then.
        """

    def shared_memory(self, values: Sequence[int | float]) -> Needs:
        """The shared memory for temporaries, and its size."""
        return self.needs(self._placed(values)[1])

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> Program:
        """The program for one set of sizes."""
        return self.program(*self._placed(values), [*owned(buffers, self._outer, self._own).values()])

    def _placed(self, values: Sequence[int | float]) -> tuple[Values, Any]:
        """The values as arrays, and where temporaries are; `fill` follows `shared_memory`."""
        if self._latest is None or self._latest[0] != values:
            given = self._variables.values(values)
            self._latest = values, given, self.place_temporaries(given)
        return self._latest[1:]

    def native_sizes(
        self,
        make_table: Callable[[int], SizeTable | None],
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> NativeSizes | None:
        """See `engine.backends.plan_template.NativeTemplate.native_sizes`."""
        table = make_table(0) if len(elements) == len(self._outer) else None
        if table is None:
            return None
        return NativeSizes(self, self._own_backend, self._variables, table, numbers, elements)


_ARGUMENTS = 12
_CALL_ALL = 3
"""The argument that is known once the functions of sizes are compiled."""

_ROW = 7
"""Words of an array to fill in: it, what it is a copy of, of how many 32-bit words, whether numbers have two
of them, and entries: where integers and floats go, each with its position, and how many there are of each.
"""

NUMBERS = NativeSource(
    "numbers of a plan",
    PRELUDE
    + EVALUATE
    + f"""

def numbers(values, table, count, call_all, calls, places, limits, integers, floats, given, arrays, filled):
    if evaluate(values, table, count, call_all, calls) < count:
        return False
    for k in range(integers + floats):
        number = load_i64(values, load_i64(places, k))
        if k < integers and not load_i64(limits, 2 * k) <= number <= load_i64(limits, 2 * k + 1):
            return False
        store_i64(given, k, number)
    for k in range(filled):
        row = arrays + {8 * _ROW} * k
        array, whole, words = load_i64(row, 0), load_i64(row, 1), load_i64(row, 2)
        entries, integers, floats = load_i64(row, 4), load_i64(row, 5), load_i64(row, 6)
        for at in range(words):
            store_i32(array, at, load_i32(whole, at))
        for n in range(integers + floats):
            at, number = load_i64(entries, 2 * n), load_i64(entries, 2 * n + 1)
            if load_i64(row, 3) != 0:
                store_i64(array, at, load_i64(given, number))
            elif n < integers:
                store_i32(array, at, load_i32(given, 2 * number))
            else:
                store_f32(array, at, load_f64(given, number))
    return True
""",
    "numbers",
    f"boolean({', '.join(['int64'] * _ARGUMENTS)})",
)

# With the GIL held: the function is short.
_KIND = ctypes.PYFUNCTYPE(ctypes.c_bool, *[ctypes.c_int64] * _ARGUMENTS)


def sources_of_numbers() -> list[NativeSource]:
    """The sources that `NativeSizes` needs."""
    return [NUMBERS, divide_by.library.source]


@cache
def numbers_function() -> BackgroundFunction:
    """The function that computes numbers, for all templates; what it calls is compiled, too."""
    divide_by.library.address()
    return BackgroundFunction(NUMBERS, _KIND)


class _New(NamedTuple):
    """What `GPUTemplate.program` takes for sizes whose memory is there; and that memory."""

    given: Values
    placed: Any
    elements: Sequence[int]
    memory: Sequence[Any]
    near: Sequence[GrowableMemory[Any, Any]]


class NativeSizes:
    """Computes a plan's numbers at new sizes in one native call, and its program in existing memory."""

    def __init__(
        self,
        template: GPUTemplate,
        backend: Backend,
        variables: Variables,
        table: SizeTable,
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> None:
        self._template, self._backend = template, backend
        places = np.array([table.place(number) for number in template.numbers], np.int64)
        self._sized = [table.place(number) for number in elements]
        self._looked_up = [table.place(number) for number in numbers]
        limits = variables.limits
        integers, floats = len(limits), len(places) - len(limits)
        given = np.zeros(len(places), np.int64)
        self._given = given[:integers], given[integers:].view(np.float64)
        self._words = np.array([as_word(word) for word in table.words], np.int64)
        self._arrays = variables.arrays
        rows, entries = [], []
        for array in variables.arrays:
            behind = np.stack(array.floats, 1) + np.array([0, integers])
            pairs = np.concatenate([np.stack(array.integers, 1), behind])
            counts = [len(array.integers[0]), len(array.floats[0])]
            is_wide, words = array.whole.itemsize == 8, array.whole.nbytes // 4
            rows.append([0, address_of(array.whole), words, is_wide, address_of(pairs), *counts])
            entries.append(pairs)
        lists = [np.array(x, np.int64) for x in (table.table, table.calls, rows)]
        self._held = given, places, limits, lists, entries
        self._rows = lists[2].reshape(-1).data
        instructions, calls, filled = map(address_of, lists)
        count = len(table.table) // WORDS
        self._table = table
        self._arguments: list[Any] = [
            *(address_of(self._words), instructions, count, None, calls),
            *(address_of(places), address_of(limits), integers, floats, address_of(given)),
            *(filled, len(rows)),
        ]
        self._function = numbers_function()

    def fill(
        self,
        sizes: Sequence[int],
        memory: Sequence[GrowableMemory[int, DeviceBuffer]],
    ) -> FilledSizes | None:
        """The program for some sizes; None also where memory has to be allocated first."""
        new = self._numbers_of(sizes, memory)
        if new is None:
            return None
        outer: list[Any] = [
            self._backend.share(shared.memory, size)  # type: ignore[arg-type]
            for shared, size in zip(memory, new.elements, strict=True)
        ]
        try:
            program = self._template.program(new.given, new.placed, outer)
        except OverflowError:
            return None
        blocks = {**dict([buffer.block() for buffer in outer]), **program.temporaries()}
        words = self._words.copy()
        return FilledSizes(
            sizes=sizes,
            program=program,
            outer=outer,
            memory=blocks,
            numbers=LookedUpNumbers(words.data, self._looked_up),
            block=(words, memory, new.memory),
            near=new.near,
        )

    def refill(self, filled: FilledSizes, sizes: Sequence[int]) -> bool:
        """Turn a program into that of other sizes; what is in the device's queue has copies of arguments."""
        words, memory, there = filled.block
        new = self._numbers_of(sizes, memory)
        if new is None or not all(map(is_, there, new.memory)):
            return False
        outer: Any = filled.outer
        before = [buffer.elements for buffer in outer]
        try:
            for buffer, size in zip(outer, new.elements, strict=True):
                buffer.resize(size)
            self._template.refill(filled.program, new.given, new.placed, outer)
        except OverflowError:
            for buffer, size in zip(outer, before, strict=True):
                buffer.resize(size)
            return False
        words[:] = self._words
        filled.sizes, filled.near = sizes, new.near
        return True

    def _numbers_of(
        self, sizes: Sequence[int], memory: Sequence[GrowableMemory[int, DeviceBuffer]]
    ) -> _New | None:
        """The numbers of some sizes; None where guards refuse them, or memory is missing."""
        function, template, words = self._function.get(), self._template, self._words.data
        if self._arguments[_CALL_ALL] is None:
            self._arguments[_CALL_ALL] = self._table.call_all
        if function is None or self._arguments[_CALL_ALL] is None:
            return None
        for number, size in enumerate(sizes):
            words[number] = size
        arrays = [np.empty_like(array.whole) for array in self._arrays]
        for number, array in enumerate(arrays):
            self._rows[_ROW * number] = address_of(array)
        if not function(*self._arguments):
            return None
        elements = [words[place] or 1 for place in self._sized]
        given = Values(*self._given, arrays)
        placed = template.place_temporaries(given)
        near, there = [], []
        for shared, size in (*zip(memory, elements, strict=True), *template.needs(placed)):
            shared.record_use(size)
            there.append(shared.memory if shared.fits(size) else None)
            if shared.needs_growth(size):
                near.append(shared)
        return None if None in there else _New(given, placed, elements, there, near)
