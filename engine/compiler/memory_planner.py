"""Memory planning: temporaries whose live ranges do not overlap share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps no placed
buffer that is alive at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

SPANS = 512
"""Into how many spans of steps `place` divides a plan."""

BRIEF = 16
"""In how many of them a buffer is alive at most to be kept by spans."""


def place(
    sizes: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]], alignment: int
) -> tuple[dict[str, int], int]:
    """Offsets into one arena, and its size, in the unit of `sizes`; offsets are multiples of `alignment`."""
    offsets: dict[str, int] = {}
    total = 0
    # What is placed: rows of begin and end, first and last step. Most buffers of a long plan never meet, so
    # those that are alive briefly are kept by spans of steps.
    span = 1 + max((last for _, last in lifetimes.values()), default=0) // SPANS
    brief: list[list[tuple[int, int, int, int]]] = [[] for _ in range(SPANS + 1)]
    lasting, count = np.zeros((len(sizes), 4), np.int64), 0
    for name in sorted(sizes, key=lambda n: (-sizes[n], lifetimes[n], n)):
        first, last = lifetimes[name]
        spans = range(first // span, last // span + 1)
        alive = {p for s in spans for p in brief[s] if p[2] <= last and first <= p[3]}
        if count:
            others = lasting[:count]
            others = others[(others[:, 2] <= last) & (others[:, 3] >= first)]
            offset = _lowest_beside(
                np.concatenate([others, np.array([*alive], np.int64).reshape(-1, 4)]), sizes[name]
            )
        else:
            offset = _lowest(alive, sizes[name])
        offsets[name] = offset
        end = offset + _round_up(sizes[name], alignment)
        total = max(total, end)
        if len(spans) > BRIEF:
            lasting[count] = offset, end, first, last
            count += 1
            continue
        for s in spans:
            brief[s].append((offset, end, first, last))
    return offsets, total


def _lowest(alive: Iterable[tuple[int, int, int, int]], size: int) -> int:
    """The lowest offset at which so much overlaps nothing of what is alive."""
    offset = 0
    for start, end, _, _ in sorted(alive):
        if offset + size <= start:
            break
        offset = max(offset, end)
    return offset


def _lowest_beside(alive: np.ndarray, size: int) -> int:
    """`_lowest` for many at once."""
    rows = alive[np.argsort(alive[:, 0])]
    # Behind all that begins before a row, and, at last, behind all.
    offsets = np.concatenate([[0], np.maximum.accumulate(rows[:, 1])])
    fits = np.flatnonzero(offsets[:-1] + size <= rows[:, 0])
    return int(offsets[fits[0]] if len(fits) else offsets[-1])


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
