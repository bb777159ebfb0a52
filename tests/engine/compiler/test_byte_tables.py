"""Chains of layers between bytes as tables: which are, and the same answers as onnxruntime's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from engine import BackendType, ModelLoader, Worker
from engine.backends.cpu.backend import CPUBackend
from engine.compiler.lower import Planner
from engine.compiler.plan import Step
from engine.graph.model import Model
from tests.graphs import node, proto
from tests.peer import open_session

EVERY = np.arange(256, dtype=np.uint8)
SHAPE = (2, 1, 128)

CHAINS: dict[str, list[onnx.NodeProto]] = {
    "silu": [
        node("Sigmoid", ["xf"], ["g"]),
        node("QuantizeLinear", ["g", "gs", "z"], ["gq"]),
        node("DequantizeLinear", ["gq", "gs", "z"], ["gf"]),
        node("Mul", ["xf", "gf"], ["f"]),
    ],
    "gelu": [
        node("Div", ["xf", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["p"]),
        node("Mul", ["xf", "p"], ["f"]),
    ],
    "clip": [node("Clip", ["xf", "low", "one"], ["f"])],
    "leaky": [node("LeakyRelu", ["xf"], ["f"], alpha=0.1)],
    **{
        op_type: [node(op_type, ["xf"], ["f"])]
        for op_type in ("Sigmoid", "Tanh", "HardSwish", "Softplus", "Elu", "Exp", "Relu", "Identity")
    },
}
LOOKED_UP = "byte_lookup"


def model_of(
    nodes: Sequence[onnx.NodeProto], dtype: str = "uint8", scales: tuple[float, float] = (0.05, 0.03),
    outputs: Sequence[str] = ("y",), floats: Sequence[str] = (), shape: Sequence[int | str] = SHAPE,
) -> bytes:  # fmt: skip
    """A model of a tensor of bytes x, which is xf in floats; the floats f become bytes y."""
    constants: dict[str, Any] = {
        "s": np.float32(scales[0]), "z": np.array(140 if dtype == "uint8" else 12, dtype),
        "gs": np.float32(1 / 127), "ys": np.float32(scales[1]),
        "yz": np.array(100 if dtype == "uint8" else -28, dtype), "one": np.float32(1),
        "root": np.float32(2**0.5), "low": np.float32(-0.7), "shift": np.full(128, 0.3, np.float32),
    }  # fmt: skip
    ends = [
        node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        node("QuantizeLinear", ["f", "ys", "yz"], ["y"]),
    ]
    made = {name: ("float32" if name in floats else dtype, shape) for name in outputs}
    return proto([ends[0], *nodes, ends[1]], {"x": (dtype, shape)}, made, constants, 17)


def steps_of(model: Model) -> list[Step]:
    (segment,) = Planner(model, CPUBackend(), None).lower({"x": SHAPE}).segments
    return segment.plan.steps


def look_ups(data: bytes) -> list[bool]:
    """For each step of a plan, whether it looks bytes up."""
    return [getattr(step.kernel, "name", "") == LOOKED_UP for step in steps_of(ModelLoader.load(data))]


def check(data: bytes, x: np.ndarray) -> None:
    """The answers are onnxruntime's."""
    with Worker(ModelLoader.load(data), BackendType.CPU) as worker:
        worker.schedule(x)
        found = worker.peek_output().download_to_array()
    (expected,) = open_session(data, optimised=False).run(None, {"x": x})
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_is_one_table_with_the_same_answers(chain: str, dtype: str) -> None:
    x = EVERY.view(dtype).reshape(SHAPE)
    for scales in ((0.05, 0.03), (0.013, 0.0081)):
        data = model_of(CHAINS[chain], dtype, scales)
        assert look_ups(data) == [True]
        check(data, x)


def test_the_chain_ends_where_bytes_are_needed() -> None:
    """The bytes y are an output, and a later chain begins with them."""
    later = [
        node("DequantizeLinear", ["y", "ys", "yz"], ["yf"]),
        node("Tanh", ["yf"], ["t"]),
        node("QuantizeLinear", ["t", "gs", "z"], ["v"]),
    ]
    data = model_of([*CHAINS["silu"], *later], outputs=("y", "v"))
    plan = steps_of(ModelLoader.load(data))
    assert [step.kernel.name for step in plan] == [LOOKED_UP, LOOKED_UP]  # type: ignore[attr-defined]
    assert plan[1].inputs[0] == plan[0].output
    # If nothing needs y, there is one table for all.
    assert look_ups(model_of([*CHAINS["silu"], *later], outputs=("v",))) == [True]


def test_floats_behind_the_last_bytes_are_computed() -> None:
    later = [node("DequantizeLinear", ["y", "ys", "yz"], ["yf"]), node("Add", ["yf", "shift"], ["v"])]
    data = model_of([*CHAINS["silu"], *later], outputs=("v",), floats=("v",))
    assert look_ups(data) == [True, False]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Add", ["xf", "shift"], ["f"])],
        [node("Softmax", ["xf"], ["f"])],
        [node("RandomNormalLike", ["xf"], ["n"], seed=1.0), node("Add", ["xf", "n"], ["f"])],
    ],
)
def test_other_functions_remain(nodes: list[onnx.NodeProto]) -> None:
    assert not any(look_ups(model_of(nodes)))


def test_integer_formulas_remain() -> None:
    data = proto([node("Max", ["x", "m"], ["y"])], {"x": ("uint8", SHAPE)}, {"y": ("uint8", SHAPE)},
                 {"m": np.array(7, np.uint8)}, 17)  # fmt: skip
    assert look_ups(data) == [False]


def test_plans_at_other_shapes_share_tables() -> None:
    data = model_of(CHAINS["silu"], shape=("n", 1, 128))
    planner = Planner(ModelLoader.load(data), CPUBackend(), None)
    plans = [planner.lower({"x": (count, 1, 128)}).segments[0].plan for count in (1, 2)]
    assert plans[0].steps[0].inputs == plans[1].steps[0].inputs
    for count in (1, 2):
        check(data, EVERY.reshape(SHAPE)[:count])
