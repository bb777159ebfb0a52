"""Pooling of float32 with channels last."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
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
from engine.backends.windows import counted_sides, nhwc_windows
from engine.compiler.plan import Compute, Tuner

_ARGUMENTS = ArgumentBlock(PIXEL_ARGUMENTS, "count_top count_bottom count_left count_right")

_COUNT = """

@helper
def taps_between(first, dilation, count, low, high):
    # How many of the taps first + t * dilation lie in low..high-1.
    begin = first_tap(first, dilation, count, low)
    return max(begin, first_tap(first, dilation, count, high)) - begin
"""


def tune_nhwc_pool(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "pool" with channels last, of float32 over one or two axes."""
    (x,), attributes = compute.operands, compute.attributes
    kind, win = str(attributes["kind"]), nhwc_windows(compute)
    if win is None or win.taps > MAX_TAPS or not compute.is_float32:
        return False
    if kind not in ("max", "average", "sum"):
        return False
    lanes, rank = host_tile().lanes, len(compute.space)
    epilogue = print_epilogue(compute, _ARGUMENTS.end, row_axes=rank - 1)
    schedule, sizes = schedule_pixels(win, x.shape[0], x.shape[-1], lanes, threads)
    kernel = NativeKernel(f"nhwc_pool_{kind}", nhwc_pool_text(kind, lanes, rank, epilogue))
    arguments = _ARGUMENTS.values(**PIXEL_ARGUMENTS.named(sizes), **counted_sides(compute, win))
    emit(tuner, kernel, schedule, arguments, (x.name,), compute.output.name, epilogue)
    return True


def nhwc_pool_text(kind: str, lanes: int, rank: int, epilogue: Epilogue) -> str:
    """The kernel's module."""
    # Windows that go together lie inside, and so have equally many taps.
    share = [
        "amount = taps_between(y, row_dilation, kernel_rows, count_top, count_bottom)",
        "amount *= taps_between(x0, column_dilation, kernel_columns, count_left, count_right)",
        "factor = to_float32(1.0 / amount)",
    ]
    body = [
        *_ARGUMENTS.prologue("x", epilogue=epilogue),
        *pixel_memory(lanes),
        *epilogue.kernel,
        *walk_pixels(lanes, rank, "0", share if kind == "average" else [], epilogue),
    ]
    return kernel_text(pixels_text("max" if kind == "max" else "average", lanes) + _COUNT, body)
