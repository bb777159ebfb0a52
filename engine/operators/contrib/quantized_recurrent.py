"""DynamicQuantizeLSTM: an LSTM with integer weights and dynamically quantised inputs and states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from engine.base.dtypes import FLOAT32, INT32
from engine.graph.model import CONTRIB
from engine.kernels.expr import FLAT, arg, cast
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.linear import matmul
from engine.operators.movement import transpose
from engine.operators.quantization import dynamic_range, quantised
from engine.operators.recurrent import LstmCell
from engine.operators.recurrent_common import Attributes, Direction, Finish, Recurrence, transposed
from engine.operators.registry import operator


@dataclass(frozen=True)
class Scale:
    """Scale and zero point of integer weights, per direction or per direction and row."""

    scale: Value
    zero: Value

    def of(self, k: Builder, d: int, rows: int) -> tuple[Value, Value]:
        """One direction's, as vectors of one or `rows` entries."""
        directions = self.scale.shape[0]
        found = []
        for table in (self.scale, self.zero):
            if table.shape not in ((directions,), (directions, rows)) or d >= directions:
                k.error(f"scales or zero points {list(table.shape)} do not fit weights of {rows} rows")
            width = table.size // directions
            if table.known is not None:
                found.append(k.constant(np.ascontiguousarray(table.known.reshape(directions, width)[d])))
                continue
            lines = k.alias(table, (directions, width))
            found.append(k.compute((width,), table.dtype, lambda j, lines=lines: lines[arg(d), j]))
        return found[0], found[1]


@dataclass(frozen=True)
class IntegerDirection(Direction):
    """A direction whose two products are taken of integers."""

    w_scale: Scale
    r_scale: Scale

    def input_product(self, finish: Finish) -> Value:
        """The input product, x dynamically quantised per tensor."""
        width, depth = self.w.shape[1:]
        rows = self.k.alias(self.x, (1, self.steps * self.batch, depth))
        found = self.integer_product(rows, transposed(self.k, self.w, self.d, 0, width), self.w_scale, finish)
        return self.k.alias(found, (self.steps, self.batch, width))

    def product(self, h: Value, weights: Value, finish: Finish) -> Value:
        """The recurrent product, h dynamically quantised per tensor."""
        found = self.integer_product(self.k.alias(h, (1, *h.shape)), weights, self.r_scale, finish)
        return self.k.alias(found, found.shape[1:])

    def integer_product(self, x: Value, weights: Value, of: Scale, finish: Finish) -> Value:
        """`finish` of x (1, rows, depth) times weights, in units that `of` and the range of x give.

        One formula multiplies by the scale and adds: of two, only some plans would make one kernel, whose
        fused product rounds differently.
        """
        k, rows, (depth, width) = self.k, x.shape[1], weights.shape
        w_scale, w_zero = of.of(k, self.d, width)
        x_scale, x_zero = dynamic_range(k, x)
        levels = quantised(k, x, x_scale, x_zero, x_zero.dtype)
        total = matmul(
            k, levels, weights, (1, rows, width), (1, rows, width, depth), (0, depth, 1), (0, width, 1),
            INT32, (x_zero, w_zero),
        )  # fmt: skip
        step = k.compute(w_scale.shape, FLOAT32, lambda j: w_scale[j] * x_scale.at(arg(0)))
        single = w_scale.size == 1
        return k.compute(
            total.shape, FLOAT32,
            lambda _, n, j: finish(cast(total.at(FLAT), "float32") * step[arg(0) if single else j], n, j),
            elementwise=True,
        )  # fmt: skip


@operator("DynamicQuantizeLSTM", domain=CONTRIB)
def dynamic_quantize_lstm(
    k: Builder, x: Value, w: Value, r: Value, b: Value | None, sequence_lens: Value | None,
    initial_h: Value | None, initial_c: Value | None, p: Value | None, w_scale: Value, w_zero: Value,
    r_scale: Value, r_zero: Value, *, input_forget: int = 0, attributes: Attributes,
) -> tuple[Value | None, ...]:  # fmt: skip
    """LSTM with integer weights w (D, I, 4H) and r (D, H, 4H), scaled per direction or per column."""
    if w.rank != 3 or r.rank != 3:
        k.error(f"takes W and R of rank 3, not {list(w.shape)} and {list(r.shape)}")
    rows = [
        transpose(k, weights, perm=(0, 2, 1))
        if weights.known is None
        else k.constant(np.ascontiguousarray(weights.known.reshape(weights.shape).transpose(0, 2, 1)))
        for weights in (w, r)
    ]
    direction = partial(IntegerDirection, w_scale=Scale(w_scale, w_zero), r_scale=Scale(r_scale, r_zero))
    layer = Recurrence(k, x, rows[0], rows[1], b, sequence_lens, attributes, direction)
    if p is not None and p.shape != (r.shape[0], 3 * r.shape[1]):
        k.error(f"P must be {[r.shape[0], 3 * r.shape[1]]}, not {list(p.shape)}")
    return layer.run(
        4, ("Sigmoid", "Tanh", "Tanh"), (initial_h, initial_c),
        lambda way: LstmCell(way, p, bool(input_forget)),
    )  # fmt: skip
