"""Buffers whose elements are counted by a word."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu.execution.memory import CPUBuffer, SizedBuffer
from engine.base.errors import DisposedError

F32 = np.dtype(np.float32)


def test_a_sized_buffer_shows_its_first_elements_in_any_shape() -> None:
    elements = np.arange(100, dtype=np.float32)
    words = np.array([0, 24], np.int64)
    whole = CPUBuffer(100, F32)
    whole.array[:] = elements
    sized = SizedBuffer(whole, words.data, 1)
    for shape in ((6, 4), (25, 4), (1, 4), (4, 6), (24,), (0, 4), (3, 0), (), (2, 3, 4), (7, 4), (100, 1)):
        expected = elements[: int(np.prod(shape))].reshape(shape)
        for _ in range(2):
            found = sized.view(shape)
            np.testing.assert_array_equal(found, expected)
            assert found.shape == shape
            assert np.shares_memory(found, whole.array) == bool(found.size)
    assert sized.elements == 24
    np.testing.assert_array_equal(sized.array, elements[:24])


def test_a_released_one_shows_nothing() -> None:
    sized = SizedBuffer(CPUBuffer(8, F32), np.array([8], np.int64).data, 0)
    sized.view((2, 4))
    sized.release()
    for shape in ((2, 4), (8,)):
        with pytest.raises(DisposedError):
            sized.view(shape)
