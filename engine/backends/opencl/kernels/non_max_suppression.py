"""Kernels of tuned non-maximum suppression."""

from __future__ import annotations

from engine.backends.gpu.non_max_suppression import (
    AT_HAND,
    GROUP,
    NAMES,
    Dialect,
    Suppression,
    declarations,
    overlap_function,
    statements,
)
from engine.backends.opencl.codegen.printer import element
from engine.backends.opencl.codegen.tuned_kernel import TunedKernel, build, indent
from engine.backends.opencl.kernels.cpu_products import LOOSE
from engine.compiler.plan import Tuner

_AREA = 32


def emit_step(tuner: Tuner, step: Suppression) -> bool:
    """Emit a step: a group for each row."""
    kinds = [v.dtype.name for v in step.operands]
    dialect = Dialect(
        vector="float4",
        corners="vload4({}, C)".format,
        order="X[{}]".format,
        number=None if step.number is None else lambda row: f"(int){element(kinds[2], 'N', row)}",
        output="y",
        limit="as_float(limit_bits)",
        mark="atomic_or(free + {}, {});".format,
        place="31 - (int)clz({})".format,
        barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    )
    thread = f"const int t = (f0 + (int)get_group_id(0)) * {GROUP} + (int)get_local_id(0);"
    body = indent([*declarations("__local", "float4"), thread, *statements(dialect)], 1)
    operands = [f"{name}:{kind}" for name, kind in zip("XCN", kinds, strict=False)]
    head = indent(overlap_function("float4", "static int"), 0)
    return _emit(tuner, step, build(
        body, None, operands, NAMES, (GROUP, 1, 1), rounds=("rounds",), area=_AREA, output="int32", head=head
    ))  # fmt: skip


def emit_alone(tuner: Tuner, step: Suppression) -> bool:
    """Emit a step on a processor: a work-item for each row, which takes one candidate after another."""
    kinds = [v.dtype.name for v in step.operands]
    number = "count" if step.number is None else f"(int){element(kinds[2], 'N', 'row')}"
    body = f"""\
    const int row = f0 + (int)get_global_id(0);
    if (row >= rows) return;
    const int images = row / classes * count, candidates = row * count, own = row * (most + 1);
    const int total = min(end, {number});
    const float limit = as_float(limit_bits);
    int kept = begin > 0 ? y[own + most] : 0;
    for (int k = 0; k < most && begin == 0; ++k) y[own + k] = 0;
    // Compared 16 at a time: boxes that are not there have no area, and overlap nothing.
    float sides[4][{AT_HAND}];
    for (int k = 0; k < {4 * AT_HAND}; ++k) sides[k / {AT_HAND}][k % {AT_HAND}] = 0.0f;
    for (int k = 0; k < min(kept, {AT_HAND}); ++k) {{
        const float4 box = vload4(images + X[candidates + y[own + k]], C);
        sides[0][k] = box.x; sides[1][k] = box.y; sides[2][k] = box.z; sides[3][k] = box.w;
    }}
    for (int p = begin; p < total && kept < most; ++p) {{
        const float4 a = vload4(images + X[candidates + p], C);
        bool is_free = true;
        for (int k = 0; k < min(kept, {AT_HAND}) && is_free; k += 16) {{
            const float16 y0 = *(loose16*)(sides[0] + k), x0 = *(loose16*)(sides[1] + k);
            const float16 y1 = *(loose16*)(sides[2] + k), x1 = *(loose16*)(sides[3] + k);
            is_free = !overlaps_any(a, y0, x0, y1, x1, limit);
        }}
        for (int k = {AT_HAND}; k < kept && is_free; ++k)
            is_free = !overlaps(a, vload4(images + X[candidates + y[own + k]], C), limit);
        if (!is_free) continue;
        if (kept < {AT_HAND}) {{
            sides[0][kept] = a.x; sides[1][kept] = a.y; sides[2][kept] = a.z; sides[3][kept] = a.w;
        }}
        y[own + kept++] = p;
    }}
    y[own + most] = kept;
"""
    operands = [f"{name}:{kind}" for name, kind in zip("XCN", kinds, strict=False)]
    head = LOOSE + indent([*overlap_function("float4", "static int"), *_OVERLAP16], 0)
    return _emit(tuner, step, build(
        body, None, operands, NAMES, (1, 1, 1), rounds=("rounds",), area=_AREA, output="int32", head=head
    ))  # fmt: skip


# Only operators on vectors of 16: on processors with AVX-512 that PoCL's LLVM does not know by name (Zen 4),
# its functions look for such arguments in other registers than they are passed in.
_OVERLAP16 = """\
#define MIN16(a, b) ((b) < (a) ? (b) : (a))
#define MAX16(a, b) ((a) < (b) ? (b) : (a))
static bool overlaps_any(float4 a, float16 y0, float16 x0, float16 y1, float16 x1, float limit) {
    const float16 a0 = a.x, b0 = a.y, a1 = a.z, b1 = a.w, none = 0.0f;
    const float16 height = MIN16(a1, y1) - MAX16(a0, y0), width = MIN16(b1, x1) - MAX16(b0, x0);
    const float16 inner = MAX16(height, none) * MAX16(width, none);
    const float area_a = max(a.z - a.x, 0.0f) * max(a.w - a.y, 0.0f);
    const float16 rows = y1 - y0, columns = x1 - x0;
    const float16 area_b = MAX16(rows, none) * MAX16(columns, none), joined = area_a + area_b - inner;
    const int16 met = (inner > 0.0f) & (area_b > 0.0f) & (joined > 0.0f) & (inner / joined > limit);
    return area_a > 0.0f && any(met.lo | met.hi);
}""".splitlines()
"""Whether any of 16 boxes has an `overlap_function` of 1 with a box."""


def _emit(tuner: Tuner, step: Suppression, kernel: TunedKernel) -> bool:
    inputs = tuple(v.root.name for v in step.operands)
    tuner.emit(kernel, (step.values[0], 1, 1), step.values, inputs, step.target)
    return True
