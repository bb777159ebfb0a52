"""Scaled dot-product attention (Vaswani et al., 2017), and helpers for its variants.

Query heads that share a key head are rows of one product, so nothing is repeated: the scores of all heads
are one batch of products, a matrix (query heads per key head * queries, keys) for each batch and key head.
What is done to scores (scale, cap, masks) are formulas that join that product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from engine.base.dtypes import arithmetic_type
from engine.kernels.expr import FLAT, Expr, arg, cast, lit, load, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.linear import Strides, matmul
from engine.operators.movement import concat_columns
from engine.operators.normalization import softmax_over
from engine.operators.reductions import wide
from engine.operators.registry import operator

PRECISIONS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""The element types that `softmax_precision` may name, by ONNX's numbers."""


class Heads(NamedTuple):
    """Matrices inside a tensor.

    `sizes` are (batch, heads, rows, columns); `steps` the distances in elements from one matrix (batches and
    heads counted as one axis), row and column to the next.
    """

    value: Value
    sizes: tuple[int, int, int, int]
    steps: Strides

    @staticmethod
    def of(x: Value) -> Heads:
        """The heads of a contiguous (batch, heads, rows, columns) tensor."""
        batch, heads, rows, columns = x.shape
        return Heads(x, (batch, heads, rows, columns), (rows * columns, columns, 1))


class ScoreIndex(NamedTuple):
    """Indices of a score: batch, query head, query and key."""

    batch: Expr
    head: Expr
    query: Expr
    key: Expr


