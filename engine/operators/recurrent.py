"""Recurrent layers: the input product of all steps at once, then two small kernels for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.kernels.expr import FLAT, Expr, arg, cast, clamp, lit, maximum, select, unary
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.elementwise import sigmoid, softplus
from engine.operators.linear import matmul
from engine.operators.movement import joined
from engine.operators.registry import operator

Activation = Callable[[Expr], Expr]


def activation(k: Builder, name: str, alpha: float | None, beta: float | None) -> Activation:
    """One of ONNX's recurrent activations, by its name (any case)."""

    def given(value: float | None, default: float) -> float:
        return default if value is None else float(value)

    def scaled(x: Expr, a: float, b: float) -> tuple[Expr, Expr]:
        return arg(a, x.dtype), arg(b, x.dtype)

    def affine(x: Expr) -> Expr:
        a, b = scaled(x, given(alpha, 1.0), given(beta, 0.0))
        return a * x + b

    def hard_sigmoid(x: Expr) -> Expr:
        a, b = scaled(x, given(alpha, 0.2), given(beta, 0.5))
        return clamp(a * x + b, 0.0, 1.0)

    def scaled_tanh(x: Expr) -> Expr:
        a, b = scaled(x, given(alpha, 1.0), given(beta, 1.0))
        return a * unary("tanh", b * x)

    table: dict[str, Activation] = {
        "relu": lambda x: maximum(x, 0.0),
        "tanh": lambda x: unary("tanh", x),
        "sigmoid": sigmoid,
        "affine": affine,
        "leakyrelu": lambda x: select(x < 0.0, arg(given(alpha, 0.01), x.dtype) * x, x),
        "thresholdedrelu": lambda x: select(x > arg(given(alpha, 1.0), x.dtype), x, 0.0),
        "scaledtanh": scaled_tanh,
        "hardsigmoid": hard_sigmoid,
        "elu": lambda x: select(x < 0.0, arg(given(alpha, 1.0), x.dtype) * (unary("exp", x) - 1.0), x),
        "softsign": lambda x: x / (1.0 + unary("abs", x)),
        "softplus": softplus,
    }
    if name.lower() not in table:
        k.error(f"unknown activation {name!r}; one of {', '.join(table)}")
    return table[name.lower()]


def choose_activations(
    k: Builder,
    names: Sequence[str],
    defaults: Sequence[str],
    alpha: Sequence[float],
    beta: Sequence[float],
    count: int,
) -> list[Activation]:
    """One activation per gate and direction; alpha and beta are consumed in order, as ONNX words it."""
    names = list(names) or list(defaults) * count
    if len(names) != len(defaults) * count:
        k.error(f"{len(defaults) * count} activations are needed, not {len(names)}")
    alphas, betas = list(alpha), list(beta)
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    found = []
    for name in names:
        a = alphas.pop(0) if name.lower() in takes_alpha and alphas else None
        b = betas.pop(0) if name.lower() in takes_beta and betas else None
        found.append(activation(k, name, a, b))
    return found


