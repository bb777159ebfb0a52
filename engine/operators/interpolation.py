"""Interpolation: taps and weights are computed once per position and used in every channel."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from engine.base.dtypes import INT32
from engine.kernels.expr import Expr, arg, cast, eq, lit, reduce, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder

_WRITTEN_TAPS = 16
"""Elements of a blend that a kernel has written out, so that its loop over places runs as vectors."""

Tap = tuple[Expr, Expr, Expr]
"""Along an axis: whether there is an element to read, its distance from the plane's first, and its weight."""


@dataclass(frozen=True)
class Interpolations:
    """Positions and weights of the taps along each axis, each (*lead, axes * count, places).

    A tap of the result combines one along each axis: its position is the sum of theirs, and its weight the
    product of theirs. A tap at a negative position reads 0.
    """

    elements: Value
    weights: Value
    axes: int

    @property
    def count(self) -> int:
        """Entries of an axis."""
        return self.elements.shape[-2] // self.axes

    def read(self, planes: Value, plane: Sequence[Expr], lead: Sequence[Expr], place: Expr) -> Expr:
        """The interpolated value at a position of a plane, indexed along the last axis of `planes`."""

        def blend(axis: int, position: Expr, inside: Expr) -> Expr:
            if axis == self.axes:
                return cast(planes.load_where(inside, (*plane, position)), self.weights.arithmetic)

            def tap(t: Expr) -> Expr:
                entry = (*lead, t, place)
                own = cast(self.elements[entry], "index")
                return self.weights[entry] * blend(axis + 1, position + own, inside & (own >= lit(0)))

            first = axis * self.count
            if self.count**self.axes <= _WRITTEN_TAPS:
                return functools.reduce(operator.add, (tap(lit(first + t)) for t in range(self.count)))
            return reduce("sum", lit(self.count), lambda t: tap(t + lit(first)))

        return blend(0, lit(0), lit(True, "bool"))

    def hint(self, k: Builder, planes: Value) -> Hint:
        """The hint for interpolating planes (images, channels, size); `lead` is (image[, group])."""
        images, *groups, entries, places = self.elements.shape
        shape = (images, prod(groups), entries, places)
        operands = (planes, k.alias(self.elements, shape), k.alias(self.weights, shape))
        return Hint("interpolate", operands, {"axes": self.axes})


def blends(
    k: Builder,
    lead: Sequence[int],
    axes: int,
    count: int,
    places: Sequence[int],
    dtype: np.dtype,
    tap: Callable[..., Tap],
) -> Interpolations:
    """The table of `tap(*lead, axis, t, *place)`, with the axes of places merged."""
    entries = axes * count
    shape, together = (*lead, entries, *places), (*lead, entries, prod(places))

    def found(*at: Expr) -> Tap:
        before, entry, place = at[: len(lead)], at[len(lead)], at[len(lead) + 1 :]
        axis = entry // lit(count)
        return tap(*before, axis, entry - axis * count, *place)

    def element(*at: Expr) -> Expr:
        inside, position, _ = found(*at)
        return cast(select(inside, position, lit(-1)), "int32")

    elements, weights = k.compute(shape, INT32, element), k.compute(shape, dtype, lambda *at: found(*at)[2])
    return Interpolations(k.alias(elements, together), k.alias(weights, together), axes)


def of_axis(axis: Expr, choices: Sequence[Expr]) -> Expr:
    """That of an axis."""
    *others, last = choices
    for a, choice in reversed(list(enumerate(others))):
        last = select(eq(axis, lit(a)), choice, last)
    return last


def plane_strides(sizes: Sequence[int]) -> list[Expr]:
    """How far apart neighbours along each axis of a plane are."""
    return [arg(prod(sizes[axis + 1 :])) for axis in range(len(sizes))]
