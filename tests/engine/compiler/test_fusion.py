"""Activation fusion: how many kernels are left, and that they still compute the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest

from engine.compiler.fusion import DEPTH_LIMIT, fuse_elementwise
from engine.compiler.plan import Compute
from engine.compiler.trace import Tracer, live
from tests.engine.compiler.running import check_same_answers
from tests.graphs import Declared, model, node
from tests.networks import light_network

W = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
X4: Declared = {"x": ("float32", ["n", 3, 8, 8])}


def fused(
    nodes: list[onnx.NodeProto],
    inputs: Declared,
    outputs: Declared,
    constants: dict[str, np.ndarray],
    fan_in: int = 7,
) -> list[Compute]:
    """Fuse a graph, check its answer against the unfused one, and return the computes."""
    made = model(nodes, inputs, outputs, constants)
    tracer = Tracer(made)
    shapes = {
        name: tuple(d if isinstance(d, int) else 2 for d in dims or ()) for name, (_, dims) in inputs.items()
    }
    trace = tracer.trace(shapes)
    wanted = [trace.tensor(o.name) for o in made.outputs]
    plain = live(trace.computes, wanted)
    result = fuse_elementwise(plain, wanted, fan_in)
    rng = np.random.default_rng(1)
    feeds = {n: (rng.normal(size=s) * 40).astype(np.dtype(inputs[n][0])) for n, s in shapes.items()}
    check_same_answers(plain, result, feeds, wanted)
    return result


def test_bias_activation_and_residual_join_the_convolution() -> None:
    (only,) = fused(
        [
            node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
            node("Relu", ["c"], ["r"]),
            node("Add", ["r", "z"], ["s"]),
            node("Mul", ["s", "k"], ["y"]),
        ],
        {**X4, "z": ("float32", ["n", 4, 8, 8])},
        {"y": ("float32", None)},
        {"w": W, "b": np.ones(4, np.float32), "k": np.full((4, 1, 1), 2, np.float32)},
    )
    assert only.op_type == "Conv+Conv+Relu+Add+Mul"
    assert only.hint is not None
    assert only.hint.kind == "conv"
    assert only.epilogue is not None


def test_a_result_with_two_readers_is_kept() -> None:
    computes = fused(
        [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["a"]), node("Neg", ["c"], ["y"])],
        X4, {"a": ("float32", None), "y": ("float32", None)}, {"w": W},
    )  # fmt: skip
    assert len(computes) == 3


def test_an_output_is_kept() -> None:
    computes = fused(
        [node("Exp", ["x"], ["e"]), node("Neg", ["e"], ["y"])],
        X4,
        {"e": ("float32", None), "y": ("float32", None)},
        {},
    )
    assert len(computes) == 2


def test_a_reshape_between_is_no_obstacle() -> None:
    computes = fused(
        [node("Relu", ["x"], ["r"]), node("Flatten", ["r"], ["f"]), node("Exp", ["f"], ["y"])],
        X4, {"y": ("float32", None)}, {},
    )  # fmt: skip
    assert len(computes) == 1


def test_moved_elements_end_a_chain() -> None:
    computes = fused(
        [
            node("Relu", ["x"], ["r"]),
            node("Transpose", ["r"], ["t"], perm=[0, 2, 3, 1]),
            node("Exp", ["t"], ["y"]),
        ],
        X4, {"y": ("float32", None)}, {},
    )  # fmt: skip
    assert [c.op_type for c in computes] == ["Relu", "Transpose+Exp"]


def test_narrow_integers_wrap_between_fused_steps() -> None:
    computes = fused(
        [node("Add", ["x", "c"], ["s"]), node("Less", ["s", "c"], ["y"])],
        {"x": ("int8", [5])}, {"y": ("bool", None)}, {"c": np.full(5, 100, np.int8)},
    )  # fmt: skip
    assert len(computes) == 1


@pytest.mark.parametrize("fan_in", [3, 7])
def test_a_kernel_reads_no_more_tensors_than_it_may(fan_in: int) -> None:
    names = [f"c{i}" for i in range(8)]
    chain = [node("Add", ["x" if i == 0 else f"s{i - 1}", n], [f"s{i}"]) for i, n in enumerate(names)]
    computes = fused(
        chain, {**{n: ("float32", [4]) for n in ("x", *names)}}, {"s7": ("float32", None)}, {}, fan_in
    )
    assert len(computes) == -(-8 // (fan_in - 1))


def test_squeezenet_s_66_layers_are_41_kernels() -> None:
    from engine import ModelLoader

    made = ModelLoader.load(light_network("squeezenet"))
    trace = Tracer(made).trace({made.inputs[0].name: (1, 3, 224, 224)})
    wanted = [trace.tensor(o.name) for o in made.outputs]
    kinds = [c.op_type for c in fuse_elementwise(live(trace.computes, wanted), wanted, 7)]
    assert (
        len(kinds) == 38
    )  # 26 convolutions, 8 joins, 3 pools, 1 mean; the test's network ends before softmax
    assert kinds.count("Conv+Conv+Relu") == 26


def test_a_cast_through_float16_rounds() -> None:
    computes = fused(
        [
            node("Neg", ["x"], ["n"]),
            node("Cast", ["n"], ["h"], to=10),
            node("Cast", ["h"], ["f"], to=1),
            node("Exp", ["f"], ["y"]),
        ],
        {"x": ("float32", [64])}, {"y": ("float32", None)}, {},
    )  # fmt: skip
    assert [c.op_type for c in computes] == ["Neg+Cast", "Cast+Exp"]


def test_long_chains_are_cut_before_they_are_too_deep() -> None:
    names = ["x", *(f"v{i}" for i in range(400))]
    chain = [node("Sin", [a], [b]) for a, b in pairwise(names)]
    computes = fused(chain, {"x": ("float32", [4])}, {names[-1]: ("float32", None)}, {})
    assert 400 / DEPTH_LIMIT < len(computes) < 10
    assert max(c.formula().depth for c in computes) <= DEPTH_LIMIT
