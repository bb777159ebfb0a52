"""GroupQueryAttention: onnxruntime's attention for language models, rotary positions and cache included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from engine.graph.model import CONTRIB, Layer
from engine.kernels.expr import Expr, arg, cast, clamp, lit, maximum, minimum, select, unary
from engine.kernels.value import Value
from engine.operators.attention import (
    Geometry,
    Heads,
    Pick,
    Rule,
    ScoreIndex,
    capped,
    compose_rules,
    geometry_of,
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
from engine.operators.casting import convert
from engine.operators.contrib.attention import placed
from engine.operators.contrib.block_quantized import unpacked_number
from engine.operators.normalization import rms_scaled, softmax_over
from engine.operators.registry import operator
from engine.operators.rotary import checked_width, listed_angle, rotated


@dataclass(frozen=True)
class Lengths:
    """Sequence lengths of a sample: `total`, `before` (in the cache) and `new`, without padding."""

    total: Callable[[Expr], Expr]
    before: Callable[[Expr], Expr]
    new: Callable[[Expr], Expr]


def lengths_of(k: Builder, seqlens_k: Value, query_seqlens: Value | None, rows: int, batch: int) -> Lengths:
    """`seqlens_k` counts a sample's tokens, less one. A prompt, even one with padding, starts at 0."""
    for name, given in (("seqlens_k", seqlens_k), ("query_seqlens", query_seqlens)):
        if given is not None and given.size != batch:
            k.error(f"{name} has the shape {list(given.shape)}, expected one for each of {batch} samples")
    flat = k.alias(seqlens_k, (batch,))
    counts = None if query_seqlens is None else k.alias(query_seqlens, (batch,))

    def total(b: Expr) -> Expr:
        return cast(flat[b], "index") + lit(1)

    def new(b: Expr) -> Expr:
        return minimum(arg(rows), total(b)) if counts is None else cast(counts[b], "index")

    return Lengths(total, lambda b: total(b) - new(b), new)


