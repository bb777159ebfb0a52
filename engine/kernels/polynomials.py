"""Normal form of sums of products of symbolic integers, so that equal ones compare equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from engine.kernels.intervals import Bounds, range_of

Terms: TypeAlias = "dict[tuple[str, ...], int]"
"""A sum: the factor of each product of names, which are sorted; the product of no names is 1."""

MOST_TERMS = 6
"""Longer sums are taken for numbers of their own."""

MOST_FACTORS = 8
"""So are products of more names."""


def of_number(number: int) -> Terms:
    """The polynomial of a constant."""
    return {(): number} if number else {}


def combine(op: str, a: Terms, b: Terms) -> Terms | None:
    """The result of an operation on two sums; None if it is no sum, or too long."""
    found: Terms | None = None
    if op in ("add", "sub"):
        found = dict(a)
        for names, factor in b.items():
            found[names] = found.get(names, 0) + (factor if op == "add" else -factor)
    elif op == "mul":
        found = {}
        for names, factor in a.items():
            for others, other in b.items():
                joined = tuple(sorted((*names, *others)))
                found[joined] = found.get(joined, 0) + factor * other
    elif op == "floordiv":
        found = _quotient(a, b)
    if found is None:
        return None
    found = {names: factor for names, factor in found.items() if factor}
    return found if len(found) <= MOST_TERMS and all(len(n) <= MOST_FACTORS for n in found) else None


def _quotient(a: Terms, b: Terms) -> Terms | None:
    """The quotient by one product, if nothing remains. That product is not 0."""
    if len(b) != 1:
        return None
    ((divisor, number),) = b.items()
    found: Terms = {}
    for names, factor in a.items():
        left = [*names]
        for name in divisor:
            if name not in left:
                return None
            left.remove(name)
        if factor % number:
            return None
        found[tuple(left)] = factor // number
    return found


def range_of_sum(terms: Terms, ranges: Mapping[str, Bounds]) -> Bounds:
    """Bounds of a sum, given those of each name."""
    found: Bounds = (0, 0)
    for names, factor in terms.items():
        product: Bounds = (abs(factor), abs(factor))
        for name in names:
            product = range_of("mul", [product, ranges[name]])
        found = range_of("add" if factor > 0 else "sub", [found, product])
    return found
