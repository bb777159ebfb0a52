"""Recorded plans whose sizes are open: a command list with its arguments, filled in for one set of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cpu.arguments import argument_words
from engine.backends.cpu.cost import CHUNK_NS, CHUNKS_PER_THREAD, SHORTEST_BLOCK, step_ns
from engine.backends.cpu.listing import Changing, changing_words
from engine.backends.cpu.memory import CPUBuffer
from engine.backends.cpu.program import CPUProgram
from engine.base.memory.aligned import ALIGNMENT
from engine.compiler.memory_planner import share
from engine.compiler.plan import Plan, RepeatedSteps, Step
from engine.device.jobs.command_list import CommandList
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


class _Numbers:
    """An array of which some elements are open."""

    def __init__(self, dtype: type) -> None:
        self._dtype = dtype
        self._given: list[Any] = []
        self._places: list[int] = []
        self.sizes: list[Size] = []

    def add(self, number: Any) -> int:
        """Append a number; its place."""
        if isinstance(number, Size):
            self._places.append(len(self._given))
            self.sizes.append(number)
            number = 0
        self._given.append(number)
        return len(self._given) - 1

    def __len__(self) -> int:
        return len(self._given)

    def set(self, place: int, number: int) -> None:
        """Give a number that was added another value."""
        self._given[place] = number

    def close(self) -> Callable[[Sequence[Any]], np.ndarray]:
        """A function that fills in the values of `sizes`."""
        whole: np.ndarray = np.array(self._given, self._dtype)
        places = np.array(self._places, np.int64)

        def filled(values: Sequence[Any]) -> np.ndarray:
            array = whole.copy()
            array[places] = values
            return array

        return filled


class _Layout:
    """Collects rows of commands, and the words of their arguments, for steps whose sizes are open.

    Attributes:
        words: All argument words, with 0 for addresses and floats.
        floats: The floats among them, whose places are `float_places`.
        pointers: The places of the address of each tensor.
        ways: Places of words that say how far one tensor's address is from another's.
        starts, functions: Of each row: where its words begin, and its function.
        costs, counts, rows, lasts: What a row's range and its chunks depend on.
        runs: How often it runs.
        blocks: Rows that are cut into blocks, with the place of their number.
        begins: Rows that begin repeated commands, with how many belong to them.
    """

    def __init__(self, compiled: Mapping[str, int]) -> None:
        self._compiled = compiled
        self.words, self.floats = _Numbers(np.int64), _Numbers(np.float64)
        self.float_places: list[int] = []
        self.pointers: dict[str, list[int]] = {}
        self.ways: list[tuple[int, str, str]] = []
        self.starts: list[int] = []
        self.functions: list[int] = []
        self.costs = _Numbers(np.float64)
        self.counts, self.rows, self.lasts, self.runs = (_Numbers(np.int64) for _ in range(4))
        self.blocks: list[tuple[int, int]] = []
        self.begins: list[tuple[int, int]] = []
        # As a `Listing` has them.
        self._levels: list[tuple[Mapping[str, str], list[tuple[int, Changing]]]] = []

    def add(self, step: Step, runs: Number = 1) -> None:
        """Add a step that runs so often."""
        if isinstance(step.kernel, RepeatedSteps):
            self._repeat(step, step.kernel, runs)
        else:
            self._command(step, runs)

    def _row(self, function: int, start: int, cost: Number, count: Number, runs: Number) -> int:
        self.functions.append(function)
        self.starts.append(start)
        self.costs.add(cost)
        self.counts.add(count)
        self.runs.add(runs)
        return len(self.starts) - 1

    def _command(self, step: Step, runs: Number) -> None:
        words, window = self.words, step.window
        is_blocked = step.is_generic and len(step.space) > 1
        function, start, count = self._compiled[step.kernel.key], len(words), step.space[0]
        if window is not None:
            words.add(function)
            words.add(window.start)
            function, count = stock_functions()["window"], window.elements
        number = self._row(function, start, step_ns(step), count if not is_blocked else 1, runs)
        for size in step.space:
            words.add(size)
        if is_blocked:
            self.blocks.append((number, words.add(0)))
            words.add(0)
        value: Any
        for value in step.values:
            if isinstance(value, float) or (isinstance(value, Size) and isinstance(value.hint, float)):
                self.float_places.append(words.add(0))
                self.floats.add(value)
            else:
                words.add(value if isinstance(value, Size) else argument_words((), (value,), ())[0])
        for name in (step.output, *step.inputs):
            self.pointers.setdefault(name, []).append(words.add(0))
        self.rows.add(prod(step.space[:-1]) if is_blocked else 1)
        self.lasts.add(step.space[-1] if is_blocked else 1)
        for outer, (swapped, changing) in enumerate(reversed(self._levels)):
            # Numbers of runs, and windows, are those of the innermost repeat.
            changing += [(start, word) for word in changing_words(step, swapped) if word.even or not outer]

    def _repeat(self, step: Step, kernel: RepeatedSteps, runs: Number) -> None:
        """Add repeated commands, as `engine.device.jobs.repetition` has them."""
        words = self.words
        header = len(words)
        for number in (0, 0, step.space[0], 0):
            words.add(number)
        changing: list[tuple[int, Changing]] = []
        begin = self._mark(BEGIN, header, 1)
        self._levels.append((kernel.swapped, changing))
        for inner in kernel.body:
            self.add(inner, runs * step.space[0])
        span = len(self.starts) - begin - 1
        self.counts.set(begin, span)
        self._mark(TURN, header, span)
        for inner in kernel.last:
            self.add(inner, runs)
        self._levels.pop()
        self.begins.append((begin, len(self.starts) - 1 - begin))
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

    def _mark(self, function: int, header: int, span: int) -> int:
        self.rows.add(1)
        self.lasts.add(1)
        return self._row(function, header, 0.0, span, 0)


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
        words, pointers = layout.words, layout.pointers
        self._starts = np.array(layout.starts, np.int64) * 8
        self._functions = np.array(layout.functions, np.int64)
        self._is_blocked = np.zeros(len(layout.starts), bool)
        self._is_blocked[[number for number, _ in layout.blocks]] = True
        self._block_places = np.array([place for _, place in layout.blocks], np.int64)
        self._float_places = layout.float_places
        self._begin_rows, self._followers = np.array(layout.begins, np.int64).reshape(-1, 2).T
        slots, places = self._arena(plan, pointers)
        self._temporary_places, self._temporary_slots, slot_of = places
        ways = [(place, slot_of[a], slot_of[b]) for place, a, b in layout.ways]
        self._way_places, *self._way_slots = np.array(ways, np.int64).reshape(-1, 3).T
        self._constants = []
        for name, buffer in constants.items():
            assert isinstance(buffer, CPUBuffer)
            self._constants.append((np.array(pointers.get(name, []), np.int64), buffer))
        self._inputs = [name for name, spec in plan.buffers.items() if spec.role == "input"]
        self._outer = {
            name: np.array(pointers.get(name, []), np.int64)
            for name, spec in plan.buffers.items()
            if spec.role in ("input", "output", "table")
        }
        sizes = (layout.costs, layout.counts, layout.rows, layout.lasts, layout.runs)
        parts = (words, layout.floats, *sizes, slots)
        self.numbers: tuple[Number, ...] = tuple(size for part in parts for size in part.sizes)
        ends = np.cumsum([0, *(len(part.sizes) for part in parts)]).tolist()
        self._fillers = [
            (part.close(), slice(begin, end)) for part, begin, end in zip(parts, ends, ends[1:], strict=False)
        ]

    @staticmethod
    def _arena(
        plan: Plan, pointers: Mapping[str, Sequence[int]]
    ) -> tuple[_Numbers, tuple[np.ndarray, np.ndarray, dict[str, int]]]:
        """Sizes of the slots that temporaries share in turn, which slot each pointer is of, and each name."""
        temporaries = {
            name: spec.elements * spec.dtype.itemsize
            for name, spec in plan.buffers.items()
            if spec.role == "temporary" and name in pointers
        }
        hints = {name: hint_of(size) for name, size in temporaries.items()}
        slot_of, sizes = share(hints, plan.lifetimes())
        slots = _Numbers(np.int64)
        for slot in range(len(sizes)):
            slots.add(largest(1, *(temporaries[name] for name, own in slot_of.items() if own == slot)))
        places = [(place, slot) for name, slot in slot_of.items() for place in pointers[name]]
        return slots, (
            np.array([place for place, _ in places], np.int64),
            np.array([slot for _, slot in places], np.int64),
            slot_of,
        )

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 64 bits."""
        threads = self._host.planned_threads
        block, floats, costs, counts, rows, lasts, runs, slots = (
            fill(values[where]) for fill, where in self._fillers
        )
        block[self._float_places] = floats.view(np.int64)
        wanted = np.minimum((costs / CHUNK_NS).astype(np.int64), threads * CHUNKS_PER_THREAD)
        if threads == 1:
            wanted[:] = 1
        cut = np.maximum(1, np.minimum(-(-wanted // np.maximum(rows, 1)), lasts // SHORTEST_BLOCK))
        cut[(rows == 0) | (rows >= wanted)] = 1
        totals = np.where(self._is_blocked, np.where(lasts > 0, cut * rows, 0), counts)
        if len(self._block_places):
            own = cut[self._is_blocked]
            block[self._block_places] = own
            block[self._block_places + 1] = -(-lasts[self._is_blocked] // own)
        chunks = np.minimum(wanted, totals)
        grains = np.where(chunks <= 1, np.maximum(totals, 1), -(-totals // np.maximum(chunks, 1)))
        if threads == 1:
            grains = np.maximum(totals, 1)
        grains[self._begin_rows] = self._followers
        ends = np.cumsum(-(-slots // ALIGNMENT) * ALIGNMENT)
        arena = self._host.arena_of(int(ends[-1]) if len(ends) else 0)
        begins = np.concatenate(([0], ends))[:-1] + arena.ctypes.data
        block[self._temporary_places] = begins[self._temporary_slots]
        even, odd = self._way_slots
        block[self._way_places] = begins[odd] - begins[even]
        held: list[Any] = [arena]
        for places, buffer in self._constants:
            block[places] = buffer.address
            held.append(buffer.array)
        inputs: dict[int, list[int]] = {}
        for name, places in self._outer.items():
            outer = buffers[name]
            assert isinstance(outer, CPUBuffer)
            block[places] = outer.address
            held.append(outer.array)
            if name in self._inputs:
                inputs[outer.address] = places.tolist()
        table = np.stack([self._functions, self._starts + block.ctypes.data, totals, grains], axis=1)
        commands = CommandList(table[totals > 0], (block, held))
        return CPUProgram(commands, float(costs @ runs), self._host.jobs, inputs, self._verdicts)
