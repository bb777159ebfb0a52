"""Convolutions whose geometry is uneven: padding at one end only, kernels of 1, and what sizes leave over."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest

from engine import ModelLoader
from tests.engine.conftest import MakeWorker
from tests.graphs import node, proto
from tests.networks import error

PADS = [(0, 0, 1, 2), (1, 2, 0, 0), (0, 1, 0, 0), (3, 0, 1, 1)]
STRIDES = [(1, 1), (2, 1), (2, 3)]


def many_convolutions(kernel: tuple[int, int], group: int) -> bytes:
    """One convolution for every padding, stride and dilation, each an output."""
    rng = np.random.default_rng(sum(kernel) + group)
    nodes, constants = [], {}
    for i, (pads, strides, dilations) in enumerate(itertools.product(PADS, STRIDES, [(1, 1), (1, 2)])):
        constants[f"w{i}"] = rng.normal(0, 0.3, (9 if group == 1 else 8, 4 // group, *kernel)).astype(
            np.float32
        )
        nodes.append(
            node(
                "Conv",
                ["x", f"w{i}"],
                [f"y{i}"],
                pads=pads,
                strides=strides,
                dilations=dilations,
                group=group,
            )
        )
    outputs = {f"y{i}": ("float32", None) for i in range(len(nodes))}
    return proto(nodes, {"x": ("float32", ["n", 4, "h", "w"])}, outputs, constants)


@pytest.mark.parametrize("kernel", [(1, 1), (2, 3)])
@pytest.mark.parametrize("group", [1, 4])
def test_uneven_geometry(kernel: tuple[int, int], group: int, channel: str, make_worker: MakeWorker) -> None:
    source = many_convolutions(kernel, group)
    session = onnxruntime.InferenceSession(source)
    worker = make_worker(ModelLoader.load(source), channel)
    for shape in ((1, 4, 5, 6), (2, 4, 3, 17)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        worker.schedule(x)
        for output, expected in zip(worker.model.outputs, session.run(None, {"x": x}), strict=True):
            actual = worker.peek_output(output.name).download_to_array()
            assert error(actual, expected) < 1e-5, (output.name, shape)
