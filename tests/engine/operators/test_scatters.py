"""Scatters against plain Python: every update in order, wherever it aims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from engine.compiler.trace import Tracer
from engine.operators.scatters import FEW
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement

COUNTS = (0, 1, 2, FEW, FEW + 1, 63, 64, 65, 300)


def test_targets_outside_write_nothing() -> None:
    for count in (3, FEW + 1):
        x = np.arange(count, dtype=np.float32)
        far = np.resize([7 + count, -9 - count, 2**40], count)
        np.testing.assert_array_equal(run("ScatterElements", [x, far, x])[0], x)
        np.testing.assert_array_equal(run("ScatterND", [x, far[:, None], x])[0], x)


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


def elements_written(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str
) -> np.ndarray:
    """ScatterElements, one update after another."""
    out = x.copy()
    for at in np.ndindex(indices.shape):
        target = list(at)
        target[axis] = indices[at]
        out[tuple(target)] = STEPS[reduction](out[tuple(target)], updates[at])
    return out


@pytest.mark.parametrize("reduction", STEPS)
@pytest.mark.parametrize("count", COUNTS)
def test_any_number_of_updates(count: int, reduction: str, rng: np.random.Generator) -> None:
    for size in (1, 64):
        x = rng.integers(-2, 3, (2, size, 3)).astype(np.float32)
        indices = rng.integers(-size, size, (2, count, 2))
        updates = rng.integers(-2, 3, indices.shape).astype(np.float32)
        expected = elements_written(x, indices, updates, 1, reduction)
        (found,) = run("ScatterElements", [x, indices, updates], {"axis": 1, "reduction": reduction})
        np.testing.assert_array_equal(found, expected)
        rows = np.stack([rng.integers(-2, 2, count), rng.integers(-size, size, count)], -1)
        updates = rng.integers(-2, 3, (count, 3)).astype(np.float32)
        expected = x.copy()
        for place, update in zip(map(tuple, rows), updates, strict=True):
            pairs = zip(expected[place], update, strict=True)
            expected[place] = [STEPS[reduction](old, new) for old, new in pairs]
        (found,) = run("ScatterND", [x, rows, updates], {"reduction": reduction})
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [3, FEW + 1, 300])
def test_known_indices_are_sorted_ahead_of_time(count: int, rng: np.random.Generator) -> None:
    x = rng.integers(-2, 3, (40, 3)).astype(np.float32)
    updates = rng.integers(-2, 3, (count, 3)).astype(np.float32)
    for op_type in ("ScatterElements", "ScatterND"):
        width = 3 if op_type == "ScatterElements" else 1
        indices = rng.integers(-40, 40, (count, width))
        indices[0] = 40
        model = one_layer(op_type, [x, indices, updates], {"reduction": "add"}, known=[1])
        assert len(Tracer(model).trace({"x0": x.shape, "x2": updates.shape}).computes) == 1
        rows = np.broadcast_to(indices, (count, 3))[1:]
        expected = elements_written(x, rows, updates[1:], 0, "add")
        np.testing.assert_array_equal(interpret(model, {"x0": x, "x2": updates})["y0"], expected)


def test_many_updates_of_booleans(rng: np.random.Generator) -> None:
    x, updates, at = rng.random(20) < 0.5, rng.random(200) < 0.1, rng.integers(0, 20, 200)
    for reduction, combine in (("add", np.logical_or), ("mul", np.logical_and), ("max", np.logical_or)):
        expected = x.copy()
        combine.at(expected, at, updates)
        (found,) = run("ScatterElements", [x, at, updates], {"reduction": reduction})
        np.testing.assert_array_equal(found, expected)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("whole", [True, False], ids=["rows", "elements"])
def test_the_last_of_many_updates_wins_on_every_backend(
    channel: str, make_worker: MakeWorker, whole: bool, dtype: str, rng: np.random.Generator
) -> None:
    """Five updates a place on average, some of which lie outside; fewer columns than the data has."""
    x = rng.integers(0, 100, (4, 60, 7)).astype(dtype)
    updates = rng.integers(0, 100, (300, 60, 7) if whole else (3, 300, 5)).astype(dtype)
    places = 4 if whole else 60
    indices = rng.integers(-places - 2, places + 2, (300, 1) if whole else updates.shape)
    expected = x.copy()
    for at in np.ndindex(indices.shape[:1] if whole else indices.shape):
        target = indices[at]
        if not -places <= int(target if not whole else target[0]) < places:
            continue
        expected[target[0] if whole else (at[0], target, at[2])] = updates[at]
    model = one_layer(
        "ScatterND" if whole else "ScatterElements", [x, indices, updates], {} if whole else {"axis": 1}
    )
    worker = make_worker(model, channel)
    for _ in range(2):
        np.testing.assert_array_equal(answers(worker, {"x0": x, "x1": indices, "x2": updates})[0], expected)


@settings(max_examples=8)
@given(
    count=st.sampled_from((1, 2, 63, 64, 65, 300)),
    size=st.sampled_from((1, 2, 64, 300)),
    op_type=st.sampled_from(("ScatterElements", "ScatterND")),
    reduction=st.sampled_from(("none", "add")),
    seed=st.integers(0, 99),
)
def test_every_backend_agrees(
    channel: str, make_worker: MakeWorker, count: int, size: int, op_type: str, reduction: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 3)).astype(np.float32)
    if op_type == "ScatterND":
        indices = rng.integers(-size, size, (count, 1))
        rows = np.broadcast_to(indices, (count, 3))
    else:
        indices = rows = rng.integers(-size, size, (count, 3))
    updates = rng.normal(size=(count, 3)).astype(np.float32)
    model = one_layer(op_type, [x, indices, updates], {"reduction": reduction}, dynamic=[0, 1, 2])
    (found,) = answers(make_worker(model, channel), {"x0": x, "x1": indices, "x2": updates})
    expected = elements_written(x, rows, updates, 0, reduction)
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


X = np.zeros((2, 3), np.float32)
AT = np.zeros((2, 3), np.int64)


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "message"),
    [
        ("ScatterElements", [X, AT, X[:1]], {}, "cannot write"),
        ("ScatterElements", [X[:, :2], AT, X], {}, "reach beyond"),
        ("ScatterElements", [X, AT, X], {"reduction": "avg"}, "reduction is 'avg'"),
        ("ScatterND", [X, AT[:, :1], X[:, :2]], {}, "cannot write"),
    ],
)
def test_errors_name_the_layer(
    op_type: str, arrays: list[np.ndarray], attributes: dict, message: str
) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\({op_type}\\): .*{message}"):
        run(op_type, arrays, attributes)
