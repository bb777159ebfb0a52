"""LinearAttention: attention whose memory is one matrix per head instead of all keys and values.

One step (a token while generating) updates the matrix directly. More steps are taken in chunks (Yang et al.,
2024): within one, every step's share is found at once from products of queries and keys, and only the matrix
between two chunks waits for the previous one. For the delta rule, whose values depend on what was stored just
before, that takes the inverse of a unit lower triangular matrix, found by doubling the size of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.kernels.expr import Expr, arg, cast, eq, lit, minimum, reduce, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.recurrent_common import stack
from engine.operators.registry import operator

RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""For each update rule, whether it takes a decay and whether it takes an update rate."""


@operator("LinearAttention", since=27)
def linear_attention(
    k: Builder, query: Value, key: Value, value: Value, past_state: Value | None = None,
    decay: Value | None = None, beta: Value | None = None, *, chunk_size: int = 64, kv_num_heads: int,
    q_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta",
) -> tuple[Value, Value]:  # fmt: skip
    """At each step S = exp(g) S + k u' and y = scale * S' q (Katharopoulos et al., 2020).

    u is v or, by the delta rule, beta * (v - exp(g) S' k). query (N, T, Hq * K), key (N, T, H * K), value
    (N, T, H * V), decay g (N, T, H) or (N, T, H * K), beta (N, T, H) or (N, T, 1), S (N, H, K, V);
    y (N, T, Hq * V). `chunk_size` is a hint at speed.
    """
    check(k, query, key, value, past_state, decay, beta, q_num_heads, kv_num_heads, update_rule)
    depth = query.shape[2] // q_num_heads
    chunk = max(1, min(chunk_size, query.shape[1]))
    heads = HeadInputs(
        k, query, key, value, decay, beta, q_num_heads, kv_num_heads, chunk, scale or depth**-0.5
    )
    state = heads.initial(past_state)
    y, state = heads.one_step(state) if query.shape[1] == 1 else heads.in_chunks(state)
    kept = query if past_state is None else past_state
    return y, k.compute(state.shape, kept.dtype, lambda *at: cast(state[at], kept.arithmetic))


def check(
    k: Builder, query: Value, key: Value, value: Value, past: Value | None, decay: Value | None,
    beta: Value | None, q_heads: int, heads: int, rule: str,
) -> None:  # fmt: skip
    """Raise for inconsistent attributes and shapes."""
    k.one_of("update_rule", rule, RULES)
    for name, given, wanted in zip(("decay", "beta"), (decay, beta), RULES[rule], strict=True):
        if (given is not None) != wanted:
            k.error(f"update_rule {rule!r} {'needs' if wanted else 'takes no'} {name}")
    if q_heads < 1 or heads < 1 or q_heads % heads:
        k.error(f"q_num_heads ({q_heads}) must be a multiple of kv_num_heads ({heads})")
    if (
        query.rank != 3
        or key.rank != 3
        or value.rank != 3
        or query.shape[2] % q_heads
        or value.shape[2] % heads
    ):
        k.error(f"cannot cut {list(query.shape)} and {list(value.shape)} into {q_heads} and {heads} heads")
    lead, depth, width = query.shape[:2], query.shape[2] // q_heads, value.shape[2] // heads
    fits: list[tuple[str, Value | None, tuple[tuple[int, ...], ...]]] = [
        ("key", key, ((*lead, heads * depth),)),
        ("value", value, ((*lead, heads * width),)),
        ("past_state", past, ((lead[0], heads, depth, width),)),
        ("decay", decay, ((*lead, heads), (*lead, heads * depth))),
        ("beta", beta, ((*lead, heads), (*lead, 1))),
    ]
    for name, given, shapes in fits:
        if given is not None and given.shape not in shapes:
            wanted_shapes = " or ".join(str(list(s)) for s in shapes)
            k.error(f"{name} must be {wanted_shapes}, not {list(given.shape)}", given.shape, shapes[0])


