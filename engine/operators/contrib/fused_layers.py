"""onnxruntime's fused layers (domain com.microsoft), which its optimiser and exporters leave in models.

Each is a layer of ONNX with what usually follows it, or an older form of one, and is written so: the formulas
fuse by themselves. Also here: layers that onnxruntime knows in ONNX's own domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.base.dtypes import INT32
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, reduce, unary
from engine.kernels.value import Value
from engine.operators.activations import activated
from engine.operators.builder import Builder
from engine.operators.elementwise import gelu, gelu_, sigmoid, softplus
from engine.operators.grid_sample import grid_sample
from engine.operators.indexing import gather_nd
from engine.operators.layout import LAST, channels_first, in_either_layout, to_channels_last
from engine.operators.linear import gemm, product, squared_distances
from engine.operators.linear_attention import linear_attention
from engine.operators.movement import transpose, trilu
from engine.operators.normalization import group_normalization, layer_normalization, rms_scaled
from engine.operators.padding import pad
from engine.operators.registry import operator
from engine.operators.shape_ops import range_
from engine.operators.stateful_layers import causal_conv
from engine.operators.views import unsqueeze

operator("ExpandDims", domain=CONTRIB, host=("axes",))(unsqueeze)
operator("GatherND", domain=CONTRIB)(gather_nd)
operator("Gelu", domain=CONTRIB)(gelu_)
operator("GridSample", domain=CONTRIB)(grid_sample)
operator("Pad", domain=CONTRIB, host=("pads", "axes"))(pad)
operator("Trilu", domain=CONTRIB, host=("diagonal",))(trilu)


# Products


def batch_inside(k: Builder, x: Value) -> Value:
    """(M, *batch, K) as (*batch, M, K)."""
    return transpose(k, x, perm=(*range(1, x.rank - 1), 0, x.rank - 1)) if x.rank > 2 else x


@operator("TransposeMatMul", domain=CONTRIB)
@operator("FusedMatMul", domain=CONTRIB)
def fused_matmul(
    k: Builder, a: Value, b: Value, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Value:  # fmt: skip
    """alpha * A' B' with axes swapped as the flags say; transBatch first moves axis 0 behind the batch."""
    a = batch_inside(k, a) if transBatchA else a
    b = batch_inside(k, b) if transBatchB else b
    y = product(k, a, b, flips=(bool(transA), bool(transB)))
    return y if alpha == 1.0 else k.elementwise(lambda e: e * arg(alpha, e.dtype), y)


@operator("FusedGemm", domain=CONTRIB)
def fused_gemm(
    k: Builder, a: Value, b: Value, c: Value | None = None, *, activation: str = "",
    activation_alpha: float | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Value:  # fmt: skip
    """Gemm and an activation."""
    y = gemm(k, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    params = [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None]
    return activated(k, y, activation, params)


@operator("CDist", domain=CONTRIB)
def cdist(k: Builder, a: Value, b: Value, *, metric: str = "sqeuclidean") -> Value:
    """The distance of each row of A (M, N) from each row of B (K, N): (M, K)."""
    k.one_of("metric", metric, ("euclidean", "sqeuclidean"))
    if a.rank != 2 or b.rank != 2 or a.shape[1] != b.shape[1]:
        k.error(f"takes two matrices of equally long rows, not {list(a.shape)} and {list(b.shape)}")
    squares = squared_distances(k, a, b)
    return k.elementwise(lambda e: unary("sqrt", e), squares) if metric == "euclidean" else squares


# Activations


@operator("BiasGelu", domain=CONTRIB)
def bias_gelu(k: Builder, a: Value, b: Value) -> Value:
    """Gelu of a + b."""
    return k.elementwise(lambda x, e: gelu(x + e), a, b)


@operator("FastGelu", domain=CONTRIB)
def fast_gelu(k: Builder, x: Value, bias: Value | None = None) -> Value:
    """Gelu by tanh, of x + bias."""
    if bias is None:
        return k.elementwise(lambda e: gelu(e, "tanh"), x)
    return k.elementwise(lambda e, b: gelu(e + b, "tanh"), x, bias)


@operator("BiasAdd", domain=CONTRIB)
def bias_add(k: Builder, x: Value, bias: Value, skip: Value) -> Value:
    """x + bias + skip."""
    return k.elementwise(lambda e, b, s: e + b + s, x, bias, skip)


@operator("BiasSplitGelu", domain=CONTRIB)
def bias_split_gelu(k: Builder, x: Value, bias: Value) -> Value:
    """The left half of x + bias, times the Gelu of the right half."""
    half = x.shape[-1] // 2
    if x.rank < 1 or x.shape[-1] % 2 or bias.shape != x.shape[-1:]:
        k.error(f"cannot halve the rows of {list(x.shape)} with a bias {list(bias.shape)}")
    rows = k.alias(x, (prod(x.shape[:-1]), x.shape[-1]))

    def formula(r: Expr, j: Expr) -> Expr:
        left, right = (rows[r, i] + bias[i] for i in (j, j + half))
        return left * gelu(right)

    return k.alias(k.compute((rows.shape[0], half), x.dtype, formula), (*x.shape[:-1], half))


@operator("ImageScaler", since=1)
def image_scaler(k: Builder, x: Value, *, bias: Sequence[float] = (), scale: float = 1.0) -> Value:
    """x (N, C, H, W) times `scale`, plus one number per channel."""
    if x.rank != 4 or len(bias) not in (0, x.shape[1]):
        k.error(f"takes x (N, C, H, W) and one bias per channel, not {list(x.shape)} and {len(bias)}")
    offsets = k.constant(np.array(bias or (0.0,), x.dtype).reshape(-1, 1, 1))
    return k.elementwise(lambda e, b: e * arg(scale, e.dtype) + b, x, offsets)


# Normalisation


@operator("SimplifiedLayerNormalization", domain=CONTRIB)
@operator("SimplifiedLayerNormalization", since=1)
def simplified_layer_normalization(
    k: Builder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Value, ...]:
    """RMSNormalization by its former name; output 2 is 1 / root of the mean square."""
    return rms_scaled(k, x, scale, axis, epsilon)


def with_skip(k: Builder, x: Value, skip: Value, bias: Value | None) -> Value:
    """x + skip + bias, in the shape of x."""
    total = k.elementwise(lambda e, s: e + s, x, skip)
    if total.shape != x.shape:
        k.error(f"cannot add a skip tensor {list(skip.shape)} to {list(x.shape)}")
    return total if bias is None else k.elementwise(lambda e, b: e + b, total, bias)


@operator("SkipLayerNormalization", domain=CONTRIB)
def skip_layer_normalization(
    k: Builder, x: Value, skip: Value, gamma: Value, beta: Value | None = None, bias: Value | None = None, *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:  # fmt: skip
    """LayerNormalization of x + skip + bias over the last axis; output 4 is that sum."""
    total = with_skip(k, x, skip, bias)
    return *layer_normalization(k, total, gamma, beta, epsilon=epsilon), total


@operator("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def skip_simplified_layer_normalization(
    k: Builder, x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12
) -> tuple[Value | None, ...]:
    """RMSNormalization of x + skip + bias over the last axis; output 4 is that sum, and there is no mean."""
    total = with_skip(k, x, skip, bias)
    y, inverse = rms_scaled(k, total, gamma, -1, epsilon)
    return y, None, inverse, total


@operator("GatedRMSNorm", domain=CONTRIB)
def gated_rms_norm(
    k: Builder, x: Value, scale: Value, gate: Value, *, activation: str = "silu", epsilon: float = 1e-5
) -> Value:
    """RMSNormalization of runs as long as `scale`, times silu (or the sigmoid) of `gate`."""
    width = scale.size
    k.one_of("activation", activation, ("silu", "swish", "sigmoid"))
    if gate.shape != x.shape or x.rank < 1 or not width or x.shape[-1] % width:
        k.error(f"cannot scale {list(x.shape)} by {list(scale.shape)} with a gate {list(gate.shape)}")
    y, _ = rms_scaled(k, k.alias(x, (x.size // width, width)), scale, -1, epsilon)

    def formula(e: Expr, g: Expr) -> Expr:
        return e * (sigmoid(g) if activation == "sigmoid" else g * sigmoid(g))

    return k.elementwise(formula, k.alias(y, x.shape), gate)


@operator("GroupNorm", domain=CONTRIB)
def group_norm(
    k: Builder, x: Value, gamma: Value, beta: Value, *, activation: int, groups: int,
    channels_last: int = 1, epsilon: float = 1e-5,
) -> Value:  # fmt: skip
    """GroupNormalization of (N, H, W, C), or (N, C, H, W), and silu if `activation` is 1."""
    if activation not in (0, 1):
        k.error(f"takes activation 0 or 1, not {activation}")

    def norm(planes: Value) -> Value:
        y = group_normalization(k, planes, gamma, beta, num_groups=groups, epsilon=epsilon)
        return k.elementwise(lambda e: e * sigmoid(e), y) if activation else y

    return in_either_layout(k, x, channels_last, norm)


@operator("SkipGroupNorm", domain=CONTRIB)
def skip_group_norm(
    k: Builder, x: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None = None, *,
    activation: int, groups: int, channels_last: int = 1, epsilon: float = 1e-5,
) -> tuple[Value, ...]:  # fmt: skip
    """GroupNorm of x + skip + bias, where skip may be one number per sample and channel, and that sum."""
    if skip.rank == 2:
        one = (1,) * (x.rank - 2)
        skip = k.alias(skip, (skip.shape[0], *one, skip.shape[1]) if channels_last else (*skip.shape, *one))
    if bias is not None and not channels_last:
        bias = k.alias(bias, (bias.size, *(1,) * (x.rank - 2)))
    total = with_skip(k, x, skip, bias)
    y = group_norm(
        k, total, gamma, beta, activation=activation, groups=groups, channels_last=channels_last,
        epsilon=epsilon,
    )  # fmt: skip
    return y, total


@operator("EmbedLayerNormalization", domain=CONTRIB)
def embed_layer_normalization(
    k: Builder, input_ids: Value, segment_ids: Value | None, word: Value, position: Value,
    segment: Value | None, gamma: Value, beta: Value, mask: Value | None = None,
    position_ids: Value | None = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    """LayerNormalization of the sum of a token's embeddings by word, position and segment.

    Output 2 counts the ones in each row of `mask`, output 3 is the sum.
    """
    if input_ids.rank != 2 or word.rank != 2 or position.rank != 2:
        k.error(f"takes ids (N, S) and tables of rank 2, not {input_ids}, {word} and {position}")
    batch, length = input_ids.shape

    def row(table: Value, number: Expr, j: Expr) -> Expr:
        return table[clamp(cast(number, "index"), lit(0), arg(table.shape[0] - 1)), j]

    def formula(n: Expr, s: Expr, j: Expr) -> Expr:
        at = s if position_ids is None else position_ids[n * arg(int(position_ids.shape[0] > 1)), s]
        total = row(word, input_ids[n, s], j) + row(position, at, j)
        if segment is None or segment_ids is None:
            return total
        return total + row(segment, segment_ids[n, s], j)

    total = k.compute((batch, length, word.shape[1]), word.dtype, formula)
    y = layer_normalization(k, total, gamma, beta, epsilon=epsilon)[0]

    def ones(n: Expr) -> Expr:
        if mask is None:
            return lit(0, "int32")
        return reduce("sum", length, lambda s: cast(eq(mask[n, s], lit(1, mask.arithmetic)), "int32"))

    return y, k.compute((batch,), INT32, ones), total


# Shapes


@operator("Range", domain=CONTRIB, host=("start", "limit", "delta"))
def range_1(k: Builder, start: Value, limit: Value, delta: Value | None = None) -> Value:
    """Range by steps of 1, unless `delta` says otherwise."""
    return range_(k, start, limit, k.constant(np.ones(1, start.dtype)) if delta is None else delta)


# Layers with a state


@operator("LinearAttention", domain=CONTRIB)
def linear_attention_1(
    k: Builder, query: Value, key: Value, value: Value, past_state: Value | None = None,
    decay: Value | None = None, beta: Value | None = None, *, chunk_size: int = 64, kv_num_heads: int,
    q_num_heads: int, scale: float = 0.0, state_window: int = 0, update_rule: str = "gated_delta",
) -> tuple[Value, Value]:  # fmt: skip
    """ONNX's LinearAttention; several value heads may share a query and a key."""
    if state_window:
        k.error(f"state_window {state_window} is not supported; 0 keeps the last state alone")
    if query.rank == 3 and 0 < q_num_heads < kv_num_heads and query.shape[2] % q_num_heads == 0:
        size = query.shape[2] // q_num_heads
        query, key = (repeated_heads(k, x, size, kv_num_heads) for x in (query, key))
        q_num_heads = kv_num_heads
    return linear_attention(
        k, query, key, value, past_state, decay, beta, chunk_size=chunk_size, kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads, scale=scale, update_rule=update_rule,
    )  # fmt: skip


