"""Running sums and products against NumPy, at sizes around those of the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.compiler.trace import Tracer
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement

SIZES = (0, 1, 2, 15, 16, 17, 63, 64, 65, 256, 257, 300, 4097)


def running(op_type: str, x: np.ndarray, axis: int, exclusive: int, reverse: int) -> np.ndarray:
    """The answer by NumPy."""
    seen = np.flip(x, axis) if reverse else x
    dtype = np.float64 if x.dtype.kind == "f" else x.dtype
    found = (np.cumsum if op_type == "CumSum" else np.cumprod)(seen, axis, dtype=dtype).astype(x.dtype)
    if exclusive and x.shape[axis]:
        found = np.roll(found, 1, axis)
        np.moveaxis(found, axis, 0)[0] = op_type == "CumProd"
    return np.flip(found, axis) if reverse else found


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_each_axis(axis: int, exclusive: int, reverse: int, rng: np.random.Generator) -> None:
    x = rng.integers(1, 4, (3, 4, 5)).astype(np.int32)
    for op_type in ("CumSum", "CumProd"):
        attributes = {"exclusive": exclusive, "reverse": reverse}
        (found,) = run(op_type, [x, np.array(axis)], attributes, opset=26)
        np.testing.assert_array_equal(found, running(op_type, x, axis, exclusive, reverse))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", ["int32", "uint64", "float32", "float64", "float16"])
def test_rows_of_any_length(count: int, dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2, (2, count, 3)).astype(dtype)
    for reverse in (0, 1):
        (found,) = run("CumSum", [x, np.array(1)], {"reverse": reverse})
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, running("CumSum", x, 1, 0, reverse))


def test_a_long_sum_of_half_floats_keeps_its_parts_in_single_precision() -> None:
    x = np.full(2048, 1.001, np.float16)
    expected = np.cumsum(x.astype(np.float64))
    assert disagreement(run("CumSum", [x, np.array(0)])[0].astype(np.float64), expected) < 1e-3


def test_work_grows_with_the_size_and_not_with_its_square() -> None:
    """Each step reads at most a block per element, and the steps shrink."""
    x = np.zeros(16**3, np.float32)
    trace = Tracer(one_layer("CumSum", [x, np.array(0)], known=[1])).trace({"x0": x.shape})
    assert [c.output.size for c in trace.computes] == [256, 16, 16, 256, 4096]


@settings(max_examples=8)
@given(
    count=st.sampled_from((1, 2, 63, 64, 65, 300, 1025)),
    exclusive=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_backend_agrees(
    channel: str, make_worker: MakeWorker, count: int, exclusive: bool, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(size=(2, count, 3)).astype(np.float32)
    arrays, attributes = [x, np.array(1)], {"exclusive": int(exclusive), "reverse": 1}
    worker = make_worker(one_layer("CumSum", arrays, attributes, known=[1], dynamic=[0]), channel)
    (found,) = answers(worker, x)
    expected = running("CumSum", x.astype(np.float64), 1, exclusive, 1)
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


@pytest.mark.spread
def test_of_nothing(channel: str, make_worker: MakeWorker) -> None:
    x = np.zeros((2, 0), np.float32)
    worker = make_worker(one_layer("CumSum", [x, np.array(1)], known=[1]), channel)
    assert answers(worker, x)[0].shape == (2, 0)


@pytest.mark.parametrize(
    ("x", "axis", "message"),
    [
        (np.zeros(3, np.float32), np.array([0, 0]), "takes one axis, not 2"),
        (np.zeros(3, np.float32), np.array(1), "axis 1 is outside a tensor of rank 1"),
        (np.float32(3), np.array(0), "not a scalar"),
    ],
)
def test_errors_name_the_layer(x: np.ndarray, axis: np.ndarray, message: str) -> None:
    with pytest.raises(ShapeError, match=f"layer 'it' \\(CumSum\\): .*{message}"):
        run("CumSum", [np.asarray(x), axis])
