"""Tuned scatter: the steps that walk the updates of each position."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gpu.scatters import DIVISORS, TARGET_NAMES, Targets, run_statements
from engine.backends.opencl.tuned_kernel import build, divide, divisor_names, divisor_values, indent
from engine.compiler.plan import Tuner

_GROUP = 64


def raise_all(tuner: Tuner, each: Targets, targets: str, table: str) -> bool:
    """Emit the atomic step: a work-item for each target."""
    lines = [
        "if (t >= total) return;",
        f"const int place = X[t], line = {divide('t', 'columns')}, row = {divide('line', 'count')};",
        "if (place >= 0 && place < places)",
        "    atomic_max(y + (row * places + place) * columns + t - line * columns, line - row * count);",
    ]
    return _emit(tuner, each, targets, table, lines)


def mark_runs(tuner: Tuner, each: Targets, pairs: str, runs: str) -> bool:
    """Emit the step that marks runs: a work-item for each sorted target."""
    return _emit(tuner, each, pairs, runs, run_statements("X[2 * ({})]".format, divide, "y"))


def _emit(tuner: Tuner, each: Targets, source: str, target: str, lines: Sequence[str]) -> bool:
    thread = f"const int t = (f0 + (int)get_group_id(0)) * {_GROUP} + (int)get_local_id(0);"
    body = indent([thread, *lines], 1)
    names = (*TARGET_NAMES, *divisor_names(DIVISORS))
    values = (*each.values, *divisor_values((each.count, each.columns)))
    kernel = build(body, None, ("X:int32",), names, (_GROUP, 1, 1), output="int32", area=_GROUP)
    tuner.emit(kernel, (-(-each.total // _GROUP), 1, 1), values, (source,), target)
    return True
