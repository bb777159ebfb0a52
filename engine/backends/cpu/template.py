"""Recorded plans whose sizes are open: a command list with its arguments, filled in for one set of sizes."""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cpu.arguments import argument_words
from engine.backends.cpu.cost import CHUNKS_PER_THREAD, step_ns
from engine.backends.cpu.listing import OpenRepeats
from engine.backends.cpu.memory import CPUBuffer
from engine.backends.cpu.program import CPUProgram
from engine.backends.cpu.template_source import layout_function
from engine.base.memory.aligned import address_of
from engine.compiler.memory_planner import share
from engine.compiler.plan import Plan, RepeatedSteps, Step
from engine.device.jobs.command_list import REQUEST_WORDS, CommandList
from engine.device.jobs.repetition import BEGIN, TURN
from engine.device.jobs.stock import stock_functions
from engine.device.jobs.system import JobSystem
from engine.kernels.size import Number, Size, hint_of, largest


class Host(Protocol):
    """Protocol: the part of a backend that a template uses."""

    planned_threads: int

    @property
    def jobs(self) -> JobSystem:
        """The job threads."""
        ...

    def arena_of(self, size: int) -> np.ndarray:
        """Memory for temporaries."""
        ...


class _Words:
    """Words of which some are open: integers, or floats as their bits."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._open: dict[bool, list[tuple[int, Size]]] = {False: [], True: []}

    def __len__(self) -> int:
        return len(self._words)

    def add(self, number: Any, is_float: bool = False) -> int:
        """Append a number; its place."""
        place = len(self._words)
        if isinstance(number, Size):
            self._open[is_float].append((place, number))
            number = 0
        self._words.append(int(np.float64(number).view(np.int64)) if is_float else number)
        return place

    def set(self, place: int, number: int) -> None:
        """Give a word another value."""
        self._words[place] = number

    def array(self) -> np.ndarray:
        """The words, 0 where they are open."""
        return np.array(self._words, np.int64)

    def add_all(self, numbers: Sequence[Any]) -> int:
        """Append integers; the place of the first."""
        begin = len(self._words)
        for number in numbers:
            self.add(number)
        return begin

    def close(self) -> tuple[list[Size], list[Size], list[tuple[int, int]]]:
        """The open integers and floats, each once; and of each open word its place and its number's."""
        kinds = [{size.name: size for _, size in self._open[is_float]} for is_float in (False, True)]
        order = {key: n for n, key in enumerate((k, name) for k, sizes in enumerate(kinds) for name in sizes)}
        pairs = [(place, order[k, size.name]) for k in (0, 1) for place, size in self._open[bool(k)]]
        return [*kinds[0].values()], [*kinds[1].values()], pairs


_HEADER = 15
"""Words of a layout before its lists, see `LAY_OUT`."""

_RESULTS = struct.Struct("=qd")
"""What `LAY_OUT` yields at last: the number of commands, and the nanoseconds that they take."""


class _Layout:
    """Collects rows of commands, and the words of their arguments, for steps whose sizes are open.

    Attributes:
        words: All argument words, with 0 for addresses.
        pointers: The places of the address of each tensor.
        ways: Places of words that say how far one tensor's address is from another's.
        rows: Of each row: its function, where its words begin, the place of its number of blocks or -1, and
            how many rows belong to the repetition that it begins.
        sizes: What a row's range and its chunks depend on: its cost, its units or rows of elements, the
            elements of such a row, and how often it runs.
    """

    def __init__(self, compiled: Mapping[str, int]) -> None:
        self._compiled = compiled
        self.words = _Words()
        self.pointers: dict[str, list[int]] = {}
        self.ways: list[tuple[int, str, str]] = []
        self.rows: list[tuple[int, int, int, int]] = []
        self.sizes: list[tuple[Number, Number, Number, Number]] = []
        self._repeats = OpenRepeats()

    def add(self, step: Step, runs: Number = 1) -> None:
        """Add a step that runs so often."""
        if isinstance(step.kernel, RepeatedSteps):
            self._repeat(step, step.kernel, runs)
        else:
            self._command(step, runs)

    def _command(self, step: Step, runs: Number) -> None:
        words, window = self.words, step.window
        is_blocked, block = step.is_generic and len(step.space) > 1, -1
        function, start, units = self._compiled[step.kernel.key], len(words), step.space[0]
        if window is not None:
            words.add(function)
            words.add(window.start)
            function, units = stock_functions()["window"], window.elements
        for size in step.space:
            words.add(size)
        if is_blocked:
            block, units = words.add_all([0, 0]), prod(step.space[:-1])
        value: Any
        for value in step.values:
            if isinstance(value, float) or (isinstance(value, Size) and isinstance(value.hint, float)):
                words.add(value, is_float=True)
            else:
                words.add(value if isinstance(value, Size) else argument_words((), (value,), ())[0])
        for name in (step.output, *step.inputs):
            self.pointers.setdefault(name, []).append(words.add(0))
        self.rows.append((function, start, block, 0))
        self.sizes.append((step_ns(step), units, step.space[-1], runs))
        self._repeats.add(step, start)

    def _repeat(self, step: Step, kernel: RepeatedSteps, runs: Number) -> None:
        """Add repeated commands, as `engine.device.jobs.repetition` has them."""
        words = self.words
        header, begin = words.add_all([0, 0, step.space[0], 0]), len(self.rows)
        self._mark(BEGIN, header, 0)
        with self._repeats.opened(kernel.swapped) as changing:
            for inner in kernel.body:
                self.add(inner, runs * step.space[0])
            span = len(self.rows) - 1 - begin
            self._mark(TURN, header, span)
            for inner in kernel.last:
                self.add(inner, runs)
        self.rows[begin] = (BEGIN, header, -1, len(self.rows) - 1 - begin)
        self.sizes[begin] = (0.0, span, 1, 0)
        table = words.add(len(changing))
        words.set(header + 3, 8 * (table - header))
        for start, word in changing:
            words.add(8 * (start + word.place - table))
            first = words.add(word.first)
            words.add(word.stride)
            way = words.add(0)
            if word.even:
                self.pointers.setdefault(word.even, []).append(first)
                self.ways.append((way, word.even, word.odd))

    def _mark(self, function: int, header: int, span: int) -> None:
        self.rows.append((function, header, -1, 0))
        self.sizes.append((0.0, span, 1, 0))


