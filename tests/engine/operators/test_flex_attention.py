"""FlexAttention's modifiers, beyond ONNX's own cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from engine.graph.importers.onnx_importer import read_onnx
from engine.graph.model import Model
from tests.engine.conftest import MakeWorker
from tests.engine.operators.test_attention import attend
from tests.onnx_cases import disagreement


def modifier(name: str, op_type: str, *others: float, dtype: int = TensorProto.FLOAT) -> Any:
    """A subgraph of one layer: the tensor, and a constant where one is given."""
    constants = [helper.make_tensor(f"{name}_{i}", dtype, [], [v]) for i, v in enumerate(others)]
    node = helper.make_node(op_type, ["x", *(c.name for c in constants)], ["y"])
    return helper.make_graph(
        [node],
        name,
        [helper.make_tensor_value_info("x", dtype, None)],
        [helper.make_tensor_value_info("y", dtype, None)],
        constants,
    )


def flex(shapes: list[list[int | str]], **attributes: Any) -> Model:
    """A model of one FlexAttention layer."""
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", **attributes)
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("qkv", shapes, strict=True)
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "flex", inputs, outputs)
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    return read_onnx(helper.make_model(graph, opset_imports=opsets).SerializeToString())


OPEN: list[list[int | str]] = [["b", "h", "q", "d"], ["b", "h", "s", "d"], ["b", "h", "s", "d"]]


@pytest.mark.spread
def test_both_modifiers_on_every_backend(channel: str, make_worker: MakeWorker) -> None:
    """Twice the probabilities of scores plus 1, which are those of the scores."""
    model = flex(
        OPEN, score_mod=modifier("more", "Add", 1.0), prob_mod=modifier("twice", "Mul", 2.0), scale=0.3
    )
    worker = make_worker(model, channel)
    rng = np.random.default_rng(0)
    for batch, heads, queries, keys, size in ((1, 2, 3, 4, 5), (2, 3, 1, 7, 4)):
        q = rng.normal(size=(batch, heads, queries, size)).astype(np.float32)
        key, value = (rng.normal(size=(batch, heads, keys, size)).astype(np.float32) for _ in range(2))
        worker.schedule(q=q, k=key, v=value)
        found = worker.peek_output().download_to_array()
        right = 2 * attend(q, key, value, 0.0, 0.3)
        assert disagreement(found, right) < (1e-5 if channel == "cpu" else 1e-4)


@pytest.mark.parametrize(("number", "bound"), [(1, 1e-5), (10, 2e-3), (11, 1e-5), (16, 2**-6)])
def test_modifiers_see_the_type_that_softmax_is_given(
    number: int, bound: float, rng: np.random.Generator
) -> None:
    score_mod = modifier("more", "Add", 1.0, dtype=number)
    model = flex([[1, 2, 3, 4]] * 3, score_mod=score_mod, softmax_precision=number)
    q, key, value = (rng.normal(size=(1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    found = interpret(model, {"q": q, "k": key, "v": value})["y"]
    assert found.dtype == np.float32
    assert disagreement(found, attend(q, key, value, 0.0, 0.5)) < bound


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"score_mod": modifier("first", "ReduceMax")}, "must keep shape and type"),
        ({"prob_mod": modifier("which", "IsNaN")}, "must keep shape and type"),
        ({"softmax_precision": 7}, "one of 1, 10, 11, 16"),
    ],
    ids=["another shape", "another type", "no float"],
)
def test_wrong_use(attributes: dict[str, Any], message: str) -> None:
    x = np.zeros((1, 2, 3, 4), np.float32)
    with pytest.raises(ShapeError, match=message):
        interpret(flex([[1, 2, 3, 4]] * 3, **attributes), {"q": x, "k": x, "v": x})


def test_other_ranks_are_refused() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(ShapeError, match="rank 4, not 3"):
        interpret(flex([[2, 3, 4]] * 3), {"q": x, "k": x, "v": x})
