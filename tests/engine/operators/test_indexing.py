"""Gathers and OneHot against plain Python and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.base.errors import ShapeError
from tests.engine.operators.single import run

INDEX_TYPES = ("int32", "int64")


@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_gather(axis: int, shape: tuple[int, ...], index_type: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    indices = rng.integers(-x.shape[axis], x.shape[axis], shape).astype(index_type)
    indices = np.asarray(indices)
    np.testing.assert_array_equal(run("Gather", [x, indices], {"axis": axis})[0], np.take(x, indices, axis))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements_where_indices_are_smaller(axis: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    indices = rng.integers(-x.shape[axis], x.shape[axis], (2, 3, 4))
    expected = np.empty((2, 3, 4), np.float32)
    for at in np.ndindex(2, 3, 4):
        source = list(at)
        source[axis] = indices[at]
        expected[at] = x[tuple(source)]
    np.testing.assert_array_equal(run("GatherElements", [x, indices], {"axis": axis})[0], expected)


@pytest.mark.parametrize(
    ("batch_dims", "lead", "depth"), [(0, (5,), 2), (1, (2, 4), 2), (2, (2, 3), 1), (0, (), 4)]
)
def test_gather_nd(batch_dims: int, lead: tuple[int, ...], depth: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    limits = x.shape[batch_dims : batch_dims + depth]
    indices = np.stack([rng.integers(-n, n, lead) for n in limits], -1)
    expected = np.empty((*lead, *x.shape[batch_dims + depth :]), np.float32)
    for at in np.ndindex(*lead):
        expected[at] = x[(*at[:batch_dims], *indices[at])]
    (found,) = run("GatherND", [x, indices], {"batch_dims": batch_dims})
    np.testing.assert_array_equal(found, expected)


def test_positions_outside_read_the_nearest_element() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    far = np.array([7, -9, 2**40])
    np.testing.assert_array_equal(run("Gather", [x, far])[0], [3.0, 1.0, 3.0])
    np.testing.assert_array_equal(run("GatherElements", [x, far])[0], [3.0, 1.0, 3.0])
    np.testing.assert_array_equal(run("GatherND", [x, far[:, None]])[0], [3.0, 1.0, 3.0])


# One-hot vectors


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, -1, 5], [2, 3, -9]], np.float32)
    expected = np.full((2, 3, 4), 5, np.int32)
    for at in ((0, 0, 0), (0, 1, 3), (1, 0, 2), (1, 1, 3)):
        expected[at] = 9
    arrays = [indices, np.array([4]), np.array([5, 9], np.int32)]
    np.testing.assert_array_equal(run("OneHot", arrays, {"axis": axis})[0], np.moveaxis(expected, -1, axis))


X = np.zeros((2, 3), np.float32)
AT = np.zeros((2, 3), np.int64)


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "message"),
    [
        ("Gather", [X, AT], {"axis": 2}, "axis 2 is outside"),
        ("Gather", [X[:0], AT], {}, "it has no elements"),
        ("GatherElements", [X, AT[0]], {}, "reach beyond"),
        ("GatherND", [X, AT], {}, "do not fit"),
        ("GatherND", [X, AT], {"batch_dims": 2}, "batch_dims 2"),
        ("OneHot", [AT, np.array([2, 2]), np.array([0, 1])], {}, "takes one depth"),
    ],
)
def test_errors_name_the_layer(
    op_type: str, arrays: list[np.ndarray], attributes: dict, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
        run(op_type, arrays, attributes)