def repeated_heads(k: Builder, x: Value, size: int, wanted: int) -> Value:
    """(N, T, heads * size) with each head as often as makes `wanted` of them."""
    heads = x.shape[2] // size if x.rank == 3 else 0
    if heads < 1 or wanted % heads or x.shape[2] % size:
        k.error(f"cannot make {wanted} heads of {size} columns from {list(x.shape)}")
    group = wanted // heads

    def formula(n: Expr, t: Expr, c: Expr) -> Expr:
        return x[n, t, c // arg(size) // arg(group) * size + c % arg(size)]

    return x if group == 1 else k.compute((*x.shape[:2], wanted * size), x.dtype, formula)


@operator("LinearAttentionGate", domain=CONTRIB)
def linear_attention_gate(
    k: Builder, a: Value, dt_bias: Value, decay_scale: Value, b: Value | None = None
) -> tuple[Value | None, ...]:
    """decay_scale * softplus(a + dt_bias), and the sigmoid of b."""
    decay = k.elementwise(lambda e, d, s: s * softplus(e + d), a, dt_bias, decay_scale)
    return decay, None if b is None else k.elementwise(sigmoid, b)


@operator("CausalConvWithState", domain=CONTRIB)
def causal_conv_with_state_1(
    k: Builder, x: Value, weight: Value, bias: Value | None = None, past_state: Value | None = None, *,
    activation: str = "none", channels_last: int = 0, dilation: int = 1, input_channel_offset: int = 0,
    input_channels: int = 0, ndim: int = 1, state_channels_last: int = -1, state_length: int = 0,
    state_update_capacity: int = 0, state_window: int = 0,
) -> tuple[Value, Value]:  # fmt: skip
    """ONNX's CausalConvWithState, with taps apart, and channels along the axes behind the steps."""
    if ndim != 1 or state_window or dilation < 1:
        k.error(f"takes ndim 1 and state_window 0, not {ndim} and {state_window}, and a dilation above 0")
    if input_channel_offset or input_channels or state_length or state_update_capacity:
        k.error("input_channels, input_channel_offset, state_length and state_update_capacity must be 0")
    if state_channels_last not in (-1, channels_last):
        k.error(f"state_channels_last {state_channels_last} must be channels_last, {channels_last}")
    if not channels_last:
        return causal_conv(k, x, weight, bias, past_state, activation, dilation)
    LAST.spatial(k, x)
    width = prod(x.shape[2:])

    def first(v: Value) -> Value:
        return channels_first(k, k.alias(v, (*v.shape[:2], width)))

    past = past_state
    if past is not None:
        if past.shape[2:] != x.shape[2:]:
            k.error(f"a state of {list(past.shape)} does not fit {list(x.shape)}")
        past = first(past)
    found = causal_conv(k, first(x), weight, bias, past, activation, dilation)
    y, state = (to_channels_last(k, v) for v in found)
    return k.alias(y, x.shape), k.alias(state, (*state.shape[:2], *x.shape[2:]))
