"""Depthwise convolutions of float32: each output plane reads one input plane, a row of sums at a time."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.planes import MAX_TAPS, PLANE_SUMS, TAP_OFFSETS, Windows, lay_out, walk_plane
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.compiler.plan import Compute, Tuner

TILE_VECTORS = 4
_FLOPS_PER_NS = 12.0

_WORDS = (
    "planes_out planes_in out_rows last_size plane_size kernel_rows kernel_columns row_step tap_row_step"
    " row_length dilation stride"
).split()
_FIRST_WORD = 2


def tune_depthwise(compute: Compute, tuner: Tuner, win: Windows) -> bool:
    """A convolution with as many groups as input channels; float32 and known weights are established."""
    assert compute.hint is not None
    x, w = compute.hint.operands
    assert w.known is not None
    elements = w.known
    batch, channels, m = x.shape[0], x.shape[1], w.shape[0]
    planes = lay_out(tuner, x.name, batch * channels, win, 0.0)
    epilogue = print_epilogue(compute, _FIRST_WORD + len(_WORDS))
    weights = tuner.constant(f"{w.name}|flat", lambda: np.ascontiguousarray(elements).reshape(-1))
    sizes = (
        m, channels, *win.out, planes.plane_size, *win.kernel, planes.row_step, planes.tap_row_step,
        planes.row_length, planes.dilation, planes.stride,
    )  # fmt: skip
    total_ns = (2.0 * win.taps / _FLOPS_PER_NS + 0.5) * win.out[0] * win.out[1]
    kernel = NativeKernel("depthwise", depthwise_text(host_tile(), epilogue))
    values = (total_ns, *sizes, *epilogue.values)
    tuner.emit(kernel, (batch * m,), values, (*epilogue.inputs, planes.name, weights), compute.output.name)
    return True


def depthwise_text(tile: Tile, epilogue: Epilogue) -> str:
    """The kernel's module."""
    lanes = tile.lanes
    position = _FIRST_WORD + len(_WORDS) + epilogue.words
    body = [
        *(f"{name} = arg_i64(args, {_FIRST_WORD + k})" for k, name in enumerate(_WORDS)),
        *epilogue.arguments,
        f"x = arg_i64(args, {position})",
        f"w = arg_i64(args, {position + 1})",
        "taps = kernel_rows * kernel_columns",
        "multiplier = op_div(planes_out, planes_in)",
        f"tile = stack_bytes({(PLANE_SUMS + TILE_VECTORS * lanes) * 4})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        "tap_offsets(offsets, kernel_rows, kernel_columns, tap_row_step, row_length, dilation, stride)",
        *epilogue.kernel,
        "for plane in range(begin, end):",
        *indent(
            [
                "i0 = op_div(plane, planes_out)",
                "i1 = plane - i0 * planes_out",
                "origin = x + (i0 * planes_in + op_div(i1, multiplier)) * plane_size * 4",
                "weights = w + i1 * taps * 4",
                *walk_plane(
                    lanes,
                    TILE_VECTORS,
                    "wide_tile(source + done * 4, offsets, weights, taps, target + done * 4)",
                    "slim_tile(source + done * 4, offsets, weights, taps, target + done * 4)",
                    [],
                    epilogue,
                ),
            ]
        ),
    ]
    tiles = f"wide_tile = make_tap_tile({TILE_VECTORS}, {lanes})\nslim_tile = make_tap_tile(1, {lanes})\n"
    return kernel_text(library_text("vectors") + tiles + TAP_OFFSETS, body)
