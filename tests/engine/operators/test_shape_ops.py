"""Tensors made from shapes and numbers, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.base.errors import ShapeError
from engine.compiler.trace import Tracer
from tests.engine.operators.single import one_layer, run


def test_a_shape_is_known_without_work() -> None:
    trace = Tracer(one_layer("Shape", [np.zeros((2, 0, 4))])).trace({"x0": (2, 0, 4)})
    known = trace.tensor("y0").known
    assert trace.computes == []
    assert known is not None
    assert known.dtype == np.int64
    assert known.tolist() == [2, 0, 4]


@pytest.mark.parametrize(("start", "end"), [(1, None), (-2, None), (0, -1), (-9, 9), (2, 1)])
def test_part_of_a_shape(start: int, end: int | None) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    attributes = {"start": start} if end is None else {"start": start, "end": end}
    assert run("Shape", [x], attributes)[0].tolist() == list(x.shape[start:end])


def test_size_counts_elements() -> None:
    (found,) = run("Size", [np.zeros((2, 3, 4), np.float32)])
    assert found.shape == ()
    assert found == 24


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": np.array([[1, 2]], np.int8)}, np.array([[1, 2]], np.int8)),
        ({"value_float": 0.5}, np.array(0.5, np.float32)),
        ({"value_floats": (0.5, 2.0)}, np.array([0.5, 2.0], np.float32)),
        ({"value_int": 0}, np.array(0, np.int64)),
        ({"value_ints": ()}, np.array([], np.int64)),
    ],
)
def test_constants(attributes: dict, expected: np.ndarray) -> None:
    (found,) = run("Constant", [], attributes)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "value", [None, np.array([7], np.int64), np.array([True]), np.array([0.5], np.float16)]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_constant_of_shape(shape: tuple[int, ...], value: np.ndarray | None) -> None:
    attributes = {} if value is None else {"value": value}
    (found,) = run("ConstantOfShape", [np.array(shape, np.int64)], attributes)
    expected = np.full(shape, 0, np.float32) if value is None else np.full(shape, value[0])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 5, 1), (10, -3, -4), (2, 2, 1), (5, 0, 1), (-7, 8, 5)]
)
def test_range(start: int, limit: int, delta: int, dtype: str) -> None:
    (found,) = run("Range", [np.array(v, dtype) for v in (start, limit, delta)])
    expected = np.arange(start, limit, delta).astype(dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_range_of_fractions_stops_before_its_limit() -> None:
    (found,) = run("Range", [np.array(v, np.float32) for v in (1.0, 2.0, 0.25)])
    np.testing.assert_array_equal(found, np.array([1.0, 1.25, 1.5, 1.75], np.float32))


@pytest.mark.parametrize("diagonal", [0, 2, -1, 9])
def test_eye_like(diagonal: int) -> None:
    x = np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(run("EyeLike", [x], {"k": diagonal})[0], np.eye(3, 4, diagonal))
    (found,) = run("EyeLike", [x], {"k": diagonal, "dtype": 9})
    np.testing.assert_array_equal(found, np.eye(3, 4, diagonal, bool))


def test_errors_name_the_layer() -> None:
    one = np.array(1)
    for op_type, arrays, attributes, message in (
        ("Constant", [], {"value_string": b"a"}, "no tensor of numbers"),
        ("ConstantOfShape", [np.array([-1])], {}, "is not a shape"),
        ("ConstantOfShape", [np.array([1])], {"value": np.zeros(2)}, "one element, not 2"),
        ("Range", [one, one, np.array(0)], {}, "the last of them not 0"),
        ("EyeLike", [np.zeros(3, np.float32)], {}, "takes a matrix"),
        ("EyeLike", [np.zeros((3, 3), np.float32)], {"dtype": 14}, "element type 14"),
    ):
        with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
            run(op_type, arrays, attributes)
