"""Sequences and optionals against plain lists, and on every backend against ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from engine import ModelLoader
from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from engine.compiler.trace import Tracer
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import run
from tests.graphs import model, node, proto

FLOAT = ("float32", None)


def scalar(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def ops(*nodes: onnx.NodeProto, outputs: Sequence[str] = ("y",), **constants: np.ndarray) -> Any:
    """What layers make of `x`, a 5x3 matrix, in one model: its outputs."""
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    loaded = model(nodes, {"x": ("float32", (5, 3))}, dict.fromkeys(outputs, FLOAT), constants)
    found = interpret(loaded, {"x": x})
    return found[outputs[0]] if len(outputs) == 1 else tuple(found[name] for name in outputs)


CUT = node("SplitToSequence", ["x"], ["s"])
ROWS = [np.arange(3, dtype=np.float32)[None] + 3 * i for i in range(5)]


@pytest.mark.parametrize("position", [None, 0, 4, 5, -1, -5])
def test_insert_puts_a_tensor_before_a_position(position: int | None) -> None:
    found = ops(
        CUT,
        node("SequenceInsert", ["s", "new", *(["p"] if position is not None else [])], ["y"]),
        new=np.zeros((2, 2), np.float32), p=scalar(position or 0),
    )  # fmt: skip
    expected = list(ROWS)
    expected.insert(5 if position is None else position, np.zeros((2, 2), np.float32))
    assert [x.tolist() for x in found] == [x.tolist() for x in expected]


@pytest.mark.parametrize("position", [None, 0, 4, -1, -5])
def test_erase_takes_one_out(position: int | None) -> None:
    names = ["s", "p"] if position is not None else ["s"]
    found = ops(CUT, node("SequenceErase", names, ["y"]), p=scalar(position or 0))
    expected = list(ROWS)
    del expected[-1 if position is None else position]
    assert [x.tolist() for x in found] == [x.tolist() for x in expected]


@pytest.mark.parametrize(
    ("split", "axis", "sizes"),
    [(scalar(2), 0, [2, 2, 1]), (scalar(5), 0, [5]), (scalar(9), -2, [5]),
     (np.array([0, 4, 1]), 0, [0, 4, 1]), (np.array([1, 2]), -1, [1, 2]), (None, 1, [1, 1, 1])],
)  # fmt: skip
def test_split_in_every_style(split: np.ndarray | None, axis: int, sizes: Sequence[int]) -> None:
    names, constants = (["x"], {}) if split is None else (["x", "c"], {"c": split})
    for keepdims in (0, 1):
        cut = node("SplitToSequence", names, ["s"], axis=axis, keepdims=keepdims)
        found, count = ops(cut, node("SequenceLength", ["s"], ["n"]), outputs=("s", "n"), **constants)
        assert count == len(sizes)
        x = np.arange(15, dtype=np.float32).reshape(5, 3)
        for piece, expected in zip(found, np.split(x, np.cumsum(sizes)[:-1], axis), strict=True):
            dropped = split is None and not keepdims
            np.testing.assert_array_equal(piece, expected.squeeze(axis) if dropped else expected)


def test_splitting_nothing_gives_an_empty_sequence() -> None:
    loaded = model([CUT, node("SequenceLength", ["s"], ["y"])], {"x": ("float32", (0, 3))}, {"y": FLOAT})
    assert interpret(loaded, {"x": np.zeros((0, 3), np.float32)})["y"] == 0


@pytest.mark.parametrize(("new_axis", "axis"), [(0, 0), (0, -1), (1, 0), (1, 2), (1, -1)])
def test_joining(new_axis: int, axis: int) -> None:
    found = ops(CUT, node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new_axis))
    expected = np.stack(ROWS, axis) if new_axis else np.concatenate(ROWS, axis)
    np.testing.assert_array_equal(found, expected)


def test_resolving_a_sequence_costs_nothing() -> None:
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["a"]),
        node("SequenceInsert", ["a", "x", "p"], ["b"]),
        node("SequenceErase", ["b"], ["c"]),
        node("SequenceAt", ["c", "p"], ["d"]),
        node("Optional", ["d"], ["e"]),
        node("OptionalGetElement", ["e"], ["y"]),
    ]
    loaded = model(nodes, {"x": ("float32", (2, 3))}, {"y": FLOAT}, {"p": scalar(1)})
    assert Tracer(loaded).trace({"x": (2, 3)}).computes == []


def test_empty_sequences_and_optionals() -> None:
    assert run("SequenceEmpty", [])[0] == []
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [3])
    nodes = [
        helper.make_node("Optional", [], ["o"], type=kind),
        node("OptionalHasElement", ["o"], ["no"]),
        node("OptionalHasElement", ["x"], ["yes"]),
    ]
    no, yes = ops(*nodes, outputs=("no", "yes"))
    assert (bool(no), bool(yes)) == (False, True)
    assert no.dtype == yes.dtype == bool
    assert no.shape == yes.shape == ()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([CUT, node("SequenceAt", ["s", "p"], ["y"])], r"position 7 is outside a sequence of 5"),
        ([CUT, node("SequenceInsert", ["s", "x", "p"], ["y"])], r"must be in -5..5"),
        ([CUT, node("SequenceErase", ["s", "p"], ["y"])], r"must be in -5..4"),
        ([node("SequenceEmpty", [], ["s"]), node("SequenceErase", ["s"], ["y"])], "empty sequence"),
        ([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)], "not known"),
        ([CUT, node("SequenceInsert", ["s", "p"], ["y"])], "cannot put int64 into a sequence of float32"),
        ([node("SequenceConstruct", ["x", "p"], ["y"])], "cannot put int64"),
        ([node("SplitToSequence", ["x", "z"], ["y"])], "pieces of 0 elements"),
        ([node("SplitToSequence", ["x", "two"], ["y"])], r"cannot split 5 .* into \[1, 1\]"),
        ([node("Optional", [], ["y"])], "neither an input nor a type"),
    ],
)  # fmt: skip
def test_wrong_use_is_refused(nodes: Sequence[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ops(*nodes, p=scalar(7), z=scalar(0), two=np.array([1, 1]))


def test_an_empty_optional_has_no_element_to_get() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [3])
    with pytest.raises(ShapeError, match="the optional is empty"):
        ops(helper.make_node("Optional", [], ["o"], type=kind), node("OptionalGetElement", ["o"], ["y"]))


def editing(edits: Sequence[tuple[str, int]], size: int, axis: int) -> bytes:
    """Cut x into pieces of `size`, edit the sequence, and join what is left."""
    constants = {"size": scalar(size)}
    nodes = [node("SplitToSequence", ["x", "size"], ["s0"], axis=axis)]
    for i, (kind, position) in enumerate(edits):
        constants[f"p{i}"] = scalar(position)
        if kind == "SequenceInsert":
            nodes.append(node("SequenceAt", [f"s{i}", f"p{i}"], [f"t{i}"]))
            nodes.append(node("Neg", [f"t{i}"], [f"n{i}"]))
            nodes.append(node(kind, [f"s{i}", f"n{i}", f"p{i}"], [f"s{i + 1}"]))
        else:
            nodes.append(node(kind, [f"s{i}", f"p{i}"], [f"s{i + 1}"]))
    nodes.append(node("ConcatFromSequence", [f"s{len(edits)}"], ["y"], axis=axis))
    return proto(nodes, {"x": ("float32", (None, None))}, {"y": FLOAT}, constants)


@pytest.mark.spread
def test_edited_sequences_on_every_backend(channel: str, make_worker: MakeWorker) -> None:
    edit = st.tuples(st.sampled_from(["SequenceInsert", "SequenceErase"]), st.integers(-1, 1))

    @given(st.integers(3, 9), st.integers(1, 4), st.integers(0, 1), st.lists(edit, max_size=2))
    @settings(max_examples=6)
    def holds(rows: int, size: int, axis: int, edits: list[tuple[str, int]]) -> None:
        pieces = -(-((rows, 5)[axis]) // size)
        erased = sum(kind == "SequenceErase" for kind, _ in edits)
        if pieces - erased < 2:
            edits = []
        source = editing(edits, size, axis)
        x = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
        (expected,) = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})
        np.testing.assert_array_equal(answers(make_worker(ModelLoader.load(source), channel), x)[0], expected)

    holds()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y = Add(x, s)", r"\(Add\): its input b is a sequence; the operator takes a tensor"),
        ("y = Max(x, s)", r"\(Max\): its input xs is a sequence; the operator takes a tensor"),
        (
            "y = SequenceLength(x)",
            r"\(SequenceLength\): its input sequence is a tensor; the operator takes a seq",
        ),
    ],
)
def test_tensors_and_sequences_are_not_taken_for_each_other(body: str, message: str) -> None:
    head = '<ir_version: 9, opset_import: ["" : 18]> g (float[3] x, seq(float[3]) s) => (float[3] y)'
    model = ModelLoader.load(onnx.parser.parse_model(f"{head} {{ {body} }}").SerializeToString())
    x = np.zeros(3, np.float32)
    with pytest.raises(ShapeError, match=message):
        interpret(model, {"x": x, "s": [x]})
