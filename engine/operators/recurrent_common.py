"""Common parts of recurrent layers: directions, lengths, layouts, time steps.

The input product of all time steps is taken at once. Then the same few kernels run for each step, whose
number is a run-time argument: no length needs a kernel of its own. If the backend can repeat them, the plan
holds them once (`Builder.repeated`), else once for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from engine.base.dtypes import FLOAT32
from engine.kernels.expr import FLAT, Expr, arg, cast, clamp, iteration_number, lit, select
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.activations import Activation, choose_activations
from engine.operators.builder import Builder
from engine.operators.declaration import AttributeGroup
from engine.operators.linear import matmul
from engine.operators.loop_rolling import RolledLoop
from engine.operators.movement import Chain, concat_many

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each value of the attribute, whether its directions run from the end of a sequence."""


@dataclass(frozen=True, kw_only=True)
class Attributes(AttributeGroup):
    """The attributes that all recurrent layers have."""

    activation_alpha: Sequence[float] = ()
    activation_beta: Sequence[float] = ()
    activations: Sequence[str] = ()
    clip: float = 0.0
    direction: str = "forward"
    hidden_size: int = 0
    layout: int = 0


Finish = Callable[[Expr, Expr, Expr], Expr]
"""An element of a product with what is added to it: from its sum, its row and its column."""


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: number `d` of its weights, walked from the end if `reverse`."""

    k: Builder
    x: Value
    w: Value
    r: Value
    b: Value | None
    lengths: Value | None
    d: int
    reverse: bool
    acts: Sequence[Activation]
    clip: float

    @property
    def steps(self) -> int:
        """How many time steps there are."""
        return self.x.shape[0]

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return self.x.shape[1]

    @property
    def hidden(self) -> int:
        """The width of a state."""
        return self.r.shape[2]

    def limited(self, x: Expr) -> Expr:
        """Gate sums, clipped if the layer has a limit."""
        return clamp(x, arg(-self.clip, x.dtype), arg(self.clip, x.dtype)) if self.clip else x

    def length(self, n: Expr) -> Expr:
        """How many steps sequence n has."""
        assert self.lengths is not None
        return clamp(cast(self.lengths[n], "index"), lit(0), arg(self.steps))

    def source(self, t: Expr, n: Expr) -> Expr:
        """The input step of sequence n at step t; reversed sequences start at their own end."""
        if not self.reverse:
            return t
        if self.lengths is None:
            return arg(self.steps - 1) - t
        length = self.length(n)
        return select(t < length, length - lit(1) - t, t)

    def kept(self, t: Expr, n: Expr, new: Expr, old: Expr) -> Expr:
        """A state after step t: the states of sequences that have ended stay."""
        return new if self.lengths is None else select(t < self.length(n), new, old)

    def inputs(self, second: Callable[[Expr], Expr] | None = None) -> Value:
        """x[t] W' + Wb + Rb for all steps at once, (T, N, gates); `second` says where Rb is added."""
        b, d, width = self.b, arg(self.d), self.w.shape[1]

        def with_bias(found: Expr, _: Expr, j: Expr) -> Expr:
            if b is None:
                return found
            other = b[d, j + width]
            return found + (b[d, j] + (other if second is None else select(second(j), other, 0.0)))

        return self.input_product(with_bias)

    def input_product(self, finish: Finish) -> Value:
        """`finish(sum, n, j)` of each element of x[t] W' for all steps at once, (T, N, gates)."""
        width, depth = self.w.shape[1:]
        weights = part(self.k, self.w, self.d, 0, width)
        rows = self.steps * self.batch
        shape = (self.steps, self.batch, width)
        sums = matmul(self.k, self.x, weights, shape, (1, rows, width, depth), (0, depth, 1), (0, 1, depth))
        return sums if self.b is None else self.finished(sums, finish)

    def product(self, h: Value, weights: Value, finish: Finish) -> Value:
        """`finish(sum, n, j)` of each element of h weights, (N, columns of weights)."""
        depth, width = weights.shape
        shape = (1, self.batch, width)
        sums = matmul(self.k, h, weights, shape, (*shape, depth), (0, depth, 1), (0, width, 1))
        return self.k.alias(self.finished(sums, finish), shape[1:])

    def finished(self, sums: Value, finish: Finish) -> Value:
        """`finish` of each element of `sums`, (..., N, columns)."""
        return self.k.compute(
            sums.shape, self.x.dtype, lambda _, n, j: finish(sums.at(FLAT), n, j), elementwise=True
        )


