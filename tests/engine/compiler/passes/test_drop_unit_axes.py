"""Convolutions over one axis that are written over two lose the other, and others keep it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from engine import ModelLoader
from engine.compiler.interpreter import interpret
from engine.compiler.passes import optimize
from tests.graphs import node, proto
from tests.networks import reference

RNG = np.random.default_rng(4)
X = RNG.normal(size=(2, 6, 15)).astype(np.float32)


def network(
    axis: int,
    opset: int,
    kernel: tuple[int, int],
    more: tuple[str, ...] = (),
    last: bool = False,
    **given: Any,
) -> tuple[list[str], list[int]]:
    """The layers that are left and the ranks of their weights; the answer is still onnxruntime's."""
    constants = {"w": RNG.normal(size=(8, 6, *kernel)).astype(np.float32), "b": np.ones(8, np.float32)}
    # Channels last: the axis is added before they come to the front.
    added, x = ({2: 1, 3: 2}[axis], X.transpose(0, 2, 1).copy()) if last else (axis, X)

    def unit(op_type: str, source: str, target: str, axes: int) -> onnx.NodeProto:
        if opset < 13:
            return node(op_type, [source], [target], axes=[axes])
        constants[f"axes of {target}"] = np.array([axes - (4 if op_type == "Squeeze" else 0)])
        return node(op_type, [source, f"axes of {target}"], [target])

    wide = "wide" if not last else "turned"
    nodes = [unit("Unsqueeze", "x", "wide", added)]
    nodes += [node("Transpose", ["wide"], ["turned"], perm=[0, 3, 1, 2])] if last else []
    nodes += [node("Conv", [wide, "w", "b"], ["found"], **given), unit("Squeeze", "found", "y", axis)]
    outputs = dict.fromkeys(("y", *more), ("float32", None))
    source = proto(nodes, {"x": ("float32", ["n", *x.shape[1:]])}, outputs, constants, opset)
    model = optimize(ModelLoader.load(source))
    expected = reference(source, {"x": x})
    for name, array in interpret(model, {"x": x}).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, rtol=1e-5)
    ranks = [model.constants[x.inputs[1]].ndim for x in model.layers if x.op_type == "Conv"]
    return [layer.op_type for layer in model.layers], ranks


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize("last", [False, True])
def test_the_other_axis_is_dropped(axis: int, opset: int, last: bool) -> None:
    kernel = (1, 3) if axis == 2 else (3, 1)
    pads = [0, 1, 0, 2] if axis == 2 else [1, 0, 2, 0]
    plain = network(axis, opset, kernel, last=last)
    every = network(
        axis, opset, kernel, last=last, pads=pads, kernel_shape=kernel, strides=[1, 1],
        dilations=[1, 2] if axis == 2 else [2, 1],
    )  # fmt: skip
    strided = network(axis, opset, kernel, last=last, strides=[1, 2] if axis == 2 else [2, 1])
    same = network(axis, opset, kernel, last=last, auto_pad="SAME_UPPER")
    expected = (["Transpose", "Conv"] if last else ["Conv"]), [3]
    assert [plain, every, strided, same] == [expected] * 4


def test_what_uses_the_axis_keeps_it() -> None:
    padded = network(2, 18, (3, 3), pads=[1, 1, 1, 1])
    read = network(2, 18, (1, 3), more=("found",))
    assert padded == read == (["Unsqueeze", "Conv", "Squeeze"], [4])
