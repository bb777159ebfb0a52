"""Functions of sizes that GPU kernels take arguments from, repeated at each new size.

This module's text is compiled, too (`engine.kernels.size_function`), so it holds arithmetic, loops and calls
of its own functions only.
"""

from __future__ import annotations

from engine.kernels.size_function import size_function


@size_function
def divide_by(size: int) -> tuple[int, int]:
    """What `engine.backends.gpu.division.divisor` returns."""
    shift, rest = 0, size - 1
    while rest > 0:
        shift, rest = shift + 1, rest >> 1
    multiplier = -(-(1 << (31 + shift)) // max(size, 1))
    return multiplier - (1 << 32) if multiplier >= 1 << 31 else multiplier, shift


SMALLEST_WIDTH = 8
USUAL_WIDTH = 1024
# Rasterisers work on blocks of a few rows: textures with fewer rows would leave most of a block unused.
USUAL_ROWS = 8


@size_function
def texel_layout(texels: int, limit: int, step: int) -> tuple[int, int]:
    """What `engine.backends.gl.pixel.layout.TexelLayout.of` returns, with `step` rows together."""
    shift, width = 0, 1
    while width < SMALLEST_WIDTH or (
        width * 2 <= min(USUAL_WIDTH, limit) and width * 2 * USUAL_ROWS <= texels
    ):
        shift, width = shift + 1, width * 2
    while width * limit < texels:
        shift, width = shift + 1, width * 2
    height = max(1, -(-texels // (width * step))) * step
    while height & (height - 1) == 0 and height + step <= limit:
        height += step
    return shift, height


@size_function
def is_one_dispatch(count: int, most: int, widest: int, most_groups: int) -> tuple[int]:
    """(1,) if a step with elements is one dispatch, else (0,): see `engine.backends.opencl.execution`."""
    return (1 if 0 < count <= most and widest <= most_groups else 0,)


@size_function
def is_at_most(work: int, most: int) -> tuple[int]:
    """(1,) if the work is at most the limit, else (0,)."""
    return (1 if work <= most else 0,)
