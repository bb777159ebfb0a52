"""Depthwise convolutions of float32 with channels last: each channel of a window has weights of its own."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text
from engine.backends.cpu.codegen.schedule import emit
from engine.backends.cpu.codegen.tiles import MAX_TAPS, host_tile
from engine.backends.cpu.kernels.convolution.pixels import (
    PIXEL_ARGUMENTS,
    pixel_memory,
    pixels_text,
    schedule_pixels,
    walk_pixels,
)
from engine.backends.windows import nhwc_windows
from engine.compiler.plan import Compute, Tuner, storable


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
    lanes, rank, elements = host_tile().lanes, len(compute.space), w.known
    epilogue = print_epilogue(compute, PIXEL_ARGUMENTS.end, row_axes=rank - 1)
    schedule, sizes = schedule_pixels(win, x.shape[0], channels, lanes, threads)

    weights = tuner.constant(f"{w.name}|taps{lanes}", partial(pack_taps, elements, win.taps, lanes))
    kernel = NativeKernel("nhwc_depthwise", nhwc_depthwise_text(lanes, rank, epilogue))
    emit(tuner, kernel, schedule, sizes, (x.name, weights), compute.output.name, epilogue)
    return True


@storable
def pack_taps(elements: np.ndarray, taps: int, lanes: int) -> np.ndarray:
    """(C, 1, *kernel) -> 1-D (tap, C), filled up with zeros to whole vectors."""
    channels = len(elements)
    padded = np.zeros((taps, -(-channels // lanes) * lanes), np.float32)
    padded[:, :channels] = elements.reshape(channels, taps).T
    return padded.reshape(-1)


def nhwc_depthwise_text(lanes: int, rank: int, epilogue: Epilogue) -> str:
    """The kernel's module."""
    body = [
        *PIXEL_ARGUMENTS.prologue("x", "w", epilogue=epilogue),
        *pixel_memory(lanes),
        *epilogue.kernel,
        *walk_pixels(lanes, rank, "w + c * 4", [], epilogue, epilogue.recipe),
    ]
    return kernel_text(pixels_text("taps", lanes, epilogue.recipe), body)
