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


def partition(m: int, n: int, tile_rows: int, tile: Tile, nanoseconds: float, threads: int) -> Partition:
    """Cut m x n results that take so long into enough blocks for all threads, of whole tiles.

    Columns are cut as long as possible, because each block of rows prepares the columns again.
    """
    columns = min(up(n, tile.width), up(128, tile.width))
    rows = min(up(m, tile_rows), SCRATCH_FLOATS // columns // tile_rows * tile_rows)
    # A narrower block leaves room for more rows, down to the least that fits.
    while rows < m and columns > 2 * tile.width:
        columns = up(columns // 2, tile.width)
        rows = min(up(m, tile_rows), SCRATCH_FLOATS // columns // tile_rows * tile_rows)
    wanted = tasks_wanted(nanoseconds, threads)
    return split(m, n, (rows, columns), (tile_rows, tile.width), wanted, columns_first=True)


def split(
    m: int, n: int, block: tuple[int, int], tile: tuple[int, int], wanted: int, columns_first: bool = False
) -> Partition:
    """Halve a block of m x n results, of whole tiles, until there are as many as wanted.

    The longer side is halved, or as long as possible the columns.
    """
    (rows, columns), (tile_rows, tile_columns) = block, tile
    while -(-m // rows) * -(-n // columns) < wanted:
        # Shared rows save reading columns again, and vice versa.
        if columns > tile_columns and (columns_first or columns * 2 >= rows or rows <= tile_rows):
            columns = up(columns // 2, tile_columns)
        elif rows > tile_rows:
            rows = up(rows // 2, tile_rows)
        else:
            break
    return Partition(rows, columns, -(-m // rows), -(-n // columns))


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


def up(n: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-n // step) * step
