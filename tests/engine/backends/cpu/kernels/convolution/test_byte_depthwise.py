"""Depthwise convolutions of bytes over small planes against the evaluated formula, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import BackendType, Worker
from tests.engine.operators.single import one_layer, run

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "as many channels as a vector": ((1, 16, 8, 8), (3, 3), {"pads": (1, 1, 1, 1)}),
    "less, and a batch": ((3, 5, 7, 6), (3, 3), {"pads": (1, 1, 1, 1)}),
    "one more": ((2, 17, 5, 9), (3, 3), {"pads": (0, 1, 2, 1)}),
    "two pixels a row": ((1, 40, 2, 2), (3, 3), {"pads": (1, 1, 1, 1)}),
    "a single pixel": ((1, 18, 1, 1), (5, 5), {"pads": (2, 2, 2, 2)}),
    "strides and no padding": ((1, 33, 9, 11), (3, 3), {"strides": (2, 2)}),
    "strides along one axis": ((1, 16, 12, 20), (5, 3), {"strides": (3, 1), "pads": (2, 1, 2, 1)}),
    "dilated": ((1, 20, 11, 10), (3, 2), {"dilations": (2, 3), "pads": (2, 1, 2, 2)}),
    "a column": ((1, 24, 50, 1), (20, 1), {}),
    "one axis": ((1, 24, 50), (7,), {"pads": (3, 3)}),
    "nothing around it": ((1, 16, 6, 6), (6, 6), {}),
    "the largest": ((1, 17, 28, 28), (3, 3), {"pads": (1, 1, 1, 1)}),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("zeros", ["none", "one", "several"])
def test_shapes(name: str, x_type: str, w_type: str, zeros: str) -> None:
    shape, kernel, attributes = SHAPES[name]
    rng = np.random.default_rng(len(name))

    def integers(dtype: str, *sizes: int) -> np.ndarray:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return np.array(rng.integers(low, high, sizes, endpoint=True)).astype(dtype)

    channels = shape[1]
    x, w = integers(x_type, *shape), integers(w_type, channels, 1, *kernel)
    arrays = [x, w]
    if zeros != "none":
        arrays += [integers(x_type), integers(w_type, *([channels] if zeros == "several" else []))]
    given = {**attributes, "group": channels}
    model = one_layer("ConvInteger", arrays, given, known=tuple(range(1, len(arrays))))
    (expected,) = run("ConvInteger", arrays, given)
    with Worker(model, BackendType.CPU) as worker:
        worker.schedule(x)
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
        steps = [step for plan in worker._plans for s in plan.segments for step in s.plan.steps]
    assert "byte_depthwise" in [getattr(step.kernel, "name", "") for step in steps]


def test_large_planes_are_left_to_others() -> None:
    x, w = np.ones((1, 16, 60, 60), np.uint8), np.ones((16, 1, 3, 3), np.int8)
    model = one_layer("ConvInteger", [x, w], {"group": 16}, known=(1,))
    with Worker(model, BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        steps = [step for plan in worker._plans for s in plan.segments for step in s.plan.steps]
    np.testing.assert_array_equal(found, np.full((1, 16, 58, 58), 9, np.int32))
    assert "plane_conv" in [getattr(step.kernel, "name", "") for step in steps]