Step = Callable[[Expr, tuple[Value, ...]], tuple[Value, ...]]
"""From a step's number and the states before it, each (N, H), to those after it; the first is the output."""


@dataclass(frozen=True)
class Recurrence:
    """A recurrent layer of any kind."""

    k: Builder
    x: Value
    w: Value
    r: Value
    b: Value | None
    lengths: Value | None
    attributes: Attributes
    direction: Callable[..., Direction] = Direction
    """What makes the layer's directions."""

    def run(
        self, gates: int, defaults: Sequence[str], initial: Sequence[Value | None],
        cell: Callable[[Direction], Step], plain: str | None = None,
    ) -> tuple[Value | None, ...]:  # fmt: skip
        """Y and the last states; `cell` makes the step of a direction.

        `plain` is the kind of the layer as a hint, None where its cell is none that backends know.
        """
        self.check(gates, initial)
        k, a = self.k, self.attributes
        if plain is not None and self.is_plain(defaults):
            return self.as_one(plain, initial)
        reverses, values = DIRECTIONS[a.direction], (a.activation_alpha, a.activation_beta)
        acts = choose_activations(k, a.activations, defaults, *values, len(reverses))
        x = self.swapped(self.x)
        sequences, lasts = [], []
        for d, reverse in enumerate(reverses):
            chosen = acts[d * len(defaults) : (d + 1) * len(defaults)]
            way = self.direction(k, x, self.w, self.r, self.b, self.lengths, d, reverse, chosen, a.clip)
            outputs, states = walk(way, cell(way), [self.state(s, d, way) for s in initial])
            sequences.append(in_input_order(way, outputs))
            lasts.append(states)
        y = self.join_outputs(sequences, x.shape[0], x.shape[1])
        return y, *(self.join_states(states) for states in zip(*lasts, strict=True))

    def is_plain(self, defaults: Sequence[str]) -> bool:
        """Whether a backend computes the layer as one: known weights, default activations, full lengths."""
        a, weights = self.attributes, [self.w, self.r, *([] if self.b is None else [self.b])]
        names = [name.lower() for name in a.activations]
        count = len(DIRECTIONS[a.direction])
        return (
            "recurrence" in self.k.whole_layers
            and all(v.known is not None for v in weights)
            and self.x.dtype == FLOAT32
            and self.x.size > 0
            and self.lengths is None
            and not a.clip
            and (not names or names == [name.lower() for name in defaults] * count)
        )

    def as_one(self, kind: str, initial: Sequence[Value | None]) -> tuple[Value | None, ...]:
        """The layer as one formula that only its hint describes; None for states that are not read."""
        k, a, x = self.k, self.attributes, self.swapped(self.x)
        directions, hidden, states = self.r.shape[0], self.r.shape[2], len(initial)
        steps, batch = x.shape[:2]
        starts = [None if s is None else self.swapped(s) for s in initial]
        named = [("b", self.b), *zip("hc", starts, strict=False)]
        given = tuple(name for name, value in named if value is not None)
        operands = (x, self.w, self.r, *(value for _, value in named if value is not None))
        attributes: dict[str, Any] = {"kind": kind, "given": given, "reverses": DIRECTIONS[a.direction]}
        size = directions * batch * hidden
        wanted = any(k.wants(1 + number) for number in range(states))
        attributes["states"] = states if wanted else 0
        joined = k.compute(
            ((steps + attributes["states"]) * size,), x.dtype, lambda i: x.at(lit(0)),
            hint=lambda: Hint("recurrence", operands, attributes),
        )  # fmt: skip
        if not wanted and not a.layout:
            return k.alias(joined, (steps, directions, batch, hidden)), *[None] * states

        def piece(shape: tuple[int, ...], order: tuple[int, ...], start: int) -> Value:
            """Elements from `start` on, whose axes lie in the order of `order` from the last one on."""
            strides = dict(zip(order, accumulate((1, *(shape[axis] for axis in order)), mul), strict=False))

            def formula(*at: Expr) -> Expr:
                position: Expr = arg(start)
                for axis, i in enumerate(at):
                    position = position + i * (lit(1) if strides[axis] == 1 else arg(strides[axis]))
                return joined.at(position)

            return k.compute(shape, x.dtype, formula)

        whole = (batch, steps, directions, hidden) if a.layout else (steps, directions, batch, hidden)
        y = piece(whole, (3, 0, 2, 1) if a.layout else (3, 2, 1, 0), 0)
        one = (batch, directions, hidden) if a.layout else (directions, batch, hidden)
        order = (2, 0, 1) if a.layout else (2, 1, 0)
        if not wanted:
            return y, *[None] * states
        return y, *(piece(one, order, (steps + number) * size) for number in range(states))

    def swapped(self, x: Value) -> Value:
        """Swap the first two axes in layout 1; unchanged in layout 0."""
        if not self.attributes.layout:
            return x
        first, second, third = x.shape
        return self.k.compute((second, first, third), x.dtype, lambda i, j, rest: x[j, i, rest])

    def check(self, gates: int, initial: Sequence[Value | None]) -> None:
        """Raise for inconsistent weights and states."""
        k, a, x = self.k, self.attributes, self.x
        k.one_of("direction", a.direction, DIRECTIONS)
        if a.layout not in (0, 1):
            k.error(f"layout is {a.layout}; 0 (time first) or 1 (batch first)")
        if x.rank != 3 or self.r.rank != 3:
            k.error(f"takes X and R of rank 3, not {list(x.shape)} and {list(self.r.shape)}")
        d, hidden = len(DIRECTIONS[a.direction]), self.r.shape[2]
        if a.hidden_size not in (0, hidden):
            k.error(f"hidden_size is {a.hidden_size}, but R {list(self.r.shape)} has {hidden} columns")
        batch = x.shape[0 if a.layout else 1]
        state = (batch, d, hidden) if a.layout else (d, batch, hidden)
        wanted: list[tuple[str, Value | None, tuple[int, ...]]] = [
            ("W", self.w, (d, gates * hidden, x.shape[2])),
            ("R", self.r, (d, gates * hidden, hidden)),
            ("B", self.b, (d, 2 * gates * hidden)),
            ("sequence_lens", self.lengths, (batch,)),
            *(("an initial state", s, state) for s in initial),
        ]
        for name, value, shape in wanted:
            if value is not None and value.shape != shape:
                k.error(
                    f"for X {list(x.shape)}, {name} must be {list(shape)}, not {list(value.shape)}",
                    value.shape, shape,
                )  # fmt: skip

    def state(self, given: Value | None, d: int, way: Direction) -> Value:
        """An initial state, (N, H): given, or zeros."""
        k, shape = self.k, (way.batch, way.hidden)
        if given is None:
            return k.compute(shape, way.x.dtype, lambda n, j: lit(0, way.x.arithmetic))
        if self.attributes.layout:
            return k.compute(shape, given.dtype, lambda n, j: given[n, arg(d), j])
        if given.shape[0] == 1:
            return k.alias(given, shape)
        return k.compute(shape, given.dtype, lambda n, j: given[arg(d), n, j])

    def join_outputs(self, sequences: Sequence[Value], steps: int, batch: int) -> Value:
        """Y from each direction's outputs, (T, N, H)."""
        k, d, hidden = self.k, len(sequences), self.r.shape[2]
        y = k.alias(stack(k, sequences), (d, steps, batch, hidden))
        if self.attributes.layout:
            return k.compute((batch, steps, d, hidden), y.dtype, lambda n, t, d, j: y[d, t, n, j])
        if d > 1:
            return k.compute((steps, d, batch, hidden), y.dtype, lambda t, d, n, j: y[d, t, n, j])
        return k.alias(y, (steps, 1, batch, hidden))

    def join_states(self, states: Sequence[Value]) -> Value:
        """One last state of all directions."""
        k, d = self.k, len(states)
        batch, hidden = states[0].shape
        return self.swapped(k.alias(stack(k, states), (d, batch, hidden)))


