"""Sub-ranges of a dispatch grid: a run of groups in row-major order, as boxes of one dispatch each."""

from __future__ import annotations

from math import prod

Grid = tuple[int, int, int]


def fitting(grid: Grid, first: int, count: int) -> int:
    """The most groups, up to `count` from `first` on, that form one box of the grid."""
    x, y, _ = grid
    row, plane = first % x, first % (x * y)
    if row or count < x:
        return min(count, x - row)
    if plane or count < x * y:
        return min(count, x * y - plane) // x * x
    return count // (x * y) * (x * y)


def box_at(grid: Grid, first: int, count: int) -> tuple[Grid, Grid]:
    """The start and size of the box that `fitting` counted."""
    x, y, _ = grid
    begin = (first % x, first // x % y, first // (x * y))
    if count <= x:
        size = (count, 1, 1)
    elif count <= x * y:
        size = (x, count // x, 1)
    else:
        size = (x, y, count // (x * y))
    assert prod(size) == count, "groups that are no box"
    return begin, size
