"""RoiAlign's kernel against the generic one: regions in, beside and around an image, wide ones, epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu import tuning
from engine.backends.cpu.kernels import roi_align
from tests.engine.conftest import MakeWorker, answers
from tests.graphs import Declared, model, node


def found(
    make_worker: MakeWorker,
    x: np.ndarray,
    boxes: np.ndarray,
    images: np.ndarray,
    out: tuple[int, int],
    ratio: int,
) -> list[np.ndarray]:
    """RoiAlign, and what follows it, with the kernel and without; fails if it was not used."""
    attributes = {"output_height": out[0], "output_width": out[1], "sampling_ratio": ratio}
    nodes = [
        node("RoiAlign", ["x", "boxes", "images"], ["r"], **attributes),
        node("Mul", ["r", "scale"], ["m"]),
        node("Relu", ["m"], ["y"]),
    ]
    inputs: Declared = {
        "x": ("float32", [None] * 4), "boxes": ("float32", [None, 4]), "images": ("int64", [None])
    }  # fmt: skip
    source = model(nodes, inputs, {"y": ("float32", None)}, {"scale": np.array(1.5, np.float32)})
    results = []
    for is_used in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_used:
                patch.delitem(tuning.RULES, "roi_align")
            worker = make_worker(source, "cpu")
            results.append(answers(worker, x, boxes, images)[0])
            kernels = [step.kernel for plan in worker._plans for s in plan.segments for step in s.plan.steps]
            assert ("roi_align" in [getattr(kernel, "name", "") for kernel in kernels]) == is_used
    return results


@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize(
    ("out", "plane"), [((7, 7), (20, 33)), ((1, 5), (1, 1)), ((3, 2), (40, 7)), ((14, 14), (9, 80))]
)
def test_means_of_regions(
    make_worker: MakeWorker, ratio: int, out: tuple[int, int], plane: tuple[int, int]
) -> None:
    rng = np.random.default_rng(ratio)
    x = rng.normal(size=(2, 5, *plane)).astype(np.float32)
    size = max(plane)
    boxes = rng.uniform(-0.4 * size, 1.4 * size, (9, 4)).astype(np.float32)
    boxes[:6] = np.sort(boxes[:6].reshape(6, 2, 2), axis=1).reshape(6, 4)
    boxes[6] = 0, 0, plane[1], plane[0]
    boxes[7] = 2 * size, 0, 3 * size, size
    boxes[8] = 0, 2 * size, size, 3 * size
    got, expected = found(make_worker, x, boxes, rng.integers(0, 2, 9), out, ratio)
    assert np.abs(expected).max() > 0
    assert not got[7:].any()
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_numbers_beside_a_region_do_not_matter(make_worker: MakeWorker) -> None:
    x = np.full((1, 1, 12, 12), np.nan, np.float32)
    x[..., 4:8, 4:8] = 1
    boxes = np.array([[4.5, 4.5, 7.5, 7.5], [-30, -30, -20, -20], [4.5, -40, 7.5, -30]], np.float32)
    got, expected = found(make_worker, x, boxes, np.zeros(3, np.int64), (2, 2), 2)
    np.testing.assert_array_equal(got, expected)
    assert np.isfinite(got).all()


def test_a_region_wider_than_the_room_for_sums(make_worker: MakeWorker) -> None:
    rng = np.random.default_rng(1)
    width = roi_align.BAND // 2
    x = rng.normal(size=(1, 2, 3, width)).astype(np.float32)
    boxes = np.array([[0, 0, width, 3], [5, 0, 60, 2]], np.float32)
    got, expected = found(make_worker, x, boxes, np.zeros(2, np.int64), (4, 4), 2)
    np.testing.assert_allclose(got, expected, atol=2e-6)
