"""Scatters in two steps: find the updates of each position, then apply them.

Without a reduction, a table of the last update that aims at each place is filled with -1 and then raised by
atomic maxima: in whichever order they come, the last update of a place wins, as if they were written one
after another. With one, updates are sorted by their targets, stably: those of a place are a run, in their
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.backends.gpu.division import divide
from engine.backends.gpu.kernel_dialect import KernelDialect, ThreadStep
from engine.backends.gpu.sorts import sorted_pairs
from engine.backends.operands import emit, emit_result
from engine.base.dtypes import INT32
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import Expr, arg, cast, fold, lit, load, maximum, minimum, select
from engine.kernels.value import Value
from engine.operators.builder import MOST_ON_HOST
from engine.operators.scatters import FEW, REDUCTIONS

_MOST = 1 << 30

_NAMES = ("total", "count", "columns", "places")
"""Arguments of a step that goes through `total` targets, (rows, count, columns), of so many `places`."""


def tune_scatter(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "scatter"; False for few updates, and reductions at targets known before."""
    targets, reduction = compute.operands[1], compute.attributes["reduction"]
    if targets.is_static(1) and targets.shape[1] <= FEW:
        return False
    if reduction == "none":
        return _tune_last(compute, tuner, dialect)
    return targets.known is None and _tune_reduction(compute, tuner, dialect)


def _tune_last(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    data, targets, updates = compute.operands
    (_, places, _), (rows, count, width) = data.shape, updates.shape
    columns = targets.shape[2]
    size = rows * places * columns
    if not dialect.fits(size, INT32):
        return False
    known = targets.known
    if known is not None:
        if not data.is_static(1) or size > MOST_ON_HOST:
            return False
        name = tuner.constant(f"{targets.root.name}:last of {places}", partial(last_of_known, known, places))
    else:
        name = tuner.temporary(size, INT32)
        emit(tuner, lit(-1, "int32"), (size,), INT32, name)
        sizes = targets.size, count, columns, places
        if not _emit(tuner, dialect, _raise_statements(dialect), sizes, targets.root.name, name):
            return False
    table = Value(name, (rows, places, columns), INT32)

    def after(o: Expr, place: Expr, i: Expr) -> Expr:
        inside = (o < arg(rows)) & (i < arg(width))
        row, column = minimum(o, rows - 1), minimum(i, columns - 1)
        last = cast(table[row, place, column], "index")
        new = updates[row, maximum(last, lit(0)), minimum(i, width - 1)]
        return select(inside & (last >= lit(0)), new, data[o, place, i])

    emit_result(compute, tuner, data.shape, after)
    return True


@storable
def last_of_known(targets: np.ndarray, places: int) -> np.ndarray:
    """The index of the last update of each position, or -1: (rows, places, columns)."""
    rows, count, columns = targets.shape
    # One place more takes what aims nowhere, at -1.
    table = np.full((rows, places + 1, columns), -1, np.int32)
    updates = np.arange(count, dtype=np.int32)[None, :, None]
    np.maximum.at(table, (np.arange(rows)[:, None, None], targets, np.arange(columns)), updates)
    return table[:, :places]


def _tune_reduction(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    (data, targets, updates), combine = compute.operands, REDUCTIONS[compute.attributes["reduction"]]
    (_, places, _), (rows, count, width) = data.shape, updates.shape
    columns = targets.shape[2]
    size = 2 * rows * places * columns
    # A loop finds out in a round of its own that it is over.
    if size >= _MOST or count >= dialect.most_rounds or not dialect.fits(size, INT32):
        return False
    pairs = sorted_pairs(tuner, dialect, targets, count)
    if pairs is None:
        return False
    runs = Value(tuner.temporary(size, INT32), (rows, places, columns, 2), INT32)
    emit(tuner, lit(0, "int32"), (size,), INT32, runs.name)
    sizes = targets.size, count, columns, places
    if not _emit(tuner, dialect, _run_statements(dialect), sizes, pairs.name, runs.name):
        return False

    def after(o: Expr, place: Expr, i: Expr) -> Expr:
        inside = (o < arg(rows)) & (i < arg(width))
        row, column, at = minimum(o, rows - 1), minimum(i, columns - 1), minimum(i, width - 1)
        first, end = (cast(runs[row, place, column, lit(n)], "index") for n in range(2))
        line = (row * columns + column) * count

        def step(r: Expr, value: Expr) -> tuple[Expr]:
            update = load(pairs, (line + minimum(first + r, count - 1)) * lit(2) + lit(1))
            return (combine(value, updates[row, cast(update, "index"), at]),)

        hits = select(inside, end - first, lit(0))
        return fold(hits, (data[o, place, i],), step)[0]

    emit_result(compute, tuner, data.shape, after)
    return True


def _emit(
    tuner: Tuner,
    dialect: KernelDialect,
    lines: Sequence[str],
    sizes: tuple[int, ...],
    source: str,
    table: str,
) -> bool:
    """Emit a step over targets from a tensor to a table."""
    divisors = ("count", "columns")
    return dialect.emit(
        tuner, ThreadStep(sizes[0], lines, _NAMES, sizes, [(source, "int32")], table, divisors=divisors)
    )


def _raise_statements(dialect: KernelDialect) -> list[str]:
    """Statements of thread `t`, in C and in GLSL, for the target t (row, update, column).

    It raises the entry (row, target, column) of the table (rows, places, columns) to the number of its
    update; a negative one does nothing.
    """
    place = "(row * places + place) * columns + t - line * columns"
    return [
        "if (t >= total) return;",
        f"int place = {dialect.element(0, 't')};",
        f"int line = {divide('t', 'columns')}, row = {divide('line', 'count')};",
        "if (place >= 0 && place < places)",
        f"    {dialect.atomic('max', dialect.output, place, 'line - row * count')}",
    ]


def _run_statements(dialect: KernelDialect) -> list[str]:
    """Statements of thread `t`, in C and in GLSL, for the sorted target t of a line (row, column).

    Where a run of equals begins, it stores that as `first` of their entry in the table (rows, places,
    columns, first and end), and as `end` of the entry of the run before.
    """
    entry = f"{dialect.output}[2 * ((row * places + {{}}) * columns + column)"
    own, previous = (dialect.element(0, f"2 * ({at})") for at in ("t", "max(t - 1, 0)"))
    return [
        "if (t >= total) return;",
        f"int line = {divide('t', 'count')}, slot = t - line * count;",
        f"int row = {divide('line', 'columns')}, column = line - row * columns;",
        f"int own = {own}, previous = slot > 0 ? {previous} : -1;",
        f"if (own != previous && own >= 0 && own < places) {entry.format('own')}] = slot;",
        f"if (own != previous && previous >= 0 && previous < places) {entry.format('previous')} + 1] = slot;",
        f"if (slot == count - 1 && own >= 0 && own < places) {entry.format('own')} + 1] = count;",
    ]
