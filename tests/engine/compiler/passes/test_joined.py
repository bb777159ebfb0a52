"""Runs of layers that stand for one: joined where they do, kept where something else reads their middle."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine import ModelLoader
from engine.compiler.interpreter import interpret
from engine.compiler.passes import optimize
from tests.graphs import node, proto
from tests.networks import reference

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 5, 12)).astype(np.float32)


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


CONSTANTS = {
    "root": scalar(np.sqrt(2)), "inverse": scalar(np.sqrt(0.5)), "one": scalar(1), "half": scalar(0.5),
    "two": scalar(2), "epsilon": scalar(1e-5), "scale": RNG.normal(size=12).astype(np.float32),
    "shift": RNG.normal(size=12).astype(np.float32), "axes": np.array([-1]),
}  # fmt: skip


def joined(nodes: list[onnx.NodeProto], opset: int = 18, more: tuple[str, ...] = ()) -> list[str]:
    """The layers that are left, whose answer is still onnxruntime's. `more` are other outputs than y."""
    outputs = dict.fromkeys(("y", *more), ("float32", None))
    used = {name for item in nodes for name in item.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in used}
    source = proto(nodes, {"x": ("float32", ["n", "t", 12])}, outputs, constants, opset)
    model = optimize(ModelLoader.load(source))
    expected = reference(source, {"x": X})
    for name, array in interpret(model, {"x": X}).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, rtol=1e-5)
    return [layer.op_type for layer in model.layers]


BELL = [
    node("Div", ["x", "root"], ["scaled"]),
    node("Erf", ["scaled"], ["bell"]),
    node("Add", ["bell", "one"], ["plus"]),
]
ORDERS = {
    "x first": [node("Mul", ["x", "plus"], ["p"]), node("Mul", ["p", "half"], ["y"])],
    "half first": [node("Mul", ["half", "plus"], ["p"]), node("Mul", ["p", "x"], ["y"])],
    "x halved": [node("Mul", ["x", "half"], ["p"]), node("Mul", ["p", "plus"], ["y"])],
    "x divided": [node("Div", ["x", "two"], ["p"]), node("Mul", ["plus", "p"], ["y"])],
}


@pytest.mark.parametrize("order", ORDERS)
def test_gelu(order: str) -> None:
    assert joined([*BELL, *ORDERS[order]]) == ["Gelu"]
    multiplied = [node("Mul", ["inverse", "x"], ["scaled"]), *BELL[1:]]
    assert joined([*multiplied, *ORDERS[order]]) == ["Gelu"]


def test_what_is_no_gelu_stays() -> None:
    other = [node("Div", ["x", "two"], ["scaled"]), *BELL[1:], *ORDERS["x first"]]
    assert "Gelu" not in joined(other)
    assert "Gelu" not in joined([*BELL, *ORDERS["x first"]], more=("plus",))
    squared = [node("Mul", ["plus", "plus"], ["p"]), node("Mul", ["p", "half"], ["y"])]
    assert "Gelu" not in joined([*BELL, *squared])


def norm(*, twice: bool = False, power: bool = True, opset: int = 13, axis: int = -1) -> list[onnx.NodeProto]:
    """Layer normalisation without scale and shift, up to the value "n"."""

    def mean(source: str, made: str) -> onnx.NodeProto:
        if opset >= 18:
            return node("ReduceMean", [source, "axes"], [made], keepdims=1)
        return node("ReduceMean", [source], [made], axes=[axis], keepdims=1)

    square = node("Pow", ["d", "two"], ["p"]) if power else node("Mul", ["d", "d"], ["p"])
    return [
        mean("x", "m"), node("Sub", ["x", "m"], ["d"]), square, mean("p", "v"),
        *([node("Sub", ["x", "m"], ["e"])] if twice else []),
        node("Add", ["v", "epsilon"], ["a"]), node("Sqrt", ["a"], ["s"]),
        node("Div", ["e" if twice else "d", "s"], ["n"]),
    ]  # fmt: skip


SCALED = [node("Mul", ["n", "scale"], ["ns"]), node("Add", ["ns", "shift"], ["y"])]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("opset", [13, 18])
def test_layer_norm(twice: bool, power: bool, opset: int) -> None:
    assert joined([*norm(twice=twice, power=power, opset=opset), *SCALED], opset) == ["LayerNormalization"]


def test_layer_norm_without_scale_or_shift() -> None:
    assert joined([*norm(), node("Tanh", ["n"], ["y"])], 13) == ["LayerNormalization", "Tanh"]
    assert joined([*norm(), node("Mul", ["scale", "n"], ["y"])], 13) == ["LayerNormalization"]


def test_what_is_no_layer_norm_stays() -> None:
    assert "LayerNormalization" not in joined([*norm(axis=1), *SCALED], 13)
    assert "LayerNormalization" not in joined([*norm(), *SCALED], 13, more=("m",))
    assert "LayerNormalization" not in joined([*norm()[:-1], node("Div", ["s", "d"], ["y"])], 13)


SWAP = node("Transpose", ["x"], ["swapped"], perm=[0, 2, 1])


def test_products_read_transposed_sides_the_other_way_round() -> None:
    assert joined([SWAP, node("MatMul", ["x", "swapped"], ["y"])]) == ["FusedMatMul"]
    assert joined([SWAP, node("MatMul", ["swapped", "x"], ["y"])]) == ["FusedMatMul"]
    again = node("Transpose", ["x"], ["again"], perm=[0, 2, 1])
    product = node("MatMul", ["swapped", "x"], ["p"])
    both = [SWAP, again, product, node("MatMul", ["p", "again"], ["y"])]
    assert joined(both) == ["FusedMatMul", "FusedMatMul"]


def test_a_transpose_that_others_read_or_that_moves_the_batch_stays() -> None:
    read = [SWAP, node("MatMul", ["x", "swapped"], ["y"])]
    assert sorted(joined(read, more=("swapped",))) == ["FusedMatMul", "Transpose"]
    moved = node("Transpose", ["x"], ["moved"], perm=[1, 2, 0])
    back = node("Transpose", ["moved"], ["swapped"], perm=[2, 1, 0])
    assert "FusedMatMul" not in joined([moved, back, node("MatMul", ["x", "swapped"], ["y"])])
