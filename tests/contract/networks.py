"""The models that the contract is tried with: whole networks, and small ones that stop, fall back or vary."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx

from engine import Model, ModelLoader, numpy_operator
from tests.graphs import mlp, model, node, proto
from tests.networks import Inputs, light_network, smooth

DIGITS = Path(__file__).parents[2] / "assets" / "digits" / "digits.onnx"


@cache
def _know_halved() -> None:
    """Declare an operator that runs in NumPy on every backend, so that the plan stops for its input.

    Only where a model wants it: what lists operators in the same process is to see the engine's own.
    """
    numpy_operator("Halved", domain="gameglue.contract")(lambda x: np.asarray(x * np.float32(0.5)))


@cache
def network(name: str) -> Model:
    """A whole network: digits, or one of the light ones."""
    return ModelLoader.load(DIGITS if name == "digits" else light_network(name))


def picture(of: Model, seed: int = 0) -> Inputs:
    """An input to which a vision network responds."""
    (item,) = of.inputs
    shape = tuple(d if isinstance(d, int) else 1 for d in item.shape or ())
    return {item.name: smooth(shape, seed)}


def policy() -> Model:
    """A small policy for any number of agents."""
    return ModelLoader.load(mlp((8, 32, 32, 4)))


def agents(count: int, seed: int = 0) -> np.ndarray:
    """What a policy sees."""
    return np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)


def filters() -> Model:
    """Two convolutions over pictures of any size, as wide as they came."""
    rng = np.random.default_rng(3)
    first, second = (rng.normal(0, 0.2, shape).astype(np.float32) for shape in ((8, 3, 3, 3), (3, 8, 3, 3)))
    around = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return model(
        [
            node("Conv", ["x", "first"], ["seen"], **around),
            node("Relu", ["seen"], ["bright"]),
            node("Conv", ["bright", "second"], ["y"], **around),
        ],
        {"x": ("float32", [1, 3, "height", "width"])},
        {"y": ("float32", None)},
        {"first": first, "second": second},
    )


def downscaled() -> bytes:
    """A convolution and a pooling with a stride: pictures of any size become smaller ones."""
    rng = np.random.default_rng(4)
    weights = rng.normal(0, 0.2, (6, 3, 3, 3)).astype(np.float32)
    return proto(
        [
            node("Conv", ["x", "w"], ["seen"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Relu", ["seen"], ["bright"]),
            node("MaxPool", ["bright"], ["y"], kernel_shape=[2, 2]),
        ],
        {"x": ("float32", [1, 3, "height", "width"])},
        {"y": ("float32", None)},
        {"w": weights},
    )


def attention_step() -> bytes:
    """A step of attention over a cache of keys and values, which grows by one."""
    rng = np.random.default_rng(6)
    weights = {name: rng.normal(0, 0.35, (8, 8)).astype(np.float32) for name in ("q", "k", "v")}
    return proto(
        [
            node("MatMul", ["token", "q"], ["query"]),
            node("MatMul", ["token", "k"], ["key"]),
            node("MatMul", ["token", "v"], ["value"]),
            node("Concat", ["past_keys", "key"], ["keys"], axis=0),
            node("Concat", ["past_values", "value"], ["values"], axis=0),
            node("Transpose", ["keys"], ["turned"], perm=[1, 0]),
            node("MatMul", ["query", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1),
            node("MatMul", ["shares", "values"], ["y"]),
        ],
        {
            "token": ("float32", [1, 8]),
            "past_keys": ("float32", ["past", 8]),
            "past_values": ("float32", ["past", 8]),
        },
        dict.fromkeys(("y", "keys", "values"), ("float32", None)),
        weights,
    )


def repeating() -> Model:
    """As many elements as the largest input says: the plan stops for that number."""
    return model(
        [
            node("ReduceMax", ["x"], ["top"], keepdims=1),
            node("Cast", ["top"], ["count"], to=7),
            node("ConstantOfShape", ["count"], ["zeros"]),
            node("ReduceSum", ["x"], ["total"], keepdims=1),
            node("Add", ["zeros", "total"], ["y"]),
        ],
        {"x": ("float32", [4])},
        {"y": ("float32", None)},
    )


def positives() -> Model:
    """The places of positive elements: their number is known on the device only."""
    return model(
        [node("Relu", ["x"], ["kept"]), node("NonZero", ["kept"], ["y"])],
        {"x": ("float32", ["n"])},
        {"y": ("int64", None)},
    )


def falling_back() -> Model:
    """NumPy in the middle: data goes to the CPU and back."""
    _know_halved()
    file = proto(
        [
            node("Neg", ["x"], ["a"]),
            node("Halved", ["a"], ["b"], domain="gameglue.contract"),
            node("Abs", ["b"], ["y"]),
        ],
        {"x": ("float32", ["n"])},
        {"y": ("float32", None)},
    )
    made = onnx.load_from_string(file)
    made.opset_import.append(onnx.helper.make_opsetid("gameglue.contract", 1))
    return ModelLoader.load(made.SerializeToString())
