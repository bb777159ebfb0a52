"""Mixtures of experts (Shazeer et al., 2017): each row passes through the few networks that its router chose.

The products read the weights of the chosen experts where they are, so nothing is computed for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from engine.base.dtypes import FLOAT32
from engine.graph.model import CONTRIB
from engine.kernels.expr import Expr, arg, cast, clamp, eq, lit, maximum, minimum, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.contrib.block_quantized import unpacked_number
from engine.operators.declaration import AttributeGroup
from engine.operators.elementwise import gelu, sigmoid
from engine.operators.linear import matmul_
from engine.operators.movement import transpose
from engine.operators.normalization import softmax_over
from engine.operators.registry import operator
from engine.operators.sorting import sorted_order

ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "relu": lambda x: maximum(x, 0.0),
    "relu2": lambda x: maximum(x, 0.0) * maximum(x, 0.0),
    "gelu": lambda x: gelu(x, "tanh"),
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}
"""Those that take one projection; swiglu and geglu take two."""

Product = Callable[[Expr, Expr, Callable[[Expr], Expr]], Expr]
"""From an expert, a row of its weights and a vector, by index, their product."""

Weight = Callable[[Expr, Expr], Expr]
"""The formula of the weight in a row, counted through all experts, and a column."""


@dataclass(frozen=True)
class Projection:
    """The weights (experts, rows, columns) of one layer of all experts, and a bias for each row.

    weights: the tensor of them, or those that they are unpacked from by the formula `weight`.
    """

    rows: int
    columns: int
    product: Product
    bias: Value | None
    weights: tuple[Value, ...]
    weight: Weight | None = None

    def of(self, k: Builder, chosen: Value, x: Value, *, shared: bool) -> Value:
        """The outputs of the experts that each row has chosen: (rows, count, self.rows).

        shared: whether a row of x is for all of them, or else for one.
        """
        rows, count = chosen.shape

        def expert(t: Expr, s: Expr) -> Expr:
            return cast(chosen[t, s], "index")

        def formula(t: Expr, s: Expr, n: Expr) -> Expr:
            return self.product(expert(t, s), n, lambda c: x[t if shared else t * count + s, c])

        def hint() -> Hint:
            operands, attributes = (chosen, x, *self.weights), {"shared": shared}
            if self.weight is None:
                return Hint("expert_matmul", operands, attributes)
            sizes = {"experts": self.weights[0].shape[0], "n": self.rows, "k": self.columns}
            return Hint("expert_matmul_nbits", operands, attributes | sizes | {"weight": self.weight})

        bias = self.bias
        found = k.compute((rows, count, self.rows), FLOAT32, formula, hint=hint)
        if bias is None:
            return found
        return k.compute(
            found.shape, FLOAT32, lambda t, s, n: found[t, s, n] + cast(bias[expert(t, s), n], "float32")
        )


@dataclass(frozen=True, kw_only=True)
class Gate(AttributeGroup):
    """The activation between an expert's two layers, and the layout of gate and linear part."""

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    swiglu_limit_after_activation: int = 0

    @property
    def is_gated(self) -> bool:
        """Whether it takes two projections."""
        return self.activation_type in ("swiglu", "geglu")

    def check(self, k: Builder, has_third: bool) -> None:
        """Raise for unknown or inconsistent attributes."""
        known, name, fusion = (*ACTIVATIONS, "swiglu", "geglu"), self.activation_type, self.swiglu_fusion
        if name not in known or fusion not in (0, 1, 2):
            k.error(
                f"activation_type is {name!r} and swiglu_fusion {fusion}; "
                f"they must be one of {', '.join(known)} and 0, 1 or 2"
            )
        if self.is_gated and has_third == bool(fusion) or name == "geglu" and not fusion:
            k.error(f"{name} with swiglu_fusion {fusion} does not fit {2 + has_third} layers")

    def value(self, gate: Expr, linear: Expr) -> Expr:
        """The activation of a pair."""
        if self.activation_type == "geglu":
            return gelu(gate, "tanh") * linear
        limit = None if self.swiglu_limit is None else arg(self.swiglu_limit, gate.dtype)
        if limit is not None:
            linear = clamp(linear, -limit, limit)
            gate = gate if self.swiglu_limit_after_activation else minimum(gate, limit)
        found = gate * sigmoid(arg(self.activation_alpha, gate.dtype) * gate)
        if limit is not None and self.swiglu_limit_after_activation:
            found = minimum(found, limit)
        return found * (linear + arg(self.activation_beta, linear.dtype))


