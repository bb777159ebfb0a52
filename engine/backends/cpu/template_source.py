"""The native function that fills in a plan's sizes: argument words, chunks, temporaries, commands."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from engine.backends.cpu.cost import CHUNK_NS, SHORTEST_BLOCK
from engine.base.memory.aligned import ALIGNMENT
from engine.base.memory.out_of_memory import MOST_BYTES
from engine.device import native
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE

_TEXT = f"""
def lay_out(layout, block, is_measured):
    # Lists of pairs: where a word is, and which one of the given numbers, addresses or slots goes there.
    pairs = load_i64(layout, 0) * 8 + layout
    if is_measured == 0:
        given = block + 8 * load_i64(layout, 2)
        for k in range(load_i64(layout, 1)):
            store_i64(block, load_i64(pairs, 2 * k), load_i64(given, load_i64(pairs, 2 * k + 1)))
        slots = block + 8 * load_i64(layout, 4)
        total = 0
        for k in range(load_i64(layout, 3)):
            size = (load_i64(slots, k) + {ALIGNMENT - 1}) // {ALIGNMENT} * {ALIGNMENT}
            store_i64(slots, k, total)
            total = -1 if total < 0 or not 0 <= size <= {MOST_BYTES} else total + size
        store_i64(block, load_i64(layout, 5), total)
        return
    arena = load_i64(block, load_i64(layout, 5))
    slots = block + 8 * load_i64(layout, 4)
    pairs += 16 * load_i64(layout, 1)
    for k in range(load_i64(layout, 6)):
        store_i64(block, load_i64(pairs, 2 * k), arena + load_i64(slots, load_i64(pairs, 2 * k + 1)))
    # Words that say how far one slot is from another.
    ways = layout + 8 * load_i64(layout, 7)
    for k in range(load_i64(layout, 8)):
        even, odd = load_i64(ways, 3 * k + 1), load_i64(ways, 3 * k + 2)
        store_i64(block, load_i64(ways, 3 * k), load_i64(slots, odd) - load_i64(slots, even))
    rows = layout + 8 * load_i64(layout, 9)
    threads, most = load_i64(layout, 11), load_i64(layout, 12)
    sizes = block + 8 * load_i64(layout, 13)
    commands = block + 8 * load_i64(layout, 14)
    nanoseconds = 0.0
    count = 0
    for k in range(load_i64(layout, 10)):
        cost, total = load_f64(sizes, 4 * k), load_i64(sizes, 4 * k + 1)
        nanoseconds += cost * load_i64(sizes, 4 * k + 3)
        wanted = int(min(cost / {CHUNK_NS!r}, float(most)))
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
        if total > 0:
            chunks = 1 if threads == 1 else max(1, min(wanted, total))
            record = commands + 32 * count
            store_i64(record, 0, load_i64(rows, 4 * k))
            store_i64(record, 1, block + 8 * load_i64(rows, 4 * k + 1))
            store_i64(record, 2, total)
            store_i64(record, 3, followers if followers > 0 else (total + chunks - 1) // chunks)
            count += 1
    store_i64(block, load_i64(layout, 5), count)
    store_f64(block, load_i64(layout, 5) + 1, nanoseconds)
"""

LAY_OUT = NativeSource("sizes of a plan", PRELUDE + _TEXT, "lay_out")


@cache
def layout_function() -> Callable[[int, int, int], None]:
    """The function, which holds the GIL: it is short, and taking the GIL again may wait for other threads."""
    address = native.load([LAY_OUT])[LAY_OUT.key]
    return ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
