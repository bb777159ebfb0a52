"""Convolutions and poolings over three spatial axes on every backend, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import ModelLoader
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.independent import hold_by_onnxruntime
from tests.graphs import node, proto
from tests.networks import error
from tests.peer import open_session

CONVOLUTIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((5, 6, 3, 3, 3), {"pads": (1,) * 6}),
    ((5, 6, 3, 3, 3), {"strides": (2, 2, 1), "pads": (1, 0, 1, 0, 1, 2)}),
    ((5, 6, 2, 3, 1), {"auto_pad": "SAME_UPPER"}),
    ((5, 6, 2, 3, 3), {"dilations": (2, 1, 2)}),
    ((8, 3, 3, 2, 2), {"group": 2, "auto_pad": "VALID"}),
    ((6, 1, 3, 3, 3), {"group": 6, "pads": (1,) * 6}),
    ((5, 6, 1, 1, 1), {}),
    ((5, 6, 1, 1, 1), {"strides": (2, 2, 2)}),
    ((5, 6, 3, 1, 1), {"pads": (1, 0, 0, 1, 0, 0)}),
    ((5, 6, 3, 1, 1), {"strides": (2, 2, 2), "pads": (1, 0, 0, 1, 0, 0)}),
    ((5, 6, 1, 3, 3), {"pads": (0, 1, 1, 0, 1, 1)}),
    ((5, 6, 1, 1, 3), {}),
    ((5, 6, 2, 2, 2), {"strides": (2, 2, 2)}),
]
"""The weights' shapes, and attributes."""

TRANSPOSED: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((6, 5, 2, 2, 2), {"strides": (2, 2, 2)}),
    ((6, 5, 3, 3, 3), {"strides": (2, 2, 2), "pads": (1,) * 6, "output_padding": (1, 1, 1)}),
    ((6, 3, 1, 3, 2), {"strides": (1, 2, 3), "group": 2}),
]
"""The same of transposed convolutions."""

POOLINGS: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {"kernel_shape": (3, 3, 3), "strides": (2, 2, 2), "pads": (1,) * 6}),
    ("MaxPool", {"kernel_shape": (1, 2, 2), "strides": (1, 2, 2), "ceil_mode": 1}),
    ("AveragePool", {"kernel_shape": (2, 3, 3), "strides": (1, 2, 2), "pads": (1, 1, 1, 0, 1, 1)}),
    ("AveragePool", {"kernel_shape": (3, 3, 2), "pads": (1,) * 6, "count_include_pad": 1}),
    ("LpPool", {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}),
    ("GlobalAveragePool", {}),
]

SHAPES = ((1, 6, 5, 6, 7), (2, 6, 3, 4, 5))


def network(nodes: list[Any], constants: dict[str, np.ndarray]) -> bytes:
    outputs = {f"y{i}": ("float32", None) for i in range(sum(n.output[0][0] == "y" for n in nodes))}
    return proto(nodes, {"x": ("float32", ["n", 6, "d", "h", "w"])}, outputs, constants)


ALL_BUT_THE_FIRST = pytest.param(1, None, marks=pytest.mark.long)


@pytest.mark.spread("op_type")
@pytest.mark.parametrize(("first", "end"), [(0, 1), ALL_BUT_THE_FIRST])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_convolutions(
    op_type: str, first: int, end: int | None, channel: str, make_worker: MakeWorker
) -> None:
    """With a bias and an activation."""
    rng = np.random.default_rng(1)
    nodes, constants = [], {}
    chosen = (CONVOLUTIONS if op_type == "Conv" else TRANSPOSED)[first:end]
    for i, (shape, attributes) in enumerate(chosen):
        constants[f"w{i}"] = rng.normal(0, 0.3, shape).astype(np.float32)
        count = shape[0] if op_type == "Conv" else shape[1] * attributes.get("group", 1)
        constants[f"b{i}"] = rng.normal(size=count).astype(np.float32)
        nodes.append(node(op_type, ["x", f"w{i}", f"b{i}"], [f"t{i}"], **attributes))
        nodes.append(node("Relu", [f"t{i}"], [f"y{i}"]))
    hold_by_onnxruntime(network(nodes, constants), SHAPES, channel, make_worker)