@dataclass(frozen=True)
class Routing:
    """How many experts a row takes, and how their outputs are weighted."""

    count: int
    normalize: bool

    def choose(self, k: Builder, router: Value, mix: Value | None) -> tuple[Value, Value]:
        """The experts of each row, best first, and their weights: (rows, count) each."""
        rows, experts = router.shape
        if not 1 <= self.count <= experts:
            k.error(f"cannot choose {self.count} of {experts} experts")
        order = sorted_order(k, k.alias(router, (rows, experts, 1)), descending=True, keep=self.count)
        chosen = k.alias(order, (rows, self.count))
        scores = mix if mix is not None else router if self.normalize else softmax_over(k, router, 1, 2)
        picked = k.compute(chosen.shape, FLOAT32, lambda t, s: scores[t, cast(chosen[t, s], "index")])
        if mix is None:
            return chosen, softmax_over(k, picked, 1, 2) if self.normalize else picked
        if not self.normalize:
            return chosen, picked

        def share(t: Expr, s: Expr) -> Expr:
            total = reduce("sum", self.count, lambda r: picked[t, r])
            return picked[t, s] / select(eq(total, 0.0), lit(1.0, total.dtype), total)

        return chosen, k.compute(chosen.shape, FLOAT32, share)


def mixture(
    k: Builder, x: Value, router: Value, mix: Value | None, routing: Routing, gate: Gate,
    layers: tuple[Projection, Projection, Projection | None],
) -> Value:  # fmt: skip
    """The weighted sum of the chosen experts' outputs for each row of x (..., hidden)."""
    first, second, third = layers
    gate.check(k, third is not None)
    width = x.shape[-1] if x.rank else 0
    rows = x.size // width if width else 0
    is_fused = gate.is_gated and bool(gate.swiglu_fusion)
    inner = first.rows // 2 if is_fused else first.rows
    if x.rank not in (2, 3) or router.rank != 2 or router.shape[0] != rows:
        k.error(f"takes x (..., hidden) and a row of scores for each of its rows, not {x} and {router}")
    if first.columns != width or (second.rows, second.columns) != (width, inner):
        k.error(f"layers of {first.rows}x{first.columns} and {second.rows}x{second.columns} do not fit {x}")
    if third is not None and (third.rows, third.columns) != (inner, width):
        k.error(f"a third layer of {third.rows}x{third.columns} does not fit {first.rows}x{first.columns}")
    if mix is not None and mix.shape != router.shape:
        k.error(f"router_weights {list(mix.shape)} do not fit router_probs {list(router.shape)}")
    chosen, shares = routing.choose(k, router, mix)
    flat = k.alias(x, (rows, width))

    first_of = first.of(k, chosen, flat, shared=True)
    third_of = None if third is None else third.of(k, chosen, flat, shared=True)
    if is_fused:

        def gated(t: Expr, s: Expr, n: Expr) -> Expr:
            pair = (n * 2, n * 2 + lit(1)) if gate.swiglu_fusion == 1 else (n, n + inner)
            return gate.value(first_of[t, s, pair[0]], first_of[t, s, pair[1]])

        hidden = k.compute((rows, routing.count, inner), FLOAT32, gated)
    elif gate.is_gated and third_of is not None:
        hidden = k.elementwise(gate.value, first_of, third_of)
    else:
        hidden = k.elementwise(ACTIVATIONS[gate.activation_type], first_of)
        if third_of is not None:
            hidden = k.elementwise(lambda a, b: a * b, hidden, third_of)
    parts = second.of(k, chosen, k.alias(hidden, (rows * routing.count, inner)), shared=False)

    def total(t: Expr, j: Expr) -> Expr:
        return reduce("sum", routing.count, lambda s: shares[t, s] * parts[t, s, j])

    return k.alias(k.compute((rows, width), x.dtype, total), x.shape)


def float_layer(k: Builder, weights: Value, bias: Value | None) -> Projection:
    """A layer whose weights (experts, rows, columns) are floats."""
    if weights.rank != 3 or bias is not None and bias.shape != weights.shape[:2]:
        k.error(f"takes weights (experts, rows, columns), a bias (experts, rows), not {weights} and {bias}")

    def product(e: Expr, n: Expr, x: Callable[[Expr], Expr]) -> Expr:
        return reduce("sum", weights.shape[2], lambda r: x(r) * weights[e, n, r])

    return Projection(weights.shape[1], weights.shape[2], product, bias, (weights,))


