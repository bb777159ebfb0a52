"""Whole networks in reduced precision: which kernels they use, and how far their answers are from float32."""

from __future__ import annotations

import numpy as np
import pytest

from engine import ModelLoader, Worker
from engine.backends.base import Precision
from engine.backends.cpu.kernels.matmul.precision import matrix_units
from tests.graphs import node, proto
from tests.networks import reference, smooth

RNG = np.random.default_rng(9)


def _weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)


NET = proto(
    [
        node("Conv", ["x", "w0", "b0"], ["a0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a0"], ["a1"]),
        node("MaxPool", ["a1"], ["a2"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["a2", "w1", "b1"], ["a3"], pads=[1, 1, 1, 1]),
        node("Add", ["a3", "a2"], ["a4"]),
        node("Relu", ["a4"], ["a5"]),
        node("Conv", ["a5", "w2"], ["a6"]),
        node("Relu", ["a6"], ["a7"]),
        node("GlobalAveragePool", ["a7"], ["a8"]),
        node("Flatten", ["a8"], ["a9"]),
        node("Gemm", ["a9", "w3", "b3"], ["y"], transB=1),
    ],
    {"x": ("float32", ["n", 3, 64, 64])},
    {"y": ("float32", None)},
    {
        "w0": _weights(48, 3, 3, 3), "b0": _weights(48), "w1": _weights(48, 48, 3, 3), "b1": _weights(48),
        "w2": _weights(160, 48, 1, 1), "w3": _weights(100, 160), "b3": _weights(100),
    },
)  # fmt: skip


@pytest.mark.parametrize(("precision", "bound"), [("bf16", 2e-2), ("int8", 5e-2)])
def test_a_network_in_reduced_precision(precision: Precision, bound: float) -> None:
    if not matrix_units(precision):
        pytest.skip(f"this processor has no instructions for {precision}")
    model = ModelLoader.load(NET)
    with Worker(model, precision=precision) as worker:
        for batch in (1, 2):
            x = smooth((batch, 3, 64, 64), batch)
            worker.schedule(x)
            got = worker.peek_output().download_to_array()
            expected = reference(NET, {"x": x})["y"]
            error = np.abs(got - expected).max() / np.abs(expected).max()
            assert 1e-5 < error < bound
        segments = [segment for lowered in worker._session.outlook for segment in lowered.segments]
    kernels = {getattr(step.kernel, "name", "") for segment in segments for step in segment.plan.steps}
    assert f"conv_{precision}" in kernels
