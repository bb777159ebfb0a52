"""Embeddings of packed tables: rows are read before they are unpacked."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine import ModelLoader
from engine.compiler.builders import FOLD_LIMIT
from engine.compiler.interpreter import interpret
from engine.compiler.passes import optimize
from tests.graphs import node, proto
from tests.networks import reference

COLUMNS = 64
ROWS = FOLD_LIMIT // COLUMNS + 7
RNG = np.random.default_rng(5)
CONSTANTS: dict[str, np.ndarray] = {
    "table": RNG.integers(-128, 128, (ROWS, COLUMNS)).astype(np.int8),
    "of_rows": RNG.random((ROWS, 1), np.float32),
    "of_columns": RNG.random(COLUMNS, np.float32),
    "for_all": RNG.random((1, COLUMNS), np.float32),
    "scale": np.array(0.1, np.float32),
    "zero": np.array(3, np.int8),
}
CAST = node("Cast", ["table"], ["plain"], to=onnx.TensorProto.FLOAT)
DEQUANTIZED = node("DequantizeLinear", ["table", "scale", "zero"], ["unpacked"])
GATHER = node("Gather", ["unpacked", "x"], ["y"])
CHAINS = {
    "a scale for each row": [CAST, node("Mul", ["plain", "of_rows"], ["unpacked"]), GATHER],
    "a scale for each column": [CAST, node("Mul", ["of_columns", "plain"], ["unpacked"]), GATHER],
    "one scale": [DEQUANTIZED, GATHER],
    "differences": [
        CAST,
        node("Sub", ["plain", "of_rows"], ["moved"]),
        node("Mul", ["moved", "of_columns"], ["unpacked"]),
        GATHER,
    ],
}


def left(nodes: list[onnx.NodeProto], x: np.ndarray, more: tuple[str, ...] = ()) -> list[str]:
    """The layers that are left, whose answer is still onnxruntime's. `more` are other outputs than y."""
    used = {name for item in nodes for name in item.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in used}
    outputs = dict.fromkeys(("y", *more), ("float32", None))
    source = proto(nodes, {"x": ("int64", list(x.shape))}, outputs, constants, 18)
    model = optimize(ModelLoader.load(source))
    expected = reference(source, {"x": x})
    for name, array in interpret(model, {"x": x}).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-6)
    return [layer.op_type for layer in model.layers]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("x", [np.array(5), np.array([[0, -1, 7], [ROWS - 1, 3, 3]])], ids=["one", "six"])
def test_rows_are_read_first(chain: str, x: np.ndarray) -> None:
    layers = left(CHAINS[chain], x)
    first = layers.index("Cast" if "Cast" in layers else "DequantizeLinear")
    assert "Gather" in layers[:first]
    assert "Gather" not in layers[first:]


X = np.array([4, 2])
KEPT = {
    "another axis": [DEQUANTIZED, node("Gather", ["unpacked", "x"], ["y"], axis=1)],
    "constants with an axis of one row": [CAST, node("Mul", ["plain", "for_all"], ["unpacked"]), GATHER],
    "another reader": [DEQUANTIZED, GATHER, node("Gather", ["unpacked", "x"], ["z"], axis=1)],
}


@pytest.mark.parametrize("chain", KEPT)
def test_what_stays(chain: str) -> None:
    nodes = KEPT[chain]
    layers = left(nodes, X, ("z",) if chain == "another reader" else ())
    assert layers == [item.op_type for item in nodes]
