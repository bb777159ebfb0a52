"""onnxruntime's decoder attention: single tokens with beams, and block-sparse attention."""

from __future__ import annotations

from math import sqrt

import numpy as np

from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, reduce
from engine.kernels.value import Value
from engine.operators.attention import (
    Heads,
    Pick,
    ScoreIndex,
    compose_rules,
    geometry_of,
    merge_heads,
    only,
    picked_heads,
    reach_of,
    ruled,
    scores_of,
    weighted,
)
from engine.operators.builder import Builder
from engine.operators.contrib.attention import attended, cached, placed, queries_keys_values
from engine.operators.contrib.group_query_attention import lengths_of, operands, rotated_by_position
from engine.operators.normalization import softmax_over
from engine.operators.registry import operator


@operator("DecoderMaskedMultiHeadAttention", domain=CONTRIB)
def decoder_masked_multi_head_attention(
    k: Builder, query: Value, key: Value | None = None, value: Value | None = None,
    mask_index: Value | None = None, attention_bias: Value | None = None, past_key: Value | None = None,
    past_value: Value | None = None, past_sequence_length: Value | None = None,
    beam_width: Value | None = None, cache_indirection: Value | None = None, bias: Value | None = None, *,
    mask_filter_value: float = -10000.0, num_heads: int, output_qk: int = 0,
    past_present_share_buffer: int = 0, scale: float = 0.0,
) -> tuple[Value | None, ...]:  # fmt: skip
    """`MultiHeadAttention` of one query per sample, over its cache or an encoder's keys (batch, heads, ...).

    `cache_indirection` says which beam of a sample each cached token came from.
    """
    if query.rank != 3 or num_heads < 1 or query.shape[2] % num_heads:
        k.error(f"a query {list(query.shape)} does not divide into {num_heads} heads")
    if key is None or value is None:
        width = query.shape[2] // 3
        picks = [Pick(num_heads, width // num_heads, n * width, width // num_heads) for n in range(3)]
        q, keys, values = (Heads.of(picked_heads(k, query, pick, bias, pick.first)) for pick in picks)
    else:
        q, keys, values = queries_keys_values(k, query, key, value, bias, num_heads, False)
    # Those of an encoder are no cache that grows.
    is_whole = key is not None and key.rank == 4
    past = None if is_whole or past_key is None or past_value is None else (past_key, past_value)
    count = past_sequence_length if past_present_share_buffer else None
    keys, values, present, _, used = cached(
        k, keys, values, past, count, None if is_whole else cache_indirection
    )
    y, scores = attended(
        k, q, keys, values, scale, mask_index, attention_bias, lambda b: lit(0), False, mask_filter_value,
        used,
    )  # fmt: skip
    return y, *((None, None) if is_whole else present), scores if output_qk else None


@operator("SparseAttention", domain=CONTRIB, host=("total_sequence_length",))
def sparse_attention(
    k: Builder, query: Value, key: Value | None, value: Value | None, past_key: Value, past_value: Value,
    block_row_indices: Value, block_col_indices: Value, total_sequence_length: Value,
    key_total_sequence_lengths: Value, cos_cache: Value | None = None, sin_cache: Value | None = None, *,
    do_rotary: int = 0, kv_num_heads: int, num_heads: int, rotary_interleaved: int = 0, scale: float = 0.0,
    sparse_block_size: int,
) -> tuple[Value, ...]:  # fmt: skip
    """Causal attention over a cache, in which heads see only some blocks of tokens.

    The blocks that a row of blocks sees are listed as a compressed sparse matrix for each layout; heads take
    the layouts in turn.
    """
    q, own_key, own_value = operands(k, query, key, value, num_heads, kv_num_heads)
    batch, new, total = q.shape[0], own_key.shape[2], k.ints(total_sequence_length)[0]
    counts = k.elementwise(lambda e: e - lit(1, e.dtype), key_total_sequence_lengths)
    lengths = lengths_of(k, counts, None, new, batch)
    if do_rotary:
        q, own_key = rotated_by_position(
            k, (q, own_key), cos_cache, sin_cache, None, lengths, bool(rotary_interleaved)
        )
    rows = max(total, past_key.shape[2])
    keys = placed(k, past_key, own_key, lengths.before, rows, lengths.new)
    values = placed(k, past_value, own_value, lengths.before, rows, lengths.new)
    layouts, blocks = block_row_indices.shape[0], block_row_indices.shape[-1] - 1
    if block_row_indices.rank != 2 or block_col_indices.rank != 2 or sparse_block_size < 1 or blocks < 1:
        k.error(f"{block_row_indices} and {block_col_indices} are no lists of blocks")

    def listed(n: Expr, r: Expr, c: Expr) -> Expr:
        first, end = (cast(block_row_indices[n, r + lit(i)], "index") for i in (0, 1))
        hits = reduce(
            "sum", end - first,
            lambda i: cast(eq(block_col_indices[n, first + i], cast(c, "int32")), "int32"),
        )  # fmt: skip
        return cast(hits > lit(0, "int32"), "int32")

    seen = k.compute((layouts, blocks, blocks), np.dtype(np.int32), listed)
    geometry = geometry_of(k, Heads.of(q), Heads.of(keys), Heads.of(values))
    scores = scores_of(k, Heads.of(q), Heads.of(keys), geometry, scale or 1.0 / sqrt(q.shape[3]))

    def open_block(place: ScoreIndex) -> Expr:
        row = (lengths.before(place.batch) + place.query) // arg(sparse_block_size)
        column = place.key // arg(sparse_block_size)
        last = arg(blocks - 1)
        at = (place.head % arg(layouts), clamp(row, lit(0), last), clamp(column, lit(0), last))
        return seen[at] > lit(0, "int32")

    rules = [
        only(open_block), only(reach_of(lengths.before, -1, 0)),
        only(lambda place: place.key < lengths.total(place.batch)),
    ]  # fmt: skip
    probabilities = softmax_over(k, ruled(k, scores, geometry, compose_rules(rules)), 2, 3, masked=True)
    return merge_heads(k, weighted(k, probabilities, Heads.of(values), geometry, query.dtype)), keys, values
