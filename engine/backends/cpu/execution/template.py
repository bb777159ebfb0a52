"""CPU templates: a command list with its arguments, filled in for one set of sizes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.base import DeviceBuffer
from engine.backends.cpu.codegen.task_partition import CHUNKS_PER_THREAD
from engine.backends.cpu.execution.command_builder import CommandBuilder
from engine.backends.cpu.execution.memory import CPUBuffer
from engine.backends.cpu.execution.native_sizes import NativeSizes
from engine.backends.cpu.execution.program import CPUProgram, MeasuredRate
from engine.backends.cpu.execution.template_source import LAYOUT, MEASURE, PLACE, RESULTS, layout_function
from engine.backends.growable_memory import GrowableMemory
from engine.base.memory.aligned import ALIGNMENT, address_of
from engine.compiler.memory_planner import assign_offsets, assign_slots
from engine.compiler.plan import Plan, Role
from engine.device.jobs.command_list import REQUEST_WORDS, CommandList
from engine.kernels.size import Number, Size, hint_of, largest
from engine.kernels.size_table import SizeTable

if TYPE_CHECKING:
    from engine.backends.cpu.backend import CPUBackend


class _Arena:
    """The memory that temporaries share.

    Attributes:
        slots: The sizes of the slots that they are in, in turn; their offsets where no size is open.
        slot_of: Which slot each temporary is in.
        total: The size of all slots; 0 where sizes are open.
        is_open: Whether sizes are.
    """

    def __init__(self, plan: Plan) -> None:
        lifetimes = plan.lifetimes()
        sizes: dict[str, Any] = {
            name: spec.elements * spec.dtype.itemsize
            for name, spec in plan.buffers.items()
            if name in lifetimes
        }
        self.is_open = any(isinstance(size, Size) for size in sizes.values())
        self.total = 0
        if self.is_open:
            self.slot_of, found = assign_slots(
                {name: hint_of(size) for name, size in sizes.items()}, lifetimes
            )
            inside: list[list[Any]] = [[] for _ in found]
            for name, slot in self.slot_of.items():
                inside[slot].append(sizes[name])
            self.slots = [largest(1, *of_slot) for of_slot in inside]
        else:
            sizes = {name: max(1, size) for name, size in sizes.items()}
            offsets, self.total = assign_offsets(sizes, lifetimes, ALIGNMENT)
            self.slots = [*offsets.values()]
            self.slot_of = {name: slot for slot, name in enumerate(offsets)}


class CommandLayout:
    """The unbound words and commands of a plan, shared by all its templates.

    `functions` are the addresses of its kernels by their keys, `threads` the number that tasks are made for.
    """

    def __init__(self, plan: Plan, functions: Mapping[str, int], threads: int) -> None:
        listing = CommandBuilder(functions)
        # Buffers that only printed kernels read, which read nothing beyond their end.
        self.exact = {*plan.buffers}
        for step in plan.steps:
            listing.add(step)
            for part in (step, *step.parts):
                if not part.is_generic:
                    self.exact -= {*part.inputs}
        words, pointers, rows = listing.words, listing.pointers, listing.rows
        self.functions = tuple([row[0] for row in rows])
        # Behind the words of steps: what `lay_out` computes from, and its results.
        begin_sizes = words.add(*[number for sizes in listing.sizes for number in sizes])
        arena = _Arena(plan)
        begin_slots = words.add(*arena.slots)
        self.commands = words.reserve(4 * len(rows))
        self.request = words.reserve(REQUEST_WORDS)
        self.results = words.add(arena.total, 0)
        integers, floats, inserted = words.close()
        self.numbers: tuple[Number, ...] = (*integers, *floats)
        self.given = words.reserve(len(self.numbers))
        self.outer: list[tuple[str, Role, list[int]]] = []
        for name, spec in plan.buffers.items():
            if spec.role in ("input", "output", "table"):
                given = words.reserve(1) - self.given
                inserted += [(word, given) for word in pointers.get(name, [])]
                self.outer.append((name, spec.role, pointers.get(name, [])))
        self.form = struct.Struct(f"={len(integers)}q{len(floats)}d{len(self.outer)}q")
        self.words = words.array()
        self.places = {
            name: pointers.get(name, []) for name, spec in plan.buffers.items() if spec.role == "constant"
        }
        placed = [(word, slot) for name, slot in arena.slot_of.items() for word in pointers.get(name, [])]
        ways = [(word, arena.slot_of[even], arena.slot_of[odd]) for word, even, odd in listing.ways]
        lists: list[int] = []
        begins: dict[str, float] = {}
        listed: Mapping[str, Sequence[tuple[int, ...]]] = {
            "inserted": inserted, "placed": placed, "ways": ways, "rows": rows
        }  # fmt: skip
        for name, entries in listed.items():
            begins[name] = LAYOUT.end + len(lists)
            lists += [number for entry in entries for number in entry]
        head = LAYOUT.values(
            **begins, inserted_count=len(inserted), placed_count=len(placed), way_count=len(ways),
            row_count=len(rows), given=self.given, slots=begin_slots,
            slot_count=len(arena.slots) if arena.is_open else 0, sizes=begin_sizes, commands=self.commands,
            request=self.request, results=self.results,
            most_chunks=threads * CHUNKS_PER_THREAD if threads > 1 else 1, table=0,
            table_count=0, guards=0, call_all=0, calls=0, values=0, arena=0,
        )  # fmt: skip
        self.layout = np.array([*head, *lists], np.int64)


class CPUTemplate:
    """A CPU plan with symbolic sizes.

    `numbers` are the open ones, whose values `fill` takes in this order.
    """

    def __init__(
        self,
        backend: CPUBackend,
        layout: CommandLayout,
        constants: Mapping[str, DeviceBuffer],
        paces: dict[tuple[int, ...], MeasuredRate],
    ) -> None:
        self._backend = backend
        self._pace = paces.setdefault(layout.functions, MeasuredRate())
        self.numbers = layout.numbers
        self._commands, self._request = layout.commands, layout.request
        self.results, self._given = layout.results, layout.given
        self._outer, self._form, self._exact = layout.outer, layout.form, layout.exact
        self._written = [
            at for at, (_, role, places) in enumerate(layout.outer) if role == "output" and places
        ]
        self.layout = layout.layout
        self._layout_address = address_of(self.layout)
        self._lay_out = layout_function()
        self._words = layout.words.copy()
        self._places = dict(layout.places)
        self._constants: list[np.ndarray] = []
        self.bind(constants)

    def bind(self, constants: Mapping[str, DeviceBuffer]) -> None:
        """Bind constants; each must be bound before a size at which a step reads it."""
        for name, buffer in constants.items():
            assert isinstance(buffer, CPUBuffer)
            self._words[self._places.pop(name)] = buffer.address
            self._constants.append(buffer.array)

    def fill(self, values: Sequence[int | float], buffers: Mapping[str, DeviceBuffer]) -> CPUProgram:
        """The program for one set of sizes. Raises `OverflowError` for integers beyond 64 bits."""
        block = self._words.copy()
        outer = [buffers[name] for name, _, _ in self._outer]
        try:
            addresses = [buffer.address for buffer in outer]  # type: ignore[attr-defined]
            self._form.pack_into(block.data, 8 * self._given, *values, *addresses)
        except struct.error as error:
            raise OverflowError(f"a size is no integer of 64 bits: {error}") from error
        address, results = address_of(block), self.results
        self._lay_out(self._layout_address, address, MEASURE)
        size = int(block[results])
        if size < 0:
            raise OverflowError("temporaries are larger than any memory")
        arena = self._backend.arena_of(size)
        block[results] = address_of(arena)
        self._lay_out(self._layout_address, address, PLACE)
        return self.program_in(block, address, arena, outer)

    def program_in(
        self, block: np.ndarray, address: int, arena: np.ndarray, outer: Sequence[DeviceBuffer]
    ) -> CPUProgram:
        """The program in a block that `lay_out` has filled in, over these inputs and outputs."""
        held: list[Any] = [arena, self._constants]
        inputs: dict[int, list[int]] = {}
        exact: set[int] = set()
        for (name, role, places), buffer in zip(self._outer, outer, strict=True):
            assert isinstance(buffer, CPUBuffer)
            held.append(buffer.array)
            if role == "input":
                inputs[buffer.address] = places
                if name in self._exact:
                    exact.add(buffer.address)
        # The buffers of outputs that kernels write, and the words that have their addresses.
        outputs: Any = {self._outer[at][0]: (outer[at], self._outer[at][2]) for at in self._written}
        number, nanoseconds = RESULTS.unpack_from(block.data, 8 * self.results)
        commands = CommandList.within(block, address, self._commands, number, self._request, (block, held))
        return CPUProgram(commands, nanoseconds, self._backend.jobs, inputs, outputs, self._pace, exact)

    def shared_memory(self, values: Sequence[int | float]) -> Sequence[tuple[GrowableMemory[Any, Any], Any]]:
        """Return nothing: CPU memory takes no frame time until it is used."""
        return ()

    def native_sizes(
        self,
        make_table: Callable[[int], SizeTable | None],
        numbers: Sequence[Number],
        elements: Sequence[Number],
    ) -> NativeSizes | None:
        """See `engine.backends.plan_template.NativeTemplate`."""
        return NativeSizes.of(self, self._backend, make_table, numbers, elements)

    def widen(self, words: Sequence[int]) -> np.ndarray:
        """Add words behind those of the template; returns all, of which bound constants are a part."""
        whole = np.array([*self._words.tolist(), *words], np.int64)
        self._words = whole[: len(self._words)]
        return whole
