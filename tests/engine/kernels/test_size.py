"""Symbolic sizes: what is recorded of arithmetic and questions, against Python's own integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, prod, trunc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.size import Size, as_float, deferred, largest, smallest
from engine.kernels.size_recorder import LARGEST, SizeRecorder

Operation = Callable[[Any, Any], Any]

ARITHMETIC: list[Operation] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // b if b != 0 else a,
    lambda a, b: a % b if b > 0 else b,
    lambda a, b: -(-a // 8) + b,
    largest,
    smallest,
    lambda a, b: a if a < b else b + 1,
    lambda a, b: 3 if a == b else a,
    lambda a, b: trunc(as_float(a) / 3.0) + b,
    lambda a, b: ceil(a * 0.5) - floor(b * 0.25),
]
"""Operations that native code has, too."""

OPERATIONS: list[Operation] = [
    *ARITHMETIC,
    lambda a, b: b if a else 7,
    lambda a, b: deferred(max, a, b) + deferred(halves, a)[1],
    lambda a, b: 5 if a >= b else 6,
    lambda a, b: abs(a - b),
]


def halves(n: int) -> tuple[int, int]:
    return n // 2, n - n // 2


Steps = list[tuple[int, int, int]]
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 9), st.integers(0, 9)), max_size=12
)
SIZES = st.lists(st.integers(0, 70), min_size=2, max_size=2)


def worked_out(sizes: Sequence[Any], steps: Steps) -> list[Any]:
    numbers = [*sizes, 1, 4]
    for operation, a, b in steps:
        numbers.append(OPERATIONS[operation](numbers[a % len(numbers)], numbers[b % len(numbers)]))
    return numbers


@settings(max_examples=300)
@given(hints=SIZES, others=st.lists(SIZES, max_size=8), steps=STEPS)
def test_a_record_is_right_wherever_its_guards_hold(
    hints: list[int], others: list[list[int]], steps: Steps
) -> None:
    recorder = SizeRecorder()
    open_sizes = [recorder.input(hint) for hint in hints]
    program = recorder.program(worked_out(open_sizes, steps))
    assert program(*hints) == worked_out(hints, steps)
    for sizes in others:
        assert program(*sizes) in (None, worked_out(sizes, steps))


@pytest.mark.parametrize(
    "ask",
    [int, hash, str, float, "{}".format, range, "abcdefg".__getitem__, np.zeros, {7: 1, 5: 2}.get],
    ids=["int", "hash", "str", "float", "format", "range", "index", "numpy", "dict"],
)  # fmt: skip
def test_who_takes_the_value_binds_the_record_to_it(ask: Callable[[Any], object]) -> None:
    recorder = SizeRecorder()
    ask(recorder.input(5))
    program = recorder.program([])
    assert program(5) == []
    assert program(6) is None


def test_shapes_need_no_guards() -> None:
    """What every operator does with shapes has one answer for all sizes above 0."""
    recorder = SizeRecorder()
    batch: Any = recorder.input(3)
    length: Any = recorder.input(9)
    size: Any = prod((batch, length, 64))
    assert size
    assert not any(n < 0 for n in (batch, length, size))
    assert size * 4 >= 0
    assert -(-length // 16) >= 0
    assert not recorder.guards
    program = recorder.program([size, -(-length // 16)])
    assert program(5, 33) == [10560, 3]
    assert program(0, 33) is None
    assert program(5, LARGEST + 1) is None


def test_what_numpy_knows_as_numbers_takes_part() -> None:
    recorder = SizeRecorder()
    size: Any = recorder.input(6)
    found = recorder.program(
        [np.int64(3) * size, size + np.int32(2), size // np.array(4), np.float64(0.5) * size]
    )
    assert found(8) == [24, 10, 2, 4.0]
    with pytest.raises(TypeError):
        size + "a"
    assert size != "a"
    assert size is not None


@dataclass(frozen=True)
class Cut:
    rows: int
    columns: int
    kind: str | None = None


def cut(whole: tuple[int, int], limit: Cut) -> Cut | None:
    rows, columns = whole
    if rows * columns > 1000:
        return None
    while rows * columns > limit.rows * limit.columns:
        rows = (rows + 1) // 2
    return Cut(rows, columns, "even" if rows % 2 == 0 else None)


def test_a_deferred_choice_is_made_anew_for_other_sizes() -> None:
    recorder = SizeRecorder()
    rows = recorder.input(40)
    found = deferred(cut, (rows, 8), Cut(4, 8))
    assert isinstance(found, Cut)
    assert found.kind is None
    assert deferred(cut, (rows, 8), Cut(4, 8)).rows is found.rows  # type: ignore[union-attr]
    assert not recorder.guards
    program = recorder.program([found.rows, found.columns])
    for number in (40, 24, 17, 6, 2, 200):
        expected = cut((number, 8), Cut(4, 8))
        # Another kind of result would be another plan.
        same = expected is not None and expected.kind is None
        assert program(number) == ([expected.rows, expected.columns] if same and expected else None)


def test_sizes_at_which_the_arithmetic_fails_are_refused() -> None:
    recorder = SizeRecorder()
    size: Any = recorder.input(10)
    left = size - 4
    program = recorder.program([24 // left, smallest(np.float64(2.5), size * 1.0, float("inf"))])
    assert program(10) == [4, 2.5]
    assert program(4) is None
    assert not size > np.float64(30.0)
    assert recorder.program([size])(31) is None


def test_a_comparison_that_sizes_decide_is_a_guard() -> None:
    recorder = SizeRecorder()
    size = recorder.input(10)
    assert size * 2 > 16
    assert isinstance(size * 2, Size)
    program = recorder.program([size])
    assert [program(n) for n in (8, 9, 100)] == [None, [9], [100]]


def test_a_record_goes_on_as_a_copy_under_other_values() -> None:
    recorder = SizeRecorder()
    n = recorder.input(10)
    half = n // 2
    assert half > 1
    before = recorder.record
    with recorder.at(before.copy()):
        recorder.suppose([100])
        assert (n.hint, half.hint) == (100, 50)
        count = recorder.input(7)
        assert half > 20
        assert count < half
        further = recorder.program([half - count])
    assert recorder.record is before
    program = recorder.program([half])
    assert program(10) == [5]
    assert program(2) is None
    assert further(100, 7) == [43]
    assert further(44, 21) == [1]
    # A guard of the copy, of what came before it, and of both.
    assert further(10, 1) is None
    assert further(2, 1) is None
    assert further(100, 50) is None


@pytest.mark.parametrize(("hint", "others"), [(3, (1, 9)), (0, (0, 1, 9)), (-3, (-1, -LARGEST))])
def test_elements_may_be_negative(hint: int, others: Sequence[int]) -> None:
    recorder = SizeRecorder()
    element = recorder.input(hint)
    program = recorder.program([element * 2])
    for number in (hint, *others):
        assert program(number) == [2 * number]
    assert program(1 if hint < 0 else -1) is None


def test_functions_of_numbers_are_refused_where_they_yield_something_else() -> None:
    recorder = SizeRecorder()
    size = recorder.input(4)

    def pair(x: int) -> Any:
        return (x, x + 1) if x < 6 else (x,) if x < 8 else (x, None)

    results = deferred(pair, size)
    program = recorder.program(results)
    assert program(4) == [4, 5]
    assert program(5) == [5, 6]
    assert program(7) is None
    assert program(9) is None
