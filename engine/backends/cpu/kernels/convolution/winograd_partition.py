"""Partition of Winograd convolutions into tasks, and whether they pay off, by estimated time.

Environment: GAMEGLUE_WINOGRAD=0 computes all 3 x 3 convolutions directly, 2 allows F(2 x 2) only, 4 (the
default) F(4 x 4) too. It is read when this module is imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import llvmlite.binding as llvm

from engine.backends.cpu.codegen.task_partition import cut_winograd
from engine.backends.cpu.codegen.tiles import Tile
from engine.backends.host import INLINE_NS
from engine.device.jobs.stack import smallest_stack
from engine.kernels.size import deferred

LARGEST = int(os.environ.get("GAMEGLUE_WINOGRAD", "4"))
"""The largest tile, in results along a side; 0 for none."""

_LARGE_STACKS = smallest_stack() >= 2 << 20
"""Whether every thread has room for a scratch memory of a megabyte and for what runs beside it."""

_LARGEST_WEIGHTS = 40 << 20
"""Bytes of transformed weights above which a size of tiles is not considered."""

# Measured on processors with AVX-512: products, per vector lane (Zen 4 computes a vector in two halves); and
# per tile and vector of channels, the transforms of inputs and of sums, the latter with the epilogue.
_FLOPS_PER_NS = 6.5 if llvm.get_host_cpu_name() == "znver4" else 11.5
_VECTOR_NS = {2: (28.0, 14.0), 4: (85.0, 45.0)}

_WORTH = {2: 0.9, 4: 0.75}
"""Tiles are taken where they need this share of the time of what takes less memory for its weights: of the
direct convolution's, or of smaller tiles'. The larger ones' are four times as many as the model's.
"""


@dataclass(slots=True, unsafe_hash=True)
class WinogradPartition:
    """Division into tasks: the size of tiles, and how many tiles and output channels a task takes.

    A task takes `share` tiles and `group_columns` channels, and of those `tiles` and `columns` at a time.
    """

    results: int
    share: int
    tiles: int
    columns: int
    group_columns: int


class ConvChoice(NamedTuple):
    """The algorithm chosen for a convolution, its partition, and derived values.

    Attributes:
        partition: The division of the output; of nothing where direct convolution is as fast.
        task_ns: What a task is estimated to take.
        row_tiles: How many tiles of a product take the rows of a block.
        images: How many images are computed directly, and with tiles of each size of `TILES`: all in one way.
    """

    partition: WinogradPartition
    task_ns: float
    row_tiles: int
    images: tuple[int, ...]


TILES = (2, 4)
"""Results along a side of a tile."""


def scratch_bytes(tile: Tile) -> int:
    """Room for a task's transformed inputs and sums, on its stack: about a second-level cache."""
    return 1 << 20 if tile.lanes >= 16 and _LARGE_STACKS else 1 << 19


def is_possible(results: int, channels: int, m: int) -> bool:
    """Whether tiles of that size may be taken."""
    return results <= LARGEST and 4 * (results + 2) ** 2 * channels * m <= _LARGEST_WEIGHTS


def choose_algorithm(space: tuple[int, ...], channels: int, tile: Tile, threads: int) -> ConvChoice:
    """Choose between Winograd and direct convolution for an output (N, height, width, M)."""
    most, middle, *least = row_choices(tile)
    possible = [results for results in TILES if is_possible(results, channels, space[3])]
    size, share, tiles, columns, group_columns, task_ns, rows, *images = deferred(
        cut_winograd, *space, channels, max(possible, default=0), tile.width, tile.lanes, most, middle,
        *(least or [0]), _FLOPS_PER_NS * tile.lanes, *_VECTOR_NS[2], *_VECTOR_NS[4], *_WORTH.values(),
        scratch_bytes(tile), INLINE_NS, threads,
    )  # fmt: skip
    return ConvChoice(
        WinogradPartition(size, share, tiles, columns, group_columns), task_ns, rows, tuple(images)
    )


_ROW_CHOICES = {16: (14, 8, 4), 8: (6, 3)}


def row_choices(tile: Tile) -> tuple[int, ...]:
    """Rows of the tiles of a product, which `rows_taken` chooses from; the most come first."""
    return _ROW_CHOICES.get(tile.lanes, (8, 4))
