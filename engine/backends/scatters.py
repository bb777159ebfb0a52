"""Scatters without reductions through a table of the last update that aims at each place.

The table is filled with -1 and then raised by atomic maxima: in whichever order they come, the last update
of a place wins, as if they were written one after another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.backends.operands import Fits, emit
from engine.base.dtypes import INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import FLAT, arg, cast, lit, maximum, minimum, select
from engine.kernels.value import Value
from engine.operators.scatters import FEW


@dataclass(frozen=True)
class Raises:
    """What a backend's kernel does for each of `total` targets.

    Target t (row, update, column) of (rows, count, columns) raises entry (row, target, column) of the table
    (rows, places, columns) to the number of its update; a negative one does nothing.
    """

    total: int
    count: int
    columns: int
    places: int


def tune_scatter(
    compute: Compute, tuner: Tuner, fits: Fits, raise_all: Callable[[Tuner, Raises, str, str], bool]
) -> bool:
    """Rule for hints of kind "scatter"; False for reductions, few updates, and those known before.

    `raise_all(tuner, raises, targets, table)` emits the atomic step, if it can.
    """
    assert compute.hint is not None
    (data, targets, updates), facts = compute.hint.operands, compute.hint.facts
    is_few = targets.is_static(1) and targets.shape[1] <= FEW
    if facts["reduction"] != "none" or is_few or targets.known is not None:
        return False
    (_, places, inner), (rows, count, width) = data.shape, updates.shape
    columns = targets.shape[2]
    size = rows * places * columns
    if not fits(size, INT32):
        return False
    table = Value(tuner.temporary(size, INT32), (size,), INT32)
    emit(tuner, lit(-1, "int32"), (size,), INT32, table.name)
    raises = Raises(targets.size, count, columns, places)
    if not raise_all(tuner, raises, targets.root.name, table.name):
        return False
    i, line = FLAT % arg(inner), FLAT // arg(inner)
    place, o = line % arg(places), line // arg(places)
    inside = (o < arg(rows)) & (i < arg(width))
    row, column = minimum(o, rows - 1), minimum(i, columns - 1)
    last = cast(table.at((row * places + place) * columns + column), "index")
    position = (row * count + maximum(last, lit(0))) * width + minimum(i, width - 1)
    new, old = updates.at(position), data.at(FLAT)
    step = replace(compute, body=select(inside & (last >= lit(0)), new, old), hint=None).numbered()
    tuner.emit(step.kernel, step.space, step.values, step.inputs, step.output)
    return True
