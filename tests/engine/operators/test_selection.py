"""NonZero and Compress, whose sizes only the device knows, against NumPy; Unique against its definition."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import ModelLoader
from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run

SIZES = (0, 1, 2, 63, 64, 65, 300)
SHARES = (0.0, 0.1, 1.0)

on_every_backend = settings(max_examples=8)


def mask_of(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> np.ndarray:
    """Which elements to choose: about a share of them."""
    return rng.random(shape) < share


# NonZero


@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 1, 3, 4), (0, 3), (70, 5)])
@pytest.mark.parametrize("share", SHARES)
def test_indices_of_what_is_not_zero(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> None:
    x = np.where(mask_of(rng, shape, share), rng.normal(size=shape), 0).astype(np.float32)
    (found,) = run("NonZero", [x])
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.array(np.nonzero(x)))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64"])
def test_types_that_can_be_zero(dtype: str) -> None:
    x = np.array([0, 1, 0, 2, -0.0]).astype(dtype)
    assert run("NonZero", [x])[0].tolist() == [[1, 3]]


def test_nan_is_not_zero() -> None:
    assert run("NonZero", [np.array([0.0, np.nan, -0.0, -1e-40], np.float32)])[0].tolist() == [[1, 3]]


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_a_scalar_has_no_index_to_give(value: float) -> None:
    assert run("NonZero", [np.array(value, np.float32)])[0].shape == (0, int(value != 0))


@on_every_backend
@given(
    count=st.sampled_from(SIZES), columns=st.sampled_from((1, 3)), share=st.sampled_from(SHARES),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_every_backend_finds_the_same(
    channel: str, make_worker: MakeWorker, count: int, columns: int, share: float, seed: int
) -> None:
    x = mask_of(np.random.default_rng(seed), (count, columns), share).astype(np.float32)
    worker = make_worker(one_layer("NonZero", [x], dynamic=[0]), channel)
    np.testing.assert_array_equal(answers(worker, x)[0], np.array(np.nonzero(x)))


def test_rows_that_a_mask_marks_are_gathered(channel: str, make_worker: MakeWorker) -> None:
    """What exporters make of `x[mask]`: nothing waits for the number of rows until it is read back."""
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[n, 3] x, float[n] score, float limit) => (float[m, 3] y) {
        mask = Greater(score, limit)
        found = NonZero(mask)
        rows = Transpose<perm = [1, 0]>(found)
        y = GatherND(x, rows)
    }"""
    worker = make_worker(ModelLoader.load(onnx.parser.parse_model(text).SerializeToString()), channel)
    rng = np.random.default_rng(3)
    for count in (1, 70, 5):
        x, score = rng.normal(size=(count, 3)).astype(np.float32), rng.random(count).astype(np.float32)
        for limit in (0.5, 2.0, -1.0):
            worker.schedule({"x": x, "score": score, "limit": np.float32(limit)})
            np.testing.assert_array_equal(worker.peek_output().download_to_array(), x[score > limit])


# Compress


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("known", [True, False])
def test_slices_that_a_condition_marks(
    known: bool, length: int, axis: int | None, rng: np.random.Generator
) -> None:
    x = rng.integers(0, 9, (4, 3, 5))
    condition = np.array([False, True, True][:length], bool)
    attributes = {} if axis is None else {"axis": axis}
    model = one_layer("Compress", [x, condition], attributes, known=[1] if known else [])
    found = interpret(model, {"x0": x} if known else {"x0": x, "x1": condition})["y0"]
    np.testing.assert_array_equal(found, np.compress(condition, x, axis))


def test_a_condition_that_is_too_long_is_cut() -> None:
    x = np.arange(3.0, dtype=np.float32)
    assert run("Compress", [x, np.ones(5, bool)])[0].tolist() == [0.0, 1.0, 2.0]


def test_strings_that_a_known_condition_marks() -> None:
    x = np.array(["a", "b", "c"], object)
    model = one_layer("Compress", [x, np.array([True, False, True])], known=[1])
    assert interpret(model, {"x0": x})["y0"].tolist() == ["a", "c"]


