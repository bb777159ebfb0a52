"""Operand fusion: which tensors between kernels are no longer stored, and that results stay the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from engine.compiler.fusion import fuse_elementwise
from engine.compiler.operand_fusion import fuse_operands
from engine.compiler.plan import Compute
from engine.compiler.trace import Tracer, live
from tests.engine.compiler.running import check_same_answers
from tests.graphs import Declared, model, node

POOLS = frozenset({"pool"})
HALVES: Declared = {"x": ("float16", [4, 6, 5])}
PLANES: Declared = {"x": ("float32", [4, 6, 5])}


def fused(
    nodes: list[onnx.NodeProto],
    inputs: Declared,
    outputs: Sequence[str] = ("y",),
    constants: dict[str, np.ndarray] | None = None,
    fan_in: int = 7,
    refused: str = "",
) -> list[str]:
    """Fuse a graph, check its answer against the unfused one, and return the types of the steps.

    refused: a type of fused steps that the backend does not run.
    """
    made = model(nodes, inputs, dict.fromkeys(outputs, ("float32", None)), constants or {})
    shapes = {name: tuple(d for d in dims or () if isinstance(d, int)) for name, (_, dims) in inputs.items()}
    trace = Tracer(made).trace(shapes)
    wanted = [trace.tensor(o.name) for o in made.outputs]
    plain = live(trace.computes, wanted)

    def accepts(compute: Compute) -> bool:
        return not refused or compute.op_type != refused

    result = fuse_operands(fuse_elementwise(plain, wanted, fan_in), wanted, fan_in, POOLS, accepts)
    rng = np.random.default_rng(1)
    feeds = {n: (rng.normal(size=s) * 4).astype(np.dtype(inputs[n][0])) for n, s in shapes.items()}
    check_same_answers(plain, result, feeds, wanted)
    return [c.op_type for c in result]


def cast(source: str, name: str) -> onnx.NodeProto:
    return node("Cast", [source], [name], to=onnx.TensorProto.FLOAT)


def test_conversions_are_part_of_all_their_readers() -> None:
    steps = fused([cast("x", "w"), node("Softmax", ["w"], ["y"])], HALVES)
    assert steps == ["Cast+Softmax"] * 3


def test_conversions_that_are_outputs_are_stored_too() -> None:
    steps = fused([cast("x", "w"), node("Softmax", ["w"], ["y"])], HALVES, ("w", "y"))
    assert steps == ["Cast", *["Cast+Softmax"] * 3]


def test_tuned_kernels_read_what_was_stored() -> None:
    pool = node("MaxPool", ["w"], ["p"], kernel_shape=[2])
    total = node("ReduceSum", ["w"], ["y"])
    steps = fused([cast("x", "w"), pool, total], HALVES, ("p", "y"))
    assert steps == ["Cast", "MaxPool", "Cast+ReduceSum"]


def test_a_reduction_computes_its_terms() -> None:
    axes = {"axes": np.array([1])}
    exponents = [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e", "axes"], ["y"], keepdims=0)]
    assert fused(exponents, PLANES, constants=axes) == ["Exp+ReduceSum"]
    # The maximum, then the sum of exponentials and its logarithm.
    assert len(fused([node("ReduceLogSumExp", ["x", "axes"], ["y"])], PLANES, constants=axes)) == 2


def test_terms_that_have_indices_of_their_own() -> None:
    axes = {"axes": np.array([1]), "k": np.arange(6, dtype=np.float32).reshape(6, 1)}
    nodes = [node("Mul", ["x", "k"], ["m"]), node("ReduceMax", ["m", "axes"], ["y"])]
    assert fused(nodes, PLANES, constants=axes) == ["Mul+ReduceMax"]


def test_a_variable_that_runs_through_several_axes() -> None:
    """The order of a spectrum is computed by the kernel that keeps its first half."""
    whole, half = (
        fused([node("DFT", ["x"], ["y"], onesided=onesided)], {"x": ("float32", [3, 512, 1])})
        for onesided in (0, 1)
    )
    assert len(whole) == len(half)
    assert half[-1] == "DFT+DFT"


def test_terms_that_are_read_repeatedly_are_stored() -> None:
    mean = node("AveragePool", ["e"], ["y"], kernel_shape=[3], pads=[1, 1])
    steps = fused([node("Exp", ["x"], ["e"]), mean], PLANES)
    assert steps == ["Exp", "AveragePool"]
    product = node("Mul", ["e", "m"], ["y"])
    axes = {"axes": np.array([1])}
    steps = fused([node("Exp", ["x"], ["e"]), node("ReduceMax", ["e", "axes"], ["m"]), product], PLANES,
                  constants=axes)  # fmt: skip
    assert steps[0] == "Exp"


def test_sums_that_become_halves_are_rounded_first() -> None:
    to = node("Cast", ["s"], ["h"], to=onnx.TensorProto.FLOAT16)
    back = node("Cast", ["h"], ["w"], to=onnx.TensorProto.FLOAT)
    steps = fused([to, back, node("ReduceSum", ["w"], ["y"])], {"s": ("float32", [4, 6])})
    assert len(steps) > 1 or "Cast" in steps[0]


def test_what_the_backend_refuses_is_left_apart() -> None:
    nodes = [cast("x", "w"), node("ReduceSum", ["w"], ["y"])]
    assert fused(nodes, HALVES) == ["Cast+ReduceSum"]
    assert fused(nodes, HALVES, refused="Cast+ReduceSum") == ["Cast", "ReduceSum"]


def test_a_kernel_reads_no_more_tensors_than_it_may() -> None:
    names = ["a", "b", "c"]
    inputs: Declared = {name: ("float32", [4, 5]) for name in ("x", *names)}
    chain = [node("Add", ["x" if i == 0 else f"s{i - 1}", n], [f"s{i}"]) for i, n in enumerate(names)]
    nodes = [*chain, node("ReduceMax", ["s2"], ["y"])]
    assert len(fused(nodes, inputs, fan_in=4)) == 1
    assert len(fused(nodes, inputs, fan_in=3)) == 2