@pytest.mark.long
def test_a_network(channel: str, make_worker: MakeWorker) -> None:
    """Layers behind each other, with a residual and batch normalisation: their layout is the backend's."""
    rng = np.random.default_rng(2)
    names = {"scale": (0.5, 1.5), "shift": (-1, 1), "mean": (-1, 1), "var": (0.5, 1.5)}
    constants = {n: rng.uniform(*ends, 6).astype(np.float32) for n, ends in names.items()}
    constants["w"] = rng.normal(0, 0.3, (6, 6, 3, 3, 3)).astype(np.float32)
    constants["v"] = rng.normal(0, 0.3, (6, 6, 3, 3, 3)).astype(np.float32)
    constants["u"] = rng.normal(0, 0.3, (6, 5, 2, 2, 2)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=(1,) * 6),
        node("BatchNormalization", ["a", *names], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "v"], ["d"], pads=(1,) * 6),
        node("Add", ["d", "c"], ["e"]),
        node("MaxPool", ["e"], ["f"], kernel_shape=(2, 2, 2), strides=(1, 2, 2), pads=(1, 0, 0, 0, 0, 0)),
        node("ConvTranspose", ["f", "u"], ["y0"], strides=(2, 2, 2)),
    ]
    hold_by_onnxruntime(network(nodes, constants), SHAPES, channel, make_worker)


@pytest.mark.spread
@pytest.mark.parametrize(("first", "end"), [(0, 1), ALL_BUT_THE_FIRST])
def test_poolings(first: int, end: int | None, channel: str, make_worker: MakeWorker) -> None:
    chosen = POOLINGS[first:end]
    nodes = [node(op_type, ["x"], [f"y{i}"], **facts) for i, (op_type, facts) in enumerate(chosen)]
    hold_by_onnxruntime(network(nodes, {}), SHAPES, channel, make_worker)


@pytest.mark.long
def test_large_windows(channel: str, make_worker: MakeWorker) -> None:
    """Windows over two axes with so many taps that rows and columns are taken in turns."""
    facts = {"kernel_shape": (7, 9), "pads": (3, 4, 3, 4), "strides": (1, 2)}
    nodes = [
        node("MaxPool", ["x"], ["y0"], **facts),
        node("AveragePool", ["x"], ["y1"], **facts),
        node("AveragePool", ["x"], ["y2"], count_include_pad=1, **facts),
        node("LpPool", ["x"], ["y3"], **facts),
    ]
    outputs = {f"y{i}": ("float32", None) for i in range(4)}
    source = proto(nodes, {"x": ("float32", ["n", 3, "h", "w"])}, outputs)
    hold_by_onnxruntime(source, ((1, 3, 12, 16), (2, 3, 9, 11)), channel, make_worker)


@pytest.mark.spread
@pytest.mark.parametrize(
    "op_type", ["AveragePool", *(pytest.param(n, marks=pytest.mark.long) for n in ("MaxPool", "LpPool"))]
)
def test_a_window_over_all_of_a_plane(op_type: str, channel: str, make_worker: MakeWorker) -> None:
    """Fixed sizes, so that it is a reduction."""
    nodes = [node(op_type, ["x"], ["y"], kernel_shape=(8, 6))]
    source = proto(nodes, {"x": ("float32", [2, 3, 8, 6])}, {"y": ("float32", None)})
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 6)).astype(np.float32)
    expected = open_session(source).run(None, {"x": x})[0]
    assert error(answers(make_worker(ModelLoader.load(source), channel), x)[0], expected) < 1e-5
