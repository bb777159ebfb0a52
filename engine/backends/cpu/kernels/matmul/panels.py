"""Packed panels, a tile's columns side by side: constants are packed ahead, others by a step."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit
from engine.backends.cpu.codegen.tiles import Tile
from engine.backends.cpu.kernels.transpose import band_text
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import Size

BYTES_PER_NS = 10.0

_COLUMNS = 256
"""Of a row that is packed behind others, a task takes so many, in one piece of memory."""

SPREAD = 32
"""Elements between rows that are packed so that they do not evict each other."""

_SET_STRIDE = 4096
"""Bytes from one line to the next that has its place in the same set of a first-level cache."""

_WAYS = 8
"""How many lines a set holds."""

_LEAST_COLUMNS = 256
"""Results of a row that are worth laying it elsewhere first."""

_ARGUMENTS = ArgumentBlock(
    "rows columns panels width target_batch target_panel target_row source_batch source_row source_column"
)

_HELPERS = """
copy_run = make_copy_run(1, {lanes})
copy_pair = make_copy_run(2, {lanes})


@helper
def pack_rows(target, target_row, source, source_row, rows, columns):
    if columns == 2 * {lanes}:
        for r in range(rows):
            copy_pair(target + r * target_row * 4, source + r * source_row * 4)
        return
    for _ in range(rows):
        done = 0
        while done + {lanes} <= columns:
            copy_run(target + done * 4, source + done * 4)
            done += {lanes}
        for j in range(done, columns):
            store_f32(target, j, load_f32(source, j))
        target += target_row * 4
        source += source_row * 4


@helper
def lay_columns(target, target_row, source, source_row, source_column, rows, columns):
    r = 0
    while source_row == 1 and r < rows:
        # At the end, a square covers some rows again.
        r = max(min(r, rows - {lanes}), 0)
        place = target + r * target_row * 4
        turn(source + r * 4, source_column * 4, place, target_row * 4, columns, min({lanes}, rows - r))
        r += {lanes}
    for r in range(rows if source_row != 1 else 0):
        for j in range(columns):
            store_f32(target, r * target_row + j, load_f32(source, r * source_row + j * source_column))


@helper
def pack_columns(target, target_row, source, source_row, source_column, rows, columns, width):
    if source_column == 1:
        pack_rows(target, target_row, source, source_row, rows, columns)
    else:
        lay_columns(target, target_row, source, source_row, source_column, rows, columns)
    # Columns beyond the matrix take part in sums that nobody stores.
    if target_row == width and columns < width:
        for r in range(rows):
            for j in range(columns, width):
                store_f32(target, r * width + j, 0.0)
"""


def rows_evict_each_other(compute: Compute, row: int | Size) -> bool:
    """Whether a tile's rows evict each other from first-level cache often enough to pay for repacking.

    A row of dynamic length is left where it is, so that all sizes have the same steps.
    """
    if isinstance(row, Size) or 4 * row % _SET_STRIDE:
        return False
    spaces = [compute.space] if compute.extents is None else zip(*compute.extents, strict=True)
    return any(prod(rows) > _WAYS and columns >= _LEAST_COLUMNS for *rows, columns in spaces)


def emit_panels(
    tuner: Tuner, name: str, sizes: tuple[int, int, int], strides: tuple[int, int, int], tile: Tile
) -> str:
    """Emit a step that packs (count, k, n) as `pack_panels` does; returns the result's name."""
    _, k, n = sizes
    panels = -(-n // tile.width)
    return _emit(tuner, name, sizes, strides, tile, (panels * k * tile.width, k * tile.width, tile.width))


def emit_rows(
    tuner: Tuner, name: str, sizes: tuple[int, int, int], strides: tuple[int, int, int], tile: Tile,
    row: int,
) -> str:  # fmt: skip
    """Emit a step that copies (count, m, k) to rows `row` elements apart; returns the result's name."""
    _, m, _ = sizes
    wide = replace(tile, vectors=_COLUMNS // tile.lanes)
    return _emit(tuner, name, sizes, strides, wide, (m * row, _COLUMNS, row))


def _emit(
    tuner: Tuner, name: str, sizes: tuple[int, int, int], strides: tuple[int, int, int], tile: Tile,
    target: tuple[int, int, int],
) -> str:  # fmt: skip
    count, rows, columns = sizes
    # One that the whole batch shares is packed once.
    count = 1 if strides[0] == 0 else count
    panels = -(-columns // tile.width)
    nanoseconds = rows * tile.width * 4 / BYTES_PER_NS + 10.0
    arguments = _ARGUMENTS.values(
        rows=rows, columns=columns, panels=panels, width=tile.width, target_batch=target[0],
        target_panel=target[1], target_row=target[2], source_batch=strides[0], source_row=strides[1],
        source_column=strides[2],
    )  # fmt: skip
    packed = tuner.temporary(count * max(target[0], rows * columns), np.dtype(np.float32))
    kernel = NativeKernel("panels", panels_text(tile.lanes))
    emit(tuner, kernel, TaskSchedule(count * panels, nanoseconds), arguments, (name,), packed)
    return packed


def panels_text(lanes: int) -> str:
    """Source of the kernel."""
    lead = [*_ARGUMENTS.prologue("out", "matrix")]
    task = [
        "count = op_div(task, panels)",
        "panel = task - count * panels",
        "column = panel * width",
        "wanted = min(width, columns - column)",
        "source = matrix + (count * source_batch + column * source_column) * 4",
        "target = out + (count * target_batch + panel * target_panel) * 4",
        "pack_columns(target, target_row, source, source_row, source_column, rows, wanted, width)",
    ]
    return kernel_text(library_text("vectors") + packing_text(lanes), lead, task)


def packing_text(lanes: int) -> str:
    """Source of `pack_columns`, which packs the columns of a panel, and zeros behind the last ones."""
    return band_text(lanes, 4, "turn") + _HELPERS.format(lanes=lanes)
