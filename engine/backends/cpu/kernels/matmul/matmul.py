"""Matrix products of float32: column panels, register tiles, and an epilogue per tile.

A tile has as many rows as registers hold sums for; the rows that are left take smaller ones, so that none
is computed needlessly. The right side is in panels of the tile's columns. A known one is packed once, others
by a step before, by each task where they meet few rows, or not at all where they meet very few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import cut_product, ns_of_reading, up
from engine.backends.cpu.codegen.tiles import Tile, by_height, host_tile
from engine.backends.cpu.kernels.matmul.packing import given, matrices_of, pack_panels
from engine.backends.cpu.kernels.matmul.panels import (
    SPREAD,
    emit_panels,
    emit_rows,
    packing_text,
    rows_evict_each_other,
)
from engine.backends.cpu.library import library_text
from engine.backends.operands import flattened
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import Number, Size, deferred, largest
from engine.kernels.value import Value

FLOPS_PER_NS = 150.0

LEAST_IN_PLACE = 1 << 24
"""Bytes of a known right side with columns stored as rows, by which few rows are multiplied without packing:
memory is as fast in that order, and packing takes as long as many runs.
"""

NARROW = 4
"""Up to so many columns of a known right side are computed one by one."""

LINE = 64
"""Bytes of a cache line."""

ROWS_IN_PLACE = 4
"""Up to so many rows an unknown right side is read without packing."""

ROWS_IN_TASK = 256
"""Up to so many rows, each task packs the panels of an unknown right side that it needs."""

PANEL_BYTES = 1 << 17
"""Room for a panel that a task packs."""

_GRID = TaskGrid(m="m_size", column="n_size")
_ARGUMENTS = ArgumentBlock(
    "m_size n_size k_size", _GRID.arguments, "a_batch a_row b_batch b_panel b_row b_column"
)


def tune_matmul(
    compute: Compute, tuner: Tuner, threads: int, right_elements: Callable[[], np.ndarray] | None = None
) -> bool:
    """Rule for hints of kind "matmul": float32, and a space of (batch, m, n).

    right_elements: makes the elements of a known right side that is not the model's own, so that nobody need
    hold them; what the operand has for them is not looked at then.
    """
    if not compute.is_float32 or len(compute.space) != 3:
        return False
    attributes = compute.attributes
    m, n, k, batch = (attributes[name] for name in ("m", "n", "k", "batch"))
    a_batch, a_row, a_column = attributes["a_strides"]
    if compute.space != (batch, m, n):
        return False
    a, b = compute.operands
    tile = host_tile()
    if b.known is not None and n <= tile.lanes:
        tile = replace(tile, vectors=1)
    left = a.name
    is_in_rows = a_column == 1 or k <= 1
    row = a_row if is_in_rows else k
    is_apart = b.known is not None and rows_evict_each_other(compute, row)
    if is_apart or not is_in_rows:
        row = k + SPREAD if is_apart else k
        left = emit_rows(tuner, a.name, (batch, m, k), (a_batch, a_row, a_column), tile, row)
        a_batch, a_row = (m * row if a_batch else 0), row
    b_strides = tuple(attributes["b_strides"])
    # Few columns are computed as dot products of rows; so are many that are contiguous along k.
    narrow = n if b.known is not None and n <= NARROW and k % tile.lanes == 0 else 0
    in_place = b.known is None and b_strides[2] == 1 and _always_few_rows(compute, tile.width)
    packs = not in_place and b.known is None and _packs_in_task(compute, k, b_strides[0], tile)
    is_worth_it = b.known is None or 4 * k * n >= LEAST_IN_PLACE
    is_rows = is_worth_it and b_strides[1:] == (1, k) and k % tile.lanes == 0
    if is_rows and _always_few_rows(compute, 1):
        narrow, in_place, packs = NARROW, True, False
    elements = right_elements or _elements_of(b)
    right, b_steps = _right_side(
        tuner, b.name, elements, (batch, k, n), b_strides, tile, in_place or packs, narrow > 0
    )
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    # A tile's columns cost the same whether they are meant or not.
    columns = 2 * n if narrow else up(n, tile.width)
    weights = tuner.weight_bytes if b.known is not None else 0
    (read,) = deferred(ns_of_reading, 4 * k * n, weights)
    matrix_ns = largest(2.0 * m * columns * k / FLOPS_PER_NS, read)
    matrix_ns += m * n * (epilogue.nanoseconds / 2 + 0.02)
    total_ns = batch * matrix_ns + 50.0
    blocks = blocks_of_product(m, n, k, tile, batch, total_ns, threads)
    sizes = _ARGUMENTS.values(
        m_size=m, n_size=n, k_size=k, **_GRID.values(*blocks), a_batch=a_batch, a_row=a_row,
        b_batch=b_steps[0], b_panel=b_steps[1], b_row=b_steps[2], b_column=b_steps[3],
    )  # fmt: skip
    kernel = NativeKernel("matmul", matmul_text(tile, epilogue, narrow, n > narrow, packs))
    schedule = TaskSchedule.over(blocks, total_ns, batch)
    return emit(tuner, kernel, schedule, sizes, (left, right), compute.output.name, epilogue)


def blocks_of_product(
    m: int, n: int, k: int, tile: Tile, batch: int, nanoseconds: float, threads: int
) -> tuple[Blocks, ...]:
    """Partition m x n results of a batch with this cost into blocks of whole tiles."""
    size = tile.row_choices[0], tile.width
    row_blocks, rows, column_blocks, columns = deferred(
        cut_product, m, n, k, *size, batch, nanoseconds, threads
    )
    return Blocks(row_blocks, rows), Blocks(column_blocks, columns)


def _elements_of(value: Value) -> Callable[[], np.ndarray] | None:
    """Gives the elements of a known operand."""
    known = value.known
    return None if known is None else partial(given, known)


def _always_few_rows(compute: Compute, width: int) -> bool:
    """Whether reading the right side in place pays for every input shape, so that all have the same kernels.

    The last panel reads a whole one, `width` columns, which ends where the matrix ends.
    """
    spaces = [compute.space] if compute.extents is None else zip(*compute.extents, strict=True)
    return all(m <= ROWS_IN_PLACE and n >= width for _, m, n in spaces)


def _packs_in_task(compute: Compute, k: Number, b_batch: Number, tile: Tile) -> bool:
    """Whether tasks pack the panels that they need, for every input shape."""
    spaces = [compute.space] if compute.extents is None else [*zip(*compute.extents, strict=True)]
    # Sizes that are open would take a plan on either side of the limit.
    if any(isinstance(n, Size) for n in (k, b_batch, *(n for space in spaces for n in space[:2]))):
        return False
    if 4 * k * tile.width > PANEL_BYTES:
        return False
    return all(m <= ROWS_IN_TASK and (b_batch != 0 or batch == 1) for batch, m, _ in spaces)


def _right_side(
    tuner: Tuner, name: str, elements: Callable[[], np.ndarray] | None, sizes: tuple[int, int, int],
    strides: tuple[int, int, int], tile: Tile, in_place: bool, narrow: bool,
) -> tuple[str, tuple[int, int, int, int]]:  # fmt: skip
    """The right side's buffer and its strides; `elements` are its known elements, or None.

    Strides lead from matrix to matrix, panel to panel, row to row, and from column to column where it is read
    in place, else 0.
    """
    batch, k, n = sizes
    if in_place:
        if elements is not None:
            name = tuner.constant(f"{name}|as it is", partial(pack_in_place, elements))
        return name, (strides[0], tile.width, strides[1], strides[2])
    panels = -(-n // tile.width)
    steps = (0 if strides[0] == 0 else panels * k * tile.width, k * tile.width, tile.width, 0)
    if elements is None:
        return emit_panels(tuner, name, (batch, k, n), strides, tile), steps
    if narrow:
        steps = (0 if strides[0] == 0 else n * k, 0, 0, 0)
    # A matrix that the whole batch shares is packed once, for any batch.
    count = 1 if strides[0] == 0 else batch
    make = partial(pack_right, elements, (count, k, n), strides, 0 if narrow else tile.width)
    form = "rows" if narrow else f"columns{tile.width}"
    return tuner.constant(f"{name}|{form}|{(count, k, n)}|{strides}", make), steps


@storable
def pack_in_place(elements: Callable[[], np.ndarray]) -> np.ndarray:
    """All elements, contiguous."""
    return flattened(elements())


@storable
def pack_right(
    elements: Callable[[], np.ndarray], sizes: tuple[int, ...], strides: tuple[int, ...], width: int
) -> np.ndarray:
    """Pack (count, k, n) matrices as panels of `width` columns, or column by column if that is 0."""
    matrices = matrices_of(elements(), sizes, strides)
    if not width:
        return np.ascontiguousarray(matrices.swapaxes(1, 2)).reshape(-1)
    return pack_panels(matrices, width)


def matmul_text(
    tile: Tile, epilogue: Epilogue, narrow: int = 0, any_count: bool = False, packs: bool = False
) -> str:
    """Source of the kernel.

    narrow: how many columns are computed at once where they are dot products, 0 where they are none.
    any_count: dot products of other counts are computed one by one; else there are so many columns.
    packs: panels are packed by the task, into its own memory.
    """
    heights = [4, 2, 1] if narrow else tile.heights
    singles = bool(narrow and any_count)
    if narrow:
        sizes = [("tile", narrow), *([("single", 1)] if singles else [])]
        tiles = [
            f"{name}_of_{rows} = make_dot_tile({rows}, {count}, {tile.lanes}, {tile.width})\n"
            for name, count in sizes
            for rows in heights
        ]
    else:
        arguments = f"{tile.vectors}, {tile.lanes}"
        tiles = [f"tile_of_{rows} = make_product_tile({rows}, {arguments})\n" for rows in heights]
    step = narrow or tile.width
    lead = [
        *_ARGUMENTS.prologue("a", "b", epilogue=epilogue),
        f"sums = stack_bytes({heights[0] * tile.width * 4})",
        *([f"packed = stack_bytes({PANEL_BYTES})"] if packs else []),
        f"b_row_bytes = {4 * tile.width}" if packs else "b_row_bytes = b_row * 4",
        "a_row_bytes = a_row * 4",
        # A right side that is read in place ends with a whole panel, which overlaps the previous one.
        "last_panel = n_size" + ("" if narrow or packs else f" - {step} if b_column else n_size"),
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("i0"),
        "lefts = a + i0 * a_batch * 4",
        "rights = b + i0 * b_batch * 4",
        f"for place in range(column0, column1, {step}):",
        *indent(_panel_lines(tile, step, heights, epilogue, singles, packs)),
    ]
    helpers = library_text("vectors", "matmul_tiles") + (packing_text(tile.lanes) if packs else "")
    return kernel_text(helpers + "".join(tiles), lead, task)


def _panel_lines(
    tile: Tile, step: int, heights: list[int], epilogue: Epilogue, singles: bool, packs: bool
) -> list[str]:
    """All rows of a task's block times one panel of `step` columns; or fewer, one by one, with `singles`."""

    def tiles(rows: int) -> list[str]:
        ahead = "ahead, ahead_row, lines"
        whole = f"tile_of_{rows}(left, a_row_bytes, right, b_row_bytes, k_size, sums, {ahead})"
        if not singles:
            return [whole]
        column = "right + j * b_column * 4, b_row_bytes, k_size, sums + j * 4, ahead, 0, 0"
        one_by_one = f"single_of_{rows}(left, a_row_bytes, {column})"
        return [
            f"if columns == {step}:",
            f"    {whole}",
            "else:",
            "    for j in range(columns):",
            f"        {one_by_one}",
        ]

    rows = [
        "for i1 in range(m, m + rows):",
        f"tile = sums + (i1 - m) * {tile.width * 4}",
        "start = (i0 * m_size + i1) * n_size + first_column",
    ]
    if packs:
        right = [
            "source = rights + first_column * b_column * 4",
            f"pack_columns(packed, {step}, source, b_row, b_column, k_size, columns, {step})",
            "right = packed",
            # Rows of the next panel, where they are read side by side.
            f"ahead, ahead_row, next_lines = source + {step * 4}, b_row * 4, {LINE}",
            f"unread = k_size * {step * 4 // LINE} if b_column == 1 else 0",
        ]
    else:
        right = [
            f"panel = op_div(place, _types.int64({step})) * b_panel",
            "right = rights + (first_column * b_column if b_column else panel) * 4",
            f"ahead, ahead_row, next_lines = right + k_size * {tile.width * 4}, {LINE}, k_size * {LINE}",
            f"unread = 0 if b_column else k_size * {tile.width * 4} // {LINE}",
        ]
    return [
        "first_column = min(place, last_panel)",
        f"columns = min({step}, n_size - first_column)",
        *right,
        "m = m0",
        "while m < m1:",
        "    left = lefts + m * a_row_bytes",
        "    remaining = m1 - m",
        "    lines = min(unread, k_size)",
        *indent(by_height(heights, "remaining", tiles)),
        *indent(epilogue.store_tile(step, rows)),
        "    m += rows",
        "    ahead += next_lines",
        "    unread -= lines",
    ]
