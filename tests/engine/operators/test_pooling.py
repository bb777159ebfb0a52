"""Poolings whose geometry ONNX leaves open: as onnxruntime has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import ModelLoader
from engine.base.errors import ShapeError
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import run
from tests.graphs import node, proto
from tests.peer import open_session

LEFT_OPEN: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {"kernel_shape": (5, 5), "pads": (0, 0, 1, 0)}),
    ("AveragePool", {"kernel_shape": (5, 5), "strides": (2, 2), "ceil_mode": 1}),
    ("MaxPool", {"kernel_shape": (3, 5), "strides": (2, 2)}),
    ("MaxPool", {"kernel_shape": (3, 3), "auto_pad": "SAME_UPPER", "dilations": (2, 2)}),
    ("LpPool", {"kernel_shape": (3, 3), "auto_pad": "SAME_LOWER", "dilations": (2, 1)}),
    ("ConvTranspose", {"strides": (3, 2), "auto_pad": "SAME_UPPER"}),
]
"""Windows too large by less than a stride, and SAME with dilations or wide strides."""


@pytest.mark.parametrize(("op_type", "attributes"), LEFT_OPEN)
def test_what_onnx_leaves_open(op_type: str, attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2, 3, 4)).astype(np.float32)
    weights = [rng.normal(size=(2, 1, 2, 1)).astype(np.float32)] if op_type == "ConvTranspose" else []
    names = ["x", *("w" for _ in weights)]
    source = proto(
        [node(op_type, names, ["y"], **attributes)],
        {"x": ("float32", x.shape)},
        {"y": ("float32", None)},
        dict(zip(names[1:], weights, strict=True)),
    )
    expected = open_session(source).run(None, {"x": x})[0]
    (actual,) = run(op_type, [x, *weights], attributes, known=range(1, 1 + len(weights)), opset=18)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "attributes", [{"kernel_shape": (5, 5)}, {"kernel_shape": (2,) * 2, "pads": (2,) * 4}]
)
def test_windows_beyond_the_padding_are_refused(attributes: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="window"):
        run("MaxPool", [np.zeros((1, 1, 3, 4), np.float32)], attributes)


@pytest.mark.spread
def test_large_windows_of_narrow_floats(channel: str, make_worker: MakeWorker) -> None:
    """What is kept between rows and columns is not rounded to them."""
    nodes = [node("AveragePool", ["x"], ["y"], kernel_shape=(9, 9), pads=(4,) * 4)]
    source = proto(nodes, {"x": ("float16", ["n", 2, "h", "w"])}, {"y": ("float16", None)})
    x = (1000 + np.random.default_rng(0).normal(size=(1, 2, 12, 13))).astype(np.float16)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (4, 4), (4, 4)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (9, 9), (2, 3))
    (actual,) = answers(make_worker(ModelLoader.load(source), channel), x)
    np.testing.assert_array_equal(actual, np.nanmean(windows, (-2, -1)).astype(np.float16))


@pytest.mark.spread
def test_bytes_of_any_size(channel: str, make_worker: MakeWorker) -> None:
    """Maxima of bytes in planes smaller and larger than what a task holds, with one worker."""
    nodes = [node("MaxPool", ["x"], ["y"], kernel_shape=(3, 3), strides=(2, 2), pads=(1,) * 4)]
    source = proto(nodes, {"x": ("int8", ["n", 20, "h", "w"])}, {"y": ("int8", None)})
    worker, rng = make_worker(ModelLoader.load(source), channel), np.random.default_rng(0)
    for shape in ((1, 20, 6, 5), (2, 20, 61, 64), (1, 20, 1, 1), (1, 20, 3, 700)):
        x = rng.integers(-128, 127, shape, endpoint=True).astype(np.int8)
        (expected,) = open_session(source).run(None, {"x": x})
        np.testing.assert_array_equal(answers(worker, x)[0], expected)
