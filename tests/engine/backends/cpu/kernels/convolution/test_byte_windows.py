"""Depthwise convolutions and pools of bytes against the evaluated formula, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from engine import BackendType, JobSystem, ModelLoader, Worker
from engine.backends.cpu.kernels.matmul import packed_elements
from tests.engine.operators.single import one_layer, run


def kernels(worker: Worker) -> list[str]:
    steps = [step for plan in worker._plans for s in plan.segments for step in s.plan.steps]
    return [getattr(step.kernel, "name", "") for step in steps]


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
def test_depthwise_shapes(name: str, x_type: str, w_type: str, zeros: str) -> None:
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
        assert "byte_depthwise" in kernels(worker)


@pytest.mark.parametrize("x_type", ["uint8", "int8"])
def test_depthwise_without_products_of_pairs(monkeypatch: pytest.MonkeyPatch, x_type: str) -> None:
    """Other processors than x86's multiply a tap at a time."""
    monkeypatch.setattr(packed_elements, "_has_pairs", lambda: False)
    test_depthwise_shapes("dilated", x_type, "int8", "several")


@pytest.mark.parametrize(
    ("x_type", "w_type", "zeros", "stride"),
    [("uint8", "int8", 0, 1), ("uint8", "uint8", 1, 1), ("int8", "int8", 18, 2)],
)
def test_depthwise_convolutions_of_large_planes_are_left_to_others(
    x_type: str, w_type: str, zeros: int, stride: int
) -> None:
    rng = np.random.default_rng(zeros)
    x = rng.integers(0, 127, (1, 18, 60, 60)).astype(x_type)
    w = rng.integers(0, 127, (18, 1, 3, 3)).astype(w_type)
    zero = [np.array(100, x_type), rng.integers(0, 127, zeros).astype(w_type)] if zeros else []
    given = {"group": 18, "strides": (stride, stride), "pads": (1, 1, 1, 1)}
    model = one_layer("ConvInteger", [x, w, *zero], given, known=(1, 2, 3)[: 1 + len(zero)])
    with Worker(model, BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        assert "plane_conv" in kernels(worker)
    less = [item.astype(np.int32) for item in (zero if zeros else (np.array(0), np.zeros(1)))]
    padded = np.pad(x - less[0], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
    expected = np.einsum("ncyxhw,chw->ncyx", windows, w[:, 0] - less[1].reshape(-1, 1, 1))
    np.testing.assert_array_equal(found, expected)


POOLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "as many channels as a vector": ((1, 16, 8, 8), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    "less, and a batch": ((3, 5, 7, 6), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    "one more": ((2, 17, 5, 9), {"kernel_shape": (3, 3), "pads": (0, 1, 2, 1)}),
    "two pixels a row": ((1, 40, 2, 2), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    "strides": ((1, 33, 9, 11), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    "up": ((1, 33, 9, 12), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    "strides along one axis": (
        (1, 16, 12, 20),
        {"kernel_shape": (5, 3), "strides": (3, 1), "pads": (2, 1, 2, 1)},
    ),
    "dilated": ((1, 20, 11, 10), {"kernel_shape": (3, 2), "dilations": (2, 3)}),
    "a column": ((1, 24, 50, 1), {"kernel_shape": (20, 1), "pads": (3, 0, 3, 0)}),
    "a column with padding": ((1, 24, 50, 3), {"kernel_shape": (3, 20), "pads": (1, 10, 1, 7)}),
    "one axis": ((1, 24, 50), {"kernel_shape": (7,), "pads": (3, 3)}),
    "bands of rows": ((2, 20, 61, 64), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "bands that overlap": ((1, 3, 90, 100), {"kernel_shape": (5, 5), "pads": (2, 2, 2, 2)}),
    "one row after another": ((1, 16, 5, 500), {"kernel_shape": (2, 2), "strides": (1, 1)}),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("threads", [1, 3])
def test_pool_shapes(name: str, dtype: str, threads: int) -> None:
    shape, attributes = POOLS[name]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.random.default_rng(len(name)).integers(low, high, shape, endpoint=True).astype(dtype)
    (expected,) = run("MaxPool", [x], attributes)
    model = one_layer("MaxPool", [x], attributes)
    with JobSystem(threads) as jobs, Worker(model, BackendType.CPU, jobs=jobs) as worker:
        worker.schedule(x)
        np.testing.assert_array_equal(worker.peek_output().download_to_array(), expected)
        assert kernels(worker) == ["byte_pool"]


def test_pools_whose_padding_holds_windows_are_left_to_others() -> None:
    x = np.full((1, 16, 1, 1), 3, np.int8)
    attributes = {"kernel_shape": (2, 2), "dilations": (2, 2), "pads": (1, 1, 1, 1)}
    with Worker(one_layer("MaxPool", [x], attributes), BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        assert "byte_pool" not in kernels(worker)
    np.testing.assert_array_equal(found, run("MaxPool", [x], attributes)[0])


def test_a_pool_rounds_its_results_to_other_levels() -> None:
    """What follows a pool is its epilogue: here bytes of one scale become those of another."""
    x = np.random.default_rng(0).standard_normal((2, 20, 40, 40)).astype(np.float32)
    constants = {"s": np.float32(0.02), "z": np.uint8(120), "t": np.float32(0.03), "low": np.int8(-7)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("MaxPool", ["xd"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["p", "t", "low"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with Worker(ModelLoader.load(model.SerializeToString()), BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
        assert "byte_pool" in kernels(worker)
    levels = np.clip(np.rint(x / np.float32(0.02)) + 120, 0, 255)
    padded = np.pad(levels, [(0, 0), (0, 0), (1, 1), (1, 1)])
    largest = sliding_window_view(padded, (3, 3), (2, 3)).max((4, 5))
    floats = (largest.astype(np.float32) - 120) * np.float32(0.02)
    expected = np.clip(np.rint(floats / np.float32(0.03)) - 7, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(found, expected)