@dataclass(frozen=True)
class HeadInputs:
    """The inputs of a layer split by head, and its time chunks. States are (N, H, K, V)."""

    k: Builder
    query: Value
    key: Value
    value: Value
    decay: Value | None
    beta: Value | None
    q_heads: int
    heads: int
    chunk: int
    scale: float

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return self.query.shape[0]

    @property
    def steps(self) -> int:
        """How many time steps there are."""
        return self.query.shape[1]

    @property
    def depth(self) -> int:
        """The width of a key."""
        return self.query.shape[2] // self.q_heads

    @property
    def width(self) -> int:
        """The width of a value."""
        return self.value.shape[2] // self.heads

    @property
    def dtype(self) -> np.dtype:
        """The type of states and of everything between."""
        return self.query.dtype if self.query.dtype.itemsize >= 4 else FLOAT32

    def new(self, shape: tuple[int, ...], formula: Callable[..., Expr]) -> Value:
        """A tensor of this layer's own type."""
        return self.k.compute(shape, self.dtype, formula)

    # Elements by sequence n, head h, step t and place

    def q(self, n: Expr, h: Expr, t: Expr, d: Expr) -> Expr:
        """An element of a query, by its own head."""
        return self.query[n, t, h * self.depth + d]

    def key_of(self, n: Expr, h: Expr, t: Expr, d: Expr) -> Expr:
        """An element of a key."""
        return self.key[n, t, h * self.depth + d]

    def v(self, n: Expr, h: Expr, t: Expr, m: Expr) -> Expr:
        """An element of a value."""
        return self.value[n, t, h * self.width + m]

    def rate(self, n: Expr, h: Expr, t: Expr) -> Expr:
        """The update rate."""
        assert self.beta is not None
        return self.beta[n, t, h * arg(1 if self.beta.shape[2] == self.heads else 0)]

    def head_of(self, q_head: Expr) -> Expr:
        """The head whose state a query head reads."""
        return q_head // arg(self.q_heads // self.heads)

    @property
    def by_head(self) -> bool:
        """Whether the decay is the same for all elements of a key."""
        return self.decay is None or self.decay.shape[2] == self.heads

    @cached_property
    def faded(self) -> Value | None:
        """The sum of decays from a chunk's first step to each step, in the shape of `decay`."""
        decay = self.decay
        if decay is None:
            return None

        def formula(n: Expr, t: Expr, c: Expr) -> Expr:
            i = t % arg(self.chunk)
            return reduce("sum", i + lit(1), lambda r: decay[n, minimum(t - i + r, self.steps - 1), c])

        return self.new(decay.shape, formula)

    def fading(self, n: Expr, h: Expr, t: Expr, d: Expr, since: Expr | None = None) -> Expr:
        """The remaining factor at step t of a state from before its chunk, or from after step `since`."""
        faded = self.faded
        if faded is None:
            return lit(1.0, self.query.arithmetic)
        column = h if self.by_head else h * self.depth + d
        past = faded[n, t, column]
        return unary("exp", past if since is None else past - faded[n, since, column])

    # States

    def initial(self, past: Value | None) -> Value:
        """The state before the first step: given, or zeros."""
        shape = (self.batch, self.heads, self.depth, self.width)
        if past is None:
            return self.new(shape, lambda *at: lit(0.0, self.query.arithmetic))
        return self.new(shape, lambda *at: cast(past[at], self.query.arithmetic))

    def lasting(
        self, n: Expr, h: Expr, t: Expr, since: Expr | None, extent: Expr, term: Callable[[Expr], Expr]
    ) -> Expr:
        """The sum of `term` over a key's elements, weighted by their decay until step t."""
        if self.by_head:
            return reduce("sum", extent, term) * self.fading(n, h, t, lit(0), since)
        return reduce("sum", extent, lambda d: term(d) * self.fading(n, h, t, d, since))

    def next_state(self, state: Value, keys: Value, update: Value, start: int, count: int) -> Value:
        """The state after `count` steps of a chunk that begins at `start`; update is (N, H, count, V)."""

        def formula(n: Expr, h: Expr, d: Expr, m: Expr) -> Expr:
            def added(i: Expr) -> Expr:
                return keys[n, i + start, h * self.depth + d] * update[n, h, i, m]

            kept = self.fading(n, h, arg(start + count - 1), d) * state[n, h, d, m]
            return kept + reduce("sum", count, added)

        return self.new(state.shape, formula)

    def one_step(self, state: Value) -> tuple[Value, Value]:
        """The only step's output, and the state after it."""

        def formula(n: Expr, h: Expr, t: Expr, m: Expr) -> Expr:
            if self.beta is None:
                return self.v(n, h, t, m)
            recalled = self.lasting(
                n, h, t, None, arg(self.depth), lambda d: self.key_of(n, h, t, d) * state[n, h, d, m]
            )
            return self.rate(n, h, t) * (self.v(n, h, t, m) - recalled)

        update = self.new((self.batch, self.heads, 1, self.width), formula)
        after = self.next_state(state, self.key, update, 0, 1)

        def read(n: Expr, t: Expr, j: Expr) -> Expr:
            q_head, m = j // arg(self.width), j % arg(self.width)
            h = self.head_of(q_head)
            total = reduce("sum", self.depth, lambda d: self.q(n, q_head, t, d) * after[n, h, d, m])
            return arg(self.scale, total.dtype) * total

        return self.k.compute((self.batch, 1, self.q_heads * self.width), self.query.dtype, read), after

    # Chunks

    def in_chunk(self, t: Expr, c: Expr) -> Expr:
        """Step number c of the chunk in which step t is, or the last step."""
        return minimum(t - t % arg(self.chunk) + c, self.steps - 1)

    def overlaps(self, heads: int, limit: int, left: Callable[..., Expr]) -> Value:
        """`left` of each step times the keys before it in its chunk (and its own, if `limit` is 1).

        Returns (N, heads, T, chunk), with zeros for later steps.
        """

        def formula(n: Expr, own: Expr, t: Expr, c: Expr) -> Expr:
            h, since = own // arg(heads // self.heads), self.in_chunk(t, c)
            before = c < t % arg(self.chunk) + lit(limit)
            extent = select(before, arg(self.depth), lit(0))
            found = self.lasting(
                n, h, t, since, extent, lambda d: left(n, own, t, d) * self.key_of(n, h, since, d)
            )
            return select(before, found, lit(0.0, found.dtype))

        return self.new((self.batch, heads, self.steps, self.chunk), formula)

    def inverse(self, lower: Value) -> Value:
        """The inverse of identity + lower in each chunk, with block sizes doubled in each iteration.

        Where ' inverts, [[A, 0], [B, D]]' is [[A', 0], [-D' B A', D']].
        """
        kind = lower.arithmetic
        found = self.new(lower.shape, lambda n, h, t, c: cast(eq(t % arg(self.chunk), c), kind))
        half = 1
        while half < self.chunk:
            found = self.joined_blocks(found, lower, half)
            half *= 2
        return found

    def joined_blocks(self, inverse: Value, lower: Value, half: int) -> Value:
        """One iteration of `inverse`, from inverted blocks of size `half`."""

        def place(t: Expr, c: Expr) -> tuple[Expr, Expr, Expr]:
            """Whether an element joins two blocks, the second one's first row, and its own row."""
            row = t % arg(self.chunk)
            second = row - row % arg(2 * half) + half
            return (row >= second) & (c < second) & (c >= second - half), second, row

        def product(n: Expr, h: Expr, t: Expr, c: Expr) -> Expr:
            inside, second, _ = place(t, c)

            def term(r: Expr) -> Expr:
                column = minimum(c + r, self.chunk - 1)
                return lower[n, h, t, column] * inverse[n, h, self.in_chunk(t, column), c]

            return reduce("sum", select(inside, second - c, lit(0)), term)

        between = self.new(lower.shape, product)

        def formula(n: Expr, h: Expr, t: Expr, c: Expr) -> Expr:
            inside, second, row = place(t, c)

            def term(r: Expr) -> Expr:
                column = minimum(second + r, self.chunk - 1)
                return inverse[n, h, t, column] * between[n, h, self.in_chunk(t, column), c]

            joint = -reduce("sum", select(inside, row - second + lit(1), lit(0)), term)
            return select(inside, joint, inverse[n, h, t, c])

        return self.new(lower.shape, formula)

    def solved(self, inverse: Value, size: int, right: Callable[[Expr, Expr, Expr, Expr], Expr]) -> Value:
        """`inverse` times the update rate times `right`, whose rows are `size` wide: (N, H, T, size)."""

        def formula(n: Expr, h: Expr, t: Expr, place: Expr) -> Expr:
            def term(c: Expr) -> Expr:
                since = self.in_chunk(t, c)
                return inverse[n, h, t, c] * self.rate(n, h, since) * right(n, h, since, place)

            return reduce("sum", t % arg(self.chunk) + lit(1), term)

        return self.new((self.batch, self.heads, self.steps, size), formula)

    def aged(self, x: Value, q_heads: int, until_end: bool) -> Value:
        """Queries times the decay since their chunk's start, or keys times the decay until its end."""
        if self.decay is None:
            return x

        def formula(n: Expr, t: Expr, j: Expr) -> Expr:
            h, d = j // arg(self.depth) // arg(q_heads // self.heads), j % arg(self.depth)
            end = self.in_chunk(t, arg(self.chunk - 1))
            return x[n, t, j] * (self.fading(n, h, end, d, t) if until_end else self.fading(n, h, t, d))

        return self.new(x.shape, formula)

    def in_chunks(self, state: Value) -> tuple[Value, Value]:
        """All outputs, and the state after the last step."""
        k = self.k
        scores = self.overlaps(self.q_heads, 1, self.q)
        queries, keys = self.aged(self.query, self.q_heads, False), self.aged(self.key, self.heads, True)
        stored: tuple[Value, Value] | None = None
        if self.beta is not None:
            lower = self.overlaps(
                self.heads, 0, lambda n, h, t, d: self.rate(n, h, t) * self.key_of(n, h, t, d)
            )
            inverse = self.inverse(lower)
            recalled = self.solved(
                inverse, self.depth, lambda n, h, t, d: self.key_of(n, h, t, d) * self.fading(n, h, t, d)
            )
            stored = self.solved(inverse, self.width, self.v), recalled
        outputs = []
        for start in range(0, self.steps, self.chunk):
            count = min(self.chunk, self.steps - start)
            update = self.update(state, stored, start, count)
            outputs.append(self.read(state, queries, scores, update, start))
            state = self.next_state(state, keys, update, start, count)
        shape = (self.batch, self.steps, self.q_heads * self.width)
        if not outputs:
            return k.constant(np.zeros(shape, self.query.dtype)), state
        y = k.alias(stack(k, outputs), (shape[1], shape[0], shape[2]))
        return k.compute(shape, y.dtype, lambda n, t, j: y[t, n, j]), state

    def update(self, state: Value, stored: tuple[Value, Value] | None, start: int, count: int) -> Value:
        """The update of a chunk: (N, H, count, V)."""

        def formula(n: Expr, h: Expr, i: Expr, m: Expr) -> Expr:
            t = i + start
            if stored is None:
                return self.v(n, h, t, m)
            values, keys = stored
            recalled = reduce("sum", self.depth, lambda d: keys[n, h, t, d] * state[n, h, d, m])
            return values[n, h, t, m] - recalled

        return self.new((self.batch, self.heads, count, self.width), formula)

    def read(self, state: Value, queries: Value, scores: Value, update: Value, start: int) -> Value:
        """The outputs of a chunk: (count, N, Hq * V)."""

        def formula(i: Expr, n: Expr, j: Expr) -> Expr:
            q_head, m, t = j // arg(self.width), j % arg(self.width), i + start
            h = self.head_of(q_head)
            before = reduce(
                "sum", self.depth, lambda d: queries[n, t, q_head * self.depth + d] * state[n, h, d, m]
            )
            inside = reduce("sum", i + lit(1), lambda c: scores[n, q_head, t, c] * update[n, h, c, m])
            return arg(self.scale, before.dtype) * (before + inside)

        shape = (update.shape[2], self.batch, self.q_heads * self.width)
        return self.k.compute(shape, self.query.dtype, formula)
