"""NonMaxSuppression against onnxruntime: every option, ties, and more boxes than one step decides about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from engine.operators.non_max_suppression import CHUNK
from tests.engine.conftest import MakeWorker
from tests.engine.operators.independent import by_onnxruntime
from tests.engine.operators.single import one_layer, run

Arrays = list[np.ndarray | None]


def problem(
    rng: np.random.Generator, batches: int, classes: int, count: int, *, centered: bool, levels: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping boxes and scores, of which many are equal; half of the corners are swapped."""
    middle, size = rng.uniform(0, 1, (batches, count, 2)), rng.uniform(0.02, 0.4, (batches, count, 2))
    low, high = middle - size / 2, middle + size / 2
    pair = (low, high) if rng.random() < 0.5 else (high, low)
    boxes = np.concatenate((middle, size) if centered else pair, axis=-1)
    scores = rng.choice(np.linspace(0, 1, levels), (batches, classes, count))
    return boxes.astype(np.float32), scores.astype(np.float32)


def limits(most: int, overlap: float, score: float | None) -> Arrays:
    """The inputs that are numbers."""
    floats = [None if v is None else np.array([v], np.float32) for v in (overlap, score)]
    return [np.array([most]), *floats]


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("score", [None, -1.0, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("most", [0, 1, 3, 2**31])
def test_all_options(
    most: int, overlap: float, score: float | None, centered: bool, rng: np.random.Generator
) -> None:
    arrays = [*problem(rng, 2, 3, 25, centered=centered), *limits(most, overlap, score)]
    arrays = arrays[:4] if score is None else arrays
    attributes = {"center_point_box": int(centered)}
    (found,) = run("NonMaxSuppression", arrays, attributes)
    (expected,) = by_onnxruntime("NonMaxSuppression", arrays, attributes)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, CHUNK, CHUNK + 1, 300])
@pytest.mark.parametrize("levels", [20, 5000])
def test_any_number_of_boxes(count: int, levels: int, rng: np.random.Generator) -> None:
    for most in (5, 100):
        boxes, scores = problem(rng, 1, 2, count, centered=False, levels=levels)
        arrays = [boxes, scores, *limits(most, 0.4, 0.1)]
        (expected,) = by_onnxruntime("NonMaxSuppression", arrays)
        np.testing.assert_array_equal(run("NonMaxSuppression", arrays)[0], expected)


def test_what_is_left_out() -> None:
    """Without a limit nothing is kept; without the others there is no threshold."""
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1.01], [3, 3, 4, 4]]], np.float32)
    scores = np.array([[[0.5, -2.0, 0.7]]], np.float32)
    assert run("NonMaxSuppression", [boxes, scores])[0].shape == (0, 3)
    (found,) = run("NonMaxSuppression", [boxes, scores, np.array([3])])
    assert found.tolist() == [[0, 0, 2], [0, 0, 0]]
    none = [boxes[:, :0], scores[:, :, :0], np.array([3])]
    assert run("NonMaxSuppression", none)[0].shape == (0, 3)


def test_boxes_without_an_area_suppress_nothing() -> None:
    boxes = np.array([[[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    (found,) = run("NonMaxSuppression", [boxes, scores, *limits(9, 0.0, 0.0)])
    assert found[:, 2].tolist() == [0, 1, 2]


def test_scores_that_are_no_numbers_are_left_out() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], np.float32)
    scores = np.array([[[np.nan, 0.8, -np.inf]]], np.float32)
    (found,) = run("NonMaxSuppression", [boxes, scores, *limits(9, 0.5, -1e30)])
    assert found[:, 2].tolist() == [1]


@settings(max_examples=8)
@given(
    count=st.sampled_from((1, 2, 63, 64, 65, 300)),
    most=st.sampled_from((1, 10, 500)),
    overlap=st.sampled_from((0.1, 0.45)),
    seed=st.integers(0, 99),
)
def test_every_backend_keeps_the_same(
    channel: str, make_worker: MakeWorker, count: int, most: int, overlap: float, seed: int
) -> None:
    boxes, scores = problem(np.random.default_rng(seed), 2, 2, count, centered=False)
    arrays = [boxes, scores, *limits(most, overlap, 0.2)]
    worker = make_worker(one_layer("NonMaxSuppression", arrays, known=[2, 3, 4], dynamic=[1]), channel)
    worker.schedule({"x0": boxes, "x1": scores})
    (expected,) = by_onnxruntime("NonMaxSuppression", arrays)
    np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)


@pytest.mark.parametrize(
    "shapes", [((1, 3, 4), (1, 1, 2)), ((1, 3, 5), (1, 1, 3)), ((2, 3, 4), (1, 1, 3)), ((3, 4), (1, 3))]
)
def test_errors_name_the_layer(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(ShapeError, match=r"layer 'it' \(NonMaxSuppression\): takes boxes \(N, boxes, 4\)"):
        run("NonMaxSuppression", arrays)