@operator("LSTM", since=7)
def lstm(
    k: Builder, x: Value, w: Value, r: Value, b: Value | None = None, sequence_lens: Value | None = None,
    initial_h: Value | None = None, initial_c: Value | None = None, p: Value | None = None, *,
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (), clip: float = 0.0, direction: str = "forward", hidden_size: int = 0,
    input_forget: int = 0, layout: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), gates in ONNX's order i, o, f, c.

    x (T, N, I), w (D, 4H, I), r (D, 4H, H), b (D, 8H), states (D, N, H), p (D, 3H); y (T, D, N, H),
    y_h and y_c (D, N, H). With layout 1, x is (N, T, I), states (N, D, H) and y (N, T, D, H).
    """
    directions = 2 if direction == "bidirectional" else 1
    hidden = r.shape[2]
    steps, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    acts = choose_activations(
        k, activations, ("Sigmoid", "Tanh", "Tanh"), activation_alpha, activation_beta, directions
    )
    if layout:
        x = k.compute((steps, batch, x.shape[2]), x.dtype, lambda t, n, i, x=x: x[n, t, i])
    states = []
    for d in range(directions):
        reverse = direction == "reverse" or d == 1
        cell = LstmCell(k, w, r, b, p, d, hidden, batch, acts[3 * d : 3 * d + 3], clip, bool(input_forget))
        states.append(cell.run(x, steps, sequence_lens, initial_h, initial_c, reverse, bool(layout)))
    reversed_first = direction == "reverse"
    return join_directions(k, states, steps, batch, hidden, bool(layout), sequence_lens, reversed_first)


States = tuple[list[Value], Value, Value]
"""Hidden states by time step, the last hidden state and the last cell state; each (N, H)."""


class LstmCell:
    """One direction of an LSTM."""

    def __init__(
        self, k: Builder, w: Value, r: Value, b: Value | None, p: Value | None, d: int, hidden: int,
        batch: int, acts: Sequence[Activation], clip: float, coupled: bool,
    ) -> None:  # fmt: skip
        self.k, self.w, self.r, self.b, self.p = k, w, r, b, p
        self.d, self.hidden, self.batch = d, hidden, batch
        self.acts, self.clip, self.coupled = acts, clip, coupled

    def limited(self, x: Expr) -> Expr:
        """Gate sums are clipped where the layer asks for it."""
        return clamp(x, arg(-self.clip, x.dtype), arg(self.clip, x.dtype)) if self.clip else x

    def peephole(self, gate: int, h: Expr, cell: Expr) -> Expr | None:
        """The cell state's direct share in a gate."""
        return None if self.p is None else self.p[self.d, h + gate * self.hidden] * cell

    def run(
        self,
        x: Value,
        steps: int,
        lengths: Value | None,
        h0: Value | None,
        c0: Value | None,
        reverse: bool,
        layout: bool,
    ) -> States:
        """All time steps; states of finished sequences stay as they are, and their outputs are 0."""
        k, hidden, batch = self.k, self.hidden, self.batch
        gates = input_product(k, x, self.w, self.b, self.d, 4 * hidden, steps, batch)
        h, c = (initial_state(k, s, self.d, batch, hidden, x, layout) for s in (h0, c0))
        outputs: list[Value] = []
        for t in range(steps):
            sums = recurrent_sums(k, gates, h, self.r, self.d, 4 * hidden, t, steps, lengths, reverse)
            new_c = self.cell_state(sums, c, t, lengths)
            new_h = self.hidden_state(sums, h, new_c, t, lengths)
            outputs.append(masked(k, new_h, t, lengths))
            h, c = new_h, new_c
        return outputs, h, c

    def cell_state(self, sums: Value, c: Value, t: int, lengths: Value | None) -> Value:
        """f * c + i * candidate."""
        f_act, g_act, _ = self.acts

        def formula(n: Expr, j: Expr) -> Expr:
            old = c[n, j]

            def gate(number: int, act: Activation, peephole: int | None) -> Expr:
                total = sums[n, j + number * self.hidden]
                extra = None if peephole is None else self.peephole(peephole, j, old)
                return act(self.limited(total if extra is None else total + extra))

            i, f, g = gate(0, f_act, 0), gate(2, f_act, 2), gate(3, g_act, None)
            if self.coupled:
                f = 1.0 - i
            new = f * old + i * g
            return new if lengths is None else select(_running(lengths, n, t), new, old)

        return self.k.compute((self.batch, self.hidden), c.dtype, formula)

    def hidden_state(self, sums: Value, h: Value, c: Value, t: int, lengths: Value | None) -> Value:
        """o * act(c)."""
        f_act, _, h_act = self.acts

        def formula(n: Expr, j: Expr) -> Expr:
            cell = c[n, j]
            total = sums[n, j + lit(1) * self.hidden]
            extra = self.peephole(1, j, cell)
            o = f_act(self.limited(total if extra is None else total + extra))
            new = o * h_act(cell)
            return new if lengths is None else select(_running(lengths, n, t), new, h[n, j])

        return self.k.compute((self.batch, self.hidden), c.dtype, formula)


def _running(lengths: Value, n: Expr, t: int) -> Expr:
    return arg(t) < cast(lengths[n], "index")


def masked(k: Builder, h: Value, t: int, lengths: Value | None) -> Value:
    """The output of a step: 0 for sequences that have ended."""
    if lengths is None:
        return h
    return k.compute(h.shape, h.dtype, lambda n, j: select(_running(lengths, n, t), h[n, j], 0.0))


def input_product(
    k: Builder,
    x: Value,
    w: Value,
    b: Value | None,
    d: int,
    width: int,
    steps: int,
    batch: int,
    halves: int = 2,
) -> Value:
    """x[t] W' + Wb + Rb for all steps at once: (T, N, width)."""
    depth = x.shape[2]
    one = _direction(k, w, d)
    sums = matmul(
        k, x, one, (steps, batch, width), (1, steps * batch, width, depth), (0, depth, 1), (0, 1, depth)
    )
    if b is None:
        return sums

    def formula(t: Expr, n: Expr, j: Expr) -> Expr:
        total = sums.at(FLAT) + b[arg(d), j]
        return total + b[arg(d), j + width] if halves == 2 else total

    return k.compute((steps, batch, width), x.dtype, formula, elementwise=True)


