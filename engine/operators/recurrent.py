"""Recurrent layers: RNN, GRU and LSTM, each a cell of a few kernels for a time step."""

from __future__ import annotations

from engine.kernels.expr import Expr, arg
from engine.kernels.value import Value
from engine.operators.activations import Activation
from engine.operators.builder import Builder
from engine.operators.recurrent_common import Attributes, Direction, Recurrence, Step, transposed
from engine.operators.registry import operator


@operator("RNN", since=7)
def rnn(
    k: Builder, x: Value, w: Value, r: Value, b: Value | None = None, sequence_lens: Value | None = None,
    initial_h: Value | None = None, *, attributes: Attributes,
) -> tuple[Value | None, ...]:  # fmt: skip
    """h = act(x W' + h R' + Wb + Rb) (Elman, 1990).

    x (T, N, I), w (D, H, I), r (D, H, H), b (D, 2H), states (D, N, H); y (T, D, N, H), y_h (D, N, H).
    With layout 1, x is (N, T, I), states (N, D, H) and y (N, T, D, H).
    """
    layer = Recurrence(k, x, w, r, b, sequence_lens, attributes)
    return layer.run(1, ("Tanh",), (initial_h,), rnn_cell, "rnn")


def rnn_cell(way: Direction) -> Step:
    """The step of a plain recurrent layer: one product."""
    inputs = way.inputs()
    weights = transposed(way.k, way.r, way.d, 0, way.hidden)

    def step(t: Expr, states: tuple[Value, ...]) -> tuple[Value, ...]:
        (h,) = states

        def finish(total: Expr, n: Expr, j: Expr) -> Expr:
            total = total + inputs[way.source(t, n), n, j]
            return way.kept(t, n, way.acts[0](way.limited(total)), h[n, j])

        return (way.product(h, weights, finish),)

    return step


@operator("GRU", since=7)
def gru(
    k: Builder, x: Value, w: Value, r: Value, b: Value | None = None, sequence_lens: Value | None = None,
    initial_h: Value | None = None, *, linear_before_reset: int = 0, attributes: Attributes,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Gated recurrent unit (Cho et al., 2014), gates in ONNX's order z, r, h.

    x (T, N, I), w (D, 3H, I), r (D, 3H, H), b (D, 6H), states (D, N, H); y (T, D, N, H), y_h (D, N, H).
    With layout 1, x is (N, T, I), states (N, D, H) and y (N, T, D, H).
    """
    layer = Recurrence(k, x, w, r, b, sequence_lens, attributes)
    cell = reset_after_cell if linear_before_reset else reset_before_cell
    return layer.run(3, ("Sigmoid", "Tanh"), (initial_h,), cell, "gru" if linear_before_reset else None)


def reset_before_cell(way: Direction) -> Step:
    """The step of a GRU whose reset gate acts on the state: the candidate is act(x W' + (r * h) R' + b)."""
    k, hidden, (gate_act, act) = way.k, way.hidden, way.acts
    inputs = way.inputs()
    gate_weights = transposed(k, way.r, way.d, 0, 2 * hidden)
    candidate_weights = transposed(k, way.r, way.d, 2 * hidden, 3 * hidden)

    def step(t: Expr, states: tuple[Value, ...]) -> tuple[Value, ...]:
        (h,) = states

        def given(n: Expr, j: Expr) -> Expr:
            return inputs[way.source(t, n), n, j]

        gates = way.product(h, gate_weights, lambda total, n, j: gate_act(way.limited(total + given(n, j))))
        reset = k.compute(h.shape, h.dtype, lambda n, j: gates[n, j + hidden] * h[n, j])

        def finish(total: Expr, n: Expr, j: Expr) -> Expr:
            old, z = h[n, j], gates[n, j]
            candidate = act(way.limited(total + given(n, j + 2 * hidden)))
            return way.kept(t, n, (1.0 - z) * candidate + z * old, old)

        return (way.product(reset, candidate_weights, finish),)

    return step


def reset_after_cell(way: Direction) -> Step:
    """The step of a GRU whose reset gate acts on the product: the candidate is act(x W' + r * (h R' + b))."""
    k, hidden, b, (gate_act, act) = way.k, way.hidden, way.b, way.acts
    # The bias of the candidate's product belongs inside the reset.
    inputs = way.inputs(lambda j: j < arg(2 * hidden))
    weights = transposed(k, way.r, way.d, 0, 3 * hidden)

    def step(t: Expr, states: tuple[Value, ...]) -> tuple[Value, ...]:
        (h,) = states
        sums = way.product(h, weights, lambda total, n, j: total)

        def formula(n: Expr, j: Expr) -> Expr:
            row, at = way.source(t, n), [j, j + hidden, j + 2 * hidden]
            z, reset = (gate_act(way.limited(sums[n, i] + inputs[row, n, i])) for i in at[:2])
            total = sums[n, at[2]]
            total = total if b is None else total + b[arg(way.d), j + 5 * hidden]
            candidate = act(way.limited(inputs[row, n, at[2]] + reset * total))
            return way.kept(t, n, (1.0 - z) * candidate + z * h[n, j], h[n, j])

        return (k.compute(h.shape, h.dtype, formula),)

    return step


@operator("LSTM", since=7)
def lstm(
    k: Builder, x: Value, w: Value, r: Value, b: Value | None = None, sequence_lens: Value | None = None,
    initial_h: Value | None = None, initial_c: Value | None = None, p: Value | None = None, *,
    input_forget: int = 0, attributes: Attributes,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), gates in ONNX's order i, o, f, c.

    x (T, N, I), w (D, 4H, I), r (D, 4H, H), b (D, 8H), states (D, N, H), p (D, 3H); y (T, D, N, H),
    y_h and y_c (D, N, H). With layout 1, x is (N, T, I), states (N, D, H) and y (N, T, D, H).
    """
    layer = Recurrence(k, x, w, r, b, sequence_lens, attributes)
    if p is not None and p.shape != (r.shape[0], 3 * r.shape[-1]):
        k.error(f"P must be {[r.shape[0], 3 * r.shape[-1]]}, not {list(p.shape)}")
    defaults = ("Sigmoid", "Tanh", "Tanh")
    plain = "lstm" if p is None and not input_forget else None
    return layer.run(
        4, defaults, (initial_h, initial_c), lambda way: LstmCell(way, p, bool(input_forget)), plain
    )


