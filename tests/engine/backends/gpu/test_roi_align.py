"""Means over bins of regions with channels last, in each form of the tuned kernels, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.compiler.plan import Compute
from engine.kernels.expr import lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, tuned_plan, value


def bilinear(plane: np.ndarray, y: float, x: float) -> np.ndarray:
    """All channels of (C, H, W) at a place; 0 outside."""
    if y < 0 or x < 0:
        return np.zeros(len(plane))
    top, left = int(y), int(x)
    bottom, right = min(top + 1, plane.shape[1] - 1), min(left + 1, plane.shape[2] - 1)
    dy, dx = y - top, x - left
    above = plane[:, top, left] * (1 - dx) + plane[:, top, right] * dx
    return above * (1 - dy) + (plane[:, bottom, left] * (1 - dx) + plane[:, bottom, right] * dx) * dy


@pytest.mark.spread("form")
@pytest.mark.parametrize(
    ("shape", "regions", "bins", "ratio"),
    [((1, 4, 1, 1), 1, 1, 1), ((3, 8, 6, 7), 5, 9, 2), ((2, 48, 5, 9), 70, 4, 1), ((2, 20, 9, 3), 3, 50, 3)],
)
def test_means(form: Backend, shape: tuple[int, ...], regions: int, bins: int, ratio: int) -> None:
    draw, (images, channels, height, width) = np.random.default_rng(bins), shape
    places = draw.uniform(-0.3, 1, (regions, 2, ratio, bins)) * np.array([height, width])[:, None, None]
    limits = np.array([height - 1, width - 1])[:, None, None]
    places = np.where(places < 0, -1, np.minimum(places, limits)).astype(np.float32)
    arrays = {
        "x": draw.standard_normal(shape).astype(np.float32),
        "places": places,
        # Numbers of images that there are not mean the first or the last one.
        "images": draw.integers(-1, images + 1, regions).astype(np.int32),
    }
    expected = np.zeros((regions, channels, bins))
    for r, p, i, j in np.ndindex(regions, bins, ratio, ratio):
        plane = arrays["x"][np.clip(arrays["images"][r], 0, images - 1)].astype(np.float64)
        expected[r, :, p] += bilinear(plane, places[r, 0, i, p], places[r, 1, j, p]) / ratio**2
    output = Value("y", expected.shape, np.dtype(np.float32))
    hint = Hint("roi_align", tuple(value(n, a) for n, a in arrays.items()), {"ratio": ratio})
    compute = Compute(output, output.shape, lit(0.0, "float32"), "layer", "RoiAlign", hint)
    found = result_of(form, tuned_plan(form, compute), arrays, output)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
