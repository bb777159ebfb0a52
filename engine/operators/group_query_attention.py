"""GroupQueryAttention: onnxruntime's attention for language models, rotary positions and cache included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from engine.kernels.expr import Expr, cast, lit
from engine.kernels.value import Value
from engine.operators.attention import (
    Heads,
    Layout,
    Pick,
    Rule,
    capped,
    combined,
    layout_of,
    mask_rule,
    merge_heads,
    only,
    picked_heads,
    reach_of,
    ruled,
    scores_of,
    weighted,
)
from engine.operators.attention_contrib import DOMAIN, placed
from engine.operators.builder import Builder
from engine.operators.normalization import softmax_over
from engine.operators.registry import operator
from engine.operators.rotary import checked_width, listed_angle, rotated


@dataclass(frozen=True)
class Lengths:
    """How much of the cache a sample uses: `total` rows with the new ones, `before` without."""

    total: Callable[[Expr], Expr]
    before: Callable[[Expr], Expr]


def lengths_of(k: Builder, seqlens_k: Value, new: int, total: int, batch: int) -> Lengths:
    """`seqlens_k` counts a sample's rows, less one. A prompt (new rows only) starts at 0."""
    if seqlens_k.size != batch:
        k.error(f"seqlens_k has the shape {list(seqlens_k.shape)}, expected one for each of {batch} samples")
    flat = k.alias(seqlens_k, (batch,))
    goes_on = 0 if new == total else 1

    def count(b: Expr) -> Expr:
        return cast(flat[b], "index") + lit(1)

    return Lengths(count, lambda b: (count(b) - new) * goes_on)


def _operands(
    k: Builder, query: Value, key: Value | None, value: Value | None, heads: int, kv_heads: int
) -> tuple[Value, Value, Value]:
    """Queries, keys and values as (batch, heads, length, size), from three tensors or from one."""
    count = heads if key is not None else heads + 2 * kv_heads
    if query.rank != 3 or heads < 1 or kv_heads < 1 or heads % kv_heads or query.shape[2] % count:
        k.error(f"{list(query.shape)} does not divide into {heads} query heads for {kv_heads} key heads")
    size = query.shape[2] // count
    picks = [Pick(n, size, first * size, size)
             for n, first in ((heads, 0), (kv_heads, heads), (kv_heads, heads + kv_heads))]  # fmt: skip
    if key is None or value is None:
        q, own_key, own_value = (picked_heads(k, query, pick) for pick in picks)
        return q, own_key, own_value
    wanted = (query.shape[0], key.shape[1], kv_heads * size)
    if key.shape != wanted or value.shape != wanted:
        k.error(f"keys {list(key.shape)} and values {list(value.shape)} must have the shape {list(wanted)}")
    first = Pick(kv_heads, size, 0, size)
    return picked_heads(k, query, picks[0]), picked_heads(k, key, first), picked_heads(k, value, first)


