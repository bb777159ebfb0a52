"""`GPUTemplate`: the common base of templates on GPUs, whose numbers a native call computes at new sizes."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from engine.backends.base import Backend, DeviceBuffer, Program
from engine.backends.gpu.size_functions import divide_by
from engine.backends.gpu.symbolic_arrays import Values, owned
from engine.backends.growable import GrowableMemory
from engine.backends.plan_template import FilledSizes, LookedUpNumbers
from engine.base.memory.aligned import address_of
from engine.device.native import NativeSource
from engine.device.native.background_function import BackgroundFunction
from engine.device.native.prelude import PRELUDE
from engine.kernels.size import Number, Size
from engine.kernels.size_table import EVALUATE, WORDS, SizeTable
from engine.kernels.words import as_word

Needs = Sequence[tuple[GrowableMemory[Any, Any], Any]]
"""Shared memory, and how much of each is needed."""


class GPUTemplate(ABC):
    """A plan with symbolic sizes: recorded commands whose arguments are filled in.

    Attributes:
        numbers: The symbolic numbers, integers first.
    """

    numbers: tuple[Number, ...]
    _values: Callable[[Sequence[int | float]], Values]
    _latest: tuple[Sequence[int | float], Values, Any] | None = None

    def __init__(self, backend: Backend, outer: Sequence[str], own: type[DeviceBuffer]) -> None:
        """`outer` are the names of inputs, outputs and tables, whose buffers are of the type `own`."""
        self._own_backend = backend
        self._outer = outer
        self._own = own

    @abstractmethod
    def place_temporaries(self, given: Values) -> Any:
        """Where temporaries are at some sizes, as the two methods below take it."""

    @abstractmethod
    def needs(self, placed: Any) -> Needs:
        """The shared memory for temporaries, and its size."""

    @abstractmethod
    def program(self, given: Values, placed: Any, outer: Sequence[Any]) -> Program:
        """The program for some sizes over these buffers. Raises `OverflowError`."""

    def shared_memory(self, values: Sequence[int | float]) -> Needs:
        """The shared memory for temporaries, and its size."""
        return self.needs(self._placed(values)[1])

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> Program:
        """The program for one set of sizes."""
        return self.program(*self._placed(values), [*owned(buffers, self._outer, self._own).values()])

    def _placed(self, values: Sequence[int | float]) -> tuple[Values, Any]:
        """The values as arrays, and where temporaries are; `fill` follows `shared_memory`."""
        if self._latest is None or self._latest[0] != values:
            given = self._values(values)
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
        return None if table is None else NativeSizes(self, self._own_backend, table, numbers, elements)


NUMBERS = NativeSource(
    "numbers of a plan",
    PRELUDE
    + EVALUATE
    + """

def numbers(values, table, count, call_all, calls, places, integers, floats, given):
    if evaluate(values, table, count, call_all, calls) < count:
        return False
    for k in range(integers):
        number = load_i64(values, load_i64(places, k))
        if not -2147483648 <= number < 4294967296:
            return False
        store_i64(given, k, number)
    for k in range(integers, integers + floats):
        store_i64(given, k, load_i64(values, load_i64(places, k)))
    return True
""",
    "numbers",
    f"boolean({', '.join(['int64'] * 9)})",
)

# With the GIL held: the function is short.
_KIND = ctypes.PYFUNCTYPE(ctypes.c_bool, *[ctypes.c_int64] * 9)


def sources_of_numbers() -> list[NativeSource]:
    """The sources that `NativeSizes` needs."""
    return [NUMBERS, divide_by.library.source]


@cache
def numbers_function() -> BackgroundFunction:
    """The function that computes numbers, for all templates; what it calls is compiled, too."""
    divide_by.library.address()
    return BackgroundFunction(NUMBERS, _KIND)


class NativeSizes:
    """Computes a plan's numbers at new sizes in one native call, and its program in existing memory."""

    def __init__(
        self,
        template: GPUTemplate,
        backend: Backend,
        table: SizeTable,
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> None:
        self._template, self._backend = template, backend
        places = np.array([table.place(number) for number in template.numbers], np.int64)
        self._sized = [table.place(number) for number in elements]
        self._looked_up = [table.place(number) for number in numbers]
        kinds = [isinstance(number, Size) and isinstance(number.hint, float) for number in template.numbers]
        integers, floats = kinds.count(False), kinds.count(True)
        given = np.zeros(len(places), np.int64)
        self._given: Values = given[:integers], given[integers:].view(np.float64)
        self._words = np.array([as_word(word) for word in table.words], np.int64)
        lists = [np.array(x, np.int64) for x in (table.table, table.calls)]
        self._held = given, places, *lists
        instructions, calls = map(address_of, lists)
        count, call_all = len(table.table) // WORDS, table.call_all or 0
        self._arguments = [
            *(address_of(self._words), instructions, count, call_all, calls),
            *(address_of(places), integers, floats, address_of(given)),
        ]
        self._function = numbers_function()

    def fill(
        self,
        sizes: Sequence[int],
        memory: Sequence[GrowableMemory[int, DeviceBuffer]],
    ) -> FilledSizes | None:
        """The program for some sizes; None also where memory has to be allocated first."""
        function, template, words = self._function.get(), self._template, self._words.data
        if function is None:
            return None
        for number, size in enumerate(sizes):
            words[number] = size
        if not function(*self._arguments):
            return None
        elements = [words[place] or 1 for place in self._sized]
        placed = template.place_temporaries(self._given)
        near = []
        is_there = True
        for shared, size in (*zip(memory, elements, strict=True), *template.needs(placed)):
            shared.note(size)
            is_there = is_there and shared.fits(size)
            if shared.wants_more(size):
                near.append(shared)
        if not is_there:
            return None
        outer: list[Any] = [
            self._backend.share(shared.memory, size)  # type: ignore[arg-type]
            for shared, size in zip(memory, elements, strict=True)
        ]
        try:
            program = template.program(self._given, placed, outer)
        except OverflowError:
            return None
        blocks = {**dict([buffer.block() for buffer in outer]), **program.temporaries()}
        return FilledSizes(
            sizes=sizes,
            program=program,
            outer=outer,
            memory=blocks,
            numbers=LookedUpNumbers(self._words.copy().data, self._looked_up),
            block=None,
            near=near,
        )

    def refill(self, filled: FilledSizes, sizes: Sequence[int]) -> bool:
        """Never: a program's commands may still be in the device's queue."""
        return False
