"""RoiAlign and MaxRoiPool against onnxruntime, on every backend, with regions that leave the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import by_onnxruntime
from tests.engine.operators.single import one_layer, run
from tests.onnx_cases import disagreement


def regions(rng: np.random.Generator, count: int, size: float = 20.0) -> np.ndarray:
    """Boxes x1, y1, x2, y2 in and around an image, some turned inside out."""
    return rng.uniform(-0.4 * size, 1.4 * size, (count, 4)).astype(np.float32)


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_roi_align(ratio: int, mode: str, transformation: str, rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 9, 11)).astype(np.float32)
    boxes, images = np.sort(regions(rng, 6).reshape(6, 2, 2), axis=1).reshape(6, 4), rng.integers(0, 2, 6)
    attributes = {
        "output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.5, "mode": mode,
        "coordinate_transformation_mode": transformation,
    }  # fmt: skip
    (expected,) = by_onnxruntime("RoiAlign", [x, boxes, images], attributes, opset=16)
    assert disagreement(run("RoiAlign", [x, boxes, images], attributes)[0], expected) < 1e-5


def test_version_10_does_not_shift(rng: np.random.Generator) -> None:
    x, boxes, images = (
        rng.normal(size=(1, 2, 8, 8)).astype(np.float32),
        regions(rng, 4, 8.0),
        np.zeros(4, int),
    )
    attributes = {"output_height": 2, "output_width": 2}
    (expected,) = by_onnxruntime("RoiAlign", [x, boxes, images], attributes, opset=10)
    assert disagreement(run("RoiAlign", [x, boxes, images], attributes, opset=10)[0], expected) < 1e-5


def test_max_roi_pool(rng: np.random.Generator) -> None:
    x = rng.normal(size=(2, 3, 9, 11)).astype(np.float32)
    boxes = np.concatenate([rng.integers(0, 2, (20, 1)), regions(rng, 20)], axis=1).astype(np.float32)
    attributes = {"pooled_shape": (3, 2), "spatial_scale": 0.5}
    (expected,) = by_onnxruntime("MaxRoiPool", [x, boxes], attributes)
    np.testing.assert_array_equal(run("MaxRoiPool", [x, boxes], attributes)[0], expected)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_senseless_regions_end(mode: str) -> None:
    x = np.ones((1, 1, 3, 3), np.float32)
    far = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10]
    boxes = np.array([[a, b, c, d] for a in far for b in (0, c0) for c in far for d in (1, c0)]
                     if (c0 := np.inf) else [], np.float32)  # fmt: skip
    images = np.full(len(boxes), 7)
    for ratio in (0, 2):
        (found,) = run("RoiAlign", [x, boxes, images], {"mode": mode, "sampling_ratio": ratio})
        assert found.shape == (len(boxes), 1, 1, 1)
    pooled = run("MaxRoiPool", [x, np.concatenate([boxes[:, :1], boxes], axis=1)], {"pooled_shape": (2, 2)})
    assert pooled[0].shape == (len(boxes), 1, 2, 2)


def test_a_region_far_larger_than_the_image(rng: np.random.Generator) -> None:
    x = rng.normal(size=(1, 1, 4, 4)).astype(np.float32)
    boxes, images = np.array([[-300.0, -200.0, 350.0, 400.0]], np.float32), np.zeros(1, np.int64)
    for mode in ("avg", "max"):
        attributes = {"mode": mode, "output_height": 3, "output_width": 3}
        (expected,) = by_onnxruntime("RoiAlign", [x, boxes, images], attributes)
        assert disagreement(run("RoiAlign", [x, boxes, images], attributes)[0], expected) < 1e-5


@pytest.mark.spread
@settings(max_examples=8)
@given(
    count=st.sampled_from((0, 1, 5)),
    plane=st.sampled_from(((1, 1), (4, 7), (8, 3))),
    mode=st.sampled_from(("avg", "max", "pool")),
)
def test_every_backend_agrees(
    channel: str, make_worker: MakeWorker, count: int, plane: tuple[int, int], mode: str
) -> None:
    rng = np.random.default_rng(count)
    x, boxes = rng.normal(size=(2, 3, *plane)).astype(np.float32), regions(rng, count, 8.0)
    images = rng.integers(0, 2, count)
    attributes: dict[str, Any]
    if mode == "pool":
        arrays, attributes = [x, np.concatenate([images[:, None], boxes], axis=1)], {"pooled_shape": (2, 2)}
    else:
        arrays, attributes = [x, boxes, images], {"mode": mode, "output_height": 2, "output_width": 3}
    arrays = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
    name = "MaxRoiPool" if mode == "pool" else "RoiAlign"
    expected = run(name, arrays, attributes)[0]
    worker = make_worker(one_layer(name, arrays, attributes, dynamic=(0, 1)), channel)
    (found,) = answers(worker, {f"x{i}": a for i, a in enumerate(arrays)})
    assert disagreement(found, expected) < (1e-5 if channel == "cpu" else 1e-4)


def test_errors_name_the_layer() -> None:
    x, boxes, images = np.zeros((1, 2, 3, 3), np.float32), np.zeros((2, 4), np.float32), np.zeros(2, np.int64)
    cases: tuple[tuple[str, list[np.ndarray], dict[str, Any], str], ...] = (
        ("RoiAlign", [x[0], boxes, images], {}, "takes x \\(N, C, H, W\\)"),
        ("RoiAlign", [x, boxes[:, :3], images], {}, "rois \\(R, 4\\)"),
        ("RoiAlign", [x, boxes, images[:1]], {}, "2 regions need one batch index each"),
        ("RoiAlign", [x, boxes, images], {"mode": "sum"}, "mode 'sum'"),
        ("RoiAlign", [x, boxes, images], {"coordinate_transformation_mode": "a"}, "'a'"),
        ("RoiAlign", [x, boxes, images], {"output_height": 0}, "two sizes of 1 or more"),
        ("RoiAlign", [x, boxes, images], {"sampling_ratio": 2**31 - 1}, "more than 1024 samples"),
        ("RoiAlign", [x[:0], boxes, images], {}, "has no elements"),
        ("MaxRoiPool", [x, boxes], {"pooled_shape": (1, 1)}, "rois \\(R, 5\\)"),
    )
    for name, arrays, attributes, message in cases:
        with pytest.raises(ShapeError, match=f"layer 'it' \\({name}\\): .*{message}"):
            run(name, arrays, attributes)