class CPUTemplate:
    """A plan of the CPU whose sizes are open.

    `numbers` are the open ones, whose values `fill` takes in this order.
    """

    def __init__(
        self,
        host: Host,
        plan: Plan,
        constants: Mapping[str, DeviceBuffer],
        functions: Mapping[str, int],
        verdicts: dict[bytes, bool],
    ) -> None:
        self._host = host
        self._verdicts = verdicts
        layout = _Layout(functions)
        for step in plan.steps:
            layout.add(step)
        words, pointers, rows = layout.words, layout.pointers, layout.rows
        # Behind the words of steps: what `lay_out` computes from, and its results.
        begin_sizes = len(words)
        for cost, *counts in layout.sizes:
            words.add(cost, is_float=True)
            words.add_all(counts)
        slots, slot_of = self._arena(plan, pointers)
        begin_slots = words.add_all(slots)
        self._commands = words.add_all([0] * (4 * len(rows)))
        self._request = words.add_all([0] * REQUEST_WORDS)
        self._count = words.add_all([0, 0])
        integers, floats, pairs = words.close()
        self.numbers: tuple[Number, ...] = (*integers, *floats)
        self._given = words.add_all([0] * len(self.numbers))
        self._constants: list[np.ndarray] = []
        self._outer: list[tuple[str, list[int] | None]] = []
        for name, spec in plan.buffers.items():
            if spec.role in ("input", "output", "table"):
                given = words.add(0) - self._given
                pairs += [(place, given) for place in pointers.get(name, [])]
                self._outer.append((name, pointers.get(name, []) if spec.role == "input" else None))
        self._form = struct.Struct(f"={len(integers)}q{len(floats)}d{len(self._outer)}q")
        self._words = words.array()
        for name, buffer in constants.items():
            assert isinstance(buffer, CPUBuffer)
            self._words[pointers.get(name, [])] = buffer.address
            self._constants.append(buffer.array)
        temporaries = [(place, slot) for name, slot in slot_of.items() for place in pointers[name]]
        ways = [(place, slot_of[even], slot_of[odd]) for place, even, odd in layout.ways]
        threads = host.planned_threads
        most = threads * CHUNKS_PER_THREAD if threads > 1 else 1
        begin_ways = _HEADER + 2 * (len(pairs) + len(temporaries))
        head = [_HEADER, len(pairs), self._given, len(slots), begin_slots, self._count, len(temporaries)]
        head += [begin_ways, len(ways), begin_ways + 3 * len(ways), len(rows)]
        head += [threads, most, begin_sizes, self._commands]
        assert len(head) == _HEADER
        lists = [number for row in (*pairs, *temporaries, *ways, *rows) for number in row]
        self._layout = np.array([*head, *lists], np.int64)
        self._layout_address = address_of(self._layout)
        self._lay_out = layout_function()

    @staticmethod
    def _arena(plan: Plan, pointers: Mapping[str, Sequence[int]]) -> tuple[list[Any], dict[str, int]]:
        """Sizes of the slots that temporaries share in turn, and which slot each is in."""
        temporaries = {
            name: spec.elements * spec.dtype.itemsize
            for name, spec in plan.buffers.items()
            if spec.role == "temporary" and name in pointers
        }
        hints = {name: hint_of(size) for name, size in temporaries.items()}
        slot_of, sizes = share(hints, plan.lifetimes())
        slots = [
            largest(1, *(temporaries[name] for name, own in slot_of.items() if own == slot))
            for slot in range(len(sizes))
        ]
        return slots, slot_of

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 64 bits."""
        block = self._words.copy()
        addresses: list[int] = []
        held: list[Any] = [self._constants]
        inputs: dict[int, list[int]] = {}
        for name, places in self._outer:
            outer = buffers[name]
            assert isinstance(outer, CPUBuffer)
            addresses.append(outer.address)
            held.append(outer.array)
            if places is not None:
                inputs[outer.address] = places
        try:
            self._form.pack_into(block, 8 * self._given, *values, *addresses)
        except struct.error as error:
            raise OverflowError(f"a size is no integer of 64 bits: {error}") from error
        address, count = address_of(block), self._count
        self._lay_out(self._layout_address, address, 0)
        size = int(block[count])
        if size < 0:
            raise OverflowError("temporaries are larger than any memory")
        arena = self._host.arena_of(size)
        block[count] = address_of(arena)
        self._lay_out(self._layout_address, address, 1)
        number, nanoseconds = _RESULTS.unpack_from(block, 8 * count)
        commands = CommandList.within(
            block, address, self._commands, number, self._request, (block, [arena, *held])
        )
        return CPUProgram(commands, nanoseconds, self._host.jobs, inputs, self._verdicts)

    def reserving(self, values: Sequence[int | float]) -> Generator[None, None, None]:
        """Nothing: memory on the CPU costs a frame nothing until it is used."""
        yield from ()
