"""The sRGB curve (IEC 61966-2-1), in the kernel language and for single numbers."""

from __future__ import annotations

from engine.kernels.expr import Expr, binary, lit, maximum, select

_CUT, _SLOPE, _SHIFT, _POWER = 0.04045, 12.92, 0.055, 2.4
_LINEAR_CUT = 0.0031308


def linear_from_srgb(value: Expr) -> Expr:
    """Linear light from an sRGB value; both are 0 to 1, extrapolated beyond."""
    base = maximum((value + _SHIFT) * (1.0 / (1.0 + _SHIFT)), 0.0)
    return select(value <= _CUT, value * (1.0 / _SLOPE), binary("pow", base, lit(_POWER, "float32")))


def srgb_from_linear(value: Expr) -> Expr:
    """The sRGB value of linear light."""
    root = binary("pow", maximum(value, _LINEAR_CUT), lit(1.0 / _POWER, "float32"))
    return select(value <= _LINEAR_CUT, value * _SLOPE, root * (1.0 + _SHIFT) - _SHIFT)


def linear_number(value: float) -> float:
    """`linear_from_srgb` of a number."""
    if value <= _CUT:
        return value / _SLOPE
    return float(((value + _SHIFT) / (1.0 + _SHIFT)) ** _POWER)
