"""The fields of arrays are where they are said to be."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from engine.base.memory import array_objects


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="the fields of CPython's objects")
def test_arrays_are_readable_unless_their_objects_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    has_plain_objects = sys.getsizeof(object()) == 16
    assert array_objects.are_readable.__wrapped__() == has_plain_objects
    for name in ("OBJECT_TYPE", "DATA", "RANK", "ELEMENT_TYPE"):
        with monkeypatch.context() as patch:
            patch.setattr(array_objects, name, 5)  # the strides
            assert not array_objects.are_readable.__wrapped__()


def test_types_of_elements_are_one_object_each() -> None:
    """Arrays of any other are copied as they always were."""
    assert np.zeros(3, np.float32).dtype is np.dtype("float32")
