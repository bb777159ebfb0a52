"""Integer convolutions with few results in a plane against the evaluated formula, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import BackendType, JobSystem, ModelLoader, Worker
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


@pytest.mark.spread("x_type", "w_type")
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


@pytest.mark.parametrize("w_type", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(1, 70, 1, 1), (2, 70, 3, 2)])
def test_epilogues_along_channels_and_by_place(w_type: str, shape: tuple[int, ...]) -> None:
    """What follows reads a number for each channel, or one for each result."""
    rng = np.random.default_rng(3)
    x, w = integers(rng, "uint8", 2, 64, 3, 2), integers(rng, w_type, 70, 64, 1, 1)
    other = rng.integers(-(10**6), 10**6, shape).astype(np.int32)
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "z", "v"], ["sums"]),
        helper.make_node("Add", ["sums", "other"], ["y"]),
    ]
    zeros = [integers(rng, "uint8"), integers(rng, w_type)]
    constants = {"w": w, "z": zeros[0], "v": zeros[1]}
    given = {"x": x, "other": other}
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)]
    if len(other) == 1:
        constants["other"] = given.pop("other")
    else:
        inputs.append(helper.make_tensor_value_info("other", TensorProto.INT32, shape))
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT32, (2, 70, 3, 2))]
    graph = helper.make_graph(nodes, "epilogue", inputs, outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    sides = x.astype(np.int64) - zeros[0], w[..., 0, 0].astype(np.int64) - zeros[1]
    with Worker(ModelLoader.load(model.SerializeToString()), BackendType.CPU) as worker:
        worker.schedule(given)
        found = worker.peek_output().download_to_array()
        assert kernels(worker) == ["word_windows", "few_pixels_conv"]
    np.testing.assert_array_equal(found, np.einsum("nchw,mc->nmhw", *sides) + other)


@pytest.mark.parametrize(("side", "outputs"), [(6, 64), (2, 2)])
def test_what_fills_vectors_along_rows_is_left_to_others(side: int, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x, w = integers(rng, "uint8", 1, 20, side, side), integers(rng, "int8", outputs, 20, 1, 1)
    with Worker(one_layer("ConvInteger", [x, w], known=(1,)), BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        assert "any_type_conv" in kernels(worker)
    np.testing.assert_array_equal(found, run("ConvInteger", [x, w])[0])
