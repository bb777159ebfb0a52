"""Elementwise products of complex numbers whose parts are in separate rows, as vectors of four.

A thread computes both parts, which read the same numbers, of four neighbours: with software rendering, a
fetch costs the same for one float as for four, and a thread as much as storing two results.
"""

from __future__ import annotations

from engine.backends.gl.compute.flat_grid import emit_with_epilogue
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.glsl import COMPONENTS
from engine.backends.gl.storage import lanes
from engine.backends.gpu.kernel_dialect import ThreadStep
from engine.compiler.plan import Compute, Tuner

_THREAD_NS = 40.0


def tune_complex_product(compute: Compute, tuner: Tuner, target: ShaderTarget) -> bool:
    """Rule for hints of kind "complex_product": float32 as buffer textures, in rows of whole texels."""
    x, by = compute.operands
    if not target.texels or any(v.dtype.name != "float32" for v in compute.operands):
        return False
    if lanes(compute.output.dtype.name) > 1 or not x.is_static(3) or x.shape[3] % 4:
        return False
    lines, rows, _, columns = x.shape
    quads = columns // 4
    step = ThreadStep(
        lines * rows * quads, _statements(), ("lines", "rows", "quads"), (lines, rows, quads),
        [(x.root.name, "float32"), (by.root.name, "float32")], compute.output.name, widths=(4, 4),
        ns=_THREAD_NS,
    )  # fmt: skip
    return emit_with_epilogue(compute, tuner, step, target)


def _statements() -> list[str]:
    """Statements of thread `t`: positions count texels."""
    stores = [
        f"finish((at + {part} * quads) * 4 + {j}, {value}.{lane});"
        for part, value in enumerate(("real", "imaginary"))
        for j, lane in enumerate(COMPONENTS)
    ]
    return [
        "int row = t / max(quads, 1);",
        "if (row >= lines * rows) return;",
        "int quad = t - row * quads, at = row * 2 * quads + quad;",
        "int by = row % max(rows, 1) * 2 * quads + quad;",
        "vec4 a = texelFetch(b0, at), b = texelFetch(b0, at + quads);",
        "vec4 c = texelFetch(b1, by), d = texelFetch(b1, by + quads);",
        "vec4 real = a * c - b * d, imaginary = a * d + b * c;",
        *stores,
    ]
