"""Programs of sizes as native code: to the bit what Python makes of them, or no answer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import floor, trunc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.codegen.task_partition import cut_product, ns_of_reading
from engine.device import native
from engine.device.native import NativeSource
from engine.device.native.prelude import PRELUDE
from engine.kernels.size import Number, as_float, deferred, largest, smallest
from engine.kernels.size_recorder import SizeRecorder
from engine.kernels.size_table import EVALUATE, WORDS
from engine.kernels.word_encoding import as_word
from tests.engine.kernels.test_size import ARITHMETIC, Operation

_RUN = NativeSource(
    "sizes of a test",
    PRELUDE
    + EVALUATE
    + """
def run(args, values, count):
    table, call_all, calls = load_i64(args, 1), load_i64(args, 2), load_i64(args, 3)
    store_i64(args, 0, evaluate(values, table, count, call_all, calls))
""",
    "run",
)


@cache
def _function() -> Callable[[int, int, int], None]:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return kind(native.process_store().address(_RUN))


def evaluated(recorder: SizeRecorder, results: Sequence[Number], sizes: Sequence[int]) -> list[Any] | None:
    """The numbers as native code computes them; None if it refuses the sizes."""
    table = recorder.table(results, recorder.record, 0)
    assert table is not None
    places = [table.place(number) for number in results]
    values = np.array([as_word(word) for word in table.words], np.int64)
    values[: len(sizes)] = sizes
    instructions, calls = np.array([*table.table, 0]), np.array([*table.calls, 0])
    args = np.array([0, instructions.ctypes.data, table.call_all, calls.ctypes.data])
    count = len(table.table) // WORDS
    _function()(args.ctypes.data, values.ctypes.data, count)
    if args[0] < count:
        return None
    reals = values.view(np.float64)
    is_float = [isinstance(getattr(number, "hint", number), float) for number in results]
    return [(reals if real else values)[place].item() for place, real in zip(places, is_float, strict=True)]


OPERATIONS: list[Operation] = [
    *ARITHMETIC,
    lambda a, b: floor(-0.3 * a) + trunc(-0.7 * b),
    lambda a, b: floor(a / largest(b, 1)),
    lambda a, b: trunc(largest(as_float(a), 0.1 * b)),
    lambda a, b: 5 if as_float(a) * 0.1 >= 0.7 else b,
    lambda a, b: deferred(cut_product, abs(a) + 1, abs(b) + 1, 64, 4, 16, 1, 1e4 + a, 4)[1],
    lambda a, b: trunc(deferred(ns_of_reading, 1 << 14, a)[0]) + b,
]
SIZES = st.lists(st.integers(0, 70), min_size=2, max_size=2)


def worked_out(sizes: Sequence[Any], steps: Sequence[tuple[int, int, int]]) -> list[Any]:
    numbers = [*sizes, 1, 4]
    for operation, a, b in steps:
        numbers.append(OPERATIONS[operation](numbers[a % len(numbers)], numbers[b % len(numbers)]))
    return numbers


@settings(max_examples=300, deadline=None)
@given(
    hints=SIZES,
    others=st.lists(SIZES, max_size=8),
    steps=st.lists(
        st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 9), st.integers(0, 9)), max_size=12
    ),
)
def test_native_code_computes_what_python_does(
    hints: list[int], others: list[list[int]], steps: list[tuple[int, int, int]]
) -> None:
    recorder = SizeRecorder()
    results = worked_out([recorder.input(hint) for hint in hints], steps)
    program = recorder.program(results)
    for sizes in (hints, *others):
        expected = program(*sizes)
        if expected is None or max(map(abs, expected)) < 1 << 62:
            assert evaluated(recorder, results, sizes) == expected


def test_floats_are_the_same_bits() -> None:
    recorder = SizeRecorder()
    size: Any = recorder.input(3)
    real = as_float(size)
    results = [real / 150.0, 2.0 * size / 7, size * 0.395 + 50.0, largest(0.1, real / 3.0) * (0.1 + real)]
    for number in (1, 3, 999, 1 << 20):
        assert evaluated(recorder, results, [number]) == recorder.program(results)(number)


@pytest.mark.parametrize("power", [4, 5, 12])
def test_integers_beyond_64_bits_are_left_to_python(power: int) -> None:
    recorder = SizeRecorder()
    size: Any = recorder.input(3)
    result = size
    for _ in range(power - 1):
        result = result * size
    assert evaluated(recorder, [result], [5]) == [5**power]
    assert evaluated(recorder, [result], [1 << 20]) is None


def test_divisions_by_zero_are_refused() -> None:
    for divide in (lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a / b, lambda a, b: as_float(a) / b):
        recorder = SizeRecorder()
        sizes = recorder.input(6), recorder.input(3)
        result = divide(sizes[0], sizes[1] - 3 + 3 - sizes[0] // 6)
        assert evaluated(recorder, [result], [6, 3]) == [divide(6, 2)]
        assert evaluated(recorder, [result], [6, 1]) is None


def test_what_only_python_can_do_has_no_table() -> None:
    recorder = SizeRecorder()
    size: Any = recorder.input(3)
    assert recorder.table([deferred(max, size, 2)], recorder.record, 0) is None
    recorder = SizeRecorder()
    size = recorder.input(3)
    assert recorder.table([smallest(size, 0.5 * size)], recorder.record, 0) is None