class LstmCell:
    """The step of an LSTM: the product, the cell state, the hidden state."""

    def __init__(self, way: Direction, p: Value | None, coupled: bool) -> None:
        self.way, self.p, self.coupled = way, p, coupled
        self.inputs = way.inputs()
        self.weights = transposed(way.k, way.r, way.d, 0, 4 * way.hidden)

    def __call__(self, t: Expr, states: tuple[Value, ...]) -> tuple[Value, ...]:
        """The states after step t."""
        h, c = states
        way = self.way

        def finish(total: Expr, n: Expr, j: Expr) -> Expr:
            return total + self.inputs[way.source(t, n), n, j]

        sums = way.product(h, self.weights, finish)
        new_c = self.cell_state(sums, c, t)
        return self.hidden_state(sums, h, new_c, t), new_c

    def gate(self, sums: Value, number: int, act: Activation, n: Expr, j: Expr, cell: Expr | None) -> Expr:
        """One gate; `cell` is what its peephole, if any, sees of the cell state."""
        total = sums[n, j + number * self.way.hidden]
        if self.p is not None and cell is not None:
            total = total + self.p[arg(self.way.d), j + number * self.way.hidden] * cell
        return act(self.way.limited(total))

    def cell_state(self, sums: Value, c: Value, t: Expr) -> Value:
        """f * c + i * candidate."""
        way = self.way
        gate_act, act, _ = way.acts

        def formula(n: Expr, j: Expr) -> Expr:
            old = c[n, j]
            i = self.gate(sums, 0, gate_act, n, j, old)
            f = 1.0 - i if self.coupled else self.gate(sums, 2, gate_act, n, j, old)
            return way.kept(t, n, f * old + i * self.gate(sums, 3, act, n, j, None), old)

        return way.k.compute(c.shape, c.dtype, formula)

    def hidden_state(self, sums: Value, h: Value, c: Value, t: Expr) -> Value:
        """o * act(c)."""
        way = self.way
        gate_act, _, act = way.acts

        def formula(n: Expr, j: Expr) -> Expr:
            o = self.gate(sums, 1, gate_act, n, j, c[n, j])
            return way.kept(t, n, o * act(c[n, j]), h[n, j])

        return way.k.compute(h.shape, h.dtype, formula)
