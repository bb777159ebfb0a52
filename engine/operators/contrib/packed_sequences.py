"""Layers over packed sequences of different lengths (token-major)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, lit, minimum, reduce, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.elementwise import sigmoid, softplus
from engine.operators.linear_attention import RULES, linear_attention
from engine.operators.registry import operator

Bounds = Callable[[Expr], tuple[Expr, Expr]]
"""The first token of a sequence, and that of the next."""


def bounds_of(k: Builder, ends: Value | None, tokens: int, batch: int) -> Bounds:
    """Begin and end of sequences, from the sums of their lengths; without them all are equally long."""
    if ends is None:
        if batch < 1 or tokens % batch:
            k.error(f"{tokens} tokens do not divide into {batch} sequences")
        return lambda b: (b * (tokens // batch), (b + lit(1)) * (tokens // batch))
    if ends.shape != (batch + 1,):
        k.error(f"takes the {batch + 1} ends of {batch} sequences, not {list(ends.shape)}")

    def place(i: Expr) -> Expr:
        return clamp(cast(ends[i], "index"), lit(0), arg(tokens))

    return lambda b: (place(b), place(b + lit(1)))


def sequence_of(k: Builder, bounds: Bounds, tokens: int, batch: int) -> Value:
    """The number of each token's sequence."""

    def number(t: Expr) -> Expr:
        after = reduce("sum", batch, lambda b: cast(bounds(b)[1] < t + lit(1), "int32"))
        return minimum(after, cast(arg(batch - 1), "int32"))

    return k.compute((tokens,), np.dtype(np.int32), number)


@operator("VarlenCausalConvWithState", domain=CONTRIB)
def varlen_causal_conv_with_state(
    k: Builder, x: Value, weight: Value, ends: Value, bias: Value | None, initial_state: Value,
    capture_count: Value | None = None, kernel_delta: Value | None = None, previous_mask: Value | None = None,
    *, activation: str = "none", delta_offset: int = 0, dilation: int = 1, group_size: int = 1,
    state_update_capacity: int = 0,
) -> tuple[Value | None, ...]:  # fmt: skip
    """A convolution of each channel over present and past, within each of several joined sequences.

    x (tokens, C), weight (C, 1, K), states (sequences, C, (K - 1) * dilation) -> y like x and the
    states after each sequence's end; output 3 holds the first `capture_count` tokens of each sequence.
    """
    if kernel_delta is not None or previous_mask is not None:
        k.error("kernel_delta and previous_mask are for CUDA alone")
    k.one_of("activation", activation, ("none", "silu", "swish"))
    taps = weight.shape[2] if weight.rank == 3 else 0
    before, batch = (taps - 1) * dilation, initial_state.shape[0] if initial_state.rank else 0
    if x.rank != 2 or weight.shape[:2] != (x.shape[1], 1) or taps < 1 or dilation < 1:
        k.error(f"takes x (tokens, C) and weights (C, 1, K), not {list(x.shape)} and {list(weight.shape)}")
    if initial_state.shape != (batch, x.shape[1], before) or not batch:
        k.error(f"initial_state must be {[batch, x.shape[1], before]}, not {list(initial_state.shape)}")
    tokens, channels = x.shape
    bounds = bounds_of(k, ends, tokens, batch)
    sequence = sequence_of(k, bounds, tokens, batch)

    def sample(b: Expr, at: Expr, c: Expr) -> Expr:
        """The token `at` of a sequence, or of those before it where it is negative."""
        inside = at >= lit(0)
        old = initial_state.load_where(~inside, (b, c, at + before)) if before else lit(0, x.arithmetic)
        return x.load_where(inside, (bounds(b)[0] + at, c), old)

    def formula(t: Expr, c: Expr) -> Expr:
        b = cast(sequence[t], "index")
        at = t - bounds(b)[0]
        total = reduce(
            "sum", taps, lambda j: weight[c, lit(0), j] * sample(b, at - (arg(taps - 1) - j) * dilation, c)
        )
        total = total if bias is None else total + bias[c]
        return total if activation == "none" else total * sigmoid(total)

    y = k.compute(x.shape, x.dtype, formula)

    def after(b: Expr, c: Expr, i: Expr) -> Expr:
        first, end = bounds(b)
        return sample(b, end - first + i - before, c)

    state = k.compute(initial_state.shape, initial_state.dtype, after)
    if not state_update_capacity or capture_count is None:
        return y, state, None

    def captured(b: Expr, i: Expr, c: Expr) -> Expr:
        first, end = bounds(b)
        limit = minimum(cast(capture_count[b], "index"), end - first)
        return x.load_where(i < limit, (first + i, c))

    return y, state, k.compute((batch, state_update_capacity, channels), x.dtype, captured)