Rule = Callable[[Expr, ScoreIndex], Expr]
"""A score as a function of what it was and where it stands."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of an attention layer."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int

    @property
    def group(self) -> int:
        """How many query heads share a key head."""
        return self.heads // self.kv_heads

    @property
    def space(self) -> tuple[int, int, int]:
        """Scores as the products yield them."""
        return self.batch * self.kv_heads, self.group * self.queries, self.keys

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The same, as (batch, heads, queries, keys)."""
        return self.batch, self.heads, self.queries, self.keys

    def place(self, matrix: Expr, row: Expr, key: Expr) -> ScoreIndex:
        """Convert indices of `space` to a `ScoreIndex`."""
        head = matrix % self.kv_heads * self.group + row // self.queries
        return ScoreIndex(matrix // self.kv_heads, head, row % self.queries, key)


def split_heads(k: Builder, x: Value, heads: int) -> Value:
    """(batch, rows, heads * columns) -> (batch, heads, rows, columns)."""
    batch, rows, hidden = x.shape
    if heads < 1 or hidden % heads:
        k.error(f"{hidden} columns of {list(x.shape)} do not divide into {heads} heads")
    columns = hidden // heads
    if heads == 1 or x.always_one(1):
        return k.alias(x, (batch, heads, rows, columns))
    return picked_heads(k, x, Pick(heads, columns, 0, columns))


class Pick(NamedTuple):
    """Positions of heads in each row of a tensor.

    There are `heads` heads of `columns` columns each, from column `first` on, `step` apart.
    """

    heads: int
    columns: int
    first: int
    step: int


def picked_heads(k: Builder, x: Value, pick: Pick, bias: Value | None = None, bias_first: int = 0) -> Value:
    """Heads in the rows of (batch, rows, hidden), plus theirs of a bias for all heads one after another:
    (batch, heads, rows, columns).
    """

    def formula(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        found = x[b, i, h * pick.step + d + pick.first]
        return found if bias is None else found + bias[h * pick.columns + d + bias_first]

    return k.compute((x.shape[0], pick.heads, x.shape[1], pick.columns), x.dtype, formula)


def merge_heads(k: Builder, x: Value) -> Value:
    """(batch, heads, rows, columns) -> (batch, rows, heads * columns)."""
    batch, heads, rows, columns = x.shape
    shape = (batch, rows, heads * columns)
    if x.always_one(1) or x.always_one(2):
        return k.alias(x, shape)
    return k.alias(k.compute((batch, rows, heads, columns), x.dtype, lambda b, i, h, d: x[b, h, i, d]), shape)


def heads_of(k: Builder, x: Value, heads: int, where_it_lies: bool = True) -> Heads:
    """The matrices of a tensor of rank 4, or of rank 3 with its heads side by side.

    The latter can be read where they lie if the batch is 1; else they are put one after another.
    """
    if x.rank == 4:
        return Heads.of(x)
    if not (where_it_lies and x.always_one(0)) or heads < 1 or x.shape[2] % heads:
        return Heads.of(split_heads(k, x, heads))
    rows, hidden = x.shape[1:]
    columns = hidden // heads
    return Heads(x, (1, heads, rows, columns), (columns, hidden, 1))


def appended(k: Builder, past: Value, new: Value) -> Value:
    """A cache (batch, heads, rows, columns) with new rows appended."""
    if past.rank != 4 or any(past.shape[a] != new.shape[a] for a in (0, 1, 3)):
        k.error(
            f"a cache of shape {list(past.shape)} cannot take {list(new.shape)}",
            past.shape, [*new.shape[:2], *past.shape[2:3], *new.shape[3:]],
        )  # fmt: skip
    if past.dtype != new.dtype:
        k.error(f"a cache of {past.dtype.name} cannot take {new.dtype.name}")
    batch, heads, _, columns = new.shape
    rows = [k.alias(x, (batch * heads, x.shape[2] * columns)) for x in (past, new)]
    return k.alias(concat_columns(k, rows), (batch, heads, past.shape[2] + new.shape[2], columns))


def geometry_of(k: Builder, q: Heads, key: Heads, value: Heads) -> Geometry:
    """The sizes, once they are known to fit together."""
    batch, heads, queries, size = q.sizes
    _, kv_heads, keys, _ = key.sizes
    if key.sizes[0] != batch or key.sizes[3] != size or value.sizes[:3] != key.sizes[:3]:
        k.error(
            f"query, key and value do not fit together as (batch, heads, length, size): {list(q.sizes)}, "
            f"{list(key.sizes)} and {list(value.sizes)}",
            [*key.sizes, *value.sizes], [batch, kv_heads, keys, size, *key.sizes[:3], value.sizes[3]],
        )  # fmt: skip
    if kv_heads < 1 or heads % kv_heads:
        k.error(f"{heads} query heads cannot share {kv_heads} key heads evenly")
    return Geometry(batch, heads, kv_heads, queries, keys)


def scores_of(k: Builder, q: Heads, key: Heads, geometry: Geometry, scale: float) -> Value:
    """scale * q key', over `geometry.space`."""
    matrices, rows, keys = geometry.space
    step, row, column = key.steps
    product = matmul(
        k, q.value, key.value, geometry.space, (matrices, rows, keys, q.sizes[3]),
        (geometry.group * q.steps[0], *q.steps[1:]), (step, column, row), wide(q.value.dtype),
    )  # fmt: skip
    return fused_elementwise(k, product, lambda e: e * arg(scale, e.dtype))


def fused_elementwise(k: Builder, x: Value, formula: Callable[[Expr], Expr]) -> Value:
    """An elementwise formula that can be fused into the producer of `x` even with dynamic dimensions."""
    return k.compute(x.shape, x.dtype, lambda *_: formula(x.at(FLAT)), elementwise=True)


def capped(k: Builder, scores: Value, cap: float) -> Value:
    """cap * tanh(score / cap)."""
    return fused_elementwise(k, scores, lambda e: arg(cap, e.dtype) * unary("tanh", e / arg(cap, e.dtype)))


def ruled(k: Builder, scores: Value, geometry: Geometry, rule: Rule) -> Value:
    """Apply a rule to scores."""

    def formula(matrix: Expr, row: Expr, key: Expr) -> Expr:
        return rule(scores.at(FLAT), geometry.place(matrix, row, key))

    return k.compute(scores.shape, scores.dtype, formula, elementwise=True)


def weighted(k: Builder, probabilities: Value, value: Heads, geometry: Geometry, dtype: np.dtype) -> Value:
    """Sums of values, weighted by probability: (batch, heads, queries, columns)."""
    matrices, rows, keys = geometry.space
    columns, v = value.sizes[3], value.value
    if v.arithmetic != probabilities.arithmetic:
        v = k.elementwise(lambda e: cast(e, probabilities.arithmetic), v, dtype=probabilities.dtype)
    shape, sizes = (*geometry.shape[:3], columns), (matrices, rows, columns, keys)
    same = arithmetic_type(dtype) == probabilities.arithmetic
    stored = dtype if same else probabilities.dtype
    y = matmul(k, probabilities, v, shape, sizes, (rows * keys, keys, 1), value.steps, stored)
    return y if same else k.elementwise(lambda e: cast(e, arithmetic_type(dtype)), y, dtype=dtype)


# Masks


def reach_of(offset: Callable[[Expr], Expr], left: int, right: int) -> Callable[[ScoreIndex], Expr]:
    """Whether a query sees a key at most `left` before and `right` after it (-1: unlimited)."""

    def allowed(place: ScoreIndex) -> Expr:
        position = place.query + offset(place.batch)
        before, behind = place.key >= position - left, place.key <= position + right
        return behind if left < 0 else before if right < 0 else before & behind

    return allowed


def only(allowed: Callable[[ScoreIndex], Expr]) -> Rule:
    """Mask scores of invisible keys with -inf."""
    return lambda score, place: select(allowed(place), score, lit(-inf, score.dtype))


def mask_rule(k: Builder, mask: Value, geometry: Geometry, scores: Value) -> Rule:
    """A mask that broadcasts to the scores: booleans say what may be seen, numbers are added.

    Where it is shorter than there are keys, those beyond its end are out of sight.
    """
    shape = (1,) * (4 - mask.rank) + mask.shape
    fits = all(n in (1, m) for n, m in zip(shape[:3], geometry.shape[:3], strict=False))
    if not 1 <= mask.rank <= 4 or not fits or shape[3] > geometry.keys:
        k.error(f"a mask of shape {list(mask.shape)} does not broadcast to scores of {list(geometry.shape)}")
    steps = [arg(0 if n == 1 else mask.stride(a - 4)) if a >= 4 - mask.rank else lit(0)
             for a, n in enumerate(shape[:3])]  # fmt: skip
    is_full = None not in (mask.signature, scores.signature) and (
        mask.signature[-1] == scores.signature[-1]  # type: ignore[index]
    )

    def rule(score: Expr, place: ScoreIndex) -> Expr:
        if mask.size == 0:
            # An empty tensor has no buffer to read.
            return lit(-inf, score.dtype)
        position = place.key
        for i, step in zip(place[:3], steps, strict=True):
            position = position + i * step
        inside = place.key < arg(shape[3])
        lowest = lit(-inf, score.dtype)
        if mask.arithmetic == "bool":
            seen = load(mask, position) if is_full else load(mask, position, inside)
            return select(seen, score, lowest)
        bias = cast(load(mask, position) if is_full else load(mask, position, inside), score.dtype)
        bias = bias if is_full else select(inside, bias, lowest)
        # inf - inf would be NaN.
        return select(bias > lowest, score + bias, lowest)

    return rule


# The operator


def check_precision(k: Builder, precision: int | None) -> None:
    """Refuse a `softmax_precision` that is no type of floats."""
    if precision is not None and precision not in PRECISIONS:
        k.error(f"softmax_precision is {precision}; one of {', '.join(map(str, PRECISIONS))}")


def _rules(
    k: Builder, geometry: Geometry, mask: Value | None, reaches: Sequence[tuple[int, int]], past: int,
    lengths: Value | None, scores: Value,
) -> list[Rule]:  # fmt: skip
    """What may not be seen: masked keys, those outside of what queries reach, or beyond the cache."""

    def offset(b: Expr) -> Expr:
        return arg(past) if lengths is None else cast(lengths[b], "index") - geometry.queries

    rules: list[Rule] = [] if mask is None else [mask_rule(k, mask, geometry, scores)]
    rules += [only(reach_of(offset, left, right)) for left, right in reaches]
    if lengths is not None:
        if lengths.shape != (geometry.batch,):
            k.error(f"nonpad_kv_seqlen has the shape {list(lengths.shape)}, expected {[geometry.batch]}")
        rules.append(only(lambda place: place.key < cast(lengths[place.batch], "index")))
    return rules


def compose_rules(rules: Sequence[Rule]) -> Rule:
    """Compose two rules."""

    def rule(score: Expr, place: ScoreIndex) -> Expr:
        for each in rules:
            score = each(score, place)
        return score

    return rule


def _operands(
    k: Builder, q: Value, key: Value, value: Value, caches: tuple[Value | None, Value | None],
    heads: int | None, kv_heads: int | None,
) -> tuple[Heads, Heads, Heads]:  # fmt: skip
    """Queries, and keys and values appended to those of the cache."""
    if not q.rank == key.rank == value.rank or q.rank not in (3, 4):
        k.error(f"takes Q, K and V all of rank 3 or all of rank 4, not {q.rank}, {key.rank}, {value.rank}")
    if q.rank == 3 and (heads is None or kv_heads is None):
        k.error("inputs of rank 3 need the attributes q_num_heads and kv_num_heads")
    heads, kv_heads = heads or 0, kv_heads or 0
    if (caches[0] is None) != (caches[1] is None):
        k.error("takes past_key and past_value together or neither")
    asked = any(k.layer.outputs[1:3])
    stored = [
        heads_of(k, x, kv_heads, where_it_lies=past is None and not asked) for x, past in
        zip((key, value), caches, strict=True)
    ]  # fmt: skip
    for n, past in enumerate(caches):
        if past is not None:
            stored[n] = Heads.of(appended(k, past, stored[n].value))
    return heads_of(k, q, heads, where_it_lies=heads == kv_heads), stored[0], stored[1]


@operator("Attention", since=23)
def attention(
    k: Builder, q: Value, key: Value, value: Value, attn_mask: Value | None = None,
    past_key: Value | None = None, past_value: Value | None = None, nonpad_kv_seqlen: Value | None = None, *,
    is_causal: int = 0, kv_num_heads: int | None = None, left_window_size: int = -1,
    q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, right_window_size: int = -1,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """softmax(scale * Q K' + mask) V, by head; also the keys and values with their past, and the scores.

    K and V may be caches of which `nonpad_kv_seqlen` rows of each sample are in use (from opset 24 on), and
    queries may see no further than a window around their own position (from opset 25 on).
    """
    k.one_of("qk_matmul_output_mode", qk_matmul_output_mode, (0, 1, 2, 3))
    check_precision(k, softmax_precision)
    window = (left_window_size, right_window_size)
    if min(window) < -1:
        k.error(f"window sizes {window[0]} and {window[1]} must be -1 (no bound) or more")
    if nonpad_kv_seqlen is not None and past_key is not None:
        k.error("takes nonpad_kv_seqlen or past_key and past_value, not both")
    caches = (past_key, past_value)
    queries, keys, values = _operands(k, q, key, value, caches, q_num_heads, kv_num_heads)
    geometry = geometry_of(k, queries, keys, values)
    scale = 1.0 / sqrt(max(queries.sizes[3], 1)) if scale is None else scale
    stages = [scores_of(k, queries, keys, geometry, scale)]
    stages.append(capped(k, stages[0], softcap) if softcap > 0 else stages[0])
    past = 0 if past_key is None else past_key.shape[2]
    reaches = [*([(-1, 0)] if is_causal else []), *([window] if max(window) >= 0 else [])]
    rules = _rules(k, geometry, attn_mask, reaches, past, nonpad_kv_seqlen, stages[1])
    stages.append(ruled(k, stages[1], geometry, compose_rules(rules)) if rules else stages[1])
    stages.append(softmax_over(k, stages[2], 2, 3, masked=bool(rules)))
    y = weighted(k, stages[3], values, geometry, q.dtype)
    shown = stages[qk_matmul_output_mode]
    if shown.dtype != q.dtype:
        shown = k.elementwise(lambda e: e, shown, dtype=q.dtype)
    return (
        y if q.rank == 4 else merge_heads(k, y), keys.value, values.value, k.alias(shown, geometry.shape)
    )  # fmt: skip
