"""NHWC convolutions with results smaller than a vector: few output channels, or one pixel.

Vectors run along the input's channels instead, and are added up when all products of a sum are in.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.codegen.epilogue import Epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent
from engine.backends.cpu.codegen.schedule import emit
from engine.backends.cpu.codegen.tiles import AVX512, NEON, Tile, host_tile
from engine.backends.cpu.kernels.convolution.nhwc_conv import (
    NS_PER_ADDRESS,
    NHWCConv,
    nhwc_conv_of,
    table_kernel,
)
from engine.backends.cpu.kernels.convolution.nhwc_tiles import (
    FLOPS_PER_NS,
    NS_PER_RESULT,
    padded_channels,
    pixel_indices,
)
from engine.base.memory.pool import reserve_lasting
from engine.compiler.plan import Compute, Tuner, storable

_MOST_OUTPUTS = 12
_MOST_ROWS = 10

_OUTPUTS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 3, 7: 4, 8: 4, 9: 3, 10: 5, 11: 4, 12: 4}
"""How many of so many output channels a tile has; the last tile overlaps the previous one."""

_ALONE = 8
"""Output channels of a tile of one pixel."""

_NS_PER_SUM = 1.0
"""Adding up a vector, and storing a result by itself."""


def tune_small_output_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv": NHWC, where it is faster than `tune_nhwc_conv`."""
    tile = host_tile()
    conv = nhwc_conv_of(compute, _MOST_ROWS)
    if conv is None or conv.group != 1 or conv.channels < tile.lanes:
        return False
    shape = _shape(conv, tile)
    if shape is None:
        return False
    rows, outputs = shape
    blocks, vectors = -(-conv.m // outputs), -(-conv.channels // tile.lanes)
    products = vectors * tile.lanes * conv.win.taps
    sum_ns = 2.0 * products / FLOPS_PER_NS + _NS_PER_SUM
    plain_ns = 2.0 * conv.depth / FLOPS_PER_NS + NS_PER_RESULT
    if rows > 1 and blocks * outputs * sum_ns >= padded_channels(conv.m, tile) * plain_ns:
        return False
    x, w = compute.operands
    elements = w.known
    assert elements is not None
    tile_ns = rows * (outputs * sum_ns + conv.win.taps * NS_PER_ADDRESS / blocks)
    schedule = conv.partition(rows, blocks, 1, threads, tile_ns, 4.0 * products * outputs)
    epilogue = conv.epilogue()
    weights = tuner.constant(
        f"{w.name}|sums{outputs}x{tile.lanes}", partial(pack_sums, elements, outputs, tile.lanes)
    )
    sizes = conv.sizes(schedule, rows, outputs, blocks * outputs * products, 0, conv.channels)
    kernel = NativeKernel(
        "small_output_conv", small_output_conv_text(tile, rows, outputs, epilogue, len(compute.space))
    )
    return emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)


def _shape(conv: NHWCConv, tile: Tile) -> tuple[int, int] | None:
    """Pixels and output channels of a tile."""
    if conv.pixels == 1 and conv.m >= _ALONE:
        return 1, _ALONE
    if conv.m > _MOST_OUTPUTS:
        return None
    outputs = _OUTPUTS[conv.m]
    sums = 24 if tile in (AVX512, NEON) else 8
    return max(1, min(_MOST_ROWS, sums // outputs)), outputs


@storable
def pack_sums(w: np.ndarray, outputs: int, lanes: int) -> np.ndarray:
    """Pack (M, C, *kernel) as 1-D (block, tap, vector, outputs, lanes), followed by C zeros.

    The last block and the last vector reach back; a weight that the vector before has is 0 there.
    """
    m, channels, taps = w.shape[0], w.shape[1], w[0, 0].size
    blocks, vectors = -(-m // outputs), -(-channels // lanes)
    firsts = [min(b * outputs, m - outputs) for b in range(blocks)]
    source = w.reshape(m, channels, taps)
    count = blocks * taps * vectors * outputs * lanes
    memory = reserve_lasting((count + channels) * 4).view(np.float32)
    memory[count:] = 0.0
    packed = memory[:count].reshape(blocks, taps, vectors, outputs, lanes)
    # What neither reaches back nor is reached.
    whole, full = m // outputs, channels // lanes
    parts = source[: whole * outputs, : full * lanes].reshape(whole, outputs, full, lanes, taps)
    packed[:whole, :, :full] = parts.transpose(0, 4, 2, 1, 3)
    for b, first in enumerate(firsts):
        for v in range(0 if b >= whole else full, vectors):
            start = min(v * lanes, channels - lanes)
            part = source[first : first + outputs, start : start + lanes]
            packed[b, :, v] = part.transpose(2, 0, 1)
            packed[b, :, v, :, : v * lanes - start] = 0.0
    return memory


def small_output_conv_text(tile: Tile, rows: int, outputs: int, epilogue: Epilogue, rank: int) -> str:
    """Source of the kernel."""
    tiles = [
        "t = 0",
        "while t < count:",
        f"    valid = min({rows}, count - t)",
        "    m = m0",
        "    while m < m1:",
        f"        first_column = min(m, m_size - {outputs})",
        f"        panel = weights + m * taps * vectors * {4 * tile.lanes}",
        "        sum_tile(table + t * 8, step * 8, taps, channels, panel, sums)",
        "        for r in range(valid):",
        *indent(indent(indent(pixel_indices(rank)))),
        f"            tile = sums + r * {4 * outputs}",
        "            start = pixel * m_total + first_column",
        *indent(indent(indent(epilogue.store_columns(str(outputs))))),
        f"        m += {outputs}",
        "    t += valid",
    ]
    lead = f"vectors = op_div(channels + {tile.lanes - 1}, _types.int64({tile.lanes}))"
    makers = f"sum_tile = make_sum_tile({rows}, {outputs}, {tile.lanes})\n"
    return table_kernel(epilogue, makers, rows, rows * outputs, [lead, *tiles])
