"""Scatters in two steps: find the updates of each position, then apply them.

Without a reduction, a table of the last update that aims at each place is filled with -1 and then raised by
atomic maxima: in whichever order they come, the last update of a place wins, as if they were written one
after another. With one, updates are sorted by their targets, stably: those of a place are a run, in their
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from engine.backends.gpu.sorts import Sorter, sorted_pairs
from engine.backends.operands import Divide, emit, emit_result
from engine.base.dtypes import INT32
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.expr import Expr, arg, cast, fold, lit, load, maximum, minimum, select
from engine.kernels.value import Value
from engine.operators.builder import MOST_ON_HOST
from engine.operators.scatters import FEW, REDUCTIONS

_MOST = 1 << 30

TARGET_NAMES = ("total", "count", "columns", "places")
"""Arguments of a step that goes through targets."""


DIVISORS = ("count", "columns")
"""Those by which it divides."""


@dataclass(frozen=True)
class Targets:
    """What a backend's kernel goes through: `total` targets, (rows, count, columns), of so many `places`."""

    total: int
    count: int
    columns: int
    places: int

    @property
    def values(self) -> tuple[int, ...]:
        """The numbers."""
        return self.total, self.count, self.columns, self.places


@dataclass(frozen=True)
class Scatterer:
    """What a backend brings: functions that emit a step over targets from a tensor to a table, if they can.

    raise_all: target t (row, update, column) raises entry (row, target, column) of the table (rows, places,
    columns) to the number of its update; a negative one does nothing. mark_runs: see `run_statements`.
    most_rounds: how often a loop of a step may run, which goes through the updates of one place.
    """

    sorter: Sorter
    raise_all: Callable[[Tuner, Targets, str, str], bool]
    mark_runs: Callable[[Tuner, Targets, str, str], bool]
    most_rounds: int = _MOST


def tune_scatter(compute: Compute, tuner: Tuner, scatterer: Scatterer) -> bool:
    """Rule for hints of kind "scatter"; False for few updates, and reductions at targets known before."""
    targets, reduction = compute.operands[1], compute.attributes["reduction"]
    if targets.is_static(1) and targets.shape[1] <= FEW:
        return False
    if reduction == "none":
        return _tune_last(compute, tuner, scatterer)
    return targets.known is None and _tune_reduction(compute, tuner, scatterer)


def _tune_last(compute: Compute, tuner: Tuner, scatterer: Scatterer) -> bool:
    data, targets, updates = compute.operands
    (_, places, _), (rows, count, width) = data.shape, updates.shape
    columns = targets.shape[2]
    size = rows * places * columns
    if not scatterer.sorter.fits(size, INT32):
        return False
    known = targets.known
    if known is not None:
        if not data.is_static(1) or size > MOST_ON_HOST:
            return False
        name = tuner.constant(f"{targets.root.name}:last of {places}", partial(last_of_known, known, places))
    else:
        name = tuner.temporary(size, INT32)
        emit(tuner, lit(-1, "int32"), (size,), INT32, name)
        each = Targets(targets.size, count, columns, places)
        if not scatterer.raise_all(tuner, each, targets.root.name, name):
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
    """The last update that aims at each place, or -1: (rows, places, columns)."""
    rows, count, columns = targets.shape
    # One place more takes what aims nowhere, at -1.
    table = np.full((rows, places + 1, columns), -1, np.int32)
    updates = np.arange(count, dtype=np.int32)[None, :, None]
    np.maximum.at(table, (np.arange(rows)[:, None, None], targets, np.arange(columns)), updates)
    return table[:, :places]


def _tune_reduction(compute: Compute, tuner: Tuner, scatterer: Scatterer) -> bool:
    (data, targets, updates), combine = compute.operands, REDUCTIONS[compute.attributes["reduction"]]
    (_, places, _), (rows, count, width) = data.shape, updates.shape
    columns = targets.shape[2]
    size = 2 * rows * places * columns
    # A loop finds out in a round of its own that it is over.
    if size >= _MOST or count >= scatterer.most_rounds or not scatterer.sorter.fits(size, INT32):
        return False
    pairs = sorted_pairs(tuner, scatterer.sorter, targets, count)
    if pairs is None:
        return False
    runs = Value(tuner.temporary(size, INT32), (rows, places, columns, 2), INT32)
    emit(tuner, lit(0, "int32"), (size,), INT32, runs.name)
    each = Targets(targets.size, count, columns, places)
    if not scatterer.mark_runs(tuner, each, pairs.name, runs.name):
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


def run_statements(key: Callable[[str], str], divide: Divide, output: str) -> list[str]:
    """Statements of thread `t`, in C and in GLSL, for the sorted target t of a line (row, column).

    Where a run of equals begins, it stores that as `first` of their entry in the table (rows, places,
    columns, first and end), and as `end` of the entry of the run before. `key` is the text of a sorted
    target, and `divide` that of a quotient.
    """
    entry = f"{output}[2 * ((row * places + {{}}) * columns + column)"
    return [
        "if (t >= total) return;",
        f"int line = {divide('t', 'count')}, slot = t - line * count;",
        f"int row = {divide('line', 'columns')}, column = line - row * columns;",
        f"int own = {key('t')}, previous = slot > 0 ? {key('max(t - 1, 0)')} : -1;",
        f"if (own != previous && own >= 0 && own < places) {entry.format('own')}] = slot;",
        f"if (own != previous && previous >= 0 && previous < places) {entry.format('previous')} + 1] = slot;",
        f"if (slot == count - 1 && own >= 0 && own < places) {entry.format('own')} + 1] = count;",
    ]
