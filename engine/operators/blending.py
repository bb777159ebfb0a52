"""Interpolation: taps and weights are computed once per position and used in every channel."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.base.dtypes import INT32
from engine.kernels.expr import Expr, arg, cast, lit, reduce, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder

_ADDED_TAPS = 8
"""Elements of a blend that are added one by one, in their own type."""

_WRITTEN_TAPS = 16
"""Elements of a blend that a kernel has written out, so that its loop over places runs as vectors."""

Tap = tuple[Expr, Expr, Expr]
"""Whether there is an element to read, its position in the plane, and its share."""


@dataclass(frozen=True)
class Blends:
    """Elements and their shares, each (*lead, taps, places); a negative element counts as 0."""

    elements: Value
    shares: Value

    def read(self, planes: Value, plane: Sequence[Expr], lead: Sequence[Expr], place: Expr) -> Expr:
        """The blend at a place of a plane of `planes`, whose last axis the elements are positions in."""
        taps = self.elements.shape[-2]

        def tap(t: Expr) -> Expr:
            element = cast(self.elements[(*lead, t, place)], "index")
            value = planes.load_where(element >= lit(0), (*plane, element))
            return self.shares[(*lead, t, place)] * cast(value, self.shares.arithmetic)

        if taps <= _ADDED_TAPS:
            return functools.reduce(operator.add, (tap(lit(t)) for t in range(taps)))
        return reduce("sum", lit(taps) if taps <= _WRITTEN_TAPS else arg(taps), tap)

    def hint(self, k: Builder, planes: Value) -> Hint:
        """That of all blends in planes (images, channels, size); `lead` is the image, and maybe groups."""
        images, *groups, taps, places = self.elements.shape
        shape = (images, prod(groups), taps, places)
        return Hint("blend", (planes, k.alias(self.elements, shape), k.alias(self.shares, shape)), {})


def blends(
    k: Builder,
    lead: Sequence[int],
    taps: int,
    places: Sequence[int],
    dtype: np.dtype,
    tap: Callable[..., Tap],
) -> Blends:
    """The table of `tap(*lead, t, *place)`, for places along several axes that count as one in it."""
    shape, together = (*lead, taps, *places), (*lead, taps, prod(places))

    def element(*at: Expr) -> Expr:
        inside, position, _ = tap(*at)
        return cast(select(inside, position, lit(-1)), "int32")

    elements, shares = k.compute(shape, INT32, element), k.compute(shape, dtype, lambda *at: tap(*at)[2])
    return Blends(k.alias(elements, together), k.alias(shares, together))


def digits(number: Expr, base: int, count: int) -> list[Expr]:
    """A number below base ** count as `count` digits, the first one for the outermost axis."""
    found = []
    for power in range(count - 1, -1, -1):
        digit = number // lit(base**power) if power else number
        found.append(digit % lit(base) if power < count - 1 else digit)
    return found