def _direction(k: Builder, w: Value, d: int) -> Value:
    """One direction's weights as a matrix of their own (folded ahead of time when they are constant)."""
    if w.shape[0] == 1:
        return k.alias(w, w.shape[1:])
    if w.known is not None:
        return k.constant(w.known[d])
    return k.compute(w.shape[1:], w.dtype, lambda i, j: w[arg(d), i, j])


def initial_state(
    k: Builder, state: Value | None, d: int, batch: int, hidden: int, x: Value, layout: bool
) -> Value:
    """The state before the first step: given, or zeros."""
    if state is None:
        return k.compute((batch, hidden), x.dtype, lambda n, j: lit(0, x.arithmetic))
    if layout:
        return k.compute((batch, hidden), x.dtype, lambda n, j: state[n, arg(d), j])
    if state.shape[0] == 1:
        return k.alias(state, (batch, hidden))
    return k.compute((batch, hidden), x.dtype, lambda n, j: state[arg(d), n, j])


def recurrent_sums(
    k: Builder,
    gates: Value,
    h: Value,
    r: Value,
    d: int,
    width: int,
    t: int,
    steps: int,
    lengths: Value | None,
    reverse: bool,
) -> Value:
    """The step's share of the input product plus h R'. Reversed sequences start from their own end."""
    batch, hidden = h.shape
    own = _direction(k, r, d)
    product = matmul(k, h, own, (batch, width), (1, batch, width, hidden), (0, hidden, 1), (0, 1, hidden))

    def formula(_: Expr, n: Expr, j: Expr) -> Expr:
        if not reverse:
            row: Expr = arg(t)
        elif lengths is None:
            row = arg(steps - 1 - t)
        else:
            row = maximum(cast(lengths[n], "index") - lit(1) - arg(t), lit(0))
        return product.at(FLAT) + gates[row, n, j]

    sums = k.compute((1, batch, width), h.dtype, formula, elementwise=True)
    return k.alias(sums, (batch, width))


def join_directions(
    k: Builder, states: Sequence[States], steps: int, batch: int, hidden: int, layout: bool,
    lengths: Value | None, first_reversed: bool,
) -> tuple[Value, ...]:  # fmt: skip
    """Y, Y_h and Y_c from each direction's states; a reversed direction's outputs are put in input order."""
    by_direction = []
    for d, (outputs, _, _) in enumerate(states):
        stacked = k.alias(stack(k, outputs), (steps, batch, hidden))
        by_direction.append(restored(k, stacked, steps, lengths) if d == 1 or first_reversed else stacked)
    y = k.alias(stack(k, by_direction), (len(states), steps, batch, hidden))
    if layout:
        y = k.compute((batch, steps, len(states), hidden), y.dtype, lambda n, t, d, j: y[d, t, n, j])
    elif len(states) > 1:
        y = k.compute((steps, len(states), batch, hidden), y.dtype, lambda t, d, n, j: y[d, t, n, j])
    else:
        y = k.alias(y, (steps, 1, batch, hidden))
    last = []
    for parts in ([h for _, h, _ in states], [c for _, _, c in states]):
        joined = k.alias(stack(k, parts), (len(states), batch, hidden))
        if layout:
            joined = k.compute((batch, len(states), hidden), y.dtype, lambda n, d, j, x=joined: x[d, n, j])
        last.append(joined)
    return y, *last


def restored(k: Builder, scanned: Value, steps: int, lengths: Value | None) -> Value:
    """Outputs in scan order, (T, N, H), back in input order; each sequence was reversed within its length."""

    def formula(t: Expr, n: Expr, j: Expr) -> Expr:
        if lengths is None:
            return scanned[arg(steps - 1) - t, n, j]
        length = cast(lengths[n], "index")
        return scanned[select(t < length, length - lit(1) - t, t), n, j]

    return k.compute(scanned.shape, scanned.dtype, formula)


def stack(k: Builder, parts: Sequence[Value]) -> Value:
    """Tensors of one size, one after another.

    Joined in groups as large as a kernel may read, and what is left over in pairs: another number of parts
    needs no other kernels.
    """
    rows = [k.alias(p, (1, p.size)) for p in parts]
    while len(rows) > 1:
        full = len(rows) - len(rows) % k.fan_in
        groups = [rows[i : i + k.fan_in] for i in range(0, full, k.fan_in)]
        groups += [rows[i : i + 2] for i in range(full, len(rows), 2)]
        rows = [joined(k, group) if len(group) > 1 else group[0] for group in groups]
    return rows[0]
