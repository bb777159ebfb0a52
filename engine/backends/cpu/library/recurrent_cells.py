# mypy: allow-untyped-defs, allow-incomplete-defs
"""One time step of recurrent cells, for as many hidden units as a vector has lanes.

Sums of products arrive gate after gate, one vector each, in the order of ONNX's weights; so does what the
input gives. Addresses are bytes.
"""

from llvmlite import ir

from engine.backends.cpu.library.functions import exp_value, tanh_value
from engine.backends.cpu.library.llvm_intrinsic import llvm_intrinsic
from engine.backends.cpu.library.vectors import _SINGLE


def _sigmoid(x):
    return x.constant(1.0) / (exp_value(-x) + 1.0)


def _lstm(gate, c, h, bias):
    i, o, f = (_sigmoid(gate(n)) for n in (0, 1, 2))
    new = f * c + i * tanh_value(gate(3))
    return o * tanh_value(new), new


def _gru(gate, c, h, bias):
    z, reset = _sigmoid(gate(0)), _sigmoid(gate(1))
    candidate = tanh_value(gate(2, lambda total: reset * (total + bias)))
    return (z.constant(1.0) - z) * candidate + z * h, None


def _rnn(gate, c, h, bias):
    return tanh_value(gate(0)), None


CELLS = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def make_cell(name, lanes):
    """cell(sums, given, bias, c, h, new_h): a step of the cell's states; c is replaced, new_h written.

    `bias` is what a GRU adds to the candidate's sums before the reset.
    """
    kind = ir.VectorType(_SINGLE, lanes)

    @llvm_intrinsic()
    def cell(sums, given, bias, c, h, new_h):
        def gate(number, change=lambda total: total):
            of_gate = 4 * lanes * number
            return change((sums + of_gate).read(kind)) + (given + of_gate).read(kind)

        state, hidden = CELLS[name](gate, c.read(kind), h.read(kind), bias.read(kind)), new_h
        for value, address in zip(state, (hidden, c), strict=True):
            if value is not None:
                address.write(value)

    return cell
