"""Resampling: source pixels and weights of each output pixel, in exact integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable

from engine.api.textures.transform import Resampling
from engine.kernels.expr import Expr, arg, cast, lit, maximum, minimum, reduce, select, unary

Fetch = Callable[[Expr, Expr], Expr]
"""The value at a row and a column."""


class AxisMap:
    """Maps `made` output pixels along an axis to `given` source pixels, optionally flipped."""

    def __init__(self, given: int, made: int, flipped: bool = False) -> None:
        self.given, self.made = arg(given), arg(made)
        self._last = arg(given - 1)
        self._step, self._start = (arg(-1), arg(given - 1)) if flipped else (arg(1), arg(0))
        self._whole = _Divisor(made)
        self._double = _Divisor(2 * made)
        self._share = arg(1.0 / given, "float32")
        # Pixels that one output pixel may touch: those inside, and a part of one at either end.
        self.touched = arg(-(-given // made) + 1)

    def place(self, position: Expr) -> Expr:
        """Memory position of a source pixel, after flipping."""
        return position * self._step + self._start

    def nearest(self, at: Expr) -> Expr:
        """The pixel that contains the middle of output pixel `at`."""
        quotient, _ = self._double.divide((at + at + arg(1)) * self.given)
        return self.place(minimum(quotient, self._last))

    def neighbours(self, at: Expr) -> tuple[Expr, Expr, Expr]:
        """The pixels before and after the middle of output pixel `at`, and its way between, 0 to 1."""
        quotient, rest = self._double.divide((at + at + arg(1)) * self.given + self.made)
        before = maximum(quotient - arg(1), lit(0))
        after = minimum(quotient, self._last)
        return self.place(before), self.place(after), cast(rest, "float32") * self._double.inverse

    def covered(self, at: Expr, number: Expr) -> tuple[Expr, Expr]:
        """The source pixel number `number` that output pixel `at` covers, and its area weight, 0 to 1."""
        begin = at * self.given
        first, _ = self._whole.divide(begin)
        position = first + number
        low = maximum(begin, position * self.made)
        high = minimum(begin + self.given, position * self.made + self.made)
        share = cast(maximum(high - low, lit(0)), "float32") * self._share
        return self.place(minimum(position, self._last)), share


def sampled(
    resampling: Resampling, rows: AxisMap, columns: AxisMap, row: Expr, column: Expr, fetch: Fetch
) -> Expr:
    """The value of an output pixel."""
    if resampling == "nearest":
        return fetch(rows.nearest(row), columns.nearest(column))
    if resampling == "bilinear":
        upper, lower, down = rows.neighbours(row)
        left, right, along = columns.neighbours(column)
        above = _between(fetch(upper, left), fetch(upper, right), along)
        below = _between(fetch(lower, left), fetch(lower, right), along)
        return _between(above, below, down)

    def line(r: Expr) -> Expr:
        at, share = rows.covered(row, r)

        def part(c: Expr) -> Expr:
            here, width = columns.covered(column, c)
            return fetch(at, here) * width

        return reduce("sum", columns.touched, part) * share

    return reduce("sum", rows.touched, line)


def _between(a: Expr, b: Expr, t: Expr) -> Expr:
    return a + (b - a) * t


class _Divisor:
    """Division of whole numbers below 2**30 by a run-time argument, where quotients are below 2**15.

    Through float32, then put right: dividing integers is slow, on processors and on GPUs.
    """

    def __init__(self, size: int) -> None:
        self._size = arg(size)
        self.inverse = arg(1.0 / size, "float32")

    def divide(self, n: Expr) -> tuple[Expr, Expr]:
        """Quotient and remainder."""
        guess = cast(unary("floor", cast(n, "float32") * self.inverse), "index")
        rest = n - guess * self._size
        exact = select(rest < lit(0), guess - lit(1), select(rest >= self._size, guess + lit(1), guess))
        return exact, n - exact * self._size
