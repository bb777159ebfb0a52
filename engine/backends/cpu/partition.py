"""How a matrix of results is cut into tasks for the job threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.backends.cpu.cost import tasks_wanted
from engine.backends.cpu.tiles import Tile

SCRATCH_FLOATS = 16384
"""Sums that a task holds on its stack (64 KiB)."""


@dataclass(frozen=True)
class Partition:
    """Blocks of `rows` x `columns` results; the last of each kind may be smaller."""

    rows: int
    columns: int
    row_blocks: int
    column_blocks: int

    @property
    def tasks(self) -> int:
        """Blocks in one matrix."""
        return self.row_blocks * self.column_blocks


def partition(
    m: int, n: int, tile_rows: int, tile: Tile, nanoseconds: float, threads: int, columns_first: bool
) -> Partition:
    """Cut m x n results that take so long into enough blocks for all threads, of whole tiles.

    columns_first: cut columns as long as possible, because each block of rows prepares the columns anew.
    """
    wanted = tasks_wanted(nanoseconds, threads)
    columns = min(_up(n, tile.width), _up(128, tile.width))
    rows = min(_up(m, tile_rows), SCRATCH_FLOATS // columns // tile_rows * tile_rows)
    if columns_first:
        # A narrower block leaves room for more rows, down to the least that fits.
        while rows < m and columns > 2 * tile.width:
            columns = _up(columns // 2, tile.width)
            rows = min(_up(m, tile_rows), SCRATCH_FLOATS // columns // tile_rows * tile_rows)
    while _blocks(m, rows) * _blocks(n, columns) < wanted:
        can_rows, can_columns = rows > tile_rows, columns > tile.width
        if can_columns and (columns_first or columns >= rows or not can_rows):
            columns = _up(columns // 2, tile.width)
        elif can_rows:
            rows = _up(rows // 2, tile_rows)
        else:
            break
    return Partition(rows, columns, _blocks(m, rows), _blocks(n, columns))


def block_text(matrix: str, column: str, of_matrix: Sequence[str] = ()) -> list[str]:
    """Statements that find a task's block: its rows `m0` to `m1 - 1`, and its first column.

    Args:
        matrix: The variable for the number of the matrix.
        column: The variable for the first column.
        of_matrix: Statements that take that number apart.
    """
    return [
        f"{matrix} = op_div(task, row_blocks * column_blocks)",
        f"block = task - {matrix} * row_blocks * column_blocks",
        "row_block = op_div(block, column_blocks)",
        *of_matrix,
        "m0 = row_block * block_rows",
        "m1 = min(m0 + block_rows, m_size)",
        f"{column} = (block - row_block * column_blocks) * block_columns",
    ]


GROUP_OF_IMAGE = ("i0 = op_div(image, groups)", "group = image - i0 * groups")
"""Statements that take the number of a convolution's matrix apart: a picture, and a group of channels."""


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _blocks(n: int, size: int) -> int:
    return -(-n // size)
