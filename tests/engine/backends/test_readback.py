"""Readbacks of a part of a buffer."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Backend


@pytest.mark.parametrize("elements", [0, 1, 5, 4097, 20_000])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_first_elements_are_read(tuned_backend: Backend, dtype: str, elements: int) -> None:
    data = np.arange(20_000).astype(dtype)
    buffer = tuned_backend.create(data.size, data.dtype, data)
    readback = tuned_backend.readback(buffer, elements)
    # The value is that of now: later writes do not change it.
    tuned_backend.upload(buffer, np.zeros_like(data))
    readback.wait()
    assert readback.array().dtype == data.dtype
    np.testing.assert_array_equal(readback.array(), data[:elements])
    tuned_backend.upload(buffer, data)
    read = tuned_backend.reader(buffer, (elements, 1))
    np.testing.assert_array_equal(read(None), data[:elements, None])
    np.testing.assert_array_equal(read(np.empty((elements, 1), dtype)), data[:elements, None])
