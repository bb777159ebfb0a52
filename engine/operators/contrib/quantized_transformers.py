"""onnxruntime's quantised layers of transformers: attention and embeddings from integer weights."""

from __future__ import annotations

from engine.graph.model import CONTRIB
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.contrib.attention import SelfAttention, attention_of, check_projection
from engine.operators.contrib.fused_layers import embed_layer_normalization
from engine.operators.contrib.quantized_layers import matmul_integer_to_float
from engine.operators.quantization import dequantised
from engine.operators.registry import operator


@operator("QAttention", domain=CONTRIB)
def q_attention(
    k: Builder, x: Value, weights: Value, bias: Value, input_scale: Value, weight_scale: Value,
    mask_index: Value | None = None, input_zero: Value | None = None, weight_zero: Value | None = None,
    past: Value | None = None, *, attributes: SelfAttention,
) -> tuple[Value, ...]:  # fmt: skip
    """`Attention` of a quantised sequence with quantised projections; weights may be scaled by column."""
    check_projection(k, x, weights, bias)
    packed = matmul_integer_to_float(k, x, weights, input_scale, weight_scale, input_zero, weight_zero, bias)
    return attention_of(k, packed, mask_index, past, attributes)


@operator("QEmbedLayerNormalization", domain=CONTRIB)
def q_embed_layer_normalization(
    k: Builder, input_ids: Value, segment_ids: Value | None, word: Value, position: Value,
    segment: Value | None, gamma: Value, beta: Value, mask: Value | None, word_scale: Value,
    position_scale: Value, segment_scale: Value | None, gamma_scale: Value, beta_scale: Value,
    word_zero: Value, position_zero: Value, segment_zero: Value | None, gamma_zero: Value,
    beta_zero: Value, *, epsilon: float = 1e-12,
) -> tuple[Value, ...]:  # fmt: skip
    """`EmbedLayerNormalization` with quantised tables and weights."""
    if (segment is None) != (segment_scale is None):
        k.error("takes segment_embedding and its scale together or neither")
    segments = None
    if segment is not None and segment_scale is not None:
        segments = dequantised(k, segment, segment_scale, segment_zero)
    tables = [
        dequantised(k, x, scale, zero)
        for x, scale, zero in (
            (word, word_scale, word_zero), (position, position_scale, position_zero),
            (gamma, gamma_scale, gamma_zero), (beta, beta_scale, beta_zero),
        )
    ]  # fmt: skip
    return embed_layer_normalization(
        k, input_ids, segment_ids, tables[0], tables[1], segments, tables[2], tables[3], mask,
        epsilon=epsilon,
    )[:2]  # fmt: skip
