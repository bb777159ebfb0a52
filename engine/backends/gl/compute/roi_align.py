"""RoiAlign: a thread computes four channels of a bin."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat_grid import LOCAL_SIZE, flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gpu.roi_align import NAMES, WIDTH, Dialect, Regions, statements
from engine.compiler.plan import Tuner

_SAMPLE_NS = 10.0


def emit_means(step: Regions, tuner: Tuner, target: Target) -> bool:
    """Emit the step; False beyond the device's limits."""
    grid = flat_grid(step.values[0] * (step.channels // WIDTH), target)
    if not grid_fits(grid, target):
        return False
    texels, kinds = target.texels, step.kinds
    dialect = Dialect(
        vector="vec4",
        zero="vec4(0.0)",
        cast="{}({})".format,
        pixel=lambda at: f"texelFetch(b0, {at})" if texels else f"b0[{at}]",
        place=lambda at: element("b1", at, "float32", texels),
        number=lambda at: f"int({element('b2', at, kinds[2], texels)})",
        store=[
            f"int to = (region * channels + block * {WIDTH}) * bins + p;",
            *(f"o[to + {k} * bins] = sum[{k}];" for k in range(WIDTH)),
        ],
    )
    lines = [
        f"int blocks = channels / {WIDTH}, block = t % max(blocks, 1);",
        "t /= max(blocks, 1);",
        "if (t >= total) return;",
        *statements(dialect, step.ratio),
    ]
    kernel = flat_kernel(
        lines, NAMES, kinds, "float32", target, (), LOCAL_SIZE * _SAMPLE_NS * step.ratio**2,
        widths=(WIDTH, 1, 1),
    )  # fmt: skip
    tuner.emit(kernel, grid, (*step.values, 0, 0, 0), step.inputs, step.target)
    return True
