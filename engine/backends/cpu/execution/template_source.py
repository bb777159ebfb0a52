"""The native function that fills in a plan's sizes: argument words, chunks, temporaries, commands."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache, partial

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import SHORTEST_BLOCK
from engine.backends.cpu.codegen.printer import indent
from engine.backends.cpu.codegen.task_partition import CHUNK_NS, cut_tasks
from engine.base.memory.aligned import ALIGNMENT
from engine.base.memory.array_objects import DATA, ELEMENT_TYPE, FLAGS, IN_ORDER, OBJECT_TYPE, RANK, SHAPE
from engine.base.memory.out_of_memory import MOST_BYTES
from engine.device import native
from engine.device.jobs.command_loops import JUMP
from engine.device.jobs.layout import OP_RUN
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE
from engine.kernels.size_table import EVALUATE

LAYOUT = ArgumentBlock(
    # In the layout: pairs of a word and the number or address that it takes, pairs of a word and the slot
    # that it is the address of, words that say how far a slot is from another, and rows.
    "inserted inserted_count placed placed_count ways way_count rows row_count",
    # In the block: numbers and addresses, the sizes of slots, of which so many are to be placed, what rows
    # depend on, and where commands go, the request that runs them, and results.
    "given slots slot_count sizes commands request results most_chunks",
    # Where sizes are computed as well: instructions in the layout, behind so many of which are those that
    # compare with memory, and what they call; in the block their numbers, and address and size of the memory
    # for temporaries.
    "table table_count guards call_all calls values arena",
    first=0,
)

MEASURE, PLACE, ALL = 0, 1, 2
"""What `lay_out` does: it computes the size of temporaries; all else, with their address; or, where sizes
are computed as well, all at once.
"""

REFUSED, SHORT = -1, -2
"""The first result of `ALL` for sizes that guards refuse, and for those that need more memory. The second
is the size of temporaries then, if that is known.
"""

ARRAYS = ArgumentBlock(
    # What arrays have to be, of which so many entries follow; how many numbers there are, and where they are
    # noted here; words of the block that have to be 0; the words that a block begins as; and the nanoseconds
    # from which a program is not run.
    "array_type array_count entries number_count numbers zeros zero_count blank blank_count limit",
    first=0,
)
"""What the third argument is the address of, instead of a phase, where arrays come whose sizes the plan is to
have. An entry has `ENTRY_WORDS` words: the array, its type, rank and bytes of an element, and where the
address and the elements of its buffer are among the values. Two words follow for each axis: the number of its
size, or -1 and the size.
"""

ENTRY_WORDS = 6

MOST_COPIED = 1 << 17
"""Bytes from which inputs are read in place by a program that runs on the calling thread, not copied."""

OTHERS, LAID_OUT, COPIED, RAN = 0, 1, 2, 3
"""What is returned for arrays: the plan does not take them, and nothing was done; they are still to be copied
and the program to be run; it is still to be run; or all is done. Or `REFUSED`, or `SHORT`.
"""

RESULTS = struct.Struct("=qd")
"""The results at last: the number of commands, and the nanoseconds that they take."""

_FILL = f"""
    results = block + 8 * results
    slots = block + 8 * slots
    if phase == {ALL}:
        done = evaluate(block + 8 * values, args + 8 * table, table_count, call_all, args + 8 * calls)
        if done < table_count:
            store_i64(results, 0, {REFUSED} if done < guards else {SHORT})
            return 0
    if phase != {PLACE}:
        inserted = args + 8 * inserted
        given = block + 8 * given
        for k in range(inserted_count):
            store_i64(block, load_i64(inserted, 2 * k), load_i64(given, load_i64(inserted, 2 * k + 1)))
        total = load_i64(results, 0)
        for k in range(slot_count):
            size = (load_i64(slots, k) + {ALIGNMENT - 1}) // {ALIGNMENT} * {ALIGNMENT}
            store_i64(slots, k, total)
            total = -1 if total < 0 or not 0 <= size <= {MOST_BYTES} else total + size
        if phase == {ALL}:
            arena = block + 8 * arena
            if total < 0 or total > load_i64(arena, 1):
                store_i64(results, 0, {REFUSED} if total < 0 else {SHORT})
                store_i64(results, 1, total)
                return 0
            total = load_i64(arena, 0)
        store_i64(results, 0, total)
        if phase == {MEASURE}:
            return 0
    begin = load_i64(results, 0)
    placed = args + 8 * placed
    for k in range(placed_count):
        store_i64(block, load_i64(placed, 2 * k), begin + load_i64(slots, load_i64(placed, 2 * k + 1)))
    ways = args + 8 * ways
    for k in range(way_count):
        even, odd = load_i64(ways, 3 * k + 1), load_i64(ways, 3 * k + 2)
        store_i64(block, load_i64(ways, 3 * k), load_i64(slots, odd) - load_i64(slots, even))
    rows = args + 8 * rows
    sizes = block + 8 * sizes
    commands = block + 8 * commands
    nanoseconds = 0.0
    count = 0
    for k in range(row_count):
        cost, total = load_f64(sizes, 4 * k), load_i64(sizes, 4 * k + 1)
        nanoseconds += cost * load_i64(sizes, 4 * k + 3)
        wanted = int(min(cost / {CHUNK_NS!r}, float(most_chunks)))
        place, followers = load_i64(rows, 4 * k + 2), load_i64(rows, 4 * k + 3)
        if place >= 0:
            # Rows of elements that are few and long are cut into blocks.
            units, last = total, load_i64(sizes, 4 * k + 2)
            cut = 1
            if 0 < units < wanted:
                cut = max(1, min((wanted + units - 1) // units, last // {SHORTEST_BLOCK}))
            store_i64(block, place, cut)
            store_i64(block, place + 1, (last + cut - 1) // cut)
            total = cut * units if last > 0 else 0
        # Rows of a repetition say how many they are, so they stay where they have nothing to do.
        if total > 0 or followers != 0:
            chunks = max(1, min(wanted, total))
            record = commands + 32 * count
            store_i64(record, 0, load_i64(rows, 4 * k))
            store_i64(record, 1, block + 8 * load_i64(rows, 4 * k + 1))
            store_i64(record, 2, total)
            store_i64(record, 3, followers if followers > 0 else max(1, (total + chunks - 1) // chunks))
            count += 1
    request = block + 8 * request
    store_i64(request, 0, {OP_RUN})
    store_i64(request, 1, commands)
    store_i64(request, 2, count)
    store_i64(results, 0, count)
    store_f64(results, 1, nanoseconds)
    return count
"""

_READ = f"""
    numbers = arrays + 8 * numbers
    for k in range(number_count):
        store_i64(numbers, k, 0)
    entry = arrays + 8 * entries
    for k in range(array_count):
        array, dtype, rank = load_i64(entry, 0), load_i64(entry, 1), load_i64(entry, 2)
        if load_i64(array, {OBJECT_TYPE}) != array_type or load_i64(array, {ELEMENT_TYPE}) != dtype:
            return {OTHERS}
        if load_i32(array, {2 * RANK}) != rank or load_i32(array, {2 * FLAGS}) & {IN_ORDER} == 0:
            return {OTHERS}
        shape = load_i64(array, {SHAPE})
        entry += 8 * {ENTRY_WORDS}
        for axis in range(rank):
            size, number, wanted = load_i64(shape, axis), load_i64(entry, 0), load_i64(entry, 1)
            if number >= 0:
                wanted = load_i64(numbers, number)
                if wanted == 0:
                    store_i64(numbers, number, size)
                    wanted = size
            if size <= 0 or size != wanted:
                return {OTHERS}
            entry += 16
"""

_RUN = f"""
    values, results = block + 8 * values, block + 8 * results
    known = 0
    for k in range(number_count):
        known += load_i64(values, k) == load_i64(numbers, k)
    if known < number_count:
        copy_bytes(block, blank, 8 * blank_count)
        for k in range(number_count):
            store_i64(values, k, load_i64(numbers, k))
        if fill_in(args, block, {ALL}) == 0:
            return min(load_i64(results, 0), {REFUSED})
        for k in range(zero_count):
            if load_i64(block, load_i64(arrays + 8 * zeros, k)) != 0:
                return {REFUSED}
    # Nothing is copied before all fit.
    for is_checked in range(2):
        entry = arrays + 8 * entries
        for k in range(array_count):
            array, rank = load_i64(entry, 0), load_i64(entry, 2)
            shape, elements = load_i64(array, {SHAPE}), 1
            for axis in range(rank):
                elements *= load_i64(shape, axis)
            nbytes = elements * load_i64(entry, 3)
            if is_checked == 1:
                copy_bytes(load_i64(values, load_i64(entry, 4)), load_i64(array, {DATA}), nbytes)
            elif elements > load_i64(values, load_i64(entry, 5)) or nbytes >= {MOST_COPIED}:
                return {LAID_OUT}
            entry += 8 * ({ENTRY_WORDS} + 2 * rank)
    if load_f64(results, 1) >= float(limit):
        return {COPIED}
    run(block + 8 * commands, load_i64(results, 0))
    return {RAN}
"""

_WHOLE = [
    '@typed_helper("int64(int64, int64, int64)")',
    "def fill_in(args, block, phase):",
    *indent(LAYOUT.prologue()),
    _FILL,
    '@typed_helper("int64(int64, int64, int64)")',
    "def refill_from_arrays(args, block, arrays):",
    *indent([line.replace("(args,", "(arrays,") for line in ARRAYS.prologue()]),
    _READ,
    *indent([f"{name} = {LAYOUT.read(name)}" for name in ("values", "results", "commands")]),
    _RUN,
    "def lay_out(args, block, phase):",
    f"    return fill_in(args, block, phase) if phase <= {ALL} else refill_from_arrays(args, block, phase)",
]
LAY_OUT = NativeSource(
    "sizes of a plan",
    PRELUDE + EVALUATE + JUMP + "\n".join(_WHOLE) + "\n",
    "lay_out",
    "int64(int64, int64, int64)",
)


# Making a class takes as long as a small network.
_PREPARED = ctypes.PYFUNCTYPE(ctypes.c_int64)


@cache
def layout_function() -> Callable[[int, int, int], int]:
    """The function, which holds the GIL.

    It is short, as are programs that it runs, and taking the GIL again may wait for other threads.
    """
    address = native.process_store().address(LAY_OUT)
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)


def prepared_layout(layout: int, block: int, phase: int) -> Callable[[], int]:
    """A call of the function with these arguments, which takes half the time as they are converted once."""
    function = _PREPARED(native.process_store().address(LAY_OUT))
    return partial(function, ctypes.c_int64(layout), ctypes.c_int64(block), ctypes.c_int64(phase))


def sources_of_sizes() -> list[NativeSource]:
    """The sources needed at new sizes: this function, and those that partition results."""
    return [LAY_OUT, cut_tasks.library.source]


def missing_of_sizes() -> list[NativeSource]:
    """The sources of `sources_of_sizes` that are not compiled."""
    return [source for source in sources_of_sizes() if not native.process_store().is_kept(source)]