@operator("MoE", domain=CONTRIB)
def moe(
    builder: Builder, x: Value, router_probs: Value, fc1: Value, fc1_bias: Value | None, fc2: Value,
    fc2_bias: Value | None = None, fc3: Value | None = None, fc3_bias: Value | None = None, *, k: int = 1,
    normalize_routing_weights: int = 0, use_sparse_mixer: int = 0, gate: Gate,
) -> Value:  # fmt: skip
    """The `k` best of several networks for each row of x, weighted by the softmax of their scores.

    `use_sparse_mixer` changes nothing, as on onnxruntime's CPU.
    """
    layers = (
        float_layer(builder, fc1, fc1_bias), float_layer(builder, fc2, fc2_bias),
        None if fc3 is None else float_layer(builder, fc3, fc3_bias),
    )  # fmt: skip
    return mixture(builder, x, router_probs, None, Routing(k, bool(normalize_routing_weights)), gate, layers)


def int_layer(
    k: Builder, words: Value, scales: Value | None, zeros: Value | None, bias: Value | None, bits: int,
    block_size: int,
) -> Projection:  # fmt: skip
    """A layer of integers packed along its columns, with a scale for each row, or for blocks of it."""
    if bits not in (2, 3, 4, 8):
        k.error(f"takes weights of 2, 3, 4 or 8 bits, not {bits}")
    if scales is None or words.rank != 3:
        k.error(f"takes packed weights (experts, rows, bytes) and their scales, not {words} and {scales}")
    experts, rows, width = words.shape
    columns = width * 8 // bits
    block = block_size or max(columns, 1)
    blocks = -(-columns // block)
    if scales.size != experts * rows * blocks:
        k.error(f"scales {list(scales.shape)} do not fit {blocks} blocks of {list(words.shape)}")
    steps = k.alias(scales, (experts, rows, blocks))
    middle, mask = float(1 << (bits - 1)), (1 << bits) - 1
    is_whole = 8 % bits == 0 and block_size % (8 // bits) == 0
    per_byte = 8 // bits if is_whole else 1
    table = zeros
    if zeros is not None:
        # Without blocks, the zero points of an expert's rows are packed together.
        inner = (rows, -(-blocks * bits // 8)) if block_size else (1, -(-rows * bits // 8))
        if zeros.size != experts * inner[0] * inner[1]:
            k.error(f"zero points {list(zeros.shape)} do not fit weights {list(words.shape)}")
        table = k.alias(zeros, (experts, *inner))

    def zero(e: Expr, n: Expr, b: Expr) -> Expr:
        if table is None:
            return lit(middle, "float32")
        place = ((e, n), b) if block_size else ((e, lit(0)), n)
        return cast(unpacked_number(table, *place, bits), "float32")

    lines, line_steps = k.alias(words, (experts * rows, width)), k.alias(scales, (experts * rows, blocks))

    def weight(line: Expr, c: Expr) -> Expr:
        # One block for a row, and the size of others, are known where a kernel is made.
        b = c // lit(block) if block_size else lit(0)
        e = line // arg(rows)
        centre = zero(e, line - e * arg(rows), b)
        return (cast(unpacked_number(lines, (line,), c, bits), "float32") - centre) * cast(
            line_steps[line, b], "float32"
        )

    def product(e: Expr, n: Expr, x: Callable[[Expr], Expr]) -> Expr:
        def of_block(b: Expr) -> Expr:
            centre, first = zero(e, n, b), b * (block // per_byte)

            def term(r: Expr) -> Expr:
                """What a byte adds, or a number where bytes do not hold whole ones."""
                at = (first + r) * per_byte
                word = words[e, n, first + r] if is_whole else unpacked_number(words, (e, n), at, bits)
                numbers = [(word >> lit(bits * i, "int32")) & lit(mask, "int32") for i in range(per_byte)]
                parts = [x(at + i) * (cast(w, "float32") - centre) for i, w in enumerate(numbers)]
                return sum(parts[1:], parts[0])

            extent = minimum(arg(block // per_byte), arg(columns // per_byte) - first)
            return cast(steps[e, n, b], "float32") * reduce("sum", extent, term)

        return reduce("sum", blocks, of_block)

    if bias is not None and bias.shape != (experts, rows):
        k.error(f"a bias must be {[experts, rows]}, not {list(bias.shape)}")
    read = (words, steps) if table is None else (words, steps, table)
    return Projection(rows, columns, product, bias, read, weight)


@operator("QMoE", domain=CONTRIB)
def qmoe(
    builder: Builder, x: Value, router_probs: Value, fc1: Value, fc1_scales: Value | None,
    fc1_bias: Value | None, fc2: Value, fc2_scales: Value | None = None, fc2_bias: Value | None = None,
    fc3: Value | None = None, fc3_scales: Value | None = None, fc3_bias: Value | None = None,
    fc1_zeros: Value | None = None, fc2_zeros: Value | None = None, fc3_zeros: Value | None = None,
    router_weights: Value | None = None, fc1_global_scale: Value | None = None,
    fc2_global_scale: Value | None = None, fc1_act_scale: Value | None = None,
    fc2_act_scale: Value | None = None, fc1_act_block_scale: Value | None = None,
    fc2_act_block_scale: Value | None = None, *,
    accuracy_level: int = 0, block_size: int = 0, expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0, fc2_expert_weight_bits: int = 0, fc3_expert_weight_bits: int = 0,
    k: int = 1, normalize_routing_weights: int = 0, quant_type: str = "int", use_sparse_mixer: int = 0,
    weights_prepacked: int = -1, gate: Gate,
) -> Value:  # fmt: skip
    """`MoE` with weights packed into bytes, lowest bits first; `router_weights` may replace the scores."""
    if quant_type != "int" or weights_prepacked == 1:
        builder.error(
            f"quant_type {quant_type!r} with weights_prepacked {weights_prepacked} is for CUDA alone; "
            "export with quant_type 'int' and weights_prepacked 0"
        )
    bits = [n or expert_weight_bits
            for n in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]  # fmt: skip
    layers = (
        int_layer(builder, fc1, fc1_scales, fc1_zeros, fc1_bias, bits[0], block_size),
        int_layer(builder, fc2, fc2_scales, fc2_zeros, fc2_bias, bits[1], block_size),
        None if fc3 is None
        else int_layer(builder, fc3, fc3_scales, fc3_zeros, fc3_bias, bits[2], block_size),
    )  # fmt: skip
    # Scores are normalised over the chosen experts regardless of the attribute, as onnxruntime's CPU does.
    routing = Routing(k, router_weights is None or bool(normalize_routing_weights))
    return mixture(builder, x, router_probs, router_weights, routing, gate, layers)


@operator("MoEGroupRouter", domain=CONTRIB)
def moe_group_router(
    k: Builder, logits: Value, expert_bias: Value, projection_weight: Value | None = None, *,
    group_topk: int = 2, n_group: int = 1, router_sentinel: float = -10000.0, top_k: int,
    topk_group: int = 1,
) -> tuple[Value | None, ...]:  # fmt: skip
    """log(sigmoid) of the `top_k` best experts out of the best groups, `router_sentinel` for the others.

    A group is worth its `group_topk` best sigmoids plus biases. Outputs 2 and 3 are all biased and plain
    sigmoids.
    """
    experts = expert_bias.size
    if projection_weight is not None:
        logits = matmul_(k, logits, transpose(k, projection_weight, perm=(1, 0)))
    if not experts or logits.rank < 1 or logits.shape[-1] != experts or n_group < 1 or experts % n_group:
        k.error(f"{list(logits.shape)} does not divide into {n_group} groups of {experts} experts")
    rows, size = logits.size // experts, experts // n_group
    if not (1 <= topk_group <= n_group and 1 <= top_k <= topk_group * size and group_topk >= 1):
        k.error(f"cannot choose {topk_group} of {n_group} groups and {top_k} of their experts")
    table = k.alias(logits, (rows, experts))
    scores = k.elementwise(lambda e: sigmoid(cast(e, "float32")), table, dtype=FLOAT32)
    biased = k.elementwise(lambda e, b: e + b, scores, k.alias(expert_bias, (experts,)))
    grouped = k.alias(biased, (rows * n_group, size, 1))
    count = min(group_topk, size)
    best = sorted_order(k, grouped, descending=True, keep=count)

    def worth(t: Expr, g: Expr) -> Expr:
        line = t * n_group + g
        return reduce("sum", count, lambda r: grouped[line, cast(best[line, r, lit(0)], "index"), lit(0)])

    groups = k.compute((rows, n_group, 1), FLOAT32, lambda t, g, _: worth(t, g))
    picked = sorted_order(k, groups, descending=True, keep=topk_group)

    def candidate(t: Expr, e: Expr, _: Expr) -> Expr:
        own = cast(e // arg(size), "int32")
        hit = reduce("sum", topk_group, lambda r: cast(eq(picked[t, r, lit(0)], own), "int32"))
        return select(hit > lit(0, "int32"), biased[t, e], lit(-inf, "float32"))

    open_ones = k.compute((rows, experts, 1), FLOAT32, candidate)
    chosen = sorted_order(k, open_ones, descending=True, keep=top_k)

    def routed(t: Expr, e: Expr) -> Expr:
        hit = reduce("sum", top_k, lambda r: cast(eq(chosen[t, r, lit(0)], cast(e, "int32")), "int32"))
        found = unary("log", maximum(scores[t, e], 1e-20))
        return select(hit > lit(0, "int32"), found, arg(router_sentinel, "float32"))

    return k.compute((rows, experts), logits.dtype, routed), biased, scores
