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
from typing import NamedTuple

import llvmlite.binding as llvm

from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.schedule import elapsed_ns, up
from engine.backends.cpu.codegen.tiles import Tile
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

_ROUNDED = 1.0 - 1e-9
"""What an estimate may be less than its lower bound, as floats are rounded."""

MOST_COLUMNS = 128
"""Output channels that are transformed back at a time."""


@dataclass(slots=True, unsafe_hash=True)
class Cut:
    """Which tiles, and how many tiles and output channels at a time.

    A task takes `share` tiles and `group_columns` channels, and of those `tiles` and `columns` at a time.
    """

    results: int
    share: int
    tiles: int
    columns: int
    group_columns: int


class Way(NamedTuple):
    """How a convolution is computed: its cut, and what follows from that.

    Attributes:
        cut: The division of the output; of nothing where the direct way is as fast.
        task_ns: What a task is estimated to take.
        row_tiles: How many tiles of a product take the rows of a block.
        images: How many images are computed directly, and with tiles of each size of `TILES`: all in one way.
    """

    cut: Cut
    task_ns: float
    row_tiles: int
    images: tuple[int, ...]


TILES = (2, 4)
"""Results along a side of a tile."""


def scratch_bytes(tile: Tile) -> int:
    """Room for a task's transformed inputs and sums, on its stack: about a second-level cache."""
    return 1 << 20 if tile.lanes >= 16 and _LARGE_STACKS else 1 << 19


def choose_cut(space: tuple[int, ...], channels: int, tile: Tile, threads: int) -> Cut | None:
    """Choose the division of an output (N, height, width, M); None if direct convolution is as fast."""
    direct = 2.0 * 9 * channels * prod(space) / (_FLOPS_PER_NS * tile.lanes * _DIRECT_SHARE)
    # So short a layer often runs on one thread, as its whole plan does; it is cut for more all the same.
    judged = threads if direct > INLINE_NS / 2 else 1
    fewest = min(tasks_wanted(direct, threads), threads)
    best, least = None, direct / min(judged, fewest)
    for results in TILES:
        if not is_possible(results, channels, space[3]):
            continue
        bound, estimate = least * _WORTH[results], _Estimate(space, channels, results, tile)
        if estimate.least / judged * _ROUNDED > bound:
            continue
        for cut in _cuts(estimate, threads, fewest):
            nanoseconds = estimate.of(*cut, judged)
            if nanoseconds < bound:
                # Fewer tasks, which come later, must be worth it too: many even out what else goes on.
                best, least = (results, *cut), nanoseconds * _CLEARLY
                bound = least
    return None if best is None else Cut(*best)


def is_possible(results: int, channels: int, m: int) -> bool:
    """Whether tiles of that size may be taken."""
    return results <= LARGEST and 4 * (results + 2) ** 2 * channels * m <= _LARGEST_WEIGHTS


