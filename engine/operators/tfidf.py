"""TfIdfVectorizer: how often each n-gram of a dictionary occurs in each row of tokens.

A first kernel looks up, at every place of a row, the n-gram that begins there, by binary search in the sorted
dictionary; a second one counts, for each output, the places that found it. Strings are turned into token
numbers on the host, so that the counting is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.base.dtypes import FLOAT32, INT32
from engine.kernels.expr import Expr, arg, cast, clamp, compare, eq, fold, lit, reduce, select
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator
from engine.operators.sorting import first_beyond

UNKNOWN = -1
"""The number of a string that no n-gram has."""


@dataclass(frozen=True)
class Dictionary:
    """Sorted n-grams by length, with their tokens and output indices.

    `lengths` has for each length n: n, where its tokens begin, how many n-grams it has, and where their
    outputs begin.
    """

    tokens: np.ndarray
    outputs: np.ndarray
    lengths: tuple[tuple[int, int, int, int], ...]

    @property
    def most(self) -> int:
        """The most n-grams of one length."""
        return max((count for _, _, count, _ in self.lengths), default=0)


def dictionary(
    pool: Sequence[int], starts: Sequence[int], outputs: Sequence[int], least: int, most: int, dtype: np.dtype
) -> Dictionary:
    """The n-grams of `least` to `most` tokens; `starts` is the start of each length in the pool."""
    tokens: list[int] = []
    targets: list[int] = []
    lengths = []
    skipped = 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams = [tuple(pool[at : at + n]) for at in range(start, end - n + 1, n)]
        if least <= n <= most and grams:
            lengths.append((n, len(tokens), len(grams), len(targets)))
            ordered = sorted(zip(grams, outputs[skipped : skipped + len(grams)], strict=True))
            tokens += [token for gram, _ in ordered for token in gram]
            targets += [target for _, target in ordered]
        skipped += len(grams)
    return Dictionary(np.array(tokens, dtype), np.array(targets, INT32), tuple(lengths))


def walks(words: Dictionary, most_skipped: int) -> np.ndarray:
    """The n, token distance and rest of `lengths` for each way to read a row."""
    found = [
        (n, distance, *rest)
        for n, *rest in words.lengths
        # The distance does not matter to single tokens: they are read once.
        for distance in range(1, 2 if n == 1 else most_skipped + 2)
    ]
    return np.array(found, INT32).reshape(len(found), 5)


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    k: Builder, x: Value, *, mode: str, min_gram_length: int, max_gram_length: int, max_skip_count: int,
    ngram_counts: Sequence[int], ngram_indexes: Sequence[int], pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (), weights: Sequence[float] = (),
) -> Value:  # fmt: skip
    """Counts (TF), occurrence (IDF) or weighted counts (TFIDF) of n-grams per row."""
    k.one_of("mode", mode, ("TF", "IDF", "TFIDF"))
    if x.rank > 2 or x.dtype.kind not in "iO":
        k.error(f"takes strings or integers of shape [C] or [N, C], not {x.dtype.name}{list(x.shape)}")
    width = max(ngram_indexes, default=-1) + 1
    k.check_table(width)
    if list(ngram_counts) != sorted(ngram_counts) or min((*ngram_counts, *ngram_indexes), default=0) < 0:
        k.error(f"ngram_counts {list(ngram_counts)} must not fall, and no index may be negative")
    if weights and len(weights) != len(ngram_indexes):
        k.error(f"has {len(weights)} weights for {len(ngram_indexes)} n-grams")
    pool: Sequence[Any] = pool_int64s
    if x.dtype == object:
        x, pool = numbered(k, x, pool_strings)
    words = dictionary(pool, ngram_counts, ngram_indexes, min_gram_length, max_gram_length, x.dtype)
    shape = (x.shape[0] if x.rank == 2 else 1, x.shape[-1] if x.rank else 1)
    counts = count_grams(k, k.alias(x, shape), words, max_skip_count, width)
    scored = counts
    if mode == "IDF":
        scored = k.elementwise(lambda c: cast(compare("ne", c, lit(0.0, "float32")), "float32"), counts)
    if weights and mode != "TF":
        scale = np.zeros(width, np.float32)
        scale[list(ngram_indexes)] = weights
        scored = k.elementwise(lambda c, w: c * w, scored, k.constant(scale))
    return k.alias(scored, (*x.shape[:-1], width))


def numbered(k: Builder, x: Value, pool: Sequence[str]) -> tuple[Value, list[int]]:
    """Strings and their dictionary as token numbers."""
    found: dict[str, int] = {}
    numbers = [found.setdefault(word, len(found)) for word in pool]
    texts = () if x.size == 0 else np.asarray(k.elements(x)).reshape(-1)
    tokens = np.array([found.get(text, UNKNOWN) for text in texts], INT32)
    return k.constant(tokens.reshape(x.shape)), numbers


def count_tokens(k: Builder, rows: Value, words: Dictionary, width: int) -> Value:
    """`count_grams` for single tokens, without a search."""
    count, size = rows.shape
    tokens, counted = np.zeros(width, words.tokens.dtype), np.zeros(width, np.float32)
    tokens[words.outputs], counted[words.outputs] = words.tokens, 1.0
    of_output, factors = k.constant(tokens), k.constant(counted)

    def total(row: Expr, output: Expr) -> Expr:
        own = of_output[output]
        found = reduce("sum", size, lambda p: cast(eq(rows[row, p], own), "index"))
        return cast(found, "float32") * factors[output]

    return k.compute((count, width), FLOAT32, total)


def count_grams(k: Builder, rows: Value, words: Dictionary, most_skipped: int, width: int) -> Value:
    """How often each output's n-grams occur in each row: (rows, width) float32."""
    count, size = rows.shape
    # Tokens farther apart than a row is long are in none.
    table = walks(words, min(most_skipped, size))
    if not table.size or not rows.size:
        return k.constant(np.zeros((count, width), np.float32))
    if all(n == 1 for n, *_ in words.lengths) and len(set(words.outputs.tolist())) == len(words.outputs):
        return count_tokens(k, rows, words, width)
    ways, tokens, outputs = k.constant(table), k.constant(words.tokens), k.constant(words.outputs)

    def found_at(row: Expr, way: Expr, place: Expr) -> Expr:
        n, distance, first, grams, base = (cast(ways[way, lit(c)], "index") for c in range(5))

        def order(gram: Expr) -> Expr:
            """Below 0, 0 or above 0 as a dictionary's n-gram comes before, is or follows the row's."""

            def step(r: Expr, known: Expr) -> tuple[Expr]:
                ours = rows[row, clamp(place + r * distance, lit(0), arg(size - 1))]
                theirs = tokens[clamp(first + gram * n + r, lit(0), arg(tokens.size - 1))]
                sign = cast(theirs > ours, "int32") - cast(theirs < ours, "int32")
                return (select(eq(known, lit(0, "int32")), sign, known),)

            return fold(n, (lit(0, "int32"),), step)[0]

        gram = first_beyond(lit(0), grams, words.most, lambda middle: order(middle) < lit(0, "int32"))
        fits = place + distance * (n - lit(1)) < arg(size)
        hit = fits & (gram < grams) & eq(order(gram), lit(0, "int32"))
        return select(hit, outputs[clamp(base + gram, lit(0), arg(outputs.size - 1))], lit(-1, "int32"))

    hits = k.compute((count, len(table), size), INT32, found_at)
    places = k.alias(hits, (count, len(table) * size))

    def total(row: Expr, output: Expr) -> Expr:
        own = cast(output, "int32")
        return cast(
            reduce("sum", places.shape[1], lambda p: cast(eq(places[row, p], own), "index")), "float32"
        )

    return k.compute((count, width), FLOAT32, total)
