"""TfIdfVectorizer against counting by hand, and against onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import ModelLoader
from engine.base.errors import ShapeError
from engine.compiler.interpreter import interpret
from tests.engine.conftest import MakeWorker, answers
from tests.engine.operators.properties import Example
from tests.engine.operators.single import run
from tests.peer import open_session

GRAMS: list[list[tuple[int, ...]]] = [
    [(2,), (3,), (7,)],
    [(2, 3), (3, 2), (7, 7), (1, 9)],
    [(2, 3, 2), (3, 3, 3)],
]
"""N-grams of one, two and three tokens."""
INDEXES = [0, 5, 2, 3, 8, 4, 6, 1, 7]
POOL = [token for grams in GRAMS for gram in grams for token in gram]
FACTS = {"pool_int64s": POOL, "ngram_counts": (0, 3, 11), "ngram_indexes": INDEXES}
WEIGHTS = [0.5 + i for i in range(9)]


def counted(x: np.ndarray, least: int, most: int, skips: int) -> np.ndarray:
    """Every way to read n-grams from each row, counted."""
    out = np.zeros((len(x), 9), np.float32)
    known = {gram: INDEXES[i] for i, gram in enumerate(gram for grams in GRAMS for gram in grams)}
    for row, tokens in enumerate(x.tolist()):
        for n in range(least, most + 1):
            for distance in range(1, 2 if n == 1 else skips + 2):
                starts = range(len(tokens) - distance * (n - 1))
                found = Counter(tuple(tokens[i : i + distance * n : distance][:n]) for i in starts)
                for gram, count in found.items():
                    if gram in known and len(gram) == n:
                        out[row, known[gram]] += count
    return out


def weighed(counts: np.ndarray, mode: str, weights: Sequence[float]) -> np.ndarray:
    """The counts as a mode wants them."""
    if mode == "IDF":
        counts = (counts > 0).astype(np.float32)
    scale = [weights[INDEXES.index(i)] for i in range(9)] if len(weights) and mode != "TF" else [1.0]
    return counts * np.array(scale, np.float32)


DRAWN = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["TF", "IDF", "TFIDF"]),
        "grams": st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]),
        "max_skip_count": st.integers(0, 3),
        "weights": st.sampled_from([(), tuple(WEIGHTS)]),
        "rows": st.integers(0, 3),
        "size": st.integers(0, 9),
        "seed": st.integers(0, 99),
    }
)


def drawn(facts: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    """Tokens, attributes and the answer."""
    facts = dict(facts)
    x = np.random.default_rng(facts.pop("seed")).choice([2, 3, 7, 1], (facts.pop("rows"), facts.pop("size")))
    least, most = facts.pop("grams")
    attributes = {**FACTS, **facts, "min_gram_length": least, "max_gram_length": most}
    if not attributes["weights"]:
        del attributes["weights"]
    counts = counted(x, least, most, facts["max_skip_count"])
    return x, attributes, weighed(counts, facts["mode"], facts["weights"])


@given(DRAWN)
@settings(max_examples=60)
def test_counts(facts: dict[str, Any]) -> None:
    x, attributes, expected = drawn(facts)
    np.testing.assert_array_equal(run("TfIdfVectorizer", [x], attributes, opset=9)[0], expected)
    if len(x) == 1:
        np.testing.assert_array_equal(run("TfIdfVectorizer", [x[0]], attributes, opset=9)[0], expected[0])
    words = x.astype(str).astype(object)
    attributes["pool_strings"] = [str(token) for token in attributes.pop("pool_int64s")]
    np.testing.assert_array_equal(run("TfIdfVectorizer", [words], attributes, opset=9)[0], expected)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
def test_onnxruntime_agrees(mode: str, skips: int) -> None:
    """Weights belong to n-grams, whatever outputs these count for."""
    x = np.random.default_rng(1).choice([2, 3, 7, 1], (3, 12))
    attributes = {**FACTS, "weights": WEIGHTS, "mode": mode, "max_skip_count": skips}
    attributes |= {"min_gram_length": 1, "max_gram_length": 3}
    proto = Example("TfIdfVectorizer", [(x, ("n", "c"))], attributes, 9).proto()
    del proto.graph.output[:]
    proto.graph.output.add(name="y0").type.tensor_type.elem_type = 1
    session = open_session(proto.SerializeToString())
    found = interpret(ModelLoader.load(proto.SerializeToString()), {"x0": x})["y0"]
    np.testing.assert_array_equal(found, session.run(None, {"x0": x})[0])


@pytest.mark.spread
def test_every_backend_counts_alike(channel: str, make_worker: MakeWorker) -> None:
    x = np.zeros((1, 1), np.int32)
    attributes = {**FACTS, "mode": "TFIDF", "weights": WEIGHTS, "max_skip_count": 1}
    attributes |= {"min_gram_length": 1, "max_gram_length": 3}
    source = Example("TfIdfVectorizer", [(x, ("n", "c"))], attributes, 9).proto().SerializeToString()
    worker = make_worker(ModelLoader.load(source), channel)

    @given(st.integers(0, 3), st.integers(0, 9), st.integers(0, 99))
    @settings(max_examples=8)
    def holds(rows: int, size: int, seed: int) -> None:
        tokens = np.random.default_rng(seed).choice([2, 3, 7, 1], (rows, size)).astype(np.int32)
        (found,) = answers(worker, tokens)
        np.testing.assert_array_equal(found, weighed(counted(tokens, 1, 3, 1), "TFIDF", WEIGHTS))

    holds()


@pytest.mark.parametrize(
    ("x", "changes", "message"),
    [
        (np.zeros((1, 2, 3), np.int32), {}, r"of shape \[C\] or \[N, C\], not int32\[1, 2, 3\]"),
        (np.zeros(3, np.float32), {}, r"not float32\[3\]"),
        (np.zeros(3, np.int32), {"mode": "BM25"}, "one of TF, IDF, TFIDF"),
        (np.zeros(3, np.int32), {"weights": (1.0,)}, "has 1 weights for 9 n-grams"),
        (np.zeros(3, np.int32), {"ngram_counts": (0, 11, 3)}, "must not fall"),
    ],
)
def test_wrong_use_is_refused(x: np.ndarray, changes: dict[str, Any], message: str) -> None:
    attributes = {**FACTS, "mode": "TF", "max_skip_count": 0, "min_gram_length": 1, "max_gram_length": 3}
    with pytest.raises(ShapeError, match=message):
        run("TfIdfVectorizer", [x], {**attributes, **changes})