@deferrable
def choose_way(space: tuple[int, ...], channels: int, tile: Tile, threads: int) -> Way:
    """`choose_cut`, and what follows from it."""
    cut, batch = choose_cut(space, channels, tile, threads), space[0]
    if cut is None:
        return Way(Cut(0, 1, 1, 1, 1), 0.0, 1, (batch, *(0 for _ in TILES)))
    estimate = _Estimate(space, channels, cut.results, tile)
    tasks = -(-estimate.tiles // cut.share) * -(-estimate.m // cut.group_columns)
    images = (0, *(batch if results == cut.results else 0 for results in TILES))
    return Way(cut, estimate.of_cut(cut, 1) / tasks, len(row_tiles(cut.tiles, tile)), images)


def _cuts(estimate: _Estimate, threads: int, fewest: int) -> Iterator[tuple[int, int, int, int]]:
    """The cuts worth a look: by tiles, or by output channels too, into many tasks or few."""
    m, tiles, width = estimate.m, estimate.tiles, estimate.width
    total = estimate.of(tiles, min(tiles, _ENOUGH_TILES), width, up(m, width), 1)
    most = max(tasks_wanted(total, threads), fewest)
    # A block of columns that have been transformed back, and what its sums leave room for.
    widest = up(64 if estimate.results == 4 else MOST_COLUMNS, width)
    for tasks in (most // threads * threads, threads) if most > threads > 1 else (most,):
        parts = min(threads, tasks)
        for groups in (1, parts) if parts > 1 else (1,):
            group_columns = up(-(-m // groups), width)
            share = -(-tiles * -(-m // group_columns) // tasks)
            columns = min(group_columns, widest)
            room = estimate.room(columns)
            while columns > width and room < min(share, _ENOUGH_TILES):
                columns = up(columns // 2, width)
                room = estimate.room(columns)
            if estimate.column_bytes * group_columns < estimate.scratch:
                room = min(room, _ENOUGH_TILES)
            if room > 0:
                yield share, -(-share // -(-share // room)), columns, group_columns


class _Estimate:
    """What all cuts of an output with tiles alike have in common, for estimates of their time.

    Attributes:
        results: The tiles' size.
        m: Output channels.
        tiles: How many tiles there are.
        width: Columns of a product's tile.
        scratch: Bytes of a task's scratch memory.
        column_bytes: Of an output channel's transformed weights.
        least: Nanoseconds on one thread below which no cut is.
    """

    def __init__(self, space: tuple[int, ...], channels: int, results: int, tile: Tile) -> None:
        self.results = results
        self.m = space[3]
        self.tiles = space[0] * -(-space[1] // results) * -(-space[2] // results)
        self.width, self.scratch = tile.width, scratch_bytes(tile)
        frequencies = (results + 2) ** 2
        self.column_bytes = 4 * frequencies * channels
        self._flops = 2.0 * frequencies * channels
        self._flops_per_ns = _FLOPS_PER_NS * tile.lanes
        self._lanes, self._choices = tile.lanes, row_choices(tile)
        deep = up(channels, tile.lanes)
        self._deep, self._floats = deep, self.scratch // (4 * frequencies) - deep - tile.lanes
        inputs, self._output_ns = _VECTOR_NS[results]
        self._input_ns = inputs * -(-channels // tile.lanes)
        columns = up(self.m, self.width)
        moved = self._input_ns + self._output_ns * (columns // tile.lanes)
        self.least = self.tiles * (self._flops * columns / self._flops_per_ns + moved)

    def room(self, columns: int) -> int:
        """How many tiles the scratch memory has room for."""
        return self._floats // (self._deep + columns)

    def of(self, share: int, at_once: int, columns: int, group_columns: int, threads: int) -> float:
        """Estimated nanoseconds on all threads of a cut, given as in `Cut`."""
        tasks = -(-self.m // group_columns) * -(-self.tiles // share)
        whole, rest = divmod(share, at_once)
        rows = whole * _row_cost(at_once, self._choices)
        if rest:
            rows += _row_cost(rest, self._choices)
        turns = -(-tasks // threads)
        blocks = turns * (whole + (rest > 0))
        products = self._flops * rows * group_columns / self._flops_per_ns
        weights = self.column_bytes * group_columns
        # Weights that fit into second-level cache come from afar for the first block only.
        streams = blocks if weights > self.scratch else 1
        waited = weights / _BYTES_PER_NS - products * turns / blocks
        moved = self._input_ns + self._output_ns * (group_columns // self._lanes)
        nanoseconds = elapsed_ns(tasks, products + moved * share, threads)
        return nanoseconds + streams * waited if waited > 0 else nanoseconds

    def of_cut(self, cut: Cut, threads: int) -> float:
        """The same of a cut."""
        return self.of(cut.share, cut.tiles, cut.columns, cut.group_columns, threads)


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


_ROW_CHOICES = {16: (14, 8, 4), 8: (6, 3)}


def row_choices(tile: Tile) -> tuple[int, ...]:
    """Rows of the tiles of a product, so that any number comes out nearly even; the most come first."""
    return _ROW_CHOICES.get(tile.lanes, (8, 4))


def takes(rows: tuple[int, ...], k: int, count: int) -> bool:
    """Whether the k-th row count, but for the last, takes the first of `count` rows."""
    if k == 0 and len(rows) == 3:
        return count > 2 * rows[1] or rows[1] + rows[2] < count <= rows[0]
    return count > rows[k + 1]