def _probabilities(k: Builder, scores: Value, layout: Layout, head_sink: Value | None, smooth: bool) -> Value:
    """Softmax over the keys, and over a sink that each head may have."""
    if head_sink is None:
        zero = (lambda o: lit(0.0, scores.arithmetic)) if smooth else None
        return softmax_over(k, scores, 2, 3, masked=True, sink=zero)
    if head_sink.shape != (layout.heads,):
        k.error(f"head_sink has the shape {list(head_sink.shape)}, expected {[layout.heads]}")

    def sink(row: Expr) -> Expr:
        rows = layout.group * layout.queries
        return cast(head_sink[layout.place(row // rows, row % rows, lit(0)).head], scores.arithmetic)

    return softmax_over(k, scores, 2, 3, masked=True, sink=sink)


@operator("GroupQueryAttention", domain=DOMAIN, host=("total_sequence_length",))
def group_query_attention(
    k: Builder, query: Value, key: Value | None = None, value: Value | None = None,
    past_key: Value | None = None, past_value: Value | None = None, seqlens_k: Value | None = None,
    total_sequence_length: Value | None = None, cos_cache: Value | None = None,
    sin_cache: Value | None = None, position_ids: Value | None = None, attention_bias: Value | None = None,
    head_sink: Value | None = None, k_scale: Value | None = None, v_scale: Value | None = None,
    q_norm_weight: Value | None = None, k_norm_weight: Value | None = None, *,
    causal: int = 1, do_rotary: int = 0, k_quant_type: str = "NONE", kv_cache_bit_width: int = 0,
    kv_num_heads: int, local_window_size: int = -1, num_heads: int, qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0, rotary_interleaved: int = 0, scale: float = 0.0, sliding_window_cache: int = 0,
    smooth_softmax: int = -1, softcap: float = 0.0, v_quant_type: str = "NONE",
) -> tuple[Value | None, ...]:  # fmt: skip
    """softmax(scale * Q K' + masks) V over a cache that takes the new keys and values where they belong."""
    if k_scale is not None or v_scale is not None or {k_quant_type, v_quant_type} != {"NONE"}:
        k.error("a quantized cache is not supported")
    if q_norm_weight is not None or k_norm_weight is not None or sliding_window_cache:
        k.error("q_norm_weight, k_norm_weight and sliding_window_cache are not supported")
    if seqlens_k is None or total_sequence_length is None:
        k.error("needs seqlens_k and total_sequence_length")
    q, own_key, own_value = _operands(k, query, key, value, num_heads, kv_num_heads)
    batch, new, total = q.shape[0], own_key.shape[2], k.ints(total_sequence_length)[0]
    lengths = lengths_of(k, seqlens_k, new, total, batch)
    if do_rotary:
        q, own_key = _turned(
            k, (q, own_key), cos_cache, sin_cache, position_ids, lengths, bool(rotary_interleaved)
        )
    rows = max(total, 0 if past_key is None else past_key.shape[2])
    keys = _cache(k, past_key, own_key, lengths, rows)
    values = _cache(k, past_value, own_value, lengths, rows)
    queries = Heads.of(q)
    layout = layout_of(k, queries, keys, values)
    scores = scores_of(k, queries, keys, layout, scale or 1.0 / sqrt(q.shape[3]))
    scores = capped(k, scores, softcap) if softcap > 0 else scores
    rules: list[Rule] = []
    if attention_bias is not None:
        rules.append(mask_rule(k, attention_bias, layout, scores))
    rules.append(only(lambda place: place.key < lengths.total(place.batch)))
    if causal:
        rules.append(only(reach_of(lengths.before, max(local_window_size - 1, -1), 0)))
    scores = ruled(k, scores, layout, combined(rules))
    shares = _probabilities(k, scores, layout, head_sink, smooth_softmax > 0)
    y = merge_heads(k, weighted(k, shares, values, layout, query.dtype))
    shown = None if not qk_output else k.alias(scores if qk_output == 1 else shares, layout.shape)
    return y, keys.value, values.value, shown


def _turned(
    k: Builder, xs: tuple[Value, Value], cos: Value | None, sin: Value | None, positions: Value | None,
    lengths: Lengths, interleaved: bool,
) -> tuple[Value, Value]:  # fmt: skip
    """Queries and keys, each token turned by its position: given, or behind those that the cache holds."""
    if cos is None or sin is None or cos.rank != 2:
        k.error("do_rotary needs cos_cache and sin_cache, (positions, pairs of columns)")
    columns = xs[0].shape[3]
    width = checked_width(k, columns, 2 * cos.shape[-1], cos, sin)

    def position(b: Expr, i: Expr) -> Expr:
        return lengths.before(b) + i if positions is None else positions[b, i]

    angle = listed_angle(cos, sin, position)
    q, key = (rotated(k, x, columns, width, interleaved, angle) for x in xs)
    return q, key


def _cache(k: Builder, past: Value | None, new: Value, lengths: Lengths, rows: int) -> Heads:
    """The cache with the new rows in it."""
    if past is not None and (past.rank != 4 or any(past.shape[a] != new.shape[a] for a in (0, 1, 3))):
        k.error(f"a cache of shape {list(past.shape)} cannot take {list(new.shape)}")
    return Heads.of(placed(k, past, new, lengths.before, rows))
