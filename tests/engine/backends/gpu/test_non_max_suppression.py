"""Greedy choice among overlapping boxes, in each form of the tuned kernels, against one box after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.backends.base import Backend
from engine.backends.gl.compute.target import ShaderTarget
from engine.backends.gl.compute.tuning import tune
from engine.backends.gpu.non_max_suppression import GROUP
from engine.compiler.plan import Compute, Plan, Tuner
from engine.device.gl.device import GLDevice
from engine.kernels.expr import lit
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from tests.engine.backends.steps import result_of, tuned_plan, value

CLASSES = 3
LIMIT = 0.4


def overlaps(boxes: np.ndarray) -> np.ndarray:
    """Intersection / union of every two boxes, each with low y, low x, high y, high x."""
    boxes = boxes.astype(np.float64)
    low, high = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    union = areas[:, None] + areas - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)


def kept(boxes: np.ndarray, most: int) -> list[int]:
    """Which of sorted boxes are kept, one after another."""
    found: list[int] = []
    for p, row in enumerate(overlaps(boxes)):
        if len(found) < most and (row[found] <= LIMIT).all():
            found.append(p)
    return found


def drawn(batches: int, count: int, size: float) -> np.ndarray:
    """Corners of boxes in a square of side 1, some of them empty."""
    rng = np.random.default_rng(count)
    low, sides = rng.uniform(0, 1, (batches, count, 2)), rng.uniform(size / 3, size, (batches, count, 2))
    sides[:, ::11, 0] = 0
    return np.concatenate([low, low + sides], 2).astype(np.float32)


def plan_of(form: Backend, arrays: dict[str, np.ndarray], most: int) -> tuple[Plan, Value]:
    rows = arrays["order"].shape[0]
    output = Value("y", (rows, most + 1), np.dtype(np.int32))
    attributes = {"classes": CLASSES, "limit": LIMIT, "most": most, "bound": False}
    operands = tuple(value(name, array) for name, array in arrays.items())
    hint = Hint("non_max_suppression", operands, attributes)
    compute = Compute(output, output.shape, lit(0, "int32"), "layer", "NonMaxSuppression", hint)
    return tuned_plan(form, compute), output


@pytest.mark.spread("form")
@pytest.mark.parametrize("numbered", [False, True], ids=["all", "some"])
@pytest.mark.parametrize(
    ("count", "most", "size"),
    [
        (1, 1, 0.3),
        (GROUP - 1, 9, 0.3),
        (GROUP, GROUP, 0.05),
        (GROUP + 1, GROUP + 1, 0.05),
        (5 * GROUP + 7, 200, 0.2),
        # Several steps, as many boxes may be kept.
        (400, 20_000, 0.2),
        # More are kept than a work-item has at hand, in one step and in several.
        (900, 800, 0.01),
        (700, 20_000, 0.01),
    ],
)
def test_boxes_are_kept_best_first(form: Backend, count: int, most: int, size: float, numbered: bool) -> None:
    rng, batches = np.random.default_rng(most), 2
    corners = drawn(batches, count, size)
    order = np.stack([rng.permutation(count) for _ in range(batches * CLASSES)]).astype(np.int32)
    arrays = {"order": order, "corners": corners}
    numbers = np.full(len(order), count)
    if numbered:
        numbers = rng.integers(0, count + 1, len(order))
        arrays["number"] = numbers
    plan, output = plan_of(form, arrays, most)
    assert (len(plan.steps) > 1) == (most == 20_000)
    for _ in range(2):
        got = result_of(form, plan, arrays, output)
        for row, found in enumerate(got):
            boxes = corners[row // CLASSES][order[row, : numbers[row]]]
            expected = kept(boxes, most)
            assert found[-1] == len(expected)
            np.testing.assert_array_equal(found[: len(expected)], expected)
            assert not found[len(expected) : -1].any()


@pytest.mark.gl
def test_loops_that_a_driver_would_end_are_left_to_the_generic_kernels(gl_device: GLDevice) -> None:
    if not gl_device.info.supports_compute:
        pytest.skip("no OpenGL 4.3 here")
    target = ShaderTarget(replace(gl_device.limits, max_loop_rounds=2000), True)
    order, corners = value("order", np.zeros((2, 400), np.int32)), value("corners", drawn(2, 400, 0.2))
    for most, is_emitted in ((100, True), (400, False)):
        attributes = {"classes": 1, "limit": LIMIT, "most": most, "bound": False}
        output = Value("y", (2, most + 1), np.dtype(np.int32))
        hint = Hint("non_max_suppression", (order, corners), attributes)
        compute = Compute(output, output.shape, lit(0, "int32"), "layer", "NonMaxSuppression", hint)
        tuner = Tuner(compute, lambda name, make: name, lambda elements, dtype: "scratch")
        assert tune(compute, tuner, target) is is_emitted
