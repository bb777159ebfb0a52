"""Recorded plans whose sizes are open: a command list with its arguments, filled in for one set of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cpu.arguments import argument_words
from engine.backends.cpu.cost import CHUNKS_PER_THREAD, step_ns
from engine.backends.cpu.memory import CPUBuffer
from engine.backends.cpu.program import CPUProgram
from engine.backends.cpu.template_source import layout_function
from engine.base.memory.aligned import address_of
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


_HEADER = 13
"""Words of a layout before its lists, see `LAY_OUT`."""


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
        words, pointers = _Words(), dict[str, list[int]]()
        # Of each step: function, where its words begin, and those of its blocks; cost, units or rows, last.
        steps: list[tuple[int, int, int]] = []
        sizes: list[tuple[Any, Any, Any]] = []
        for step in plan.steps:
            is_blocked, begin, block = step.is_generic and len(step.space) > 1, len(words), -1
            for size in step.space:
                words.add(size)
            if is_blocked:
                block = words.add(0)
                words.add(0)
            value: Any
            for value in step.values:
                if isinstance(value, float) or (isinstance(value, Size) and isinstance(value.hint, float)):
                    words.add(value, is_float=True)
                else:
                    words.add(value if isinstance(value, Size) else argument_words((), (value,), ())[0])
            for name in (step.output, *step.inputs):
                pointers.setdefault(name, []).append(words.add(0))
            steps.append((functions[step.kernel.key], begin, block))
            units = prod(step.space[:-1]) if is_blocked else step.space[0]
            sizes.append((step_ns(step), units, step.space[-1]))
        # Behind the words of steps: what `lay_out` computes from, and its results.
        begin_sizes = len(words)
        for cost, units, last in sizes:
            words.add(cost, is_float=True)
            for number in (units, last, 0):
                words.add(number)
        slots, temporaries = self._arena(plan, pointers)
        begin_slots = words.add_all(slots)
        self._commands = words.add_all([0] * (4 * len(steps)))
        self._count = words.add_all([0, 0])
        integers, floats, pairs = words.close()
        self.numbers: tuple[Number, ...] = (*integers, *floats)
        self._integers = len(integers)
        self._given = words.add_all([0] * len(self.numbers))
        self._constants: list[np.ndarray] = []
        self._outer: list[tuple[str, list[int] | None]] = []
        for name, spec in plan.buffers.items():
            if spec.role in ("input", "output", "table"):
                given = words.add(0) - self._given
                pairs += [(place, given) for place in pointers.get(name, [])]
                self._outer.append((name, pointers.get(name, []) if spec.role == "input" else None))
        self._words = words.array()
        for name, buffer in constants.items():
            assert isinstance(buffer, CPUBuffer)
            self._words[pointers.get(name, [])] = buffer.address
            self._constants.append(buffer.array)
        threads = host.planned_threads
        most = threads * CHUNKS_PER_THREAD if threads > 1 else 1
        begin_steps = _HEADER + 2 * (len(pairs) + len(temporaries))
        head = [_HEADER, len(pairs), self._given, len(slots), begin_slots, self._count, len(temporaries)]
        head += [threads, most, len(steps), begin_steps, begin_sizes, self._commands]
        lists = [number for row in (*pairs, *temporaries, *steps) for number in row]
        self._layout = np.array([*head, *lists], np.int64)
        self._layout_address = address_of(self._layout)
        self._lay_out = layout_function()

    @staticmethod
    def _arena(plan: Plan, pointers: Mapping[str, Sequence[int]]) -> tuple[list[Any], list[tuple[int, int]]]:
        """Sizes of the slots that temporaries share in turn, and which slot each of their pointers is of."""
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
        return slots, [(place, slot) for name, slot in slot_of.items() for place in pointers[name]]

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 64 bits."""
        block = self._words.copy()
        begin, integers, end = self._given, self._integers, self._given + len(self.numbers)
        block[begin : begin + integers] = values[:integers]
        if begin + integers < end:
            block.view(np.float64)[begin + integers : end] = values[integers:]
        addresses, held = [], [*self._constants]
        inputs: dict[int, list[int]] = {}
        for name, places in self._outer:
            outer = buffers[name]
            assert isinstance(outer, CPUBuffer)
            addresses.append(outer.address)
            held.append(outer.array)
            if places is not None:
                inputs[outer.address] = places
        block[end:] = addresses
        address, count = address_of(block), self._count
        self._lay_out(self._layout_address, address, 0)
        size = int(block[count])
        if size < 0:
            raise OverflowError("temporaries are larger than any memory")
        arena = self._host.arena_of(size)
        block[count] = address_of(arena)
        self._lay_out(self._layout_address, address, 1)
        rows = block[self._commands : self._commands + 4 * int(block[count])]
        commands = CommandList(rows, (block, [arena, *held]), is_checked=True)
        nanoseconds = float(block.view(np.float64)[count + 1])
        return CPUProgram(commands, nanoseconds, self._host.jobs, inputs, self._verdicts)
