"""Reductions against NumPy, on axes, types and corner values that ONNX's own cases do not cover."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from engine.base.errors import ShapeError
from engine.compiler.trace import Tracer
from engine.kernels.expr import nodes
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement

Reference = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
NUMPY: dict[str, Reference] = {
    "ReduceSum": lambda x, a: x.sum(a, keepdims=True),
    "ReduceMean": lambda x, a: x.mean(a, keepdims=True),
    "ReduceMax": lambda x, a: x.max(a, keepdims=True),
    "ReduceMin": lambda x, a: x.min(a, keepdims=True),
    "ReduceProd": lambda x, a: x.prod(a, keepdims=True),
    "ReduceL1": lambda x, a: np.abs(x).sum(a, keepdims=True),
    "ReduceL2": lambda x, a: np.sqrt((x * x).sum(a, keepdims=True)),
    "ReduceSumSquare": lambda x, a: (x * x).sum(a, keepdims=True),
    "ReduceLogSum": lambda x, a: np.log(np.abs(x).sum(a, keepdims=True)),
    "ReduceLogSumExp": lambda x, a: np.log(np.exp(x).sum(a, keepdims=True)),
}
AXES: list[tuple[int, ...]] = [(0,), (3,), (1, 2), (2, 3), (0, 2), (0, 1, 3), (-1, 0), (0, 1, 2, 3)]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("op_type", NUMPY)
def test_any_axes_in_both_styles(op_type: str, axes: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.uniform(0.5, 1.5, (3, 2, 4, 5)).astype(np.float32)
    expected = NUMPY[op_type](x.astype(np.float64), axes)
    (new,) = run(op_type, [x, np.array(axes)])
    (old,) = run(op_type, [x], {"axes": axes, "keepdims": 0}, opset=11)
    assert disagreement(new, expected) < 1e-5
    assert disagreement(old, expected.squeeze(axes)) < 1e-5


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "float16"])
def test_types(op_type: str, dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, (4, 3)).astype(dtype)
    expected = NUMPY[op_type](x.astype(np.float64), (1,)).astype(dtype)
    (found,) = run(op_type, [x, np.array([1])])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("op_type", "neutral"),
    [("ReduceSum", 0), ("ReduceMean", np.nan), ("ReduceMax", -np.inf), ("ReduceMin", np.inf),
     ("ReduceProd", 1), ("ReduceL1", 0), ("ReduceL2", 0),
     ("ReduceLogSum", -np.inf), ("ReduceLogSumExp", -np.inf)],
)  # fmt: skip
def test_of_nothing(op_type: str, neutral: float) -> None:
    (found,) = run(op_type, [np.zeros((2, 0, 3), np.float32), np.array([1])])
    np.testing.assert_array_equal(found, np.full((2, 1, 3), neutral, np.float32))


@pytest.mark.parametrize(("op_type", "of_nothing"), [("ReduceMax", False), ("ReduceMin", True)])
def test_booleans(op_type: str, of_nothing: bool) -> None:
    x = np.array([[False, True], [True, True], [False, False]])
    expected = x.max(1, keepdims=True) if op_type == "ReduceMax" else x.min(1, keepdims=True)
    np.testing.assert_array_equal(run(op_type, [x, np.array([1])])[0], expected)
    np.testing.assert_array_equal(run(op_type, [x[:, :0], np.array([1])])[0], np.full((3, 1), of_nothing))


def test_no_axes_means_all_or_none() -> None:
    x = np.array([[-1.0, 2.0], [-3.0, 4.0]], np.float32)
    nothing = np.array([], np.int64)
    assert run("ReduceL1", [x, nothing])[0].item() == 10.0
    assert run("ReduceL1", [x])[0].item() == 10.0
    # Reducing no axis still applies what is done to each element.
    (each,) = run("ReduceL1", [x, nothing], {"noop_with_empty_axes": 1})
    np.testing.assert_array_equal(each, np.abs(x))


def test_a_scalar_is_reduced_to_itself() -> None:
    assert run("ReduceSum", [np.array(3.0, np.float32)])[0] == 3.0


def test_log_sum_exp_neither_overflows_nor_loses_infinities() -> None:
    x = np.array([[1000.0, 1000.0], [-1000.0, -1000.0], [-np.inf, -np.inf], [np.inf, 0.0]], np.float32)
    (found,) = run("ReduceLogSumExp", [x, np.array([1])])
    expected = np.array([[1000 + np.log(2)], [-1000 + np.log(2)], [-np.inf], [np.inf]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_neighbouring_axes_are_one_loop() -> None:
    x = np.zeros((2, 3, 4, 5), np.float32)
    model = one_layer("ReduceMean", [x, np.array([2, 3])], known=[1])
    (compute,) = Tracer(model).trace({"x0": x.shape}).computes
    assert compute.space == (6,)
    assert sum(node.op == "reduce" for node in nodes(compute.body)) == 1


# Positions


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_position_among_equals(op_type: str, axis: int, last: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, (5, 6, 7)).astype(np.float32)
    flipped = np.flip(x, axis) if last else x
    expected = (np.argmax if op_type == "ArgMax" else np.argmin)(flipped, axis)
    expected = x.shape[axis] - 1 - expected if last else expected
    (found,) = run(op_type, [x], {"axis": axis, "keepdims": 0, "select_last_index": last})
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("values", ["equals", "different", "NaN"])
def test_position_in_long_rows(op_type: str, values: str, last: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 2500, 3)).astype(np.float32)
    if values == "equals":
        x = np.round(x)
    if values == "NaN":
        x[rng.random(x.shape) < 0.01] = np.nan
    flipped = np.flip(x, 1) if last else x
    expected = (np.argmax if op_type == "ArgMax" else np.argmin)(flipped, 1)
    expected = x.shape[1] - 1 - expected if last else expected
    attributes = {"axis": 1, "keepdims": 0, "select_last_index": last}
    computes = Tracer(one_layer(op_type, [x], attributes)).trace({"x0": x.shape}).computes
    assert [compute.space for compute in computes] == [(2, 50, 3), (2, 3)]
    np.testing.assert_array_equal(run(op_type, [x], attributes)[0], expected)


def test_nan_is_the_extreme_as_in_numpy() -> None:
    x = np.array([[1.0, np.nan, 5.0, np.nan], [3.0, 1.0, 2.0, 0.0]], np.float32)
    attributes = {"axis": 1, "keepdims": 0}
    np.testing.assert_array_equal(run("ArgMax", [x], attributes)[0], [1, 0])
    np.testing.assert_array_equal(run("ArgMin", [x], attributes)[0], [1, 3])
    np.testing.assert_array_equal(run("ArgMax", [x], attributes | {"select_last_index": 1})[0], [3, 0])


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "message"),
    [
        (
            "ReduceSum",
            [np.zeros((2, 3), np.float32), np.array([2])],
            {},
            "axis 2 is outside a tensor of rank 2",
        ),
        ("ArgMax", [np.zeros((2, 0), np.float32)], {"axis": 1}, "cannot choose among the 0 elements"),
        ("ReduceLogSumExp", [np.zeros((2, 3), np.int32)], {}, "takes floats, not int32"),
    ],
)
def test_errors_name_the_layer(
    op_type: str, arrays: Sequence[np.ndarray], attributes: dict, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
        run(op_type, arrays, attributes)
