"""Recorded plans whose sizes are open: a command list with its arguments, filled in for one set of sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cpu.arguments import argument_words
from engine.backends.cpu.cost import CHUNK_NS, CHUNKS_PER_THREAD, SHORTEST_BLOCK, step_ns
from engine.backends.cpu.memory import CPUBuffer
from engine.backends.cpu.program import CPUProgram
from engine.base.memory.aligned import ALIGNMENT
from engine.compiler.memory_planner import share
from engine.compiler.plan import Plan
from engine.device.jobs.command_list import CommandList
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

    def close(self) -> Callable[[Sequence[Any]], np.ndarray]:
        """A function that fills in the values of `sizes`."""
        whole: np.ndarray = np.array(self._given, self._dtype)
        places = np.array(self._places, np.int64)

        def filled(values: Sequence[Any]) -> np.ndarray:
            array = whole.copy()
            array[places] = values
            return array

        return filled


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
        words, floats = _Numbers(np.int64), _Numbers(np.float64)
        # Of each step: where its words begin, and what its range and its chunks depend on.
        starts: list[int] = []
        self._float_places: list[int] = []
        pointers: dict[str, list[int]] = {}
        blocks: list[tuple[int, int]] = []
        kinds, costs, counts, rows, lasts = [], _Numbers(np.float64), *(_Numbers(np.int64) for _ in range(3))
        for number, step in enumerate(plan.steps):
            starts.append(len(words._given))
            is_blocked = step.is_generic and len(step.space) > 1
            for size in step.space:
                words.add(size)
            if is_blocked:
                blocks.append((number, words.add(0)))
                words.add(0)
            value: Any
            for value in step.values:
                if isinstance(value, float) or (isinstance(value, Size) and isinstance(value.hint, float)):
                    self._float_places.append(words.add(0))
                    floats.add(value)
                else:
                    words.add(value if isinstance(value, Size) else argument_words((), (value,), ())[0])
            for name in (step.output, *step.inputs):
                pointers.setdefault(name, []).append(words.add(0))
            kinds.append(functions[step.kernel.key])
            costs.add(step_ns(step))
            counts.add(step.space[0] if not is_blocked else 1)
            rows.add(prod(step.space[:-1]) if is_blocked else 1)
            lasts.add(step.space[-1] if is_blocked else 1)
        self._starts = np.array(starts, np.int64) * 8
        self._functions = np.array(kinds, np.int64)
        self._is_blocked = np.zeros(len(starts), bool)
        self._is_blocked[[number for number, _ in blocks]] = True
        self._block_places = np.array([place for _, place in blocks], np.int64)
        slots, places = self._arena(plan, pointers)
        self._temporary_places, self._temporary_slots = places
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
        parts = (words, floats, costs, counts, rows, lasts, slots)
        self.numbers: tuple[Number, ...] = tuple(size for part in parts for size in part.sizes)
        ends = np.cumsum([0, *(len(part.sizes) for part in parts)]).tolist()
        self._fillers = [
            (part.close(), slice(begin, end)) for part, begin, end in zip(parts, ends, ends[1:], strict=False)
        ]

    @staticmethod
    def _arena(
        plan: Plan, pointers: Mapping[str, Sequence[int]]
    ) -> tuple[_Numbers, tuple[np.ndarray, np.ndarray]]:
        """Sizes of the slots that temporaries share in turn, and which slot each pointer is of."""
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
        )

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 64 bits."""
        threads = self._host.planned_threads
        block, floats, costs, counts, rows, lasts, slots = (
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
        ends = np.cumsum(-(-slots // ALIGNMENT) * ALIGNMENT)
        arena = self._host.arena_of(int(ends[-1]) if len(ends) else 0)
        begins = np.concatenate(([0], ends))[:-1] + arena.ctypes.data
        block[self._temporary_places] = begins[self._temporary_slots]
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
        return CPUProgram(commands, float(costs.sum()), self._host.jobs, inputs, self._verdicts)

    def reserving(self, values: Sequence[int | float]) -> Generator[None, None, None]:
        """Nothing: memory on the CPU costs a frame nothing until it is used."""
        yield from ()