@on_every_backend
@given(
    count=st.sampled_from(SIZES), axis=st.sampled_from((None, 0, 1)), share=st.sampled_from(SHARES),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_every_backend_keeps_the_same(
    channel: str, make_worker: MakeWorker, count: int, axis: int | None, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (3, count) if axis == 1 else (count, 3)).astype(np.int32)
    condition = mask_of(rng, (x.size if axis is None else count,), share)
    attributes = {} if axis is None else {"axis": axis}
    worker = make_worker(one_layer("Compress", [x, condition], attributes, dynamic=[0, 1]), channel)
    (found,) = answers(worker, {"x0": x, "x1": condition})
    np.testing.assert_array_equal(found, np.compress(condition, x, axis))


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        (((2, 3), (2, 1)), {}, "takes a tensor and a row of booleans"),
        (((), (2,)), {"axis": 0}, "takes a tensor and a row of booleans"),
        (((2, 3), (2,)), {"axis": 2}, "axis 2 is outside"),
    ],
)
def test_errors_name_the_layer(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], attributes: dict, message: str
) -> None:
    arrays = [np.zeros(shapes[0], np.float32), np.ones(shapes[1], bool)]
    with pytest.raises(ShapeError, match=f"layer 'it' \\(Compress\\): .*{message}"):
        run("Compress", arrays, attributes)


# Unique


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_different_elements(axis: int | None, ordered: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, (6, 2) if axis == 0 else (2, 6)).astype(np.float32)
    attributes = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
    values, first, inverse, counts = run("Unique", [x], attributes, outputs=4)
    items = [tuple(row) for row in (x.reshape(-1, 1) if axis is None else x if axis == 0 else x.T)]
    seen = list(dict.fromkeys(items))
    expected = sorted(seen) if ordered else seen
    made = values.reshape(-1, 1) if axis is None else values if axis == 0 else values.T
    assert [tuple(row) for row in made] == expected
    assert first.tolist() == [items.index(v) for v in expected]
    assert inverse.tolist() == [expected.index(v) for v in items]
    assert counts.tolist() == [items.count(v) for v in expected]
    assert {a.dtype for a in (first, inverse, counts)} == {np.dtype(np.int64)}


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32"])
@pytest.mark.parametrize("size", [0, 1, 2, 3000])
def test_different_numbers(dtype: str, size: int, rng: np.random.Generator) -> None:
    x = (rng.integers(-40, 40, size) / 4).astype(dtype)
    if x.dtype.kind == "f":
        x[: size // 3] = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf], dtype), size // 3)
        rng.shuffle(x)
    made = run("Unique", [x], outputs=4)
    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for found, wanted in zip(made, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    # Either zero is the one that comes first.
    if x.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(made[0]), np.signbit(expected[0]))


def test_different_strings() -> None:
    x = np.array(["b", "a", "b"], object)
    values, first, inverse, counts = run("Unique", [x], {"sorted": 0}, outputs=4)
    assert (values.tolist(), values.dtype) == (["b", "a"], np.dtype(object))
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([0, 1], [0, 1, 0], [2, 1])


def test_an_axis_that_is_not_there() -> None:
    with pytest.raises(ShapeError, match=r"layer 'it' \(Unique\): axis 1 is outside a tensor of rank 1"):
        run("Unique", [np.zeros(3, np.float32)], {"axis": 1})


def test_a_gpu_model_goes_on_with_what_is_unique(channel: str, make_worker: MakeWorker) -> None:
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[n] x) => (float[m] y) {
        values = Unique(x)
        y = Neg(values)
    }"""
    model = ModelLoader.load(onnx.parser.parse_model(text).SerializeToString())
    worker = make_worker(model, channel, allow_fallback=True)
    for x in ([3.0, 1.0, 3.0], [2.0]):
        np.testing.assert_array_equal(answers(worker, np.array(x, np.float32))[0], -np.unique(x))
