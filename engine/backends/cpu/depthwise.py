"""Depthwise convolutions of float32: each output plane reads one input plane, a band of rows at a time."""

from __future__ import annotations

from functools import partial

from engine.backends.cpu.argument_block import ArgumentBlock
from engine.backends.cpu.bands import BAND_ARGUMENTS, band_memory, bands_text, cut_bands, walk_bands
from engine.backends.cpu.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.packing import flattened
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.backends.cpu.windows import Windows
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import deferred

TILE_VECTORS = 4
_FLOPS_PER_NS = 12.0

_ARGUMENTS = ArgumentBlock("planes_out planes_in", BAND_ARGUMENTS)


def tune_depthwise(compute: Compute, tuner: Tuner, win: Windows) -> bool:
    """A convolution with as many groups as input channels; float32 and known weights are established."""
    bands = deferred(cut_bands, win)
    if bands is None:
        return False
    assert compute.hint is not None
    x, w = compute.hint.operands
    assert w.known is not None
    elements = w.known
    batch, channels, m = x.shape[0], x.shape[1], w.shape[0]
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    weights = tuner.constant(f"{w.name}|flat", partial(flattened, elements))
    outputs = win.out[0] * win.out[1]
    total_ns = bands.nanoseconds + (2.0 * win.taps / _FLOPS_PER_NS + 0.5) * outputs
    kernel = NativeKernel("depthwise", depthwise_text(host_tile(), epilogue))
    arguments = _ARGUMENTS.values(planes_out=m, planes_in=channels, **BAND_ARGUMENTS.named(bands.sizes))
    values = (total_ns, *arguments, *epilogue.values)
    tuner.emit(kernel, (batch * m,), values, (*epilogue.inputs, x.name, weights), compute.output.name)
    return True


def depthwise_text(tile: Tile, epilogue: Epilogue) -> str:
    """The kernel's module."""
    lanes = tile.lanes
    body = [
        *_ARGUMENTS.prologue("x", "w", epilogue=epilogue),
        "multiplier = op_div(planes_out, planes_in)",
        *band_memory(),
        "padding = _types.float32(0.0)",
        *epilogue.kernel,
        "for plane in range(begin, end):",
        *indent(
            [
                "i0 = op_div(plane, planes_out)",
                "i1 = plane - i0 * planes_out",
                "origin = x + (i0 * planes_in + op_div(i1, multiplier)) * plane_size * 4",
                "weights = w + i1 * taps * 4",
                *walk_bands(
                    lanes,
                    TILE_VECTORS,
                    "wide_tile(source + done * 4, offsets, weights, taps, sums + done * 4)",
                    "slim_tile(source + done * 4, offsets, weights, taps, sums + done * 4)",
                    "padding",
                    [],
                    epilogue,
                ),
            ]
        ),
    ]
    tiles = f"wide_tile = make_tap_tile({TILE_VECTORS}, {lanes})\nslim_tile = make_tap_tile(1, {lanes})\n"
    return kernel_text(bands_text(lanes) + tiles, body)
