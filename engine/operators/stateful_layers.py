"""Layers with a state that is passed from call to call, for token-by-token generation.

A key-value cache written in place (TensorScatter) and the tail of a causal convolution; and SwiGLU, the gate
between such layers. Linear attention is in a module of its own.
"""

from __future__ import annotations

from math import prod

import numpy as np

from engine.kernels.expr import Expr, arg, cast, floor_mod, lit
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.convolution import conv
from engine.operators.elementwise import sigmoid
from engine.operators.movement import concat, slice_by
from engine.operators.padding import pad_by
from engine.operators.registry import operator
from engine.operators.windows import ConvAttributes


@operator("TensorScatter", since=24, precision="exact")
def tensor_scatter(
    k: Builder, past_cache: Value, update: Value, write_indices: Value | None = None, *,
    axis: int = -2, mode: str = "linear",
) -> Value:  # fmt: skip
    """The cache with `update` written along `axis` from each sample's own index on, or around its end."""
    cache = past_cache
    axis = k.axis(axis, cache.rank)
    k.one_of("mode", mode, ("linear", "circular"))
    room, count = cache.shape[axis], update.shape[axis] if update.rank == cache.rank else -1
    if axis == 0 or update.shape != (*cache.shape[:axis], count, *cache.shape[axis + 1 :]) or count > room:
        k.error(f"cannot write {list(update.shape)} into {list(cache.shape)} along axis {axis}")
    if write_indices is not None and write_indices.shape != cache.shape[:1]:
        k.error(
            f"takes one write index per sample of {list(cache.shape)}, not {list(write_indices.shape)}",
            write_indices.shape, cache.shape[:1],
        )  # fmt: skip
    if not count:
        return k.alias(cache, cache.shape)
    sizes = cache.shape[0], prod(cache.shape[1:axis]), room, prod(cache.shape[axis + 1 :])
    old, new = k.alias(cache, sizes), k.alias(update, (*sizes[:2], count, sizes[3]))

    def formula(b: Expr, o: Expr, i: Expr, e: Expr) -> Expr:
        offset = i if write_indices is None else i - cast(write_indices[b], "index")
        if mode == "circular":
            offset = floor_mod(offset, room)
        written = (offset >= lit(0)) & (offset < arg(count))
        return new.load_where(written, (b, o, offset, e), old[b, o, i, e])

    return k.alias(k.compute(sizes, cache.dtype, formula), cache.shape)


@operator("CausalConvWithState", since=27)
def causal_conv_with_state(
    k: Builder, x: Value, weight: Value, bias: Value | None = None, past_state: Value | None = None, *,
    activation: str = "none",
) -> tuple[Value, Value]:  # fmt: skip
    """Depthwise causal convolution with state: returns the outputs and the state for the next call.

    x (N, C, T), weight (C, 1, K), bias (C), past_state (N, C, K - 1), zeros if absent -> y (N, C, T) and the
    last K - 1 elements of past_state followed by x.
    """
    return causal_conv(k, x, weight, bias, past_state, activation)


def causal_conv(
    k: Builder, x: Value, weight: Value, bias: Value | None, past_state: Value | None, activation: str,
    dilation: int = 1,
) -> tuple[Value, Value]:  # fmt: skip
    """`causal_conv_with_state` with `dilation`; states have (K - 1) * dilation elements."""
    k.one_of("activation", activation, ("none", "silu", "swish"))
    if x.rank != 3 or weight.rank != 3 or weight.shape[:2] != (x.shape[1], 1) or weight.shape[2] < 1:
        k.error(f"takes x (N, C, T) and weights (C, 1, K), not {list(x.shape)} and {list(weight.shape)}")
    (batch, channels, steps), before = x.shape, (weight.shape[2] - 1) * dilation
    if past_state is None:
        whole = pad_by(k, x, (0, 0, before), (0, 0, 0), "constant")
    elif past_state.shape != (batch, channels, before):
        fit = [batch, channels, before]
        k.error(f"past_state must be {fit}, not {list(past_state.shape)}", past_state.shape, fit)
    else:
        whole = concat(k, past_state, x, axis=2)
    present = slice_by(k, whole, [steps], [steps + before], [2], None)
    if not steps:
        return k.constant(np.zeros(x.shape, x.dtype)), present
    y = conv(k, whole, weight, bias, sliding=ConvAttributes(group=channels, dilations=(dilation,)))
    return y if activation == "none" else k.elementwise(lambda e: e * sigmoid(e), y), present


@operator("SwiGLU", since=28)
def swiglu(k: Builder, a: Value, b: Value, *, alpha: float = 1.0) -> Value:
    """a * sigmoid(alpha * a) * b (Shazeer, 2020)."""
    if a.shape != b.shape:
        k.error(f"takes two tensors of one shape, not {list(a.shape)} and {list(b.shape)}")
    return k.elementwise(lambda x, y: x * sigmoid(arg(alpha, x.dtype) * x) * y, a, b)
