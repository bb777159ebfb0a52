"""Shaders of tuned non-maximum suppression."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import grid_fits
from engine.backends.gl.compute.flat_grid import flat_grid, flat_kernel
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gpu.non_max_suppression import (
    GROUP,
    NAMES,
    Dialect,
    Suppression,
    declarations,
    overlap_function,
    statements,
)
from engine.compiler.plan import Tuner

_ROUND_NS = 3.0


def emit_step(target: Target, tuner: Tuner, step: Suppression) -> bool:
    """Emit a step with one group per row; returns False beyond the device's limits."""
    grid = flat_grid(step.values[0] * GROUP, target)
    most, rounds = (step.values[NAMES.index(name)] for name in ("most", "rounds"))
    # Boxes that join a row, and slots that are cleared, are further rounds.
    if not grid_fits(grid, target) or rounds + 2 * most > target.limits.max_loop_rounds:
        return False
    texels, operands = target.texels, step.operands
    kinds = [v.dtype.name for v in operands]
    dialect = Dialect(
        vector="vec4",
        corners=lambda box: f"texelFetch(b1, {box})" if texels else f"b1[{box}]",
        order=lambda position: element("b0", position, kinds[0], texels),
        number=None if step.number is None else lambda row: f"int({element('b2', row, kinds[2], texels)})",
        output="o",
        limit="intBitsToFloat(limit_bits)",
        mark="atomicOr(free[{}], {});".format,
        place="findLSB({})".format,
        barrier="memoryBarrierBuffer(); memoryBarrierShared(); barrier();",
    )
    head = [*declarations("shared", "vec4"), *overlap_function("vec4", "bool")]
    kernel = flat_kernel(
        statements(dialect), NAMES, kinds, "int32", target, head, GROUP * _ROUND_NS,
        widths=(1, 4, 1)[: len(kinds)], rounds=(NAMES.index("rounds"),), access="coherent ",
    )  # fmt: skip
    inputs = tuple(v.root.name for v in operands)
    tuner.emit(kernel, grid, (*step.values, 0, 0, 0), inputs, step.target)
    return True