GATES = ("none", "softplus", "qwen", "sigmoid", "kda")


@operator("GatedDeltaNet", domain=CONTRIB)
def gated_delta_net(
    k: Builder, query: Value, key: Value | None = None, value: Value | None = None, ends: Value | None = None,
    decay: Value | None = None, beta: Value | None = None, initial_state: Value | None = None,
    a_log: Value | None = None, dt_bias: Value | None = None, capture_count: Value | None = None,
    state_update_active: Value | None = None, *, beta_activation: str = "none", chunk_size: int = 64,
    gate_activation: str = "none", gate_lower_bound: float = -5.0, qk_l2_norm: int = 0, scale: float = 0.0,
    state_update_capacity: int = 0, update_rule: str = "gated_delta",
) -> tuple[Value, Value]:  # fmt: skip
    """LinearAttention of joined sequences, with the activations of its gates.

    query and key (tokens, Hk, K), value (tokens, Hv, V), decay (tokens, Hv) or (tokens, Hv, K), beta
    (tokens, Hv), states (sequences, Hv, V, K); y (tokens, Hv, V). Value heads share those of keys. The first
    axis may be two, (sequences, length).
    """
    if state_update_capacity:
        k.error("state_update_capacity must be 0: updates of single steps are not kept")
    if gate_activation not in GATES or beta_activation not in ("none", "sigmoid") or update_rule not in RULES:
        k.error(f"does not know {gate_activation!r}, {beta_activation!r} or {update_rule!r}")
    if (key is None) != (value is None) or key is None and initial_state is None:
        k.error("takes key and value, or an initial_state that says how they are packed into the query")
    parts = _parts(k, query, key, value, initial_state)
    tokens, (heads, width, depth) = parts[0].shape[0], (*parts[2].shape[1:], parts[0].shape[2])
    batch = ends.size - 1 if ends is not None else query.shape[0] if query.rank == 4 else 0
    if initial_state is not None:
        batch = initial_state.shape[0]
        if initial_state.shape != (batch, heads, width, depth):
            k.error(f"initial_state must be {[batch, heads, width, depth]}, not {list(initial_state.shape)}")
    bounds = bounds_of(k, ends, tokens, batch)
    steps = tokens if ends is not None else tokens // batch

    def spread(columns: int, element: Callable[[Expr, Expr], Expr]) -> Value:
        """Elements by token and column as (sequences, length, columns), zeros behind a sequence's end."""

        def formula(b: Expr, t: Expr, c: Expr) -> Expr:
            first, end = bounds(b)
            inside = t < end - first
            found = cast(element(clamp(first + t, lit(0), arg(tokens - 1)), c), "float32")
            return select(inside, found, lit(0.0, "float32"))

        return k.compute((batch, steps, columns), FLOAT32, formula)

    def by_head(x: Value, norm: Value | None) -> Value:
        shared = heads // x.shape[1]

        def element(t: Expr, c: Expr) -> Expr:
            h = c // arg(depth) // arg(shared)
            found = x[t, h, c % arg(depth)]
            return found if norm is None else found * norm[t, h]

        return spread(heads * depth, element)

    norms = [_inverse_norms(k, x) if qk_l2_norm else None for x in parts[:2]]
    v = parts[2]
    rate = None
    if RULES[update_rule][1]:
        if beta is None or beta.size != tokens * heads:
            k.error(f"beta must be {[tokens, heads]}, not {beta}")
        rates = k.alias(beta, (tokens, heads))
        act = sigmoid if beta_activation == "sigmoid" else (lambda e: e)
        rate = spread(heads, lambda t, c: act(cast(rates[t, c], "float32")))
    fade = None
    if RULES[update_rule][0]:
        if decay is None or decay.size not in (tokens * heads, tokens * heads * depth):
            k.error(f"decay must be {[tokens, heads]} or {[tokens, heads, depth]}, not {decay}")
        gate = _gate(k, gate_activation, gate_lower_bound, a_log, dt_bias, heads, decay.size // tokens)
        gates = k.alias(decay, (tokens, decay.size // tokens))
        fade = spread(gates.shape[1], lambda t, c: gate(cast(gates[t, c], "float32"), c))
    past = None
    if initial_state is not None:
        past = k.compute((batch, heads, depth, width), FLOAT32, lambda b, h, d, m: initial_state[b, h, m, d])
    y, state = linear_attention(
        k, by_head(parts[0], norms[0]), by_head(parts[1], norms[1]),
        spread(heads * width, lambda t, c: v[t, c // arg(width), c % arg(width)]), past, fade, rate,
        chunk_size=chunk_size, kv_num_heads=heads, q_num_heads=heads, scale=scale, update_rule=update_rule,
    )  # fmt: skip
    sequence = sequence_of(k, bounds, tokens, batch)

    def joined(t: Expr, h: Expr, m: Expr) -> Expr:
        b = cast(sequence[t], "index")
        return y[b, t - bounds(b)[0], h * width + m]

    out = k.compute((tokens, heads, width), query.dtype, joined)
    lead = query.shape[:2] if query.rank == 4 else (tokens,)
    after = k.compute((batch, heads, width, depth), FLOAT32, lambda b, h, m, d: state[b, h, d, m])
    return k.alias(out, (*lead, heads, width)), after


def _parts(
    k: Builder, query: Value, key: Value | None, value: Value | None, state: Value | None
) -> tuple[Value, Value, Value]:
    """Queries, keys and values as (tokens, heads, size), from three tensors or from one."""
    if key is not None and value is not None:
        if not query.rank == key.rank == value.rank or query.rank not in (3, 4) or key.shape != query.shape:
            k.error(f"takes query and key of one shape and a value, not {query}, {key} and {value}")
        if value.shape[:-2] != query.shape[:-2] or value.shape[-2] % query.shape[-2]:
            k.error(f"{value} does not divide among the heads of {query}")
        found = [k.alias(x, (x.size // max(x.shape[-1] * x.shape[-2], 1), *x.shape[-2:]))
                 for x in (query, key, value)]  # fmt: skip
        return found[0], found[1], found[2]
    assert state is not None
    _, heads, width, depth = state.shape
    columns = query.shape[-1]
    own = (columns - heads * width) // (2 * depth)
    if own < 1 or 2 * own * depth + heads * width != columns or heads % own:
        k.error(f"{columns} columns do not divide into queries, keys and values of {list(state.shape)}")
    rows = k.alias(query, (query.size // columns, columns))

    def part(first: int, count: int, size: int) -> Value:
        return k.compute(
            (rows.shape[0], count, size), query.dtype, lambda t, h, d: rows[t, h * size + d + first]
        )

    return part(0, own, depth), part(own * depth, own, depth), part(2 * own * depth, heads, width)


def _inverse_norms(k: Builder, x: Value) -> Value:
    """1 / the Euclidean norm of each head's row."""

    def formula(t: Expr, h: Expr) -> Expr:
        def square(d: Expr) -> Expr:
            return cast(x[t, h, d], "float32") * cast(x[t, h, d], "float32")

        return 1.0 / unary("sqrt", reduce("sum", x.shape[2], square) + arg(1e-6, "float32"))

    return k.compute(x.shape[:2], FLOAT32, formula)


def _gate(
    k: Builder, kind: str, low: float, a_log: Value | None, bias: Value | None, heads: int, columns: int
) -> Callable[[Expr, Expr], Expr]:
    """The effective decay from a raw one and its column."""
    if kind == "none":
        return lambda e, c: e
    if a_log is None or a_log.size != heads or bias is not None and bias.size not in (heads, columns):
        k.error(f"gate_activation {kind!r} takes an a_log per head and a dt_bias, not {a_log} and {bias}")
    wide = columns // heads
    flat = None if bias is None else k.alias(bias, (bias.size,))
    logs = k.alias(a_log, (heads,))

    def gate(e: Expr, c: Expr) -> Expr:
        head = c // arg(wide)
        raw = e if flat is None else e + cast(flat[c if flat.size == columns else head], "float32")
        factor = unary("exp", cast(logs[head], "float32"))
        if kind in ("softplus", "qwen"):
            return -factor * softplus(raw)
        return arg(low, "float32") * sigmoid(factor * raw)

    return gate
