"""How a Winograd convolution is cut into tasks, and whether it is worth it: by estimated time.

Environment: GAMEGLUE_WINOGRAD=0 computes all 3 x 3 convolutions directly, 2 allows F(2 x 2) only, 4 (the
default) F(4 x 4) too. It is read when this module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import llvmlite.binding as llvm

from engine.backends.cpu.cost import tasks_wanted
from engine.backends.cpu.schedule import elapsed_ns, up
from engine.backends.cpu.tiles import Tile
from engine.backends.host import INLINE_NS
from engine.device.jobs.stack import smallest_stack
from engine.kernels.size import deferrable

LARGEST = int(os.environ.get("GAMEGLUE_WINOGRAD", "4"))
"""The largest tile, in results along a side; 0 for none."""

_LARGE_STACKS = smallest_stack() >= 2 << 20
"""Whether every thread has room for a scratch memory of a megabyte and for what runs beside it."""

_LARGEST_WEIGHTS = 40 << 20
"""Bytes of transformed weights above which a size of tiles is not considered."""

_ENOUGH_TILES = 28
"""Tiles at a time from which on weights in second-level cache, or the stream of them, hold nothing up."""

# Measured on processors with AVX-512: products, per vector lane (Zen 4 computes a vector in two halves); what
# the direct way reaches of that; weights from beyond second-level cache; per tile and vector of channels, the
# transforms of inputs and of sums, the latter with the epilogue.
_FLOPS_PER_NS = 6.5 if llvm.get_host_cpu_name() == "znver4" else 11.5
_DIRECT_SHARE = 0.8
_BYTES_PER_NS = 12.0
_VECTOR_NS = {2: (28.0, 14.0), 4: (85.0, 45.0)}

_WORTH = {2: 0.9, 4: 0.75}
"""Tiles are taken where they need this share of the time of what takes less memory for its weights: of the
direct way's, or of smaller tiles'. The larger ones' are four times as many as the model's.
"""

_CLEARLY = 0.97
"""Of cuts with tiles alike, a later one is taken where it needs this share of an earlier one's time."""

MOST_COLUMNS = 128
"""Output channels that are transformed back at a time."""


@deferrable
@dataclass(frozen=True)
class Cut:
    """Which tiles, and how many tiles and output channels at a time.

    A task takes `share` tiles and `group_columns` channels, and of those `tiles` and `columns` at a time.
    """

    results: int
    share: int
    tiles: int
    columns: int
    group_columns: int


def scratch_bytes(tile: Tile) -> int:
    """Room for a task's transformed inputs and sums, on its stack: about a second-level cache."""
    return 1 << 20 if tile.lanes >= 16 and _LARGE_STACKS else 1 << 19


@deferrable
def choose_cut(space: tuple[int, ...], channels: int, tile: Tile, threads: int) -> Cut | None:
    """Choose the division of an output (N, height, width, M); None if direct convolution is as fast."""
    direct = 2.0 * 9 * channels * prod(space) / (_FLOPS_PER_NS * tile.lanes * _DIRECT_SHARE)
    # So short a layer often runs on one thread, as its whole plan does; it is cut for more all the same.
    judged = threads if direct > INLINE_NS / 2 else 1
    fewest = min(tasks_wanted(direct, threads), threads)
    best, least = None, direct / min(judged, fewest)
    for results in (2, 4):
        if results > LARGEST or _weight_bytes(channels, space[3], results) > _LARGEST_WEIGHTS:
            continue
        bound = least * _WORTH[results]
        for cut in _cuts(space, channels, results, tile, threads, fewest):
            nanoseconds = cut_ns(space, channels, cut, tile, judged)
            if nanoseconds < bound:
                # Fewer tasks, which come later, must be worth it too: many even out what else goes on.
                best, least = cut, nanoseconds * _CLEARLY
                bound = least
    return best


