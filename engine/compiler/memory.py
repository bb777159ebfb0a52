"""Where a plan's temporaries lie: buffers whose lifetimes do not overlap share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps no placed
buffer that is alive at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping


def place(
    sizes: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]], alignment: int
) -> tuple[dict[str, int], int]:
    """Offsets into one arena, and its size, in the unit of `sizes`; offsets are multiples of `alignment`."""
    offsets: dict[str, int] = {}
    total = 0
    for name in sorted(sizes, key=lambda n: (-sizes[n], lifetimes[n], n)):
        first, last = lifetimes[name]
        alive = sorted(
            (offsets[o], offsets[o] + _round_up(sizes[o], alignment))
            for o in offsets
            if lifetimes[o][0] <= last and first <= lifetimes[o][1]
        )
        offset = 0
        for start, end in alive:
            if offset + sizes[name] <= start:
                break
            offset = max(offset, end)
        offsets[name] = offset
        total = max(total, offset + _round_up(sizes[name], alignment))
    return offsets, total


def share(
    sizes: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, int], list[int]]:
    """Slots for objects that cannot be cut (textures): slot number per name, and each slot's size."""
    slots: dict[str, int] = {}
    slot_sizes: list[int] = []
    busy_until: list[int] = []
    for name in sorted(sizes, key=lambda n: lifetimes[n]):
        first, last = lifetimes[name]
        free = [s for s, until in enumerate(busy_until) if until < first]
        if free:
            # The best fit wastes least; if none is large enough, the largest grows least.
            fits = [s for s in free if slot_sizes[s] >= sizes[name]]
            slot = min(fits, key=lambda s: slot_sizes[s]) if fits else max(free, key=lambda s: slot_sizes[s])
            slot_sizes[slot] = max(slot_sizes[slot], sizes[name])
            busy_until[slot] = last
        else:
            slot = len(slot_sizes)
            slot_sizes.append(sizes[name])
            busy_until.append(last)
        slots[name] = slot
    return slots, slot_sizes


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step
