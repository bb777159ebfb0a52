"""Interpolation of elements at listed positions, in each form of the tuned kernels, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, tuned_plan, value


def compute_of(planes: np.ndarray, elements: np.ndarray, shares: np.ndarray, axes: int) -> Compute:
    (images, channels, _), (_, groups, _, places) = planes.shape, elements.shape
    output = Value("y", (images, channels, groups, places), np.dtype(np.float32))
    operands = (value("planes", planes), value("elements", elements), value("shares", shares))
    hint = Hint("interpolate", operands, {"axes": axes})
    return Compute(output, output.shape, lit(0.0, "float32"), "layer", "GridSample", hint)


@pytest.mark.spread("form")
@pytest.mark.parametrize(
    ("images", "channels", "size", "groups", "axes", "count", "places"),
    [
        (1, 4, 1, 1, 1, 1, 1),
        (2, 20, 50, 1, 2, 2, 70),
        (2, 48, 33, 9, 1, 4, 17),
        (1, 8, 200, 3, 2, 4, 130),
        (1, 4, 90, 2, 3, 2, 40),
    ],
)
def test_blends(
    form: Backend, images: int, channels: int, size: int, groups: int, axes: int, count: int, places: int
) -> None:
    draw = np.random.default_rng(places)
    planes = draw.standard_normal((images, channels, size)).astype(np.float32)
    most = (size - 1) // axes
    elements = draw.integers(-1, most + 1, (images, groups, axes * count, places)).astype(np.int32)
    shares = draw.standard_normal(elements.shape).astype(np.float32)
    # What has no position counts as 0, even if the first element is no number.
    if size > 1:
        planes[:, :, 0] = np.nan
        elements[elements == 0] = 1
    expected = np.zeros((images, channels, groups, places))
    for n, g, *taps in np.ndindex(images, groups, *[count] * axes):
        entries = [axis * count + tap for axis, tap in enumerate(taps)]
        is_there = (elements[n, g, entries] >= 0).all(0)
        read = np.where(is_there, planes[n][:, np.where(is_there, elements[n, g, entries].sum(0), 0)], 0)
        expected[n, :, g] += read.astype(np.float64) * shares[n, g, entries].prod(0)
    compute = compute_of(planes, elements, shares, axes)
    arrays = {"planes": planes, "elements": elements, "shares": shares}
    found = result_of(form, tuned_plan(form, compute), arrays, compute.output)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_channels_that_are_no_whole_vectors_are_left_to_the_generic_kernel(form: Backend) -> None:
    planes, elements = np.zeros((1, 6, 5), np.float32), np.zeros((1, 1, 2, 3), np.int32)
    compute = compute_of(planes, elements, elements.astype(np.float32), 1)
    tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
    assert not form.tune(compute, tuner)
    assert not tuner.steps
