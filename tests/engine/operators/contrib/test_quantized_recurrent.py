"""DynamicQuantizeLSTM in symbolic plans."""

from __future__ import annotations

import numpy as np

from engine import ModelLoader
from tests.engine.conftest import MakeWorker
from tests.engine.runtime.plans.test_new_shapes import weights
from tests.graphs import node, proto
from tests.open_sizes import answers, plan_statically


def test_single_rows_and_steps_round_as_many_do(make_worker: MakeWorker) -> None:
    """Scales and biases were one formula in some plans and two in others, whose products round
    differently.
    """
    scales = {"ws": np.full(2, 0.01, np.float32), "rs": np.full(2, 0.011, np.float32)}
    zeros = {"wz": np.full(2, 128, np.uint8), "rz": np.full(2, 127, np.uint8)}
    inputs = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    layer = node(
        "DynamicQuantizeLSTM",
        inputs,
        ["y"],
        hidden_size=32,
        direction="bidirectional",
        domain="com.microsoft",
    )
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(0, 256, (2, 16, 128)).astype(np.uint8),
        "r": rng.integers(0, 256, (2, 32, 128)).astype(np.uint8),
        "b": weights(2, 256),
        **scales,
        **zeros,
    }
    made = proto([layer], {"x": ("float32", ["t", "n", 16])}, {"y": ("float32", None)}, constants)
    model = ModelLoader.load(made)
    worker, apart = make_worker(model, "cpu"), plan_statically(make_worker(model, "cpu"))
    for shape in ((1, 1, 16), (2, 1, 16), (9, 1, 16), (1, 2, 16), (9, 3, 16)):
        feeds = {"x": rng.normal(size=shape).astype(np.float32)}
        np.testing.assert_array_equal(answers(worker, feeds), answers(apart, feeds), err_msg=str(shape))
