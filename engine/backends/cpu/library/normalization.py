# mypy: allow-untyped-defs, allow-incomplete-defs
"""Vectorised row operations of softmax and normalisations: maximum, sums, apply, scaling."""

from typing import Any

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.functions import exp_near
from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import _SINGLE, _counted_loop, _folded, first_lanes, read_lanes


def larger(a, b):
    """The maximum of two lanes without NaN."""
    return a.where(a > b, b)


def added(a, b):
    """The sum."""
    return a + b


def _shifted_exp(x, top):
    """exp(x - top), where top is the largest x; 0 where that would be denormal."""
    x, zero = x - top, x.constant(0.0)
    is_zero = x < -87.0
    return zero.where(is_zero, exp_near(zero.where(is_zero, x)))


_ROWS: dict[str, Any] = {
    "top": (lambda x: x, larger, 0, False),
    "sum": (lambda x: x, added, 0, False),
    "squares": (lambda x, mean: (x - mean) * (x - mean), added, 1, False),
    "exp": (_shifted_exp, added, 1, True),
    "scale": (lambda x, center, factor: (x - center) * factor, None, 2, True),
    "shift": (lambda x, first, second: x - first - second, None, 2, True),
}
"""What is made of an element and some numbers, what joins it, how many numbers, and whether it is stored."""


def make_row(name, lanes):
    """row(target, source, count, *numbers): an operation of `_ROWS` on each element; gives what they join to.

    Addresses are bytes. Whole vectors are stored, so up to `lanes` - 1 elements behind the last one too.
    """
    step, join, numbers, writes = _ROWS[name]
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic(
        *[types.int64] * 3, *[types.float32] * numbers, result=types.float32 if join else types.void
    )
    def row(target, source, count, *scalars):
        spread = [number.spread(lanes) for number in scalars]
        nothing = source.of(kind, float("-inf") if join is larger else 0.0)
        rest = count % lanes

        def apply(places, flags=None):
            x = places[0].read(kind) if flags is None else read_lanes(places[0], flags, nothing)
            value = step(x, *spread)
            value = value if flags is None else value.where(flags, nothing)
            if writes:
                places[1].write(value)
            return value

        def body(places, totals):
            value = apply(places)
            return [join(total, value) for total in totals]

        def last(places, totals):
            value = apply(places, first_lanes(rest, lanes))
            return [join(total, _folded(value, join)) for total in totals]

        steps, totals = [4 * lanes] * 2, [nothing] if join else []
        places, totals = _counted_loop(count / lanes, [source, target], steps, totals, body)
        folded, has_rest = [_folded(total, join) for total in totals], (rest > 0).to(ir.IntType(64))
        _, totals = _counted_loop(has_rest, places, steps, folded, last)
        return totals[0] if join else None

    return row
