"""OpenCL templates: which arguments of shared kernels are set when sizes change."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

from engine import ModelLoader
from engine.device.cl.device import CLDevice
from engine.device.cl.native_calls import DATA
from tests.engine.conftest import MakeWorker, answers

SUMS = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, m] x) => (float[n, m] y, float[n] z) {
    a = Exp(x)
    axes = Constant<value = int64[1] {1}>()
    z = ReduceSum<keepdims = 0>(a, axes)
    c = Unsqueeze(z, axes)
    y = Div(a, c)
}"""


@pytest.mark.opencl
def test_buffers_are_set_again_only_where_memory_is_new(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_buffers: list[int] = []
    original = CLDevice.set_arguments

    def watched(device: CLDevice, rows: np.ndarray) -> None:
        set_buffers.extend(rows[rows[:, 3] == 8, DATA])
        original(device, rows)

    worker = make_worker(ModelLoader.load(onnx.parser.parse_model(SUMS).SerializeToString()), "opencl")
    rng = np.random.default_rng(2)

    def count_at(*shape: int) -> int:
        """How many buffers are set for a size that was never seen, whose answer is right."""
        x = rng.normal(size=shape).astype(np.float32)
        set_buffers.clear()
        y, z = answers(worker, x)
        sums = np.exp(x).sum(1)
        np.testing.assert_allclose(z, sums, rtol=1e-5)
        np.testing.assert_allclose(y, np.exp(x) / sums[:, None], rtol=1e-5)
        return len(set_buffers)

    count_at(40, 30)
    monkeypatch.setattr(CLDevice, "set_arguments", watched)
    assert [count_at(n, 30) for n in (39, 7, 1, 20)] == [0] * 4
    assert count_at(4000, 30) > 0
    assert [count_at(n, 31) for n in (0, 3, 17)] == [0] * 3
