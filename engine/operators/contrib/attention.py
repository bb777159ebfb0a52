"""onnxruntime's own attention layers, which its optimizer writes into the models that it saves.

Padding is not hidden altogether: its scores are lowered by `mask_filter_value`, as onnxruntime does, so that
a sample of nothing but padding attends to all of it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, lit, select
from engine.kernels.value import Value
from engine.operators.attention import (
    Geometry,
    Heads,
    Pick,
    Rule,
    ScoreIndex,
    appended,
    compose_rules,
    geometry_of,
    heads_of,
    mask_rule,
    merge_heads,
    only,
    picked_heads,
    reach_of,
    ruled,
    scores_of,
    weighted,
)
from engine.operators.builder import Builder
from engine.operators.declaration import AttributeGroup
from engine.operators.linear import matmul
from engine.operators.movement import concat_columns
from engine.operators.normalization import softmax_over
from engine.operators.registry import operator

LOWEST = float(np.finfo(np.float32).min)
"""What the score of a key after its query becomes."""


Offset = Callable[[Expr], Expr]
"""How many keys precede the first query of a sample."""


def padding_rule(k: Builder, mask: Value, geometry: Geometry, past: Offset, lowered: float) -> Rule:
    """Adds `lowered` to the scores of padding.

    The mask is one of: the number of keys of each sample (batch), where they end and begin (2 * batch), their
    number and cumulative counts (3 * batch + 2), or 1 for what may be seen, as (batch, keys),
    (batch, queries, keys) or (batch, 1, longest, longest).
    """
    batch, queries, keys = geometry.batch, geometry.queries, geometry.keys

    def seen(place: ScoreIndex) -> Expr:
        b, _, i, j = place
        if mask.rank == 1:
            inside = j < cast(mask[b], "index")
            return inside & (j >= cast(mask[b + batch], "index")) if mask.shape[0] == 2 * batch else inside
        at = {2: (b, j), 3: (b, i, j), 4: (b, lit(0), i + past(b), j)}[mask.rank]
        return mask[at] > lit(0, mask.arithmetic)

    fits = (
        mask.shape in ((batch,), (2 * batch,), (3 * batch + 2,), (batch, keys), (batch, queries, keys))
        or mask.rank == 4
        and mask.shape[:2] == (batch, 1)
        and min(mask.shape[2:]) >= keys
    )
    if not fits:
        k.error(f"a mask of shape {list(mask.shape)} does not fit scores of {list(geometry.shape)}")

    def rule(score: Expr, place: ScoreIndex) -> Expr:
        return score + select(seen(place), lit(0.0, score.dtype), arg(lowered, score.dtype))

    return rule


def causal_rule(past: Offset) -> Rule:
    """Hides keys after the query."""
    allowed = reach_of(past, -1, 0)
    return lambda score, place: select(allowed(place), score, lit(LOWEST, score.dtype))


def attended(
    k: Builder, q: Heads, key: Heads, value: Heads, scale: float, mask: Value | None, bias: Value | None,
    past: Offset, causal: bool, lowered: float, extra: Rule | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """The layer's output (batch, queries, hidden), and the scores after their masks."""
    geometry = geometry_of(k, q, key, value)
    scores = scores_of(k, q, key, geometry, scale or 1.0 / sqrt(max(q.sizes[3], 1)))
    rules: list[Rule] = [] if bias is None else [mask_rule(k, bias, geometry, scores)]
    if mask is not None:
        rules.append(padding_rule(k, mask, geometry, past, lowered))
    if causal:
        rules.append(causal_rule(past))
    rules += [] if extra is None else [extra]
    if rules:
        scores = ruled(k, scores, geometry, compose_rules(rules))
    dtype = q.value.dtype
    probabilities = softmax_over(k, scores, 2, 3, masked=bias is not None or extra is not None)
    y = merge_heads(k, weighted(k, probabilities, value, geometry, dtype))
    return y, k.elementwise(lambda e: e, k.alias(scores, geometry.shape), dtype=dtype)


# Attention: projections, then attention


def check_projection(k: Builder, x: Value, weights: Value, bias: Value | None) -> None:
    """Check the shapes of x W + b."""
    if x.rank != 3 or weights.rank != 2 or weights.shape[0] != x.shape[2]:
        k.error(f"takes (batch, length, inputs) and (inputs, columns), not {x.shape} and {weights.shape}")
    if bias is not None and bias.shape != weights.shape[1:]:
        k.error(f"takes a bias for each of {weights.shape[1]} columns, not {list(bias.shape)}")


def projected(k: Builder, x: Value, weights: Value, bias: Value | None) -> Value:
    """x W + b for queries, keys and values at once: (batch, length, all columns)."""
    check_projection(k, x, weights, bias)
    (batch, length, inputs), columns = x.shape, weights.shape[1]
    sizes = (1, batch * length, columns, inputs)
    y = matmul(k, x, weights, (batch, length, columns), sizes, (0, inputs, 1), (0, columns, 1))
    return y if bias is None else k.elementwise(lambda e, b: e + b, y, bias)


