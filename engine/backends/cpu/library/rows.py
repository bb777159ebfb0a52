# mypy: allow-untyped-defs, allow-incomplete-defs
"""Vectorised row operations of softmax and normalisations: maximum, sums, exponentials, scaling.

Counts are vectors, addresses bytes; what a row lacks to whole vectors is filled up by the caller.
"""

from llvmlite import ir
from numba import types

from engine.backends.cpu.library.functions import exp_near
from engine.backends.cpu.library.instruction import instruction
from engine.backends.cpu.library.vectors import _SINGLE, _counted_loop, _folded


def larger(a, b):
    """The maximum of two lanes without NaN."""
    return a.where(a > b, b)


def added(a, b):
    """The sum."""
    return a + b


def _share(x, top):
    """exp(x - top), where top is the largest x; 0 where that would be denormal."""
    x, zero = x - top, x.constant(0.0)
    is_zero = x < -87.0
    return zero.where(is_zero, exp_near(zero.where(is_zero, x)))


def _make_row(lanes, neutral, step, join, numbers, writes):
    """A loop over a row: `step(x, *numbers)` gives what joins the total, and is stored where it `writes`."""
    kind = ir.VectorType(_SINGLE, lanes)

    @instruction(*[types.int64] * 3, *[types.float32] * numbers, result=types.float32 if join else types.void)
    def row(target, source, count, *scalars):
        spread = [number.spread(lanes) for number in scalars]

        def body(places, totals):
            value = step(places[0].read(kind), *spread)
            if writes:
                places[1].write(value)
            return [join(totals[0], value)] if join else []

        totals = [source.of(kind, neutral)] if join else []
        _, totals = _counted_loop(count, [source, target], [4 * lanes] * 2, totals, body)
        return _folded(totals[0], join) if join else None

    return row


def make_row_top(lanes):
    """row_top(0, source, count): the largest element."""
    return _make_row(lanes, float("-inf"), lambda x: x, larger, 0, False)


def make_row_sum(lanes):
    """row_sum(0, source, count): the sum."""
    return _make_row(lanes, 0.0, lambda x: x, added, 0, False)


def make_row_squares(lanes):
    """row_squares(0, source, count, mean): the sum of squared differences to the mean."""
    return _make_row(lanes, 0.0, lambda x, mean: (x - mean) * (x - mean), added, 1, False)


def make_row_exp(lanes):
    """row_exp(target, source, count, top): target = exp(source - top); gives its sum."""
    return _make_row(lanes, 0.0, _share, added, 1, True)


def make_row_scale(lanes):
    """row_scale(target, source, count, center, factor): target = (source - center) * factor."""
    return _make_row(lanes, 0.0, lambda x, center, factor: (x - center) * factor, None, 2, True)


def make_row_shift(lanes):
    """row_shift(target, source, count, first, second): target = source - first - second."""
    return _make_row(lanes, 0.0, lambda x, first, second: x - first - second, None, 2, True)
