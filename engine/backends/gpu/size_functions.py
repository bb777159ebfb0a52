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


@size_function
def is_at_most(work: int, most: int) -> tuple[int]:
    """(1,) if the work is at most the limit, else (0,)."""
    return (1 if work <= most else 0,)
