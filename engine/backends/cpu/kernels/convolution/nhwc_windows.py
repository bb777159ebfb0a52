"""Windows of float32 with channels last whose channels do not meet: depthwise convolutions and pools."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text
from engine.backends.cpu.codegen.schedule import emit
from engine.backends.cpu.codegen.tiles import MAX_TAPS, host_tile
from engine.backends.cpu.kernels.convolution.nhwc_layout import (
    PIXEL_ARGUMENTS,
    pixel_memory,
    pixels_text,
    schedule_pixels,
    walk_pixels,
)
from engine.backends.windows import counted_sides, nhwc_windows
from engine.compiler.plan import Compute, Tuner, storable

_POOL_ARGUMENTS = ArgumentBlock(PIXEL_ARGUMENTS, "count_top count_bottom count_left count_right")

# Windows that go together lie inside, and so have equally many taps.
_SHARE = [
    "amount = taps_inside(y, row_dilation, kernel_rows, count_top, count_bottom)",
    "amount *= taps_inside(x0, column_dilation, kernel_columns, count_left, count_right)",
    "factor = to_float32(1.0 / amount)",
]


def tune_nhwc_depthwise(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv" with channels last: as many groups and outputs as input channels."""
    x, w = compute.operands
    attributes = compute.attributes
    if not compute.is_float32 or w.known is None or attributes.get("x_first"):
        return False
    channels = x.shape[-1]
    if int(attributes["group"]) != channels or w.shape[:2] != (channels, 1) or channels == 1:
        return False
    win = nhwc_windows(compute)
    if win is None or win.taps > MAX_TAPS:
        return False
    lanes, rank = host_tile().lanes, len(compute.space)
    epilogue = print_epilogue(compute, PIXEL_ARGUMENTS.end, row_axes=rank - 1)
    schedule, sizes = schedule_pixels(win, x.shape[0], channels, lanes, threads)
    weights = tuner.constant(f"{w.name}|taps{lanes}", partial(pack_taps, w.known, win.taps, lanes))
    lead = [*PIXEL_ARGUMENTS.prologue("x", "w", epilogue=epilogue), *pixel_memory(lanes), *epilogue.kernel]
    walk = walk_pixels(lanes, rank, "w + c * 4", [], epilogue, epilogue.recipe)
    text = kernel_text(pixels_text("taps", lanes, epilogue.recipe), [*lead, *walk])
    kernel = NativeKernel("nhwc_depthwise", text)
    return emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)


@storable
def pack_taps(elements: np.ndarray, taps: int, lanes: int) -> np.ndarray:
    """(C, 1, *kernel) -> 1-D (tap, C), filled up with zeros to whole vectors."""
    channels = len(elements)
    padded = np.zeros((taps, -(-channels // lanes) * lanes), np.float32)
    padded[:, :channels] = elements.reshape(channels, taps).T
    return padded.reshape(-1)


def tune_nhwc_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool" with channels last, of float32 over one or two axes."""
    (x,), attributes = compute.operands, compute.attributes
    kind, win = str(attributes["kind"]), nhwc_windows(compute)
    if win is None or win.taps > MAX_TAPS or not compute.is_float32:
        return False
    if kind not in ("max", "average", "sum"):
        return False
    lanes, rank = host_tile().lanes, len(compute.space)
    epilogue = print_epilogue(compute, _POOL_ARGUMENTS.end, row_axes=rank - 1)
    schedule, sizes = schedule_pixels(win, x.shape[0], x.shape[-1], lanes, threads)
    lead = [*_POOL_ARGUMENTS.prologue("x", epilogue=epilogue), *pixel_memory(lanes), *epilogue.kernel]
    walk = walk_pixels(lanes, rank, "0", _SHARE if kind == "average" else [], epilogue)
    text = kernel_text(pixels_text("max" if kind == "max" else "average", lanes), [*lead, *walk])
    arguments = _POOL_ARGUMENTS.values(**PIXEL_ARGUMENTS.named(sizes), **counted_sides(compute, win))
    kernel = NativeKernel(f"nhwc_pool_{kind}", text)
    return emit(tuner, kernel, schedule, arguments, (x.name,), compute.output.name, epilogue)
