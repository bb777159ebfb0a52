"""Memory planning: temporaries whose live ranges do not overlap share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps no placed
buffer that is alive at the same time.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterable, Mapping

import numpy as np

SPANS = 512
"""Into how many spans of steps `assign_offsets` divides a plan."""

BRIEF = 16
"""In how many of them a buffer is alive at most to be kept by spans."""


def assign_offsets(
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


def assign_slots(
    sizes: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, int], list[int]]:
    """Slots for objects that cannot be cut: slot number per name, and each slot's size.

    The better one of two orders: as steps need them, and the largest first.
    """
    by_time = sorted(sizes, key=lambda n: lifetimes[n])
    by_size = sorted(by_time, key=lambda n: -sizes[n])
    return min(
        (_assigned_in_order(order, sizes, lifetimes) for order in (by_time, by_size)),
        key=lambda found: sum(found[1]),
    )


def _assigned_in_order(
    order: Iterable[str], sizes: Mapping[str, int], lifetimes: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, int], list[int]]:
    slots: dict[str, int] = {}
    slot_sizes: list[int] = []
    taken: list[list[tuple[int, int]]] = []
    for name in order:
        size, own = sizes[name], lifetimes[name]
        free = [slot for slot, others in enumerate(taken) if _is_free(others, own)]
        # The best fit wastes least; if none is large enough, the largest grows least.
        fits = [slot for slot in free if slot_sizes[slot] >= size]
        if fits:
            slot = min(fits, key=slot_sizes.__getitem__)
        elif free:
            slot = max(free, key=slot_sizes.__getitem__)
        else:
            slot = len(taken)
            taken.append([])
            slot_sizes.append(0)
        slot_sizes[slot] = max(slot_sizes[slot], size)
        insort(taken[slot], own)
        slots[name] = slot
    return slots, slot_sizes


def _is_free(others: list[tuple[int, int]], own: tuple[int, int]) -> bool:
    """Whether a lifetime meets none of some that are in order and apart."""
    at = bisect(others, own)
    return (at == 0 or others[at - 1][1] < own[0]) and (at == len(others) or others[at][0] > own[1])


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step