def walk(way: Direction, step: Step, states: Sequence[Value]) -> tuple[Value, tuple[Value, ...]]:
    """All outputs in the order of the walk, (T, N, H), and the last states, which are 0 after no step."""
    k, shape = way.k, (way.steps, way.batch, way.hidden)
    if not way.steps:
        zeros = [k.constant(np.zeros(s.shape, s.dtype)) for s in states]
        return k.constant(np.zeros(shape, way.x.dtype)), tuple(zeros)
    rolled = RolledLoop.begin(k, way.steps, states, may_be_sizes=False)
    after = () if rolled is None else step(iteration_number(), tuple(rolled.before))
    if rolled is not None and rolled.receive(k, after, after[:1]):
        outputs, now = rolled.stack(k, 0), rolled.states(k)
    else:
        now, chain = tuple(states), Chain(k, k.fan_in)
        for t in k.steps(way.steps):
            now = step(arg(t), now)
            chain.add(k.alias(now[0], (1, now[0].size)))
        outputs = k.alias(chain.whole(), shape)
    if way.lengths is not None:
        now = tuple(cleared(way, s) for s in now)
    return outputs, now


def cleared(way: Direction, state: Value) -> Value:
    """A last state, 0 for sequences without a step."""
    return way.k.compute(
        state.shape, state.dtype, lambda n, j: select(way.length(n) > lit(0), state[n, j], 0.0)
    )


