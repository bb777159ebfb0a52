"""Each pass keeps a model's answer (by onnxruntime) and takes away what it is there to take away."""

from __future__ import annotations

import numpy as np
import pytest

from engine import ModelLoader
from engine.compiler.interpreter import interpret
from engine.compiler.passes import (
    PASSES,
    PassRecord,
    fold_batch_norm,
    fold_constants,
    optimize,
    remove_dead_layers,
)
from engine.graph.model import Model
from tests.graphs import node, proto
from tests.networks import reference

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RNG.normal(0, 0.5, shape).astype(np.float32)


def same_answer(source: bytes, changed: Model, x: np.ndarray) -> None:
    expected = reference(source, {"x": x})
    for name, array in interpret(changed, {"x": x}).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_goes_into_the_convolution(op_type: str, group: int, bias: bool) -> None:
    shape = (6, 4 // group, 3, 3) if op_type == "Conv" else (4, 6 // group, 3, 3)
    constants = {
        "w": weights(*shape),
        "s": weights(6),
        "b": weights(6),
        "m": weights(6),
        "v": weights(6) ** 2,
    }
    if bias:
        constants["c"] = weights(6)
    source = proto(
        [
            node(op_type, ["x", "w", *(["c"] if bias else [])], ["y0"], group=group),
            node("BatchNormalization", ["y0", "s", "b", "m", "v"], ["y"], epsilon=1e-3),
        ],
        {"x": ("float32", [1, 4, 5, 5])},
        {"y": ("float32", None)},
        constants,
    )
    changed = remove_dead_layers(fold_batch_norm(ModelLoader.read(source)))
    assert [layer.op_type for layer in changed.layers] == [op_type]
    assert len(changed.constants) == 2
    same_answer(source, changed, weights(1, 4, 5, 5))


@pytest.mark.parametrize("reason", ["another reader", "an output", "weights unknown"])
def test_batch_norm_stays_where_folding_would_be_wrong(reason: str) -> None:
    constants = {
        "w": weights(3, 2, 1, 1),
        "s": weights(3),
        "b": weights(3),
        "m": weights(3),
        "v": weights(3) ** 2,
    }
    nodes = [
        node("Conv", ["x", "w"], ["y0"]),
        node("BatchNormalization", ["y0", "s", "b", "m", "v"], ["y"]),
    ]
    outputs = {"y": ("float32", None)}
    if reason == "another reader":
        nodes.append(node("Relu", ["y0"], ["z"]))
        outputs["z"] = ("float32", None)
    elif reason == "an output":
        outputs["y0"] = ("float32", None)
    else:
        del constants["w"]
        nodes.insert(0, node("Reshape", ["x", "shape"], ["w"]))
        constants["shape"] = np.array([3, 2, 1, 1], np.int64)
    source = proto(nodes, {"x": ("float32", [1, 2, 3, 1])}, outputs, constants)
    model = ModelLoader.read(source)
    assert len(fold_batch_norm(model).layers) == len(model.layers)


def test_layers_over_constants_become_constants() -> None:
    source = proto(
        [
            node("Reshape", ["w", "shape"], ["flat"]),
            node("Exp", ["flat"], ["e"]),
            node("Add", ["x", "e"], ["y"]),
        ],
        {"x": ("float32", ["n", 6])},
        {"y": ("float32", None)},
        {"w": weights(2, 3), "shape": np.array([1, -1], np.int64)},
    )
    changed = remove_dead_layers(fold_constants(ModelLoader.read(source)))
    assert [layer.op_type for layer in changed.layers] == ["Add"]
    assert set(changed.constants) == {"e"}
    same_answer(source, changed, weights(3, 6))


def test_random_layers_are_not_folded() -> None:
    source = proto([node("Dropout", ["c"], ["d"]), node("Add", ["x", "d"], ["y"])], {"x": ("float32", [2])},
                   {"y": ("float32", [2])}, {"c": weights(2)})  # fmt: skip
    assert [layer.op_type for layer in fold_constants(ModelLoader.read(source)).layers] == ["Dropout", "Add"]


def test_dead_layers_and_their_constants_go() -> None:
    source = proto(
        [
            node("Relu", ["x"], ["y"]),
            node("Add", ["x", "c"], ["unused"]),
            node("Exp", ["unused"], ["unused2"]),
        ],
        {"x": ("float32", [2])},
        {"y": ("float32", [2])},
        {"c": weights(2)},
    )
    changed = remove_dead_layers(ModelLoader.read(source))
    assert [layer.op_type for layer in changed.layers] == ["Relu"]
    assert not changed.constants


def test_each_pass_is_recorded_in_order() -> None:
    source = proto(
        [node("Neg", ["c"], ["d"]), node("Add", ["x", "d"], ["y"])],
        {"x": ("float32", [2])}, {"y": ("float32", [2])}, {"c": weights(2)},
    )  # fmt: skip
    records: list[PassRecord] = []
    optimize(ModelLoader.read(source), records)
    assert [r.name for r in records] == [p.__name__ for p in PASSES]
    assert (records[0].before, records[0].after) == (2, 1)
    assert records[0].removed == ("layer 'd_layer' (Neg)",)
