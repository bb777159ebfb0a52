"""What a formula computes in the terms of the trade, so that a backend may use a faster kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.kernels.value import Value

HintKind = Literal[
    "matmul", "conv", "pool", "concat", "reduce", "transpose", "recurrence", "softmax", "normalize"
]


@dataclass(frozen=True)
class Hint:
    """What a formula computes, in the terms of the trade, for backends that know a faster way.

    matmul: operands (a, b); facts m, n, k, batch (ints) and a_strides, b_strides (batch, row, column) in
        elements, 0 for a broadcast batch. Output is (batch, m, n), row-major.
    conv: operands (x, w) with x (N, C, *spatial) and w (M, C/group, *kernel); facts strides, dilations,
        pads (begin, one per spatial axis), group. Output is (N, M, *out). A bias is in the epilogue. With
        channels_last the output is (N, *out, M) and x is (N, *spatial, C), unless x_first; w stays.
    pool: operands (x,); facts kind "max" or "average", kernel, strides, dilations, pads (begin),
        include_pad, and ends (end pads). Output is (N, C, *out). With channels_last x is (N, *spatial, C)
        and the output (N, *out, C).
    concat: operands are matrices of equal height, side by side in the output (height, columns).
    transpose: operands (x,) with x (batch, rows, columns); facts batch, rows, columns. Output is (batch,
        columns, rows), or (columns, rows) where the batch is 1.
    reduce: operands (x,), read as (outer, extent, inner); facts outer, extent, inner, kind ("sum", "mean",
        which is the sum divided by extent, "prod", "max" or "min"), and term, which says what is reduced:
        "element" (the default), "magnitude" (abs), "square", or "deviation", the square of the difference to
        the second operand, (outer, inner). Output is (outer, inner). An operand (outer, extent) tells that
        inner is 1 for every input shape.
    softmax: operands (x,) with x (rows, extent); facts logarithm (bool) and masked (whether a row of nothing
        but -inf yields zeros). Output is exp(x - top) / sum, or its logarithm, by row.
    normalize: operands (x,) with x (rows, extent); facts centered (bool) and epsilon. Output is
        (x - mean) / sqrt(variance + epsilon) by row; not centered, x / sqrt(mean of squares + epsilon).
    recurrence: a recurrent layer of known weights with ONNX's default activations, for backends that are
        bound to take it: no formula stands for it. Operands (x, w, r), then those of bias and first states
        that `given` names ("b", "h", "c"); x (T, N, I), the others as ONNX has them, states (D, N, H).
        Facts kind ("lstm", "gru" with linear_before_reset, or "rnn"), reverses (one bool per direction),
        states. Output is Y (T, D, N, H) and as many of the last states (D, N, H), h and c, as `states` says.
    """

    kind: HintKind
    operands: tuple[Value, ...]
    facts: Mapping[str, Any]

    @property
    def is_bound(self) -> bool:
        """Whether the formula beside the hint means nothing, as a backend is bound to take the hint."""
        return self.kind == "recurrence"
