"""NHWC convolutions of float32 over one or two axes, with constant weights."""

from __future__ import annotations

from functools import partial

from engine.backends.cpu.codegen.epilogue import Epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.schedule import emit
from engine.backends.cpu.codegen.tiles import Tile, host_tile
from engine.backends.cpu.kernels.convolution.indirect_conv import (
    NS_PER_ADDRESS,
    nhwc_conv_of,
    table_kernel,
)
from engine.backends.cpu.kernels.convolution.nhwc_tiles import (
    FLOPS_PER_NS,
    NS_PER_RESULT,
    pack_weights,
    padded_channels,
    pixel_rows,
    tile_makers,
    walk_tiles,
)
from engine.compiler.plan import Compute, Tuner


def tune_nhwc_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with channels_last: float32, one or two axes, known weights."""
    tile = host_tile()
    rows = pixel_rows(tile)[0]
    conv = nhwc_conv_of(compute, rows)
    if conv is None:
        return False
    w = compute.operands[1]
    elements = w.known
    assert elements is not None
    padded, panels = padded_channels(conv.m, tile), -(-conv.m // tile.width)
    # The last panel may be a slim one.
    width = padded / panels
    tile_ns = rows * (width * (2.0 * conv.depth / FLOPS_PER_NS + NS_PER_RESULT))
    tile_ns += rows * conv.win.taps * NS_PER_ADDRESS / panels
    schedule = conv.cut(rows, panels, conv.group, threads, tile_ns, 4.0 * conv.depth * width)
    epilogue = conv.epilogue()
    group, channels = conv.group, conv.channels
    weights = tuner.constant(
        f"{w.name}|pixels{tile.width}|{group}", partial(pack_weights, elements, group, tile, True, channels)
    )
    group_weights = padded * conv.depth
    read, step = conv.lay_apart(tuner, tile)
    sizes = conv.sizes(schedule, rows, tile.width, conv.group * group_weights, group_weights, step)
    kernel = NativeKernel("nhwc_conv", nhwc_conv_text(tile, epilogue, len(compute.space)))
    return emit(tuner, kernel, schedule, sizes, (read, weights), compute.output.name, epilogue)


def nhwc_conv_text(tile: Tile, epilogue: Epilogue, rank: int) -> str:
    """Source of the kernel."""
    rows = pixel_rows(tile)[0]

    def call(name: str) -> str:
        return f"{name}(places, step * 8, taps, channels, panel, sums, asked)"

    # The first tiles of a panel ask for the next panel.
    before = [
        "asked = load_i64(places, 0) + ahead",
        f"if t < next_parts * {rows}:",
        f"    part = op_div(t, _types.int64({rows}))",
        f"    asked = panel + depth * ({tile.width * 4} + part * 64)",
    ]
    makers = tile_makers(tile, "make_pixel_tile", True, epilogue.recipe)
    tiles = walk_tiles(tile, call, epilogue, rank, before)
    return table_kernel(epilogue, makers, rows, rows * tile.width, tiles)
