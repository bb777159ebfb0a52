"""Interpolation at listed positions on a CPU.

A work-item takes 16 channels of several places, for which they are put last in strips.
"""

from __future__ import annotations

from engine.backends.gpu.interpolation import NAMES, Interpolation, interpolation_of, interpolation_statements
from engine.backends.gpu.kernel_dialect import KernelDialect
from engine.backends.opencl.codegen.tuned_kernel import TunedKernel, build, indent
from engine.backends.opencl.kernels import cpu_gemm
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner

_PLACES = 64
"""What a work-item computes."""


def tune_interpolation(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "interpolate"."""
    step = interpolation_of(compute, dialect)
    if step is None:
        return False
    images, channels, size = step.planes.shape
    places, _, _, groups, _ = step.numbers
    strips = -(-channels // 16)
    packed = tuner.temporary(images * strips * size * 16, FLOAT32)
    matrix = (channels, size, channels * size, 1, size, strips)
    grid = (-(-size // cpu_gemm.STRIP_ROWS), strips, images)
    tuner.emit(cpu_gemm.strips("float32"), grid, matrix, (step.planes.root.name,), packed)
    grid = (-(-places // _PLACES), strips, images * groups)
    inputs = (packed, *(name for name, _ in step.tables))
    tuner.emit(_kernel(step, dialect), grid, (images * groups, *step.numbers), inputs, step.target)
    return True


def _kernel(step: Interpolation, dialect: KernelDialect) -> TunedKernel:
    lines = interpolation_statements(step, dialect, 16, "*(__global const loose16*)(X0 + (long)at * 16)")
    body = f"""\
    const int first = (f0 + (int)get_global_id(0)) * {_PLACES}, strip = f1 + (int)get_global_id(1);
    const int row = f2 + (int)get_global_id(2);
    if (first >= places || row >= total) return;
    const int n = row / groups, g = row - n * groups, strips = (channels + 15) / 16;
    __global const float* X0 = X + ((long)n * strips + strip) * size * 16;
    const int count = min(16, channels - 16 * strip), pitch = groups * places;
    for (int begin = first; begin < min(first + {_PLACES}, places); begin += 16) {{
        const int width = min(16, places - begin);
        float tile[16][16];
        for (int q = 0; q < width; ++q) {{
            const int from = row * {step.axes * step.count} * places + begin + q;
{indent(lines, 3)}\
            *(loose16*)tile[q] = sum0;
        }}
        __global float* to = y + ((n * channels + 16 * strip) * groups + g) * places + begin;
        for (int c = 0; c < count; ++c)
            for (int q = 0; q < width; ++q) to[(long)c * pitch + q] = tile[q][c];
    }}
"""
    return build(
        body, None, ("X", "L:int32", "P"), NAMES, (1, 1, 1), rounds=("taps",), area=16 * _PLACES,
        head=cpu_gemm.LOOSE,
    )  # fmt: skip
