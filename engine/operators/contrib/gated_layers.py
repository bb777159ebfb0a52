"""onnxruntime's gating and hyper-connection layers for recent language models."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, lit, maximum, reduce, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.casting import convert
from engine.operators.elementwise import sigmoid
from engine.operators.normalization import rms_scaled
from engine.operators.registry import operator


@operator("GatedAdd", domain=CONTRIB)
def gated_add(k: Builder, x: Value, y: Value, gate: Value, gate_weight: Value | None = None) -> Value:
    """x + y * gate, one gate per row; with a weight it is the sigmoid of the gate's row times the weight."""
    if x.rank < 1 or y.shape != x.shape or gate.shape[:-1] != x.shape[:-1]:
        k.error(f"{list(x.shape)}, {list(y.shape)} and gates {list(gate.shape)} do not fit together")
    if gate_weight is not None:
        width = gate.shape[-1]
        if gate_weight.shape != (width, 1):
            k.error(f"gate_weight must be {[width, 1]}, not {list(gate_weight.shape)}")
        rows = k.alias(gate, (prod(gate.shape[:-1]), width))

        def projected(i: Expr) -> Expr:
            return sigmoid(reduce("sum", width, lambda r: rows[i, r] * gate_weight[r, lit(0)]))

        gate = k.alias(k.compute(rows.shape[:1], gate.dtype, projected), (*x.shape[:-1], 1))
    if gate.shape[-1] != 1:
        k.error(f"takes one gate per row, not {list(gate.shape)}")
    # The product is rounded to the type of x, as by two layers.
    return k.elementwise(lambda e, p: e + p, x, k.elementwise(lambda e, g: e * g, y, gate))


@operator("ScaledSiLU", domain=CONTRIB)
def scaled_silu(k: Builder, x: Value, scale: Value | None = None, *, alpha: float = 1.0) -> Value:
    """z * sigmoid(z) of z = scale * x, each step rounded to the type of x."""
    if scale is None:
        z = k.elementwise(lambda e: e * arg(alpha, e.dtype), x)
    else:
        z = k.elementwise(lambda e, s: e * cast(s, e.dtype), x, k.alias(scale, ()))
    return k.elementwise(lambda e, s: e * s, z, k.elementwise(sigmoid, z))


def branches(k: Builder, x: Value, count: int) -> tuple[int, int, int]:
    """(rows, streams, features) of (..., streams, features), or of (..., streams * features) with `count`."""
    if count and (x.rank < 1 or x.shape[-1] % count) or not count and x.rank < 2:
        k.error(f"cannot divide {list(x.shape)} into {count or 'its'} streams")
    if count:
        return prod(x.shape[:-1]), count, x.shape[-1] // count
    return prod(x.shape[:-2]), x.shape[-2], x.shape[-1]


@operator("BranchwiseRMSNorm", domain=CONTRIB)
def branchwise_rms_norm(
    k: Builder, x: Value, scale: Value | None = None, *, epsilon: float = 1e-5, num_branches: int = 0
) -> Value:
    """RMSNormalization of each stream; the scale is one for all, or one for each."""
    rows, streams, width = branches(k, x, num_branches)
    grouped = k.alias(x, (rows, streams, width))
    if scale is None:
        scale = k.constant(np.ones(width, x.dtype))
    if scale.size not in (width, streams * width):
        k.error(f"scale {list(scale.shape)} does not fit {streams} streams of {width}")
    weights = k.alias(scale, (streams, width) if scale.size != width else (width,))
    return k.alias(convert(k, rms_normal(k, grouped, weights, epsilon), x.dtype), x.shape)


def rms_normal(k: Builder, x: Value, scale: Value, epsilon: float) -> Value:
    """RMSNormalization over the last axis in float32, times a scale that broadcasts."""
    ones = k.constant(np.ones(x.shape[-1], np.float32))
    normal = rms_scaled(k, convert(k, x, FLOAT32), ones, -1, epsilon)[0]
    return k.elementwise(lambda e, s: e * cast(s, e.dtype), normal, scale)


