"""Layers with something wrong end in an answer or in an error of ours that names the layer."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import helper

from engine import ModelLoader
from engine.backends import table
from engine.base.errors import ModelImportError, OutOfMemoryError, ShapeError
from engine.operators import OPERATORS
from tests.bounded import judged, run_bounded
from tests.odd_layers import Given, Start, from_cases, identity_graph, odd_layers, run_odd, starts

EVERY = 31
"""The quick suite tries one odd layer in so many of some operators."""

LONG = int(os.environ.get("GAMEGLUE_ODD_LAYERS", "97"))
"""The long suite tries one odd layer in so many of every operator; 1 tries all."""


def layer(op_type: str, arrays: list[np.ndarray | None], domain: str = "", **attributes: Any) -> Start:
    """A layer with its inputs."""
    version = 1 if domain else 22
    operator = OPERATORS.find(domain, op_type, version)
    assert operator is not None
    inputs = tuple(None if a is None else Given(a) for a in arrays)
    made = tuple(helper.make_attribute(name, value) for name, value in attributes.items())
    return Start(operator, version, inputs, made, 1)


ONES = np.ones((2, 4), np.float32)
WORDS = np.array(["a", "b"], object)
QUERY = np.ones((1, 2, 4), np.float32)
TRUE = np.array(True)

WRONG = {
    "a branch that is no graph": (
        layer("If", [TRUE], then_branch=1, else_branch=identity_graph(0)),
        "attribute then_branch = 1; it has to be a graph",
    ),
    "text for a list": (
        layer("Transpose", [ONES], perm="10"),
        "perm = '10'; it has to be a list of integers",
    ),
    "a tensor for a number": (
        layer("Cast", [ONES], to=helper.make_tensor("t", 1, [2], [1.0, 2.0])),
        r"to = a float32 tensor of shape \[2\]; it has to be an integer",
    ),
    "a number for text": (layer("Einsum", [ONES], equation=3), "equation = 3; it has to be a string"),
    "an unknown attribute": (layer("Relu", [ONES], alpha=1.0), "unknown attribute alpha; known: none"),
    "no input": (layer("Sum", []), "lacks its input xs"),
    "a gap among inputs": (layer("Concat", [ONES, None, ONES], axis=0), "lacks its input xs"),
    "no attribute": (layer("Concat", [ONES, ONES]), "lacks its attribute axis"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_layer_unlike_its_declaration_is_refused_when_it_is_loaded(case: str) -> None:
    start, words = WRONG[case]
    with pytest.raises(ModelImportError, match=rf"(?s){words}.*layers 'odd'"):
        ModelLoader.load(start.made().data)


def test_a_constant_of_another_type_than_declared_is_refused_when_it_is_loaded() -> None:
    made = layer("Gather", [ONES, np.array([0.5], np.float32)])
    made = Start(made.operator, 22, (made.inputs[0], Given(np.array([0.5], np.float32), "constant")), (), 1)
    with pytest.raises(
        ModelImportError, match="its input indices holds float32; the operator takes integers"
    ):
        ModelLoader.load(made.made().data)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (layer("Relu", [WORDS]), "its input x holds strings; the operator takes numbers"),
        (layer("Gather", [ONES, ONES]), "its input indices holds float32; the operator takes integers"),
        (layer("StringConcat", [WORDS, ONES]), "its input y holds float32; the operator takes strings"),
        (
            layer(
                "MultiHeadAttention",
                [QUERY, QUERY, QUERY, None, np.array([["a", "b"]], object)],
                "com.microsoft",
                num_heads=1,
            ),
            "its input key_padding_mask holds strings; the operator takes numbers",
        ),
        (
            layer("FusedMatMul", [ONES, WORDS], "com.microsoft"),
            "holds strings; the operator takes numbers",
        ),
    ],
)
def test_inputs_of_another_type_than_declared_are_refused(start: Start, words: str) -> None:
    odd = start.made()
    with pytest.raises(ShapeError, match=f"layer 'odd' .*{words}"):
        run_odd(odd)


SIZES: dict[str, list[Any]] = {
    "HannWindow": [np.array(2**40)],
    "MelWeightMatrix": [np.array(n) for n in (2**20, 2**20, 16000)] + [np.float32(0), np.float32(8000)],
    "DFT": [np.ones((1, 8, 1), np.float32), np.array(2**61 - 1)],
    "Resize": [np.ones((1, 1, 4, 4), np.float32), None, None, np.array([1, 1, 2**31, 1])],
    "ConstantOfShape": [np.array([2**31, 2**31])],
    "Range": [np.array(0), np.array(2**62), np.array(1)],
    "Expand": [ONES, np.array([2**20, 2**30, 1, 1])],
    "Tile": [ONES, np.array([2**40, 2**20])],
    "Pad": [ONES, np.array([0, 0, 2**40, 2**20])],
    "OneHot": [np.array([1]), np.array(2**60), np.array([0.0, 1.0], np.float32)],
}


@pytest.mark.parametrize("place", ["input", "constant"])
@pytest.mark.parametrize("op_type", SIZES)
def test_sizes_without_bounds_are_refused_before_memory_is_asked_for(op_type: str, place: str) -> None:
    arrays = [None if a is None else np.asarray(a) for a in SIZES[op_type]]
    inputs = tuple(None if a is None else Given(a, place) for a in arrays)
    made = Start(layer(op_type, []).operator, 22, inputs, (), 1).made()
    with pytest.raises((OutOfMemoryError, ShapeError), match="odd"):
        run_odd(made)


def test_more_axes_than_arrays_have_are_refused() -> None:
    with pytest.raises(ShapeError, match="odd.* 1,048,576 axes"):
        run_odd(layer("Reshape", [np.ones(1, np.float32), np.ones(2**20, np.int64)]).made())


def test_a_fold_that_would_take_long_is_left_to_a_kernel() -> None:
    start = layer("LRN", [np.ones((1, 3, 2, 2), np.float32)], size=2**40)
    made = Start(start.operator, 22, (Given(start.inputs[0].value, "constant"),), start.attributes, 1)  # type: ignore[union-attr]
    assert run_odd(made.made()) == "answer"


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (layer("Gelu", [np.ones(4, bool)], "com.microsoft"), "erf takes floats, not bool"),
        (layer("ScaledTanh", [np.ones(4, np.int32)]), "tanh takes floats, not int32"),
    ],
)
def test_functions_of_floats_are_refused_for_other_types(start: Start, words: str) -> None:
    """Where nothing declares the types of an operator, the functions that it computes do."""
    with pytest.raises(ShapeError, match=rf"layer 'odd'.*{words}"):
        run_odd(start.made())


@pytest.fixture
def on_channel(channel: str, request: pytest.FixtureRequest) -> None:
    """Skips where the backend has no device."""
    fixture = {"gl": "gl_device", "opencl": "cl_device"}.get(table.named(channel).device or "")
    if fixture is not None:
        request.getfixturevalue(fixture)


def test_a_sample_of_odd_layers_is_answered_or_refused(channel: str, on_channel: None) -> None:
    some = [start for found in from_cases().values() for start in found][::23]
    run = partial(run_odd, channel=channel)
    faults = [
        f"{what}: {found}"
        for what, odd in odd_layers(some, EVERY if channel == "cpu" else 4 * EVERY)
        if (found := judged(run, odd)) not in ("answer", "refused")
    ]
    assert not faults, "\n".join(faults[:20])


@pytest.mark.long
def test_every_odd_layer_is_answered_or_refused_in_time_and_memory(channel: str, on_channel: None) -> None:
    cases, first = odd_layers(starts(), LONG), starts()[0].made()
    outcomes = run_bounded(partial(run_odd, channel=channel), cases, processes=2, warm_up=first)
    faults = [f"{o.label}: {o.result}" for o in outcomes if o.is_fault]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:50]])
