"""The geometry of windows as run-time arguments of kernels."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.windows import Windows

WINDOW_ARGUMENTS = ArgumentBlock(
    "height width kernel_rows kernel_columns row_stride column_stride row_dilation column_dilation top left "
    "out_rows out_columns"
)


def window_values(win: Windows) -> dict[str, float]:
    """The values of `WINDOW_ARGUMENTS`."""
    numbers = (*win.kernel, *win.strides, *win.dilations, *win.pads, *win.out)
    return WINDOW_ARGUMENTS.named((win.height, win.width, *numbers))