def feature_gate(
    k: Builder, gate: Value, rows: int, streams: int, width: int
) -> Callable[[Expr, Expr, Expr], Expr]:
    """A gate by row, stream and feature that may be one for all features of a stream."""
    if gate.size not in (rows * streams, rows * streams * width):
        k.error(f"gates {list(gate.shape)} do not fit {rows} rows of {streams} streams of {width}")
    table = k.alias(gate, (rows, streams, gate.size // max(rows * streams, 1)))
    wide = arg(1 if table.shape[2] == width else 0)
    return lambda r, c, h: cast(table[r, c, h * wide], "float32")


@operator("HyperConnectionPreMix", domain=CONTRIB)
def hyper_connection_pre_mix(
    k: Builder, streams: Value, pre_mix: Value, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> Value:
    """The sum of the streams, each times its gate."""
    rows, count, width = branches(k, streams, num_branches)
    flat, gate = k.alias(streams, (rows, count, width)), feature_gate(k, pre_mix, rows, count, width)

    def formula(r: Expr, h: Expr) -> Expr:
        total = reduce("sum", count, lambda c: cast(flat[r, c, h], "float32") * gate(r, c, h))
        return total * arg(reduction_scale, "float32")

    lead = streams.shape[:-1] if num_branches else streams.shape[:-2]
    return k.alias(k.compute((rows, width), streams.dtype, formula), (*lead, width))


@operator("HyperConnectionPostMix", domain=CONTRIB)
def hyper_connection_post_mix(
    k: Builder, streams: Value, block_output: Value, post_mix: Value, stream_mix: Value | None = None, *,
    num_branches: int = 0,
) -> Value:  # fmt: skip
    """The streams, mixed by a matrix per row, plus a block's output times each stream's gate."""
    rows, count, width = branches(k, streams, num_branches)
    if block_output.size != rows * width or stream_mix is not None and stream_mix.size != rows * count**2:
        k.error(f"{block_output} and {stream_mix} do not fit {rows} rows of {count} streams of {width}")
    flat, block = k.alias(streams, (rows, count, width)), k.alias(block_output, (rows, width))
    gate = feature_gate(k, post_mix, rows, count, width)
    mix = None if stream_mix is None else k.alias(stream_mix, (rows, count, count))

    def formula(r: Expr, to: Expr, h: Expr) -> Expr:
        own = cast(flat[r, to, h], "float32")
        if mix is not None:
            own = reduce(
                "sum", count, lambda c: cast(mix[r, c, to], "float32") * cast(flat[r, c, h], "float32")
            )
        return own + gate(r, to, h) * cast(block[r, h], "float32")

    return k.alias(k.compute(flat.shape, streams.dtype, formula), streams.shape)


@operator("EngramGate", domain=CONTRIB)
def engram_gate(
    k: Builder, key: Value, query: Value, value: Value, key_norm_scale: Value, query_norm_scale: Value,
    conv_norm_scale: Value | None = None, *, epsilon: float = 1e-5,
) -> tuple[Value | None, ...]:  # fmt: skip
    """A value for all streams, times the gate that each stream's normalised key and query give it.

    key and query (N, T, C, H), value (N, T, H), scales (C, H); output 2 is the result, normalised.
    """
    if key.rank != 4 or query.shape != key.shape or value.shape != (*key.shape[:2], key.shape[3]):
        k.error(f"takes (N, T, C, H) twice and (N, T, H), not {key}, {query} and {value}")
    width = key.shape[3]

    def normal(x: Value, scale: Value) -> Value:
        if scale.shape != key.shape[2:]:
            k.error(f"a norm's scale must be {list(key.shape[2:])}, not {list(scale.shape)}")
        return rms_normal(k, x, scale, epsilon)

    left, right = normal(key, key_norm_scale), normal(query, query_norm_scale)

    def gate(n: Expr, t: Expr, c: Expr) -> Expr:
        dot = reduce("sum", width, lambda h: left[n, t, c, h] * right[n, t, c, h])
        dot = dot / arg(width**0.5, dot.dtype)
        return sigmoid(unary("sign", dot) * unary("sqrt", maximum(unary("abs", dot), 1e-6)))

    gates = k.compute(key.shape[:3], FLOAT32, gate)
    y = k.compute(
        key.shape, key.dtype,
        lambda n, t, c, h: gates[n, t, c] * cast(value[n, t, h], "float32"),
    )  # fmt: skip
    return y, None if conv_norm_scale is None else convert(k, normal(y, conv_norm_scale), key.dtype)
