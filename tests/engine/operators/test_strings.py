"""Operators on text against Python's own string methods."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ShapeError
from tests.engine.conftest import MakeWorker
from tests.engine.operators.single import one_layer, run

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
@settings(max_examples=40, deadline=None, derandomize=True)
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


@pytest.mark.parametrize(
    ("op_type", "arrays", "attributes", "message"),
    [
        ("StringConcat", [text("a"), np.zeros(1, np.float32)], {}, "takes strings, not float32"),
        ("StringConcat", [text("a", "b"), text("a", "b", "c")], {}, "could not be broadcast|broadcast"),
        ("StringNormalizer", [text("a", "b", shape=(2, 1))], {}, r"not \[2, 1\]"),
        ("StringNormalizer", [text("a")], {"case_change_action": "Upper"}, "one of NONE, LOWER, UPPER"),
        ("RegexFullMatch", [text("a")], {"pattern": "(a"}, "is no regular expression"),
        ("RegexFullMatch", [text("a")], {"pattern": "[[:vowel:]]"}, "unknown class"),
        ("RegexFullMatch", [text("a")], {}, "lacks its attribute pattern"),
    ],
)
def test_wrong_use_is_refused(
    op_type: str, arrays: list[np.ndarray], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        run(op_type, arrays, attributes)


def test_text_beside_any_backend(channel: str, make_worker: MakeWorker) -> None:
    """Strings stay on the host; what is made of them is an ordinary tensor."""
    model = one_layer("RegexFullMatch", [text("a", "b")], {"pattern": "a*"}, dynamic=[0])
    worker = make_worker(model, channel, allow_fallback=True)

    @given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=4))
    @settings(
        max_examples=8, deadline=None, derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    def holds(words: list[str]) -> None:
        worker.schedule(text(*words))
        found = worker.peek_output().download_to_array()
        assert found.tolist() == [re.fullmatch("a*", w) is not None for w in words]

    holds()
