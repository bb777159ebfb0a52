"""Loops in command lists, with a table of the argument words that change per iteration.

They stand between the rows (BEGIN, header, span, followers) and (TURN, header, span, 1). `span` is how many
commands these are, `followers` how many rows belong to the unit that BEGIN begins: the commands, TURN, and
commands that only run behind the last run. Rows are relative to each other: a list may be copied as a whole.

A header has `HEADER_WORDS` words: the number of the run (written by the threads), the first one, the end, and
the distance of the table in bytes. The table has the number of its entries, then for each the distance of a
word from the table in bytes, and b, s, w: before run n that word becomes b + n * s + (n % 2) * w. The same
happens behind the last run, with the number that the next one would have.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

BEGIN, TURN = 1, 2
"""What such a row has for a function; no function has that address."""

HEADER_WORDS = 4

JUMP = f'''

@typed_helper("int64(int64)")
def jump(record):
    """How many rows the next command is away from a row that begins or ends runs; 0 for a command."""
    function = load_i64(record, 0)
    if function < {BEGIN} or function > {TURN}:
        return 0
    header = load_i64(record, 1)
    run = load_i64(header, 1) if function == {BEGIN} else load_i64(header, 0) + 1
    store_i64(header, 0, run)
    table = header + load_i64(header, 3)
    for k in range(load_i64(table, 0)):
        entry = table + 8 + 32 * k
        word = load_i64(entry, 1) + run * load_i64(entry, 2) + (run & 1) * load_i64(entry, 3)
        store_i64(table + load_i64(entry, 0), 0, word)
    if function == {TURN} and run < load_i64(header, 2):
        return -load_i64(record, 2)
    return 1


@typed_helper("void(int64, int64)")
def run(commands, count):
    """Runs a list on this thread, chunk by chunk in order."""
    row = 0
    while row < count:
        record = commands + 32 * row
        rows = jump(record)
        if rows == 0:
            total, grain, first = load_i64(record, 2), load_i64(record, 3), 0
            while first < total:
                last = min(first + grain, total)
                call_kernel(load_i64(record, 0), load_i64(record, 1), first, last)
                first = last
            rows = 1
        row += rows
'''
"""The helpers that find the next command of a list, and run a whole one."""


def units_of(rows: np.ndarray) -> np.ndarray:
    """Row indices at which a command or a loop begins."""
    begins = np.ones(len(rows), bool)
    for row in np.flatnonzero(rows[:, 0] == BEGIN):
        begins[row + 1 : row + 1 + rows[row, 3]] = False
    return np.flatnonzero(begins)


def some_runs(rows: np.ndarray, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a unit that repeats, for runs `first` to `end - 1`, and the header that they point to.

    What follows the last run is among them if that is.
    """
    address, span = int(rows[0, 1]), int(rows[0, 2])
    given = header_at(address)
    own = given.copy()
    own[1:3] = first, end
    own[3] += address - own.ctypes.data
    rows = (rows if end == given[2] else rows[: span + 2]).copy()
    rows[0, 3] = len(rows) - 1
    rows[[0, span + 1], 1] = own.ctypes.data
    return rows, own


def count_runs(rows: np.ndarray) -> int:
    """How many runs a unit has that repeats."""
    return int(header_at(int(rows[0, 1]))[2])


def header_at(address: int) -> np.ndarray:
    """A header in native memory, which must outlive the array."""
    return np.ctypeslib.as_array((ctypes.c_int64 * HEADER_WORDS).from_address(address))


def table_of(entries: Sequence[tuple[int, int, int, int]]) -> list[int]:
    """A table's words."""
    return [len(entries), *(word for entry in entries for word in entry)]
