"""Functions in stored plans, with what they captured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.stored.references import NotStorableError, Reader, Writer

Make = Callable[[], np.ndarray]


def makers(array: np.ndarray, count: int) -> tuple[Make, Make, Make]:
    """Two without a name of their own, and one with."""

    def repeated() -> np.ndarray:
        return np.concatenate([array] * count)

    return (lambda: array + count), (lambda: array - count), repeated


def test_a_function_is_read_with_what_it_captured() -> None:
    array = np.arange(4.0)
    first, _, repeated = makers(array, 3)
    body = Writer({"x": array}).body([first, repeated])
    assert len(body) < 400, "the array is referred to"
    added, again = Reader(body, {"x": array * 2}).load()
    np.testing.assert_array_equal(added(), array * 2 + 3)
    np.testing.assert_array_equal(again(), np.concatenate([array * 2] * 3))


def test_a_function_that_cannot_be_told_from_another_is_refused() -> None:
    _, second, _ = makers(np.arange(4.0), 3)
    with pytest.raises(NotStorableError, match="makers.<locals>.<lambda>"):
        Writer({}).body(second)


def test_a_function_that_is_not_where_its_name_says_is_refused() -> None:
    _, _, repeated = makers(np.arange(4.0), 3)
    repeated.__qualname__ = "makers.<locals>.gone"
    with pytest.raises(NotStorableError, match="gone"):
        Writer({}).body(repeated)
