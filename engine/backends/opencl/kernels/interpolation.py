"""Interpolation at listed positions.

On a CPU a work-item takes 16 channels of several places, for which they are put last in strips; on a GPU four
channels of a place.
"""

from __future__ import annotations

from engine.backends.gpu.interpolation import NAMES, Interpolation, laid_out, statements, sums
from engine.backends.opencl.codegen.tuned_kernel import TunedKernel, build, indent
from engine.backends.opencl.kernels import cpu_products
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Tuner

_GROUP = 64
_PLACES = 64
"""What a work-item computes on a CPU."""

_OPERANDS = ("X", "E:int32", "S")


def emit_blend(blend: Interpolation, tuner: Tuner, form: str) -> bool:
    """Emit the step."""
    tables = (blend.elements.root.name, blend.shares.root.name)
    if form == "gpu":
        grid = (-(-blend.total // _GROUP), 1, 1)
        inputs = (laid_out(blend, tuner), *tables)
        tuner.emit(_gpu(blend), grid, (blend.total, *blend.numbers), inputs, blend.target)
        return True
    images, channels, size = blend.planes.shape
    places, _, _, groups, _ = blend.numbers
    strips = -(-channels // 16)
    packed = tuner.temporary(images * strips * size * 16, FLOAT32)
    matrix = (channels, size, channels * size, 1, size, strips)
    grid = (-(-size // cpu_products.STRIP_ROWS), strips, images)
    tuner.emit(cpu_products.strips("float32"), grid, matrix, (blend.planes.root.name,), packed)
    grid = (-(-places // _PLACES), strips, images * groups)
    tuner.emit(_cpu(blend), grid, (images * groups, *blend.numbers), (packed, *tables), blend.target)
    return True


def _gpu(blend: Interpolation) -> TunedKernel:
    thread = f"const int t = (f0 + (int)get_group_id(0)) * {_GROUP} + (int)get_local_id(0);"
    lines = statements(
        blend,
        "float4",
        "(float4)",
        "vload4({}, X)".format,
        "X[{}]".format,
        "E[{}]".format,
        "S[{}]".format,
        "y",
    )
    body = indent([thread, *lines], 1)
    return build(body, None, _OPERANDS, NAMES, (_GROUP, 1, 1), rounds=("taps",), area=4 * _GROUP)


def _cpu(blend: Interpolation) -> TunedKernel:
    found = "*(__global const loose16*)(X0 + (long)at * 16)"
    lines = sums(blend, "float16", "0.0f", "E[{}]".format, "S[{}]".format, found)
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
            const int from = row * {blend.axes * blend.count} * places + begin + q;
{indent(lines, 3)}\
            *(loose16*)tile[q] = sum0;
        }}
        __global float* to = y + ((n * channels + 16 * strip) * groups + g) * places + begin;
        for (int c = 0; c < count; ++c)
            for (int q = 0; q < width; ++q) to[(long)c * pitch + q] = tile[q][c];
    }}
"""
    area = 16 * _PLACES
    return build(
        body, None, _OPERANDS, NAMES, (1, 1, 1), rounds=("taps",), area=area, head=cpu_products.LOOSE
    )
