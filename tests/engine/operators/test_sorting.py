"""TopK and what it sorts with, against NumPy's stable argsort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.compiler.trace import Tracer
from tests.engine.conftest import MakeWorker
from tests.engine.operators.single import one_layer, run


def ranking(x: np.ndarray, axis: int, largest: int) -> np.ndarray:
    """A stable argsort in which NaN is the largest, and infinities are not."""
    order = np.argsort(x, axis, kind="stable")
    if not largest:
        return order
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


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


@pytest.mark.spread
@pytest.mark.parametrize(
    "channel",
    [
        "interpreted",
        "cpu",
        pytest.param("gl_compute", marks=pytest.mark.gl),
        pytest.param("gl_pixel", marks=pytest.mark.gl),
        pytest.param("opencl", marks=pytest.mark.opencl),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize(("count", "kept"), [(64, 4), (513, 1), (1003, 7), (1003, 60), (20011, 13)])
def test_a_few_of_many_on_every_backend(
    channel: str, make_worker: MakeWorker, count: int, kept: int, dtype: str, rng: np.random.Generator
) -> None:
    """Where most elements are never sorted: equals keep their order, also in a stretch that is cut short."""
    x = rng.integers(0, min(count // 8, 100), (2, count, 3)).astype(dtype)
    if dtype == "float32":
        x[rng.random(x.shape) < 0.002] = np.nan
    for largest in (0, 1):
        # At the end stands what comes first, and what comes last: the padding of the candidates is like it.
        extreme = np.iinfo(dtype).max if dtype != "float32" else np.nan
        x[:, -3:] = extreme if largest else x.min(1, keepdims=True)
        order = ranking(x.astype(np.float64), 1, largest)[:, :kept]
        arrays, attributes = [x, np.array([kept])], {"axis": 1, "largest": largest}
        if channel == "interpreted":
            where = run("TopK", arrays, attributes, outputs=2)[1]
        else:
            worker = make_worker(one_layer("TopK", arrays, attributes, outputs=2, known=[1]), channel)
            worker.schedule({"x0": x})
            where = worker.peek_output("y1").download_to_array()
        np.testing.assert_array_equal(where, order)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 33, 63, 64, 65, 300, 1000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_some_of_rows_of_any_length(count: int, share: float, rng: np.random.Generator) -> None:
    x = rng.integers(0, 20, (2, count, 3)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    kept = int(np.ceil(share * count))
    for largest in (0, 1):
        order = ranking(x, 1, largest)[:, :kept]
        values, where = run("TopK", [x, np.array([kept])], {"axis": 1, "largest": largest}, outputs=2)
        np.testing.assert_array_equal(where, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "float16", "bool"])
def test_types(dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(-120, 120, 70).astype(dtype)
    for largest in (0, 1):
        values, where = run("TopK", [x, np.array([70])], {"largest": largest}, outputs=2)
        assert values.dtype == x.dtype
        np.testing.assert_array_equal(where, ranking(x, 0, largest))


def test_the_extremes_of_64_bits_are_ordered() -> None:
    x = np.array([0, 2**63 - 1, -(2**63), -1, 2**53 + 1, 2**53], np.int64)
    assert run("TopK", [x, np.array([6])], outputs=2)[1].tolist() == [1, 4, 5, 0, 3, 2]


def test_a_few_of_many_are_cheap() -> None:
    """After the elements were looked at once, only the stretches of the best are sorted."""
    x = np.zeros(4096, np.float32)
    model = one_layer("TopK", [x, np.array([4])], outputs=2, known=[1])
    sizes = [c.output.size for c in Tracer(model).trace({"x0": x.shape}).computes]
    assert max(sizes) <= 128


@settings(max_examples=8)
@given(
    count=st.sampled_from((1, 2, 63, 64, 65, 300)),
    share=st.sampled_from((0.0, 0.1, 1.0)),
    seed=st.integers(0, 99),
)
def test_every_backend_sorts_alike(
    channel: str, make_worker: MakeWorker, count: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, max(count // 2, 2), (2, count, 3)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[rng.random(x.shape) < 0.1] = -np.inf
    kept = max(1, int(share * count))
    arrays = [x, np.array([kept])]
    worker = make_worker(one_layer("TopK", arrays, {"axis": 1}, outputs=2, dynamic=[0]), channel)
    worker.schedule({"x0": x, "x1": arrays[1]})
    order = ranking(x, 1, 1)[:, :kept]
    np.testing.assert_array_equal(worker.peek_output("y1").download_to_array(), order)
    np.testing.assert_array_equal(
        worker.peek_output("y0").download_to_array(), np.take_along_axis(x, order, 1)
    )


@pytest.mark.parametrize("count", [4, -1])
def test_errors_name_the_layer(count: int) -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=f"layer 'it' \\(TopK\\): cannot choose {count} elements"):
        run("TopK", [x, np.array([count])], outputs=2)
