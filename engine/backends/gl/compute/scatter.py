"""The steps of a scatter that go through its targets."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat import flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.scatters import TARGET_NAMES, Targets, run_statements
from engine.compiler.plan import Tuner


def raise_all(target: Target, tuner: Tuner, each: Targets, targets: str, table: str) -> bool:
    """Emit the atomic step: a thread for each target."""
    lines = [
        "if (t >= total) return;",
        f"int place = {element('b0', 't', 'int32', target.texels)};",
        "int line = t / max(columns, 1);",
        "int row = line / max(count, 1);",
        "if (place >= 0 && place < places)",
        "    atomicMax(o[(row * places + place) * columns + t - line * columns], line - row * count);",
    ]
    return _emit(target, tuner, each, targets, table, lines)


def mark_runs(target: Target, tuner: Tuner, each: Targets, pairs: str, runs: str) -> bool:
    """Emit the step that marks runs: a thread for each sorted target."""

    def key(position: str) -> str:
        return element("b0", f"2 * ({position})", "int32", target.texels)

    return _emit(target, tuner, each, pairs, runs, run_statements(key, "o"))


def _emit(target: Target, tuner: Tuner, each: Targets, source: str, table: str, lines: Sequence[str]) -> bool:
    grid = flat_grid(each.total, target)
    if not grid_fits(grid, target):
        return False
    kernel = flat_kernel(lines, TARGET_NAMES, ["int32"], "int32", target)
    tuner.emit(kernel, grid, (*each.values, 0, 0, 0), (source,), table)
    return True
