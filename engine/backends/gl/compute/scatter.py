"""Tuned scatter: the steps that walk the updates of each position."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat import divide, divisor_names, divisor_values, flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gpu.scatters import DIVISORS, TARGET_NAMES, Targets, run_statements
from engine.compiler.plan import Tuner


def raise_all(target: Target, tuner: Tuner, each: Targets, targets: str, table: str) -> bool:
    """Emit the atomic step: a thread for each target."""
    lines = [
        "if (t >= total) return;",
        f"int place = {element('b0', 't', 'int32', target.texels)};",
        f"int line = {divide('t', 'columns')}, row = {divide('line', 'count')};",
        "if (place >= 0 && place < places)",
        "    atomicMax(o[(row * places + place) * columns + t - line * columns], line - row * count);",
    ]
    return _emit(target, tuner, each, targets, table, lines)


def mark_runs(target: Target, tuner: Tuner, each: Targets, pairs: str, runs: str) -> bool:
    """Emit the step that marks runs: a thread for each sorted target."""

    def key(position: str) -> str:
        return element("b0", f"2 * ({position})", "int32", target.texels)

    return _emit(target, tuner, each, pairs, runs, run_statements(key, divide, "o"))


def _emit(target: Target, tuner: Tuner, each: Targets, source: str, table: str, lines: Sequence[str]) -> bool:
    grid = flat_grid(each.total, target)
    if not grid_fits(grid, target):
        return False
    names = (*TARGET_NAMES, *divisor_names(DIVISORS))
    values = (*each.values, *divisor_values((each.count, each.columns)))
    kernel = flat_kernel(lines, names, ["int32"], "int32", target)
    tuner.emit(kernel, grid, (*values, 0, 0, 0), (source,), table)
    return True
