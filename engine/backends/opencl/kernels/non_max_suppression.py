"""Non-maximum suppression on CPUs: one work-item per row visits the candidates in order."""

from __future__ import annotations

from engine.backends.gpu.kernel_dialect import KernelDialect, ThreadStep
from engine.backends.gpu.non_max_suppression import (
    AREA,
    AT_HAND,
    NAMES,
    Suppression,
    emit_steps,
    overlap_function,
)
from engine.compiler.plan import Compute, Tuner


def tune_non_max_suppression(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "non_max_suppression"."""

    def emit_step(step: Suppression) -> bool:
        return dialect.emit(tuner, ThreadStep(
            step.values[0], _statements(step, dialect).splitlines(), NAMES, step.values, step.inputs,
            step.target, functions=[*overlap_function(dialect), *_OVERLAP16], rounds=("rounds",),
            is_alone=True, area=AREA,
        ))  # fmt: skip

    return emit_steps(compute, emit_step)


def _statements(step: Suppression, dialect: KernelDialect) -> str:
    """Statements of work-item `t`."""
    return f"""\
if (t >= rows) return;
const int images = t / classes * count, candidates = t * count, own = t * (most + 1);
const int total = min(end, {step.total(dialect, "t")});
const float limit = as_float(limit_bits);
int kept = begin > 0 ? y[own + most] : 0;
for (int k = 0; k < most && begin == 0; ++k) y[own + k] = 0;
// Compared 16 at a time: boxes that are not there have no area, and overlap nothing.
float sides[4][{AT_HAND}];
for (int k = 0; k < {4 * AT_HAND}; ++k) sides[k / {AT_HAND}][k % {AT_HAND}] = 0.0f;
for (int k = 0; k < min(kept, {AT_HAND}); ++k) {{
    const float4 box = vload4(images + X[candidates + y[own + k]], L);
    sides[0][k] = box.x; sides[1][k] = box.y; sides[2][k] = box.z; sides[3][k] = box.w;
}}
for (int p = begin; p < total && kept < most; ++p) {{
    const float4 a = vload4(images + X[candidates + p], L);
    bool is_free = true;
    for (int k = 0; k < min(kept, {AT_HAND}) && is_free; k += 16) {{
        const float16 y0 = *(loose16*)(sides[0] + k), x0 = *(loose16*)(sides[1] + k);
        const float16 y1 = *(loose16*)(sides[2] + k), x1 = *(loose16*)(sides[3] + k);
        is_free = !overlaps_any(a, y0, x0, y1, x1, limit);
    }}
    for (int k = {AT_HAND}; k < kept && is_free; ++k)
        is_free = !overlaps(a, vload4(images + X[candidates + y[own + k]], L), limit);
    if (!is_free) continue;
    if (kept < {AT_HAND}) {{
        sides[0][kept] = a.x; sides[1][kept] = a.y; sides[2][kept] = a.z; sides[3][kept] = a.w;
    }}
    y[own + kept++] = p;
}}
y[own + most] = kept;
"""


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