def _cuts(
    space: tuple[int, ...], channels: int, results: int, tile: Tile, threads: int, fewest: int
) -> Iterator[Cut]:
    """The cuts worth a look: by tiles, or by output channels too, into many tasks or few."""
    m, tiles = space[3], _tile_count(space, results)
    whole = Cut(results, tiles, min(tiles, _ENOUGH_TILES), tile.width, up(m, tile.width))
    total = cut_ns(space, channels, whole, tile, 1)
    most = max(tasks_wanted(total, threads), fewest)
    for tasks in (most // threads * threads, threads) if most > threads > 1 else (most,):
        for groups in sorted({1, min(threads, tasks)}):
            group_columns = up(-(-m // groups), tile.width)
            share = -(-tiles * -(-m // group_columns) // tasks)
            columns = min(group_columns, up(64 if results == 4 else MOST_COLUMNS, tile.width))
            room = _room(columns, channels, results, tile)
            while columns > tile.width and room < min(share, _ENOUGH_TILES):
                columns = up(columns // 2, tile.width)
                room = _room(columns, channels, results, tile)
            if _weight_bytes(channels, group_columns, results) < scratch_bytes(tile):
                room = min(room, _ENOUGH_TILES)
            if room > 0:
                yield Cut(results, share, -(-share // -(-share // room)), columns, group_columns)


def _tile_count(space: tuple[int, ...], results: int) -> int:
    return space[0] * -(-space[1] // results) * -(-space[2] // results)


def _weight_bytes(channels: int, columns: int, results: int) -> int:
    return 4 * (results + 2) ** 2 * channels * columns


def _room(columns: int, channels: int, results: int, tile: Tile) -> int:
    """How many tiles the scratch memory has room for."""
    floats = scratch_bytes(tile) // (4 * (results + 2) ** 2)
    deep = up(channels, tile.lanes)
    return (floats - deep - tile.lanes) // (deep + columns)


@deferrable
def cut_ns(space: tuple[int, ...], channels: int, cut: Cut, tile: Tile, threads: int) -> float:
    """Estimated nanoseconds on all threads."""
    m, tiles = space[3], _tile_count(space, cut.results)
    groups = -(-m // cut.group_columns)
    tasks = groups * -(-tiles // cut.share)
    frequencies = (cut.results + 2) ** 2
    whole, rest = divmod(cut.share, cut.tiles)
    choices = row_choices(tile)
    rows = whole * _row_cost(cut.tiles, choices) + _row_cost(rest, choices)
    turns = -(-tasks // threads)
    blocks = turns * (whole + (rest > 0))
    products = 2.0 * rows * frequencies * channels * cut.group_columns / (_FLOPS_PER_NS * tile.lanes)
    weights = _weight_bytes(channels, cut.group_columns, cut.results)
    # Weights that fit into second-level cache come from afar for the first block only.
    streams = blocks if weights > scratch_bytes(tile) else 1
    waited = max(0.0, weights / _BYTES_PER_NS - products * turns / blocks)
    inputs, outputs = _VECTOR_NS[cut.results]
    moved = inputs * -(-channels // tile.lanes) + outputs * (cut.group_columns // tile.lanes)
    return elapsed_ns(tasks, products + moved * cut.share, threads) + streams * waited


@lru_cache(maxsize=1024)
def _row_cost(count: int, choices: tuple[int, ...]) -> float:
    """Rows that the tiles of a product compute for `count` rows, and the loading of their columns."""
    return sum(rows + 0.5 for rows in _row_tiles(count, choices))


def row_tiles(count: int, tile: Tile) -> list[int]:
    """The tiles of a product that take `count` rows, by their rows."""
    return _row_tiles(count, row_choices(tile))


def _row_tiles(count: int, choices: tuple[int, ...]) -> list[int]:
    taken = []
    while count > 0:
        last = len(choices) - 1
        rows = next(r for k, r in enumerate(choices) if k == last or takes(choices, k, count))
        taken.append(rows)
        count -= rows
    return taken


@deferrable
def count_row_tiles(count: int, tile: Tile) -> int:
    """How many tiles `row_tiles` takes."""
    return len(row_tiles(count, tile))


def row_choices(tile: Tile) -> tuple[int, ...]:
    """Rows of the tiles of a product, so that any number comes out nearly even; the most come first."""
    return {16: (14, 8, 4), 8: (6, 3)}.get(tile.lanes, (8, 4))


def takes(rows: tuple[int, ...], k: int, count: int) -> bool:
    """Whether the k-th row count, but for the last, takes the first of `count` rows."""
    if k == 0 and len(rows) == 3:
        return count > 2 * rows[1] or rows[1] + rows[2] < count <= rows[0]
    return count > rows[k + 1]
