"""Fills new sizes into a template's program with one native call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cpu.execution.memory import SizedBuffer
from engine.backends.cpu.execution.program import CPUProgram, is_free
from engine.backends.cpu.execution.template_source import (
    ALL,
    ARRAYS,
    COPIED,
    LAYOUT,
    OTHERS,
    RAN,
    RESULTS,
    SHORT,
    prepared_layout,
)
from engine.backends.growable_memory import GrowableMemory, replacements
from engine.backends.host import INLINE_NS
from engine.backends.plan_template import FilledSizes, LookedUpNumbers, SizedInput
from engine.base.memory.aligned import address_of
from engine.base.memory.array_objects import are_readable
from engine.kernels.size import Number
from engine.kernels.size_table import WORDS, SizeTable
from engine.kernels.word_encoding import as_word

if TYPE_CHECKING:
    from engine.backends.cpu.backend import CPUBackend
    from engine.backends.cpu.execution.template import CPUTemplate


class _Block(NamedTuple):
    """Memory for a block, also as words, its address, and what fills it in once sizes are in it.

    `refill_from_arrays` fills it in for arrays, once these are among the words for that, and may run it.
    """

    array: np.ndarray
    words: memoryview
    address: int
    lay_out: Callable[[], int]
    refill_from_arrays: Callable[[], int]


class NativeSizes:
    """Computes the numbers of a plan at new sizes, and fills them into a template, in one native call.

    Behind the words of the template, a block has those of a `SizeTable`: sizes, addresses and elements of
    buffers, the memory of temporaries, and numbers.
    """

    def __init__(
        self,
        template: CPUTemplate,
        backend: CPUBackend,
        table: SizeTable,
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> None:
        self._template, self._backend = template, backend
        count, outer = len(template.numbers), len(elements)
        addresses = table.inputs
        rooms, arena = addresses + outer, addresses + 2 * outer
        # The memory that the last sizes took: of inputs and outputs, with what they share; of temporaries;
        # and the bytes of each.
        self._rooms: list[tuple[GrowableMemory[int, DeviceBuffer], Any]] = []
        self._arena: np.ndarray | None = None
        self._replaced = replacements.latest
        self._used: dict[int, int] = {}
        numbered = [table.place(number) for number in template.numbers]
        sized = [table.place(number) for number in elements]
        looked_up = [table.place(number) for number in numbers]
        guards = len(table.table) // WORDS
        for place, room in zip(sized, range(rooms, arena), strict=True):
            table.demand("le", place, room)
        head = LAYOUT.named(template.layout[: LAYOUT.end].tolist())
        begin = int(head["inserted"])
        inserted = template.layout[begin : begin + 2 * int(head["inserted_count"])].tolist()
        inserted[1::2] = [numbered[k] if k < count else addresses + k - count for k in inserted[1::2]]
        lists = {"inserted": inserted, "table": table.table, "calls": table.calls}
        words = template.layout.tolist()
        for name, entries in lists.items():
            head[name] = len(words)
            words += entries
        values = template.widen([as_word(word) for word in table.words])
        self._words, self._values = values.data, len(values) - len(table.words)
        self._given = self._values + table.inputs
        head |= {
            "given": self._values, "values": self._values, "arena": self._values + arena,
            "guards": guards, "table_count": len(table.table) // WORDS, "call_all": table.call_all or 0,
        }  # fmt: skip
        self._layout = np.array([*LAYOUT.values(**head), *words[LAYOUT.end :]], np.int64)
        self._layout_address = address_of(self._layout)
        self._blocks: list[_Block] = []  # unused, as the plan has refused sizes
        self._sizes = range(self._values, self._given)
        self._blank, self._addresses, self._elements = address_of(values), addresses, sized
        self._arrays: list[int] = []  # where `refill_from_arrays` has which arrays there are
        self._request, self._request_address = memoryview(b""), 0
        self._sized = [self._values + place for place in sized]
        self._looked_up = [self._values + place for place in looked_up]

    @classmethod
    def of(
        cls,
        template: CPUTemplate,
        backend: CPUBackend,
        make_table: Callable[[int], SizeTable | None],
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> NativeSizes | None:
        """See `engine.backends.plan_template.NativeTemplate.native_sizes`."""
        table = make_table(2 * len(elements) + 2)
        if table is None or table.call_all is None:
            return None
        return cls(template, backend, table, numbers, elements)

    def fill(
        self,
        sizes: Sequence[int],
        memory: Sequence[GrowableMemory[int, DeviceBuffer]],
    ) -> FilledSizes | None:
        """The program for some sizes, see `engine.backends.plan_template.NativeSizes`."""
        made, results = self._new_block(), self._template.results
        block, words, address, *_ = made
        for _ in range(3):  # inputs and outputs may have to grow first, then temporaries
            if not self._rooms or not self._is_current():
                self._use_memory(memory)
            state = self._lay_out(made, sizes)
            if state != SHORT:
                break
            for shared, place in zip(memory, self._sized, strict=True):
                shared.reserve(words[place] or 1)
            self._backend.arena_of(words[results + 1])
        if state < 0:
            self._blocks.append(made)
            return None
        rooms = zip(self._rooms, self._sized, strict=True)
        outer = [SizedBuffer(room, words, place) for (_, room), place in rooms]
        program = self._template.program_in(block, address, self._backend.arena, outer)
        # Such commands are not in the block.
        is_empty = program.commands is None or program.commands.is_empty
        program.results = partial(RESULTS.unpack_from, words, 8 * results)
        if self._arrays and not is_empty:
            program.direct = partial(self._run_again, made)
        used = {**self._used} if is_empty else self._used
        return FilledSizes(sizes, program, outer, used, LookedUpNumbers(words, self._looked_up), made)

    def refill(self, filled: FilledSizes, sizes: Sequence[int]) -> bool:
        """Turn a program into that of other sizes, see `engine.backends.plan_template.NativeSizes`."""
        program: Any = filled.program
        if filled.memory is not self._used or not self._is_current() or not is_free(program):
            return False
        if not self._backend.stream.is_idle():
            return False
        if self._lay_out(filled.block, sizes) <= 0:
            self._lay_out(filled.block, filled.sizes)
            return False
        filled.sizes = sizes
        program.refill(*program.results())
        return True

    def reads(self, inputs: Sequence[SizedInput], zeros: Sequence[int]) -> bool:
        """See `engine.backends.plan_template.ArraySizes`; first called before `fill`."""
        if not are_readable():
            return False
        self._arrays.clear()
        count = len(self._sizes)
        words: list[Any] = [0] * (ARRAYS.end + count)
        for item in inputs:
            self._arrays.append(len(words))
            places = self._addresses + item.place, self._elements[item.place]
            words += [0, id(item.dtype), len(item.shape), item.dtype.itemsize, *places]
            words += [word for axis in item.shape for word in axis]
        begin_zeros = len(words)
        words += [self._looked_up[at] for at in zeros]
        words[: ARRAYS.end] = ARRAYS.values(
            array_type=id(np.ndarray), array_count=len(inputs), entries=ARRAYS.end + count,
            number_count=count, numbers=ARRAYS.end, zeros=begin_zeros, zero_count=len(zeros),
            blank=self._blank, blank_count=len(self._words), limit=0,
        )  # fmt: skip
        whole = np.array(words, np.int64)
        if self._request:
            self._request[: len(words)] = whole.data
        else:
            self._request, self._request_address = whole.data, address_of(whole)
        self._held = [item.dtype for item in inputs]
        return True

    def refill_from_arrays(self, filled: FilledSizes, arrays: Sequence[np.ndarray]) -> bool | None:
        """See `engine.backends.plan_template.ArraySizes`."""
        program: Any = filled.program
        if filled.memory is not self._used or not self._is_current() or not is_free(program):
            return None
        block: _Block = filled.block
        done = self._run(block, arrays, program.pace.short_ns)
        if done <= OTHERS:
            if done != OTHERS:
                self._lay_out(block, filled.sizes)
            return None
        words = block.words
        filled.sizes = tuple([words[place] for place in self._sizes])
        if done == RAN:
            # The same sizes seldom come again.
            program.is_stale = True
            return True
        program.refill(*program.results())
        if done == COPIED:
            program.enqueue(self._backend.stream)
        return done == COPIED

    def _run(self, block: _Block, arrays: Sequence[np.ndarray], limit: int) -> int:
        """Fill in a block for arrays, and run it if its estimate is below so many nanoseconds."""
        stream, request = self._backend.stream, self._request
        if stream.copied or stream.jobs.is_closed:
            return OTHERS
        if (stream.last is not None or stream.marks) and not stream.is_idle():
            return OTHERS
        for number, place in enumerate(self._arrays):
            request[place] = id(arrays[number])
        request[ARRAYS.end - 1] = limit
        return block.refill_from_arrays()

    def _run_again(self, block: _Block, program: CPUProgram, arrays: Sequence[np.ndarray]) -> int:
        """Copy arrays of the same sizes and run a tiny program; if that was slow, begin timed trials."""
        before = perf_counter_ns()
        done = self._run(block, arrays, program.pace.tiny_ns)
        if done == RAN and perf_counter_ns() - before > INLINE_NS:
            program.settle()
            program.begin_trials()
        return done

    def _lay_out(self, block: _Block, sizes: Sequence[int]) -> int:
        """Fill in a block; returns how many commands it has, or why it has none."""
        words = block.words
        words[:] = self._words
        for number, size in enumerate(sizes, self._values):
            words[number] = size
        block.lay_out()
        return words[self._template.results]

    def _is_current(self) -> bool:
        """Whether no memory has been replaced since the last sizes."""
        latest = replacements.latest
        if self._replaced is not latest:
            for shared, room in self._rooms:
                if shared.memory is not room:
                    return False
            self._replaced = latest
        return self._arena is self._backend.arena

    def _use_memory(self, memory: Sequence[GrowableMemory[int, DeviceBuffer]]) -> None:
        """Set the memory that later blocks use; missing memory counts as too small for every size."""
        arena, self._replaced = self._backend.arena, replacements.latest
        rooms: list[Any] = [shared.memory for shared in memory]
        self._rooms, self._arena = [*zip(memory, rooms, strict=True)], arena
        there = [room for room in rooms if room is not None]
        addresses = [0 if room is None else room.address for room in rooms]
        elements = [-1 if room is None else room.elements for room in rooms]
        given = [*addresses, *elements, address_of(arena), len(arena)]
        for number, word in enumerate(given, self._given):
            self._words[number] = word
        self._used = dict([room.block() for room in there])
        if len(arena):
            self._used[address_of(arena)] = len(arena)

    def _new_block(self) -> _Block:
        if self._blocks:
            return self._blocks.pop()
        block = np.empty(len(self._words), np.int64)
        address = address_of(block)
        lay_out = prepared_layout(self._layout_address, address, ALL)
        from_arrays = prepared_layout(self._layout_address, address, self._request_address)
        return _Block(block, block.data, address, lay_out, from_arrays)
