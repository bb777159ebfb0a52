"""Interval arithmetic on symbolic integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Bounds: TypeAlias = "tuple[float | None, float | None]"
"""What a number is never below, and never above; None where that is unknown."""

EVALUATE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "truediv": lambda a, b: a / b,
    "mod": lambda a, b: a % b,
    "pow": lambda a, b: a**b,
    "min": min,
    "max": max,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "float": float,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
"""The operations by name."""


def range_of(op: str, args: Sequence[Bounds]) -> Bounds:
    """Lower and upper bounds of the result, None if unknown."""
    (low, high), *rest = args
    if op in ("floor", "ceil", "trunc", "float"):
        # What rounds up may be one more than the operand.
        return None if low is None else math.floor(low), None if high is None else math.ceil(high)
    ((other_low, other_high),) = rest
    lows = None if low is None or other_low is None else (low, other_low)
    highs = None if high is None or other_high is None else (high, other_high)
    if op in ("min", "max"):
        choose = min if op == "min" else max
        return None if lows is None else choose(lows), None if highs is None else choose(highs)
    if op == "add":
        return None if lows is None else sum(lows), None if highs is None else sum(highs)
    if op == "sub":
        least = None if low is None or other_high is None else low - other_high
        return least, None if high is None or other_low is None else high - other_low
    if op in ("floordiv", "truediv") and other_low is not None and other_low > 0:
        divide = EVALUATE[op]
        # The larger the divisor, the closer to 0 is the result.
        far = math.inf if other_high is None else other_high
        least = None if low is None else divide(low, far if low >= 0 else other_low)
        return least, None if high is None else divide(high, other_low if high >= 0 else far)
    if lows is None or min(lows) < 0:
        return None, None
    if op == "mul":
        return lows[0] * lows[1], None if highs is None else highs[0] * highs[1]
    if op == "mod":
        return 0, other_high
    return (0, None) if op in ("floordiv", "truediv") else (None, None)


def intersection(a: Bounds, b: Bounds) -> Bounds:
    """The intersection of two intervals."""
    lows = [x for x, _ in (a, b) if x is not None]
    highs = [x for _, x in (a, b) if x is not None]
    return max(lows, default=None), min(highs, default=None)


def is_certain(op: str, a: Bounds, b: Bounds) -> bool:
    """Whether the operands' bounds decide a comparison."""
    low, high = a
    other_low, other_high = b
    is_above = low is not None and other_high is not None and (low > other_high)
    is_below = high is not None and other_low is not None and (high < other_low)
    if is_above or is_below:
        return True
    is_least = low is not None and other_high is not None and low >= other_high
    is_most = high is not None and other_low is not None and high <= other_low
    return (is_least and op in ("lt", "ge")) or (is_most and op in ("gt", "le"))
