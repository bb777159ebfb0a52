"""Integer division by run-time divisors as multiply and shift; a division costs more than most formulas."""

from __future__ import annotations

from engine.backends.gpu.size_functions import divide_by
from engine.kernels.size import deferred


def divide(number: str, by: str) -> str:
    """Source of the quotient of a non-negative number and an argument, see `divisor_names`."""
    return f"k_divide({number}, {', '.join(divisor_names([by]))})"


def divisor_names(names: list[str]) -> list[str]:
    """Names of the arguments that divide by others; `divisor` has their values."""
    return [f"{name}_{part}" for name in names for part in ("multiplier", "shift")]


def divisor(size: int) -> tuple[int, int]:
    """(multiplier, shift) such that n // size == n * multiplier >> 31 + shift for every 0 <= n < 2**31.

    The multiplier has 32 bits, and comes as the int32 with these.
    """
    return deferred(divide_by, size)