def operands(
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


def _probabilities(
    k: Builder, scores: Value, geometry: Geometry, head_sink: Value | None, smooth: bool
) -> Value:
    """Softmax over the keys, and over a sink that each head may have."""
    if head_sink is None:
        zero = (lambda o: lit(0.0, scores.arithmetic)) if smooth else None
        return softmax_over(k, scores, 2, 3, masked=True, sink=zero)
    if head_sink.shape != (geometry.heads,):
        k.error(f"head_sink has the shape {list(head_sink.shape)}, expected {[geometry.heads]}")

    def sink(row: Expr) -> Expr:
        rows = geometry.group * geometry.queries
        return cast(head_sink[geometry.place(row // rows, row % rows, lit(0)).head], scores.arithmetic)

    return softmax_over(k, scores, 2, 3, masked=True, sink=sink)


class Cache(NamedTuple):
    """An updated cache, what queries read of it, and the positions of its rows.

    `position` is a row's token, counted from a sample's first, and `held` whether there is one.
    """

    present: Value
    heads: Heads
    position: Callable[[Expr, Expr], Expr]
    held: Callable[[Expr, Expr], Expr]


@dataclass(frozen=True)
class Codes:
    """How a cache stores numbers: unchanged, or as scaled integers, two per byte with 4 bits."""

    scale: Value | None
    bits: int = 8

    def columns(self, stored: int) -> int:
        """How many numbers there are in a row of so many elements."""
        return stored * 2 if self.scale is not None and self.bits == 4 else stored

    def step(self, h: Expr, d: Expr) -> Expr:
        """The scale of a head's column."""
        assert self.scale is not None
        return self.scale.at(lit(0)) if self.scale.size == 1 else self.scale[lit(0), h, lit(0), d]

    def check(self, k: Builder, heads: int, columns: int) -> None:
        """Refuse scales that fit neither one head's columns nor all."""
        if self.scale is not None and self.scale.size != 1 and self.scale.shape != (1, heads, 1, columns):
            k.error(f"a scale must be one or {[1, heads, 1, columns]}, not {list(self.scale.shape)}")

    def read(self, stored: Value) -> Callable[..., Expr]:
        """The number at a place (batch, head, row, column)."""
        if self.scale is None:
            return lambda b, h, i, d: stored[b, h, i, d]
        if self.bits == 8:
            return lambda b, h, i, d: cast(stored[b, h, i, d], "float32") * self.step(h, d)

        def number(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            code = unpacked_number(stored, (b, h, i), d, 4) - lit(8, "int32")
            return cast(code, "float32") * self.step(h, d)

        return number

    def written(self, k: Builder, new: Value, dtype: np.dtype) -> Value:
        """New rows as the cache stores them."""
        if self.scale is None:
            return new if new.dtype == dtype else convert(k, new, dtype)
        low, high = (-128.0, 127.0) if self.bits == 8 else (-8.0, 7.0)

        def code(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            return cast(clamp(unary("round", new[b, h, i, d] / self.step(h, d)), low, high), "int32")

        if self.bits == 8:
            return k.compute(new.shape, dtype, code)

        def pair(b: Expr, h: Expr, i: Expr, c: Expr) -> Expr:
            first, second = (code(b, h, i, c * 2 + lit(n)) + lit(8, "int32") for n in (0, 1))
            return first | (second << lit(4, "int32"))

        return k.compute((*new.shape[:3], new.shape[3] // 2), dtype, pair)


def _host(layer: Layer) -> tuple[str, ...]:
    """A window-sized cache keeps its size."""
    return () if layer.attributes.get("sliding_window_cache") else ("total_sequence_length",)


@operator("GroupQueryAttention", domain=CONTRIB, host=_host)
def group_query_attention(
    k: Builder, query: Value, key: Value | None, value: Value | None, past_key: Value | None,
    past_value: Value | None, seqlens_k: Value, total_sequence_length: Value,
    cos_cache: Value | None = None, sin_cache: Value | None = None, position_ids: Value | None = None,
    attention_bias: Value | None = None, head_sink: Value | None = None, k_scale: Value | None = None,
    v_scale: Value | None = None, q_norm_weight: Value | None = None, k_norm_weight: Value | None = None,
    query_seqlens: Value | None = None, *,
    causal: int = 1, do_rotary: int = 0, k_norm_epsilon: float | None = None, k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0, kv_num_heads: int, local_window_size: int = -1, num_heads: int,
    q_norm_epsilon: float | None = None, qk_norm_epsilon: float = 1e-6, qk_output: int = 0,
    rotary_interleaved: int = 0, scale: float = 0.0, sliding_window_cache: int = 0,
    smooth_softmax: int = -1, softcap: float = 0.0, v_quant_type: str = "NONE",
) -> tuple[Value | None, ...]:  # fmt: skip
    """softmax(scale * Q K' + masks) V over a cache that takes the new keys and values where they belong.

    With `sliding_window_cache` the cache keeps the newest tokens only, from its first row on; an integer
    cache holds numbers divided by `k_scale` and `v_scale`.
    """
    if (past_key is None) != (past_value is None):
        k.error("takes past_key and past_value together or neither")
    q, own_key, own_value = operands(k, query, key, value, num_heads, kv_num_heads)
    batch, new = q.shape[0], own_key.shape[2]
    lengths = lengths_of(k, seqlens_k, query_seqlens, new, batch)
    if q_norm_weight is not None:
        q = _normalized(k, q, q_norm_weight, qk_norm_epsilon if q_norm_epsilon is None else q_norm_epsilon)
    if k_norm_weight is not None:
        epsilon = qk_norm_epsilon if k_norm_epsilon is None else k_norm_epsilon
        own_key = _normalized(k, own_key, k_norm_weight, epsilon)
    if do_rotary:
        q, own_key = rotated_by_position(
            k, (q, own_key), cos_cache, sin_cache, position_ids, lengths, bool(rotary_interleaved)
        )
    codes = [Codes(_scale_of(k, s, kind), kv_cache_bit_width or 8)
             for s, kind in ((k_scale, k_quant_type), (v_scale, v_quant_type))]  # fmt: skip
    if sliding_window_cache:
        if past_key is None or past_value is None or not 0 < local_window_size <= past_key.shape[2]:
            k.error("sliding_window_cache needs a cache of at least local_window_size rows")
        window = AttentionWindow(k, lengths, past_key.shape[2], local_window_size)
        keys = window.cache(past_key, own_key, codes[0])
        values = window.cache(past_value, own_value, codes[1])
    else:
        rows = max(k.ints(total_sequence_length)[0], 0 if past_key is None else past_key.shape[2])
        keys = _cache(k, past_key, own_key, lengths, rows, codes[0])
        values = _cache(k, past_value, own_value, lengths, rows, codes[1])
    queries = Heads.of(q)
    geometry = geometry_of(k, queries, keys.heads, values.heads)
    scores = scores_of(k, queries, keys.heads, geometry, scale or 1.0 / sqrt(q.shape[3]))
    scores = capped(k, scores, softcap) if softcap > 0 else scores
    rules: list[Rule] = []
    if attention_bias is not None:
        rules.append(_bias_rule(k, attention_bias, geometry, scores, keys, bool(sliding_window_cache)))
    rules.append(only(lambda place: keys.held(place.batch, place.key)))
    if causal:
        near = reach_of(lengths.before, max(local_window_size - 1, -1), 0)
        rules.append(only(lambda p: near(p._replace(key=keys.position(p.batch, p.key)))))
    scores = ruled(k, scores, geometry, compose_rules(rules))
    probabilities = _probabilities(k, scores, geometry, head_sink, smooth_softmax > 0)
    y = merge_heads(k, weighted(k, probabilities, values.heads, geometry, query.dtype))
    shown = None if not qk_output else k.alias(scores if qk_output == 1 else probabilities, geometry.shape)
    return y, keys.present, values.present, shown


def _scale_of(k: Builder, scale: Value | None, kind: str) -> Value | None:
    """The scale of a quantised cache, None for one of floats."""
    if kind not in ("NONE", "PER_TENSOR", "PER_CHANNEL"):
        k.error(f"the type of a cache's scale is {kind!r}; one of NONE, PER_TENSOR, PER_CHANNEL")
    if kind == "NONE":
        return None
    if scale is None:
        k.error(f"a cache with {kind} scales needs k_scale and v_scale")
    return scale


def _normalized(k: Builder, x: Value, weight: Value, epsilon: float) -> Value:
    """Each head's row over its root mean square, times a weight for each column."""
    if weight.shape != x.shape[3:]:
        k.error(f"a norm's weight must be {[x.shape[3]]}, not {list(weight.shape)}")
    return rms_scaled(k, x, weight, -1, epsilon)[0]


def _bias_rule(
    k: Builder, bias: Value, geometry: Geometry, scores: Value, keys: Cache, by_position: bool
) -> Rule:
    """The bias of a score, which a window-sized cache finds by its token's position."""
    if not by_position:
        return mask_rule(k, bias, geometry, scores)
    fits = all(n in (1, m) for n, m in zip(bias.shape, geometry.shape[:3], strict=False))
    if bias.rank != 4 or not fits:
        k.error(f"a bias of shape {list(bias.shape)} does not fit {list(geometry.shape)}")
    steps = [arg(0 if n == 1 else bias.stride(a)) for a, n in enumerate(bias.shape[:3])]

    def rule(score: Expr, place: ScoreIndex) -> Expr:
        position = clamp(keys.position(place.batch, place.key), lit(0), arg(bias.shape[3] - 1))
        for i, step in zip(place[:3], steps, strict=True):
            position = position + i * step
        return score + cast(bias.at(position), score.dtype)

    return rule


def rotated_by_position(
    k: Builder, xs: tuple[Value, Value], cos: Value | None, sin: Value | None, positions: Value | None,
    lengths: Lengths, interleaved: bool,
) -> tuple[Value, Value]:  # fmt: skip
    """Queries and keys, each token rotated by its position: the given one, or after those in the cache."""
    if cos is None or sin is None or cos.rank != 2:
        k.error("do_rotary needs cos_cache and sin_cache, (positions, pairs of columns)")
    columns = xs[0].shape[3]
    width = checked_width(k, columns, 2 * cos.shape[-1], cos, sin)

    def position(b: Expr, i: Expr, _: Expr) -> Expr:
        return lengths.before(b) + i if positions is None else positions[b, i]

    angle = listed_angle(cos, sin, position)
    q, key = (rotated(k, x, columns, width, interleaved, angle) for x in xs)
    return q, key


def _stored(k: Builder, past: Value | None, new: Value, codes: Codes) -> Value:
    """The new rows as the cache stores them, once they are known to fit it."""
    codes.check(k, new.shape[1], new.shape[3])
    if past is not None and (
        past.rank != 4 or past.shape[:2] != new.shape[:2] or codes.columns(past.shape[3]) != new.shape[3]
    ):
        fit = [*new.shape[:2], *past.shape[2:3], *new.shape[3:]]
        k.error(f"a cache of shape {list(past.shape)} cannot take {list(new.shape)}", past.shape, fit)
    if past is None and codes.scale is not None:
        k.error("a quantised cache needs past_key and past_value")
    return codes.written(k, new, new.dtype if past is None else past.dtype)


def _numbers(k: Builder, stored: Value, new: Value, codes: Codes) -> Heads:
    """What queries read of stored rows, with as many columns as new ones."""
    if codes.scale is None:
        return Heads.of(stored if stored.dtype == new.dtype else convert(k, stored, new.dtype))
    return Heads.of(k.compute((*stored.shape[:3], new.shape[3]), new.dtype, codes.read(stored)))


def _cache(k: Builder, past: Value | None, new: Value, lengths: Lengths, rows: int, codes: Codes) -> Cache:
    """A cache of `rows` rows, of which each sample uses as many as it has tokens."""
    present = placed(k, past, _stored(k, past, new, codes), lengths.before, rows, lengths.new)
    return Cache(present, _numbers(k, present, new, codes), lambda b, j: j, lambda b, j: j < lengths.total(b))


@dataclass(frozen=True)
class AttentionWindow:
    """A cache of `capacity` rows for the newest tokens, at least `size` of them, from its first row on."""

    k: Builder
    lengths: Lengths
    capacity: int
    size: int

    def resident(self, total: Expr) -> Expr:
        """How many tokens the cache holds after so many."""
        gap = self.capacity - self.size + 1
        excess = maximum(total - self.capacity, lit(0))
        return total - (excess + (gap - 1)) // arg(gap) * gap

    def cache(self, past: Value, new: Value, codes: Codes) -> Cache:
        """The old rows followed by the new ones, as a step may be longer than the cache."""
        k, n, capacity = self.k, self.lengths, self.capacity
        fresh = _stored(k, past, new, codes)

        def first(b: Expr) -> Expr:
            """The token in the old cache's first row."""
            return n.before(b) - self.resident(n.before(b))

        def kept(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            at = n.total(b) - self.resident(n.total(b)) + i
            own, old = at - n.before(b), at - first(b)
            is_new = (own >= lit(0)) & (own < n.new(b))
            before = past.load_where((own < lit(0)) & (old < arg(capacity)), (b, h, old, d))
            return fresh.load_where(is_new, (b, h, own, d), before)

        def seen(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            old = past.load_where(i < arg(capacity), (b, h, i, d))
            return fresh.load_where(i >= arg(capacity), (b, h, i - capacity, d), old)

        def position(b: Expr, j: Expr) -> Expr:
            return select(j < arg(capacity), first(b) + j, n.before(b) + j - capacity)

        def held(b: Expr, j: Expr) -> Expr:
            return select(j < arg(capacity), self.resident(n.before(b)), n.new(b) + capacity) > j

        present = k.compute(past.shape, past.dtype, kept)
        batch, heads, _, columns = past.shape
        whole = k.compute((batch, heads, capacity + new.shape[2], columns), past.dtype, seen)
        return Cache(present, _numbers(k, whole, new, codes), position, held)
