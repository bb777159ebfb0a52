"""The geometry of windows as run-time arguments of kernels."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.windows import Windows2D

WINDOW_ARGUMENTS = ArgumentBlock(
    "height width kernel_rows kernel_columns row_stride column_stride row_dilation column_dilation top left "
    "out_rows out_columns"
)


def window_values(win: Windows2D) -> dict[str, float]:
    """The values of `WINDOW_ARGUMENTS`."""
    numbers = (*win.kernel, *win.strides, *win.dilations, *win.pads, *win.out)
    return WINDOW_ARGUMENTS.named((win.height, win.width, *numbers))


COUNT_TAPS = """

@helper
def first_tap(first, dilation, count, low):
    # The first of the taps first + t * dilation that does not lie before `low`.
    t = 0
    while t < count and first + t * dilation < low:
        t += 1
    return t


@helper
def taps_inside(first, dilation, count, low, high):
    # How many of the taps first + t * dilation lie in low..high-1.
    begin = first_tap(first, dilation, count, low)
    return max(begin, first_tap(first, dilation, count, high)) - begin
"""
