"""Large weights are scaled by native code: the same bits as NumPy's, wherever in a file they lie."""

from __future__ import annotations

import numpy as np
import pytest

from engine import ModelLoader
from engine.compiler.passes import fold_batch_norm
from engine.graph.model import Model
from tests.graphs import node, proto

CHANNELS = 512


def normalised(op_type: str, weights: np.ndarray) -> Model:
    """A convolution with a normalisation behind it, before any pass."""
    rng = np.random.default_rng(1)
    known = {name: rng.normal(size=CHANNELS).astype(np.float32) for name in "sbm"}
    known |= {"v": (1.0 + rng.random(CHANNELS)).astype(np.float32), "w": np.zeros_like(weights)}
    nodes = [node(op_type, ["x", "w"], ["c"]), node("BatchNormalization", ["c", *"sbmv"], ["y"])]
    source = proto(nodes, {"x": ("float32", [1, CHANNELS, 2, 2])}, {"y": ("float32", None)}, known)
    return ModelLoader.read(source).replace(constants={**known, "w": weights})


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "at any address"])
def test_large_weights_are_scaled_exactly(op_type: str, offset: int) -> None:
    plain = np.random.default_rng(0).normal(size=(CHANNELS, CHANNELS, 1, 1)).astype(np.float32)
    held = bytes(offset) + plain.tobytes()
    weights = np.frombuffer(memoryview(held)[offset:], np.float32).reshape(plain.shape)
    made = normalised(op_type, weights)
    folded = fold_batch_norm(made)
    (layer,) = folded.layers
    scale, var = (made.constants[name].astype(np.float64) for name in "sv")
    factor = scale / np.sqrt(var + 1e-5)
    axis = 0 if op_type == "Conv" else 1
    expected = plain.astype(np.float64) * factor.reshape([-1 if a == axis else 1 for a in range(4)])
    np.testing.assert_array_equal(folded.constants[layer.inputs[1]], expected.astype(np.float32))