def in_input_order(way: Direction, outputs: Value) -> Value:
    """Outputs in the order of the input instead of the walk's, and 0 after a sequence's end."""
    if way.lengths is None and not way.reverse:
        return outputs

    def formula(t: Expr, n: Expr, j: Expr) -> Expr:
        found = outputs[way.source(t, n), n, j]
        return found if way.lengths is None else select(t < way.length(n), found, 0.0)

    return way.k.compute(outputs.shape, outputs.dtype, formula)


def part(k: Builder, weights: Value, d: int, start: int, end: int) -> Value:
    """Rows of one direction's weights as a matrix; folded if they are constant."""
    directions, rows, columns = weights.shape
    if weights.known is not None:
        return k.constant(np.ascontiguousarray(weights.known[d, start:end]))
    if directions == 1 and end - start == rows:
        return k.alias(weights, (rows, columns))
    return k.compute((end - start, columns), weights.dtype, lambda i, j: weights[arg(d), i + start, j])


def transposed(k: Builder, weights: Value, d: int, start: int, end: int) -> Value:
    """The transpose of `part`, for products of few rows: neighbouring threads read neighbouring elements."""
    if weights.known is not None:
        return k.constant(np.ascontiguousarray(weights.known.reshape(weights.shape)[d, start:end].T))
    shape = (weights.shape[2], end - start)
    return k.compute(shape, weights.dtype, lambda i, j: weights[arg(d), j + start, i])


def stack(k: Builder, parts: Sequence[Value]) -> Value:
    """Tensors of one size, one after another."""
    return concat_many(k, [k.alias(p, (1, p.size)) for p in parts], k.fan_in)
