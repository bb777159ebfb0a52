"""The step of a blend at listed positions: a thread computes four channels of a place."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat_grid import LOCAL_SIZE, flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gpu.interpolation import NAMES, WIDTH, Interpolation, laid_out, statements
from engine.compiler.plan import Tuner

_TAP_NS = 5.0


def emit_blend(blend: Interpolation, tuner: Tuner, target: Target) -> bool:
    """Emit the step; False beyond the device's limits."""
    grid, texels = flat_grid(blend.total, target), target.texels
    if not grid_fits(grid, target):
        return False
    planes, width = laid_out(blend, tuner), 1 if blend.is_read_once else WIDTH
    lines = statements(
        blend,
        "vec4",
        "vec4",
        lambda at: f"texelFetch(b0, {at})" if texels else f"b0[{at}]",
        lambda at: element("b0", at, "float32", texels),
        lambda at: element("b1", at, "int32", texels),
        lambda at: element("b2", at, "float32", texels),
        "o",
    )
    kernel = flat_kernel(
        lines, NAMES, ("float32", "int32", "float32"), "float32", target, (), LOCAL_SIZE * _TAP_NS,
        widths=(width, 1, 1), rounds=(NAMES.index("taps"),),
    )  # fmt: skip
    values = (blend.total, *blend.numbers, 0, 0, 0)
    tuner.emit(kernel, grid, values, (planes, blend.elements.root.name, blend.shares.root.name), blend.target)
    return True
