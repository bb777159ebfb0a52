"""The atomic step of a scatter."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat import flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.scatters import Raises
from engine.compiler.plan import Tuner

_NAMES = ("total", "count", "columns", "places")


def raise_all(target: Target, tuner: Tuner, raises: Raises, targets: str, table: str) -> bool:
    """Emit the step: a thread for each target."""
    grid = flat_grid(raises.total, target)
    if not grid_fits(grid, target):
        return False
    lines = [
        "if (t >= total) return;",
        f"int place = {element('b0', 't', 'int32', target.texels)};",
        "int line = t / max(columns, 1);",
        "int row = line / max(count, 1);",
        "if (place >= 0 && place < places)",
        "    atomicMax(o[(row * places + place) * columns + t - line * columns], line - row * count);",
    ]
    values = (raises.total, raises.count, raises.columns, raises.places, 0, 0, 0)
    tuner.emit(flat_kernel(lines, _NAMES, ["int32"], "int32", target), grid, values, (targets,), table)
    return True
