"""Shapes as a model declares them and as tensors have them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from engine.base.errors import ShapeError
from engine.base.shapes import DynamicTensorShape, TensorShape


def test_a_shape_is_a_tuple() -> None:
    shape = TensorShape(2, 3, 4)
    assert shape == TensorShape((2, 3, 4)) == TensorShape(np.zeros((2, 3, 4)).shape)
    assert tuple(shape) == (2, 3, 4)
    assert (shape.rank, shape.size) == (3, 24)
    assert (TensorShape().rank, TensorShape().size, TensorShape(0, 5).size) == (0, 1, 0)
    assert np.zeros(shape).shape == shape
    assert all(type(size) is int for size in TensorShape(np.int64(3), np.int32(4)))


@pytest.mark.parametrize("dims", [(-1,), (1.5,), ("n",), (None,), ((1, "n"),)], ids=str)
def test_sizes_that_cannot_be_are_refused(dims: tuple) -> None:
    with pytest.raises(ShapeError, match="size"):
        TensorShape(*dims)


@pytest.mark.parametrize("dims", [(-1,), (1.5,), ("",), (1, b"n")], ids=str)
def test_dimensions_that_cannot_be_are_refused(dims: tuple) -> None:
    with pytest.raises(ShapeError):
        DynamicTensorShape(*dims)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (DynamicTensorShape("batch", 1, 28, 28), "(batch, 1, 28, 28)"),
        (DynamicTensorShape(None, 3), "(?, 3)"),
        (DynamicTensorShape("n"), "(n,)"),
        (DynamicTensorShape(), "()"),
        (TensorShape(5), "(5,)"),
        (TensorShape(1, 2), "(1, 2)"),
    ],
)
def test_shapes_read_well(shape: TensorShape | DynamicTensorShape, text: str) -> None:
    assert str(shape) == text


@pytest.mark.parametrize(
    ("declared", "given", "fits"),
    [
        (("n", 3), (7, 3), True),
        (("n", 3), (7, 4), False),
        (("n", "n"), (2, 2), True),
        (("n", "n"), (2, 3), False),
        (("n", "m"), (2, 3), True),
        ((None, None), (2, 3), True),
        ((2, 3), (2, 3, 1), False),
        ((), (), True),
        (("n",), (0,), True),
    ],
)
def test_a_shape_matches_what_it_declares(declared: tuple, given: tuple, fits: bool) -> None:
    assert DynamicTensorShape(declared).matches(given) == fits


def test_names_are_made_static() -> None:
    shape = DynamicTensorShape("batch", None, "time", "batch")
    assert shape.names == ("batch", "time")
    assert not shape.is_static
    assert shape.with_dims({"batch": 2}) == (2, None, "time", 2)
    static = DynamicTensorShape("a", 3).with_dims({"a": 1})
    assert static.is_static
    assert isinstance(static.to_static(), TensorShape)
    with pytest.raises(ShapeError, match="not known"):
        shape.to_static()


@pytest.mark.parametrize(
    "shape", [TensorShape(1, 2), TensorShape(3), TensorShape(), DynamicTensorShape("n", None, 3)]
)
def test_shapes_survive_pickling(shape: TensorShape | DynamicTensorShape) -> None:
    copy = pickle.loads(pickle.dumps(shape))
    assert copy == shape
    assert type(copy) is type(shape)
    assert eval(repr(shape)) == shape
