"""Gathers, scatters, OneHot and TopK against plain Python and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.errors import ShapeError
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


def test_positions_outside_read_the_nearest_element_and_write_nothing() -> None:
    x = np.array([1.0, 2.0, 3.0], np.float32)
    far = np.array([7, -9, 2**40])
    np.testing.assert_array_equal(run("Gather", [x, far])[0], [3.0, 1.0, 3.0])
    np.testing.assert_array_equal(run("GatherElements", [x, far])[0], [3.0, 1.0, 3.0])
    np.testing.assert_array_equal(run("GatherND", [x, far[:, None]])[0], [3.0, 1.0, 3.0])
    np.testing.assert_array_equal(run("ScatterElements", [x, far, x])[0], x)
    np.testing.assert_array_equal(run("ScatterND", [x, far[:, None], x])[0], x)


# Scatters


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


@pytest.mark.parametrize("reduction", STEPS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements_in_order(axis: int, reduction: str, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (3, 4, 5)).astype(np.int32)
    indices = rng.integers(-x.shape[axis], x.shape[axis], (2, 3, 4))
    updates = rng.integers(-9, 9, indices.shape).astype(np.int32)
    expected = x.copy()
    for at in np.ndindex(indices.shape):
        target = list(at)
        target[axis] = indices[at]
        expected[tuple(target)] = STEPS[reduction](expected[tuple(target)], updates[at])
    attributes = {"axis": axis, "reduction": reduction}
    np.testing.assert_array_equal(run("ScatterElements", [x, indices, updates], attributes)[0], expected)
    if reduction == "none":
        np.testing.assert_array_equal(
            run("Scatter", [x, indices, updates], {"axis": axis}, opset=9)[0], expected
        )


@pytest.mark.parametrize("reduction", STEPS)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd_in_order(depth: int, reduction: str, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (3, 4, 2)).astype(np.int32)
    indices = np.stack([rng.integers(-n, n, (2, 5)) for n in x.shape[:depth]], -1)
    updates = rng.integers(-9, 9, (2, 5, *x.shape[depth:])).astype(np.int32)
    expected = x.copy()
    for at in np.ndindex(2, 5):
        place = tuple(indices[at])
        for rest in np.ndindex(*x.shape[depth:]):
            expected[place + rest] = STEPS[reduction](expected[place + rest], updates[at + rest])
    np.testing.assert_array_equal(
        run("ScatterND", [x, indices, updates], {"reduction": reduction})[0], expected
    )


def test_scatter_of_nothing_and_of_booleans() -> None:
    x = np.array([True, False, False])
    none = np.array([], np.int64)
    np.testing.assert_array_equal(run("ScatterElements", [x, none, x[:0]])[0], x)
    np.testing.assert_array_equal(run("ScatterND", [x, none.reshape(0, 1), x[:0]])[0], x)
    arrays = [x, np.array([0, 1, 1]), np.array([False, False, True])]
    np.testing.assert_array_equal(
        run("ScatterElements", arrays, {"reduction": "add"})[0], [True, True, False]
    )
    np.testing.assert_array_equal(
        run("ScatterElements", arrays, {"reduction": "mul"})[0], [False, False, False]
    )


# One-hot vectors and rankings


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, -1, 5], [2, 3, -9]], np.float32)
    expected = np.full((2, 3, 4), 5, np.int32)
    for at in ((0, 0, 0), (0, 1, 3), (1, 0, 2), (1, 1, 3)):
        expected[at] = 9
    arrays = [indices, np.array([4]), np.array([5, 9], np.int32)]
    np.testing.assert_array_equal(run("OneHot", arrays, {"axis": axis})[0], np.moveaxis(expected, -1, axis))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
def test_top_k_among_equals(axis: int, largest: int, dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 4, (6, 5, 7)).astype(dtype)
    order = np.argsort(-x if largest else x, axis, kind="stable").take(range(4), axis)
    values, where = run("TopK", [x, np.array([4])], {"axis": axis, "largest": largest}, outputs=2)
    assert where.dtype == np.int64
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


def test_top_k_orders_nan_and_infinities() -> None:
    x = np.array([np.nan, 1.0, np.inf, np.nan, -np.inf, 1.0], np.float32)
    values, where = run("TopK", [x, np.array([6])], outputs=2)
    np.testing.assert_array_equal(where, [0, 3, 2, 1, 5, 4])
    np.testing.assert_array_equal(values, x[where])
    _, where = run("TopK", [x, np.array([6])], {"largest": 0}, outputs=2)
    np.testing.assert_array_equal(where, [4, 1, 5, 2, 0, 3])


def test_top_k_s_old_styles() -> None:
    x = np.array([[3.0, 1.0, 2.0]], np.float32)
    assert run("TopK", [x], {"k": 2}, opset=9, outputs=2)[1].tolist() == [[0, 2]]
    assert run("TopK", [x, np.array([2])], opset=10, outputs=2)[0].tolist() == [[3.0, 2.0]]


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
        ("ScatterElements", [X, AT, X[:1]], {}, "cannot write"),
        ("ScatterElements", [X, AT, X], {"reduction": "avg"}, "reduction is 'avg'"),
        ("ScatterND", [X, AT[:, :1], X[:, :2]], {}, "cannot write"),
        ("OneHot", [AT, np.array([2, 2]), np.array([0, 1])], {}, "takes one depth"),
        ("TopK", [X, np.array([4])], {}, "cannot choose 4 elements"),
    ],
)
def test_errors_name_the_layer(
    op_type: str, arrays: list[np.ndarray], attributes: dict, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
        run(op_type, arrays, attributes, outputs=2 if op_type == "TopK" else 1)
