"""Sums of products against Python's integers."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.intervals import EVALUATE
from engine.kernels.polynomials import Terms, combine, of_number, range_of_sum

NAMES = ("a", "b", "c")

sums = st.dictionaries(
    st.lists(st.sampled_from(NAMES), max_size=2).map(lambda names: tuple(sorted(names))),
    st.integers(-6, 6).filter(bool),
    max_size=3,
)
numbers = st.tuples(*(st.integers(1, 50) for _ in NAMES))


def value(terms: Terms, given: tuple[int, ...]) -> int:
    at = dict(zip(NAMES, given, strict=True))
    return sum(factor * math.prod(at[name] for name in names) for names, factor in terms.items())


@given(op=st.sampled_from(("add", "sub", "mul", "floordiv")), a=sums, b=sums, at=numbers)
def test_operations_yield_what_integers_do(op: str, a: Terms, b: Terms, at: tuple[int, ...]) -> None:
    found = None if op == "floordiv" and not value(b, at) else combine(op, a, b)
    if found is not None:
        assert value(found, at) == EVALUATE[op](value(a, at), value(b, at))
        assert all(found.values())


@given(a=sums, b=sums)
def test_equal_sums_have_one_form(a: Terms, b: Terms) -> None:
    there = combine("add", a, b)
    assert there == combine("add", b, a)
    assert combine("sub", a, a) == {}
    product = combine("mul", a, {("c",): 3})
    if product is not None:
        assert combine("floordiv", product, {("c",): 3}) == a


@given(terms=sums, at=numbers)
def test_bounds_hold(terms: Terms, at: tuple[int, ...]) -> None:
    low, high = range_of_sum(terms, dict.fromkeys(NAMES, (1, 50)))
    assert low is not None
    assert high is not None
    assert low <= value(terms, at) <= high


def test_numbers_are_sums_of_nothing_else() -> None:
    assert of_number(0) == {}
    assert combine("mul", of_number(3), of_number(-2)) == of_number(-6)
    assert combine("mod", of_number(3), of_number(2)) is None
