"""The graph: its checks, its order, what it answers about itself."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import numpy as np
import pytest

from engine.base.errors import ModelImportError
from engine.base.shapes import DynamicTensorShape
from engine.graph.model import Input, Layer, Model, Output, sort_layers

X = Input("x", np.dtype(np.float32), DynamicTensorShape("n", 4))


def layer(name: str, inputs: str, outputs: str, op_type: str = "Add", **attributes: object) -> Layer:
    return Layer(op_type, name, tuple(inputs.split()), tuple(outputs.split()), attributes)


def model(*layers: Layer, outputs: str = "y", inputs: Sequence[Input] = (X,), **fields: object) -> Model:
    made = Model("m", tuple(inputs), tuple(Output(o, None, None) for o in outputs.split()), layers)
    return made.replace(**fields)


def test_a_sound_graph_passes() -> None:
    model(layer("a", "x w", "t"), layer("b", "t x", "y"), constants={"w": np.zeros(4)}).check()


def test_outputs_may_be_inputs_and_constants() -> None:
    model(outputs="x w", constants={"w": np.zeros(4)}).check()


W = {"w": np.zeros(1)}
UNSOUND = {
    "used before defined": (model(layer("a", "t", "y"), layer("b", "x", "t")), "'a'.*'t'"),
    "undefined": (model(layer("a", "x q", "y")), "'a'.*'q'"),
    "no such output": (model(layer("a", "x", "t")), "output 'y'"),
    "an output twice": (model(layer("a", "x", "y"), outputs="y y"), "'y' is listed twice"),
    "same layer name": (model(layer("a", "x", "t"), layer("a", "t", "y")), "'a'.*name"),
    "no layer name": (model(layer("", "x", "y")), "name"),
    "defined twice": (model(layer("a", "x", "y"), layer("b", "x", "y")), "'b'.*'y'.*the output of layer 'a'"),
    "constant overwritten": (model(layer("a", "x", "w"), outputs="w", constants=W), "'a'.*'w'.*a constant"),
    "input overwritten": (model(layer("a", "x", "x"), outputs="x"), "'a'.*'x'.*an input"),
    "input is a constant": (model(outputs="x", constants={"x": np.zeros(1)}), "input 'x'.*a constant"),
    "two inputs of one name": (model(outputs="x", inputs=(X, X)), "input 'x'"),
    "no input name": (model(outputs="x", inputs=(X, X.replace(name=""))), "no name"),
    "own output as input": (model(layer("a", "y", "y")), "'a'.*'y'"),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_an_unsound_graph_is_refused_by_name(case: str) -> None:
    graph, words = UNSOUND[case]
    with pytest.raises(ModelImportError, match=words):
        graph.check()


def branching(capture: str) -> Layer:
    body = model(layer("inner", f"{capture} x", "out"), outputs="out", inputs=())
    return layer("if", "x", "y", "If", then_branch=body, else_branch=body)


def test_subgraphs_see_the_graph_around_them() -> None:
    holder = branching("t")
    assert holder.captures == ("t", "x")
    assert holder.dependencies == ("x", "t")
    graph = model(layer("a", "x", "t"), holder)
    graph.check()
    assert graph.captures == ()
    assert [consumer.name for consumer in graph.consumers()["t"]] == ["if"]
    assert [item.name for item in graph.walk()] == ["a", "if", "inner", "inner"]
    with pytest.raises(ModelImportError, match="'if'.*'t'"):
        model(branching("t")).check()


def test_the_graph_tells_who_makes_and_who_uses_a_value() -> None:
    a, b = layer("a", "x x", "t"), layer("b", "t x", "y")
    graph = model(a, b)
    assert graph.producers() == {"t": a, "y": b}
    assert graph.consumers() == {"x": (a, b), "t": (b,)}


@pytest.mark.parametrize("seed", range(20))
def test_sorting_gives_an_order_that_passes_the_check(seed: int) -> None:
    rng = random.Random(seed)
    chain = [
        layer(f"l{i}", " ".join(rng.sample(["x", *(f"v{j}" for j in range(i))], 1 + (i > 0))), f"v{i}")
        for i in range(30)
    ]
    shuffled = rng.sample(chain, len(chain))
    ordered = sort_layers(shuffled, ["x"])
    assert sorted(item.name for item in ordered) == sorted(item.name for item in chain)
    model(*ordered, outputs="v29").check()
    assert sort_layers(chain, ["x"]) == tuple(chain)


def test_sorting_names_a_cycle() -> None:
    with pytest.raises(ModelImportError, match="cycle among 2 layers.*'a'"):
        sort_layers([layer("a", "t", "y"), layer("b", "y", "t"), layer("c", "x", "z")], ["x"])


def test_dimensions_are_made_static_everywhere() -> None:
    graph = model(layer("a", "x", "y")).replace(outputs=(Output("y", None, DynamicTensorShape("n", "k")),))
    fixed = graph.with_dims({"n": 3})
    assert fixed.inputs[0].shape == (3, 4)
    assert fixed.outputs[0].shape == (3, "k")
    assert graph.inputs[0].shape == ("n", 4)
    assert (graph.dim_names, fixed.dim_names) == (("n",), ())


def test_the_summary_tells_what_is_there() -> None:
    graph = model(
        layer("a", "x w", "t"), layer("b", "t x", "y"), constants={"w": np.zeros(2**18, np.float32)}
    )
    text = graph.replace(opsets={"": 17, "own": 2}).summary()
    for words in (
        "x: float32 (n, 4)",
        "y: unknown type of unknown rank",
        "ai.onnx 17, own 2",
        "2 Add",
        "1.00 MiB",
    ):
        assert words in text


def test_a_model_survives_pickling() -> None:
    graph = pickle.loads(pickle.dumps(model(layer("a", "x", "t"), branching("t"))))
    graph.check()
    assert graph.layers[1].subgraphs[0].layers[0].name == "inner"
