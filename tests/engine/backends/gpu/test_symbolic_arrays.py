"""Arrays of symbolic numbers, and the numbers that templates compute for all steps at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.gl.glsl import pack_arguments
from engine.backends.gl.pixel.printer import inverse_bits
from engine.backends.gpu.division import divisor
from engine.backends.gpu.symbolic_arrays import SymbolicArray, SymbolicSlots, SymbolicWords, Variables
from engine.base.dtypes import ArithmeticType
from engine.kernels.size import largest
from engine.kernels.size_recorder import LARGEST, SizeRecorder

EDGES = [1, 2, 3, *(2**k + d for k in range(2, 31) for d in (-1, 0, 1)), 2**31 - 1]
SIZES = st.lists(st.integers(1, 2**31 - 1), max_size=20).map(lambda more: np.array(EDGES + more, np.int64))


def test_open_elements_are_filled_in_and_each_number_is_asked_for_once() -> None:
    recorder = SizeRecorder()
    n, m = recorder.input(5), recorder.input(3)
    numbers = Variables()
    whole, floats = SymbolicArray(numbers), SymbolicArray(numbers, is_float=True)
    assert [whole.add(x) for x in (7, n, n + 1, n)] == [0, 1, 2, 3]
    assert [floats.add(x) for x in (0.5, m, n / m)] == [0, 1, 2]
    fill, fill_floats = whole.close(), floats.close()
    assert len(numbers.numbers) == 4
    program = recorder.program(numbers.numbers)
    for sizes in ((5, 3), (9, 2), (1 << 19, 7)):
        found = program(*sizes)
        assert found is not None
        values = numbers.values(found)
        assert fill(values).tolist() == [7, sizes[0], sizes[0] + 1, sizes[0]]
        assert fill_floats(values).tolist() == [0.5, sizes[1], sizes[0] / sizes[1]]


def test_bytes_may_have_more_than_32_bits() -> None:
    recorder = SizeRecorder()
    size = recorder.input(5) * (1 << 16)
    program = recorder.program([size])
    numbers = Variables()
    memory = SymbolicArray(numbers, are_bytes=True)
    memory.add(size)
    fill, found = memory.close(), program(1 << 19)
    assert found is not None
    assert fill(numbers.values(found)).tolist() == [1 << 35]
    others = Variables()
    for are_bytes in (True, False):
        SymbolicArray(others, are_bytes=are_bytes).add(size)
    with pytest.raises(OverflowError, match="32-bit"):
        others.values(found)


def test_words_are_those_of_plans_for_one_size() -> None:
    recorder = SizeRecorder()
    n = recorder.input(6)
    numbers = Variables()
    words = SymbolicWords(numbers)
    kinds: tuple[ArithmeticType, ...] = ("index", "float32", "uint32", "int64")

    def values(size: int) -> tuple[float, ...]:
        return size * size, size / 7, size * 4096, -size * (1 << 16)

    begin = words.add(pack_arguments(kinds, values(6), [11, 12]))
    words.fill_in(begin, kinds, values(n))  # type: ignore[arg-type]
    fill, program = words.close(), recorder.program(numbers.numbers)
    for size in (6, 1, 1023, (1 << 15) - 1):
        found = program(size)
        assert found is not None
        expected = pack_arguments(kinds, values(size), [11, 12])
        np.testing.assert_array_equal(fill(numbers.values(found)), expected)
    for size in (50_000, 1 << 16):
        found = program(size)
        assert found is not None
        with pytest.raises(OverflowError, match="32-bit"):
            fill(numbers.values(found))


@given(SIZES)
def test_products_replace_divisions(sizes: np.ndarray) -> None:
    for size in sizes.tolist():
        multiplier, shift = divisor(size)
        assert all((n * (multiplier % (1 << 32))) >> (31 + shift) == n // size for n in (0, *EDGES))


def test_axes_have_the_same_divisors_and_inverses() -> None:
    recorder = SizeRecorder()
    n: Any = recorder.input(6)
    numbers = Variables()
    words = SymbolicWords(numbers)
    words.add(np.zeros(4, np.int32))
    words.fill_in(0, ("index", "index", "index", "float32"), (n, *divisor(n), 1.0 / largest(n, 1)))
    fill, program = words.close(), recorder.program(numbers.numbers)
    for size in (1, 2, 3, 49, 1000, LARGEST):
        found = program(size)
        assert found is not None
        assert fill(numbers.values(found)).tolist() == [size, *divisor(size), inverse_bits(size)]


def test_temporaries_that_are_alive_at_once_never_overlap() -> None:
    rng = np.random.default_rng(6)
    names = [f"t{k}" for k in range(40)]
    firsts = rng.integers(0, 60, 40)
    lifetimes = {n: (int(f), int(f + rng.integers(0, 12))) for n, f in zip(names, firsts, strict=True)}
    recorder = SizeRecorder()
    given = [recorder.input(int(rng.integers(1, 5000))) for _ in names]
    slots = SymbolicSlots(dict(zip(names, given, strict=True)), lifetimes, 256)
    places, whole = slots.places()
    program = recorder.program([*places, whole, *slots.sizes])
    for _ in range(20):
        sizes = rng.integers(1, 5000, 40)
        found = program(*sizes.tolist())
        assert found is not None
        starts, total = np.array(found[:40]), found[40]
        assert not (starts % 256).any()
        assert (starts + sizes).max() <= total == sum(found[41:])
        for a in range(40):
            for b in range(a):
                (first, last), (other_first, other_last) = lifetimes[names[a]], lifetimes[names[b]]
                if first <= other_last and other_first <= last:
                    assert starts[a] + sizes[a] <= starts[b] or starts[b] + sizes[b] <= starts[a]
