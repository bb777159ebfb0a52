"""Operators on text against Python's own string methods and onnxruntime."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from engine.base.dtypes import TEXT
from engine.base.errors import ShapeError
from engine.base.shapes import DynamicTensorShape
from engine.graph.model import Input, Layer
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.single import one_layer, run
from tests.peer import open_session

WORDS = st.text("aÄß,. \u00e9\u4e2d", max_size=6)


def text(*words: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    found = np.array(words, object)
    return found if shape is None else found.reshape(shape)


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((2, 1), (3,)), ((), (2,)), ((), ()), ((0, 2), (1, 2)), ((1,), ())]
)
def test_concat_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x = np.array([f"x{i}" for i in range(int(np.prod(a)))], object).reshape(a)
    y = np.array([f"y{i}" for i in range(int(np.prod(b)))], object).reshape(b)
    (found,) = run("StringConcat", [x, y])
    assert found.dtype == object
    expected = np.broadcast_arrays(x, y)
    assert found.shape == expected[0].shape
    assert found.reshape(-1).tolist() == [
        p + q for p, q in zip(expected[0].flat, expected[1].flat, strict=True)
    ]


@given(st.lists(WORDS, max_size=5), st.sampled_from([None, "", ",", ". "]), st.sampled_from([None, 0, 1, 2]))
@settings(max_examples=40)
def test_split(words: list[str], delimiter: str | None, most: int | None) -> None:
    given_ = {"delimiter": delimiter, "maxsplit": most}
    attributes = {name: value for name, value in given_.items() if value is not None}
    pieces, counts = run("StringSplit", [text(*words)], attributes, outputs=2)
    expected = [w.split(delimiter or None, -1 if most is None else most) for w in words]
    assert counts.dtype == np.int64
    assert counts.tolist() == [len(e) for e in expected]
    widest = max(map(len, expected), default=0)
    assert pieces.shape == (len(words), widest)
    assert pieces.tolist() == [e + [""] * (widest - len(e)) for e in expected]


def test_split_of_a_scalar_and_of_nothing() -> None:
    pieces, counts = run("StringSplit", [text("a b c", shape=())], outputs=2)
    assert (pieces.tolist(), counts.tolist(), counts.shape) == (["a", "b", "c"], 3, ())
    pieces, counts = run("StringSplit", [text(shape=(2, 0))], outputs=2)
    assert (pieces.shape, counts.shape) == ((2, 0, 0), (2, 0))


DAYS = text("Monday", "tuesday", "MONDAY", "Ärger", "")


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, ["Monday", "tuesday", "MONDAY", "Ärger", ""]),
        ({"stopwords": ("monday",)}, ["tuesday", "Ärger", ""]),
        ({"stopwords": ("monday",), "is_case_sensitive": 1}, ["Monday", "tuesday", "MONDAY", "Ärger", ""]),
        (
            {"stopwords": ("Monday", ""), "is_case_sensitive": 1, "case_change_action": "UPPER"},
            ["TUESDAY", "MONDAY", "ÄRGER"],
        ),
        (
            {"case_change_action": "LOWER", "locale": "en_US"},
            ["monday", "tuesday", "monday", "ärger", ""],
        ),
        ({"stopwords": ("MONDAY", "Tuesday", "ärger", "")}, [""]),
    ],
)
def test_normalizer(attributes: dict[str, Any], expected: list[str]) -> None:
    assert run("StringNormalizer", [DAYS], attributes)[0].tolist() == expected
    assert run("StringNormalizer", [DAYS[None]], attributes)[0].tolist() == [expected]


@pytest.mark.parametrize(
    ("pattern", "words", "expected"),
    [
        (r"[[:alpha:]]+\d?", ["abc", "abc1", "abc12", ""], [True, True, False, False]),
        (r"[^[:space:][:punct:]]*", ["ab", "a b", "a-b", ""], [True, False, False, True]),
        (r"ab\z", ["ab", "abz"], [True, False]),
        (r"a\\z", ["a\\z", "a"], [True, False]),
        (r"\w+", ["abc", "äbc"], [True, False]),
        (r"(?i)abc|d", ["ABC", "D", "x"], [True, True, False]),
        ("a.c", ["a\nc", "abc"], [False, True]),
    ],
)
def test_regex(pattern: str, words: list[str], expected: list[bool]) -> None:
    (found,) = run("RegexFullMatch", [text(*words)], {"pattern": pattern})
    assert found.dtype == bool
    assert found.tolist() == expected
    assert run("RegexFullMatch", [text(words[0], shape=())], {"pattern": pattern})[0].shape == ()


TOKENS: dict[str, Any] = {"mark": 0, "pad_value": "#", "mincharnum": 1}
PATTERNS = (
    "a|ab", "a?(ab)?", "[a-z]+", r"\w+", r"\b\w\w+\b", ".", "b*",
    "[^ ]+", "a+?", "(a|b)c?|bc", r"[[:alpha:]]+\d*",
    "x{2,3}", r"\s", "-| ", "(?i)AB?", "a$", "é+",
)  # fmt: skip
DOCUMENTS = st.text("ab cx1é-日\n", max_size=9)


@given(
    st.lists(DOCUMENTS, min_size=1, max_size=3), st.sampled_from(["tokenexp", "separators"]), st.data(),
    st.booleans(), st.booleans(), st.integers(1, 2),
)  # fmt: skip
@settings(max_examples=150)
def test_tokens_agree_with_onnxruntime(
    documents: list[str], by: str, draw: st.DataObject, marked: bool, column: bool, least: int
) -> None:
    given_: Any = draw.draw(st.sampled_from(PATTERNS))
    if by == "separators":
        given_ = draw.draw(st.just([""]) | st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2))
    # onnxruntime takes no other limit for characters.
    attributes = {**TOKENS, "mark": int(marked), by: given_}
    attributes["mincharnum"] = 1 if given_ in (".", [""]) else least
    x = text(*documents, shape=(len(documents), 1) if column else (len(documents),))
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(
        helper.make_graph([node], "one", infos[:1], infos[1:]), opset_imports=opsets, ir_version=8
    )
    (expected,) = open_session(proto.SerializeToString()).run(None, {"x": x})
    (found,) = run("Tokenizer", [x], attributes, domain="com.microsoft")
    assert (found.shape, found.tolist()) == (expected.shape, expected.tolist())


NUMBERS: dict[str, Any] = {"int32": [0, -5, 7], "uint32": [1, 2**32 - 1], "int64": [0, -5, 2**40],
                           "uint64": [2**63], "float32": [0.0, -1.5], "float64": [0.1, 1e300]}  # fmt: skip


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("seed", [0, 0xBC9F1D34])
def test_hashes_agree_with_onnxruntime(seed: int, positive: int) -> None:
    attributes: dict[str, Any] = {"seed": seed, "positive": positive}
    words = ["", "a", "ab", "abc", "abcd", "abcde", "日本", "a longer text, in several words"]
    for x in (text(*words), *(np.array(v, t) for t, v in NUMBERS.items())):
        (found,) = run("MurmurHash3", [x], attributes, domain="com.microsoft")
        code = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
        node = helper.make_node("MurmurHash3", ["x"], ["y"], domain="com.microsoft", **attributes)
        result = helper.np_dtype_to_tensor_dtype(found.dtype)
        infos = [helper.make_tensor_value_info(name, c, None) for name, c in (("x", code), ("y", result))]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph([node], "one", infos[:1], infos[1:])
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        (expected,) = open_session(proto.SerializeToString()).run(None, {"x": x})
        assert found.tolist() == expected.tolist()


ABC = text("a", "b", "c")
SQUARE = text("a", "b", "c", "d", shape=(2, 2))


@pytest.mark.spread
@pytest.mark.parametrize(
    ("op_type", "arrays", "expected"),
    [
        ("Gather", [ABC, np.array([[2, 0], [1, -1]])], [["c", "a"], ["b", "c"]]),
        ("GatherND", [SQUARE, np.array([[1, 0], [0, 1]])], ["c", "b"]),
        ("GatherElements", [SQUARE, np.array([[1, 0]])], [["c", "b"]]),
        ("Where", [np.array([[True], [False]]), text("a", "b"), text("c")], [["a", "b"], ["c", "c"]]),
        ("Compress", [ABC, np.array([True, False, True])], ["a", "c"]),
        ("OneHot", [np.array([0, 2]), np.array(3), text("-", "x")], [["x", "-", "-"], ["-", "-", "x"]]),
        ("Slice", [ABC, np.array([1]), np.array([3])], ["b", "c"]),
        ("ScatterElements", [text("a", "b"), np.array([1]), text("c")], ["a", "c"]),
        ("ArrayFeatureExtractor", [text("a", "b", "c", shape=(1, 3)), np.array([[2, 0]])], [["c", "a"]]),
    ],
)
def test_strings_are_chosen_by_computed_numbers(
    op_type: str, arrays: list[np.ndarray], expected: list[Any], channel: str, make_worker: MakeWorker
) -> None:
    """The device computes the numbers: what chooses strings by them goes on when they were read back."""
    domain = "ai.onnx.ml" if op_type == "ArrayFeatureExtractor" else ""
    feeds = [a if a.dtype == object else a.astype(np.float32) for a in arrays]
    model = one_layer(op_type, feeds, domain=domain, opset=17)
    codes = {np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL}
    casts = [
        Layer("Cast", f"cast {i}", (f"x{i}",), (f"number {i}",), {"to": codes[a.dtype]}, version=17)
        for i, a in enumerate(arrays)
        if a.dtype != object
    ]
    names = tuple(f"x{i}" if a.dtype == object else f"number {i}" for i, a in enumerate(arrays))
    (layer,) = model.layers
    last = Layer(op_type, layer.name, names, layer.outputs, domain=domain, version=layer.version)
    worker = make_worker(model.replace(layers=(*casts, last)), channel, allow_fallback=True)
    for _ in range(2):
        assert answers(worker, *feeds)[0].tolist() == expected


def test_names_of_computed_numbers_arrive_while_frames_are_drawn(make_worker: MakeWorker) -> None:
    """Nothing waits for the numbers: `schedule` returns, and polls find the strings one day."""
    model = one_layer("Gather", [ABC, np.zeros(2, np.int64)], known=[0], opset=17)
    (layer,) = model.layers
    first = Layer("ArgMax", "best", ("scores",), ("x1",), {"axis": 1, "keepdims": 0}, version=17)
    scores = Input("scores", np.dtype(np.float32), DynamicTensorShape(("n", 3)))
    worker = make_worker(model.replace(inputs=(scores,), layers=(first, layer)), "gl_compute")
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = rng.normal(size=(5, 3)).astype(np.float32)
        worker.schedule(x)
        tensor = worker.peek_output()
        tensor.readback_request()
        while not tensor.is_readback_request_done():
            pass
        assert tensor.download_to_array().tolist() == ABC[x.argmax(1)].tolist()


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "message"),
    [
        ("StringConcat", [text("a"), np.zeros(1, np.float32)], {}, "holds float32; .* takes strings"),
        ("StringConcat", [text("a", "b"), text("a", "b", "c")], {}, "could not be broadcast|broadcast"),
        ("StringNormalizer", [text("a", "b", shape=(2, 1))], {}, r"not \[2, 1\]"),
        ("StringNormalizer", [text("a")], {"case_change_action": "Upper"}, "one of NONE, LOWER, UPPER"),
        ("RegexFullMatch", [text("a")], {"pattern": "(a"}, "is no regular expression"),
        ("RegexFullMatch", [text("a")], {"pattern": "[[:vowel:]]"}, "unknown class"),
        ("RegexFullMatch", [text("a")], {}, "lacks its attribute pattern"),
        ("Tokenizer", [text("a")], {"separators": (" ",)}, "lacks its attribute mark"),
        ("Tokenizer", [text("a")], TOKENS, "neither separators nor tokenexp"),
        ("Tokenizer", [text("a")], {**TOKENS, "tokenexp": "(a"}, "is no regular expression"),
        ("Tokenizer", [text("a")], {**TOKENS, "tokenexp": "a", "mincharnum": 0}, "has to be 1 or more"),
        ("Tokenizer", [text("a", shape=(1, 1, 1))], {**TOKENS, "tokenexp": "a"}, r"not \[1, 1, 1\]"),
    ],
)
def test_wrong_use_is_refused(
    op_type: str, arrays: list[np.ndarray], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        run(op_type, arrays, attributes, domain="com.microsoft" if op_type == "Tokenizer" else "")


def test_text_beside_any_backend(channel: str, make_worker: MakeWorker) -> None:
    """Strings stay on the host; what is made of them is an ordinary tensor."""
    model = one_layer("RegexFullMatch", [text("a", "b")], {"pattern": "a*"}, dynamic=[0])
    worker = make_worker(model, channel, allow_fallback=True)

    @given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=4))
    @settings(max_examples=8)
    def holds(words: list[str]) -> None:
        (found,) = answers(worker, text(*words))
        assert found.tolist() == [re.fullmatch("a*", w) is not None for w in words]

    holds()


def test_text_that_comes_in_goes_out_as_it_came(channel: str, make_worker: MakeWorker) -> None:
    """The plan had no place for such an output."""
    words, numbers = text("a", "b"), np.array([1, -2], np.float32)
    layer = one_layer("Neg", [numbers], dynamic=(0,))
    (number,), (negated,) = layer.inputs, layer.outputs
    given = replace(number, name="words", dtype=TEXT)
    returned = replace(negated, name="words", dtype=TEXT)
    worker = make_worker(replace(layer, inputs=(number, given), outputs=(returned, negated)), channel)
    for found in (words, words[::-1]):
        worker.schedule({number.name: numbers, "words": found})
        assert worker.peek_output("words").download_to_array().tolist() == found.tolist()
        assert worker.peek_output(negated.name).download_to_array().tolist() == [-1, 2]