@dataclass(frozen=True, kw_only=True)
class SelfAttention(AttributeGroup):
    """The attributes of attention that includes projections."""

    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    num_heads: int
    past_present_share_buffer: int = 0
    scale: float = 0.0
    unidirectional: int = 0


@operator("Attention", domain=CONTRIB)
def attention(
    k: Builder, x: Value, weights: Value, bias: Value | None = None, mask_index: Value | None = None,
    past: Value | None = None, attention_bias: Value | None = None,
    past_sequence_length: Value | None = None, *,
    qkv_hidden_sizes: tuple[int, ...] = (), rotary_embedding_dim: int = 0, attributes: SelfAttention,
) -> tuple[Value, ...]:  # fmt: skip
    """Multi-head attention of a sequence to itself, projections included; output 2 is the grown cache."""
    packed = projected(k, x, weights, bias)
    return attention_of(k, packed, mask_index, past, attributes, attention_bias, qkv_hidden_sizes)


def attention_of(
    k: Builder, packed: Value, mask_index: Value | None, past: Value | None, attributes: SelfAttention,
    attention_bias: Value | None = None, qkv_hidden_sizes: tuple[int, ...] = (),
) -> tuple[Value, ...]:  # fmt: skip
    """`attention` from its projections: queries, keys and values side by side."""
    if attributes.do_rotary or attributes.past_present_share_buffer:
        k.error("do_rotary and past_present_share_buffer are not supported")
    num_heads = attributes.num_heads
    widths = tuple(qkv_hidden_sizes) or (packed.shape[2] // 3,) * 3
    if len(widths) != 3 or sum(widths) != packed.shape[2] or any(w % num_heads for w in widths):
        k.error(f"{packed.shape[2]} columns do not divide into {list(widths)} and {num_heads} heads")
    firsts, sizes = (0, widths[0], widths[0] + widths[1]), [w // num_heads for w in widths]
    q, key, value = (
        picked_heads(k, packed, Pick(num_heads, size, first, size))
        for size, first in zip(sizes, firsts, strict=True)
    )
    length = 0
    if past is not None:
        if past.rank != 5 or past.shape[0] != 2:
            k.error(f"takes a cache (2, batch, heads, length, size), not {list(past.shape)}")
        length = past.shape[3]
        rows = k.alias(past, (2, past.size // 2))
        key, value = (
            appended(k, k.alias(k.compute((1, past.size // 2), past.dtype, lambda _, c, n=n: rows[arg(n), c]),
                                past.shape[1:]), new)
            for n, new in enumerate((key, value))
        )  # fmt: skip
    y, _ = attended(
        k, Heads.of(q), Heads.of(key), Heads.of(value), attributes.scale, mask_index, attention_bias,
        lambda b: arg(length), bool(attributes.unidirectional), attributes.mask_filter_value,
    )  # fmt: skip
    if key.shape != value.shape:
        return (y,)
    present = concat_columns(k, [k.alias(e, (1, e.size)) for e in (key, value)])
    return y, k.alias(present, (2, *key.shape))


# MultiHeadAttention: attention alone


def queries_keys_values(
    k: Builder, q: Value, key: Value | None, value: Value | None, bias: Value | None, heads: int,
    where_they_lie: bool,
) -> tuple[Heads, Heads, Heads]:  # fmt: skip
    """The operands of MultiHeadAttention in any of the forms in which they come."""
    if q.rank == 5:
        first, second, third = _packed(k, q, 3, bias, 0)
        return first, second, third
    if key is None:
        k.error(f"a query of shape {list(q.shape)} needs a key")
    if q.rank != 3 or heads < 1 or q.shape[2] % heads:
        k.error(f"a query of shape {list(q.shape)} does not divide into {heads} heads")
    width = q.shape[2]

    def unpacked(x: Value, first: int) -> Heads:
        if x.rank == 4:
            # Already projected, the bias included: keys and values of an encoder.
            return Heads.of(x)
        if x.rank != 3 or x.shape[2] % heads:
            k.error(f"{list(x.shape)} does not divide into {heads} heads")
        if bias is None:
            return heads_of(k, x, heads, where_they_lie)
        size = x.shape[2] // heads
        return Heads.of(picked_heads(k, x, Pick(heads, size, 0, size), bias, first))

    if key.rank == 5:
        stored = _packed(k, key, 2, bias, width)
        return unpacked(q, 0), stored[0], stored[1]
    if value is None:
        k.error(f"a key of shape {list(key.shape)} needs a value")
    return unpacked(q, 0), unpacked(key, width), unpacked(value, 2 * width)


def _packed(k: Builder, x: Value, kinds: int, bias: Value | None, first: int) -> tuple[Heads, ...]:
    """Operands packed in one tensor, (batch, length, heads, kinds, size)."""
    batch, length, heads, found, size = x.shape
    if found != kinds:
        k.error(f"takes {kinds} kinds along axis 3 of {list(x.shape)}")
    flat = k.alias(x, (batch, length, heads * kinds * size))
    return tuple(
        Heads.of(
            picked_heads(k, flat, Pick(heads, size, n * size, kinds * size), bias, first + n * heads * size)
        )
        for n in range(kinds)
    )


def placed(
    k: Builder, past: Value | None, new: Value, start: Offset, rows: int, used: Offset | None = None
) -> Value:
    """A cache of `rows` rows: those of `past`, with those of `new` from `start(batch)` on; else zeros.

    `used` is how many of the new rows count, by default all.
    """
    batch, heads, count, columns = new.shape

    def formula(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        own = i - start(b)
        fresh = (own >= lit(0)) & (own < (arg(count) if used is None else used(b)))
        old = lit(0, new.arithmetic)
        if past is not None and past.size:
            old = past.load_where(i < arg(past.shape[2]), (b, h, i, d))
        return new.load_where(fresh, (b, h, own, d), old)

    return k.compute((batch, heads, rows, columns), new.dtype, formula)


def grown(
    k: Builder, past: tuple[Value, Value], new: tuple[Value, Value], length: Value | None
) -> tuple[tuple[Value, Value], Offset, Rule | None]:
    """Caches of keys and values with new rows appended, or stored after the `length` rows in use.

    Also how many rows precede the new ones, and what hides the rows behind these.
    """
    if length is None:
        rows = past[0].shape[2]
        return (appended(k, past[0], new[0]), appended(k, past[1], new[1])), lambda b: arg(rows), None

    def start(b: Expr) -> Expr:
        return cast(length.at(lit(0)), "index")

    caches = tuple(placed(k, old, own, start, old.shape[2]) for old, own in zip(past, new, strict=True))
    used = only(lambda place: place.key < start(place.batch) + new[0].shape[2])
    return (caches[0], caches[1]), start, used


def by_beam(k: Builder, cache: Value, rows: Value, used: Value | None) -> Value:
    """Reorder a cache (batch * beams, heads, length, size) to the source of each beam.

    rows (batch, beams, length or more) names the beam of each token; the newest token is a beam's own.
    """
    if rows.rank != 3 or cache.shape[0] != rows.shape[0] * rows.shape[1] or rows.shape[2] < cache.shape[2]:
        k.error(f"cache_indirection {list(rows.shape)} does not fit a cache {list(cache.shape)}")
    beams = rows.shape[1]

    def formula(b: Expr, h: Expr, t: Expr, d: Expr) -> Expr:
        beam = cast(rows[b // arg(beams), b % arg(beams), t], "index")
        source = b // arg(beams) * beams + clamp(beam, lit(0), arg(beams - 1))
        count = arg(cache.shape[2] - 1) if used is None else cast(used.at(lit(0)), "index")
        return cache[select(t < count, source, b), h, t, d]

    return k.compute(cache.shape, cache.dtype, formula)


def cached(
    k: Builder, keys: Heads, values: Heads, past: tuple[Value, Value] | None, length: Value | None,
    beams: Value | None,
) -> tuple[Heads, Heads, tuple[Value, Value], Offset, Rule | None]:  # fmt: skip
    """Keys and values of which the cache is a part, if there is one, as they are read and as they are kept.

    Also how many rows precede the new ones, and what hides rows; `beams` are those of `by_beam`.
    """
    present, before, used = (keys.value, values.value), (lambda b: arg(0)), None
    if past is not None:
        present, before, used = grown(k, past, present, length)
        keys, values = map(Heads.of, present)
    if beams is not None:
        keys, values = (Heads.of(by_beam(k, x, beams, length)) for x in present)
    return keys, values, present, before, used


@operator("MultiHeadAttention", domain=CONTRIB)
def multi_head_attention(
    k: Builder, query: Value, key: Value | None = None, value: Value | None = None,
    bias: Value | None = None, key_padding_mask: Value | None = None, attention_bias: Value | None = None,
    past_key: Value | None = None, past_value: Value | None = None,
    past_sequence_length: Value | None = None, cache_indirection: Value | None = None, *,
    mask_filter_value: float = -10000.0, num_heads: int, scale: float = 0.0, unidirectional: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    """softmax(scale * Q K' + masks) V by head; also keys and values with their past, and the scores."""
    if (past_key is None) != (past_value is None):
        k.error("takes past_key and past_value together or neither")
    lie = past_key is None and not any(k.layer.outputs[1:3])
    q, keys, values = queries_keys_values(k, query, key, value, bias, num_heads, lie)
    past = None if past_key is None or past_value is None else (past_key, past_value)
    keys, values, present, before, used = cached(
        k, keys, values, past, past_sequence_length, cache_indirection
    )
    y, scores = attended(
        k, q, keys, values, scale, key_padding_mask, attention_bias, before, bool(unidirectional),
        mask_filter_value, used,
    )  # fmt: skip
    return y, *present, scores
