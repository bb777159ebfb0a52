"""Integer convolutions with few results in a plane against the evaluated formula, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import BackendType, JobSystem, Worker
from tests.engine.operators.single import one_layer, run

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padding": ((1, 37, 2, 2), (64, 3, 3), {"pads": (1, 1, 1, 1)}),
    "a batch, and words that are not full": ((3, 37, 3, 1), (45, 2, 1), {"pads": (1, 0, 0, 0)}),
    "strides and gaps": ((1, 64, 7, 5), (96, 3, 2), {"strides": (2, 2), "dilations": (2, 1)}),
    "one axis": ((2, 64, 4), (70, 3), {"pads": (1, 1)}),
    "windows of a pixel": ((1, 96, 2, 2), (200, 1, 1), {}),
}


def kernels(worker: Worker) -> list[str]:
    steps = [step for plan in worker._plans for s in plan.segments for step in s.plan.steps]
    return [getattr(step.kernel, "name", "") for step in steps]


def integers(rng: np.random.Generator, dtype: str, *sizes: int) -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.array(rng.integers(low, high, sizes, endpoint=True)).astype(dtype)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("zeros", ["none", "one", "several"])
def test_shapes(name: str, x_type: str, w_type: str, zeros: str) -> None:
    shape, (outputs, *kernel), attributes = SHAPES[name]
    rng = np.random.default_rng(len(name))
    arrays = [integers(rng, x_type, *shape), integers(rng, w_type, outputs, shape[1], *kernel)]
    if zeros != "none":
        arrays += [integers(rng, x_type), integers(rng, w_type, *([outputs] if zeros == "several" else []))]
    model = one_layer("ConvInteger", arrays, attributes, known=tuple(range(1, len(arrays))))
    (expected,) = run("ConvInteger", arrays, attributes)
    with JobSystem(3) as jobs, Worker(model, BackendType.CPU, jobs=jobs) as worker:
        worker.schedule(arrays[0])
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
        assert kernels(worker) == ["word_windows", "few_pixels_conv"]


@pytest.mark.parametrize(("side", "outputs"), [(6, 64), (2, 2)])
def test_what_fills_vectors_along_rows_is_left_to_others(side: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x, w = integers(rng, "uint8", 1, 20, side, side), integers(rng, "int8", outputs, 20, 1, 1)
    with Worker(one_layer("ConvInteger", [x, w], known=(1,)), BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        assert "any_type_conv" in kernels(worker)
    np.testing.assert_array_equal(found, run("ConvInteger", [x, w])[0])
