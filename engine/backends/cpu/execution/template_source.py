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
from engine.base.memory.out_of_memory import MOST_BYTES
from engine.device import native
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

RESULTS = struct.Struct("=qd")
"""The results at last: the number of commands, and the nanoseconds that they take."""

_TEXT = f"""
    results = block + 8 * results
    slots = block + 8 * slots
    if phase == {ALL}:
        done = evaluate(block + 8 * values, args + 8 * table, table_count, call_all, args + 8 * calls)
        if done < table_count:
            store_i64(results, 0, {REFUSED} if done < guards else {SHORT})
            return
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
                return
            total = load_i64(arena, 0)
        store_i64(results, 0, total)
        if phase == {MEASURE}:
            return
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
"""

_HEAD = ["def lay_out(args, block, phase):", *indent(LAYOUT.prologue())]
LAY_OUT = NativeSource("sizes of a plan", PRELUDE + EVALUATE + "\n".join(_HEAD) + _TEXT, "lay_out")


@cache
def layout_function() -> Callable[[int, int, int], None]:
    """The function, which holds the GIL: it is short, and taking the GIL again may wait for other threads."""
    address = native.process_store().address(LAY_OUT)
    return ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)


def prepared_layout(layout: int, block: int, phase: int) -> Callable[[], None]:
    """A call of the function with these arguments, which takes half the time as they are converted once."""
    function = ctypes.PYFUNCTYPE(None)(native.process_store().address(LAY_OUT))
    return partial(function, ctypes.c_int64(layout), ctypes.c_int64(block), ctypes.c_int64(phase))


def sources_of_sizes() -> list[NativeSource]:
    """The sources needed at new sizes: this function, and those that partition results."""
    return [LAY_OUT, cut_tasks.library.source]


def missing_of_sizes() -> list[NativeSource]:
    """The sources of `sources_of_sizes` that are not compiled."""
    return [source for source in sources_of_sizes() if not native.process_store().is_kept(source)]
