"""The kernel language, for operators of a game's own (`gameglue.operator`).

A formula says, for each index of the output, the value, and is printed for every backend. Both sides of an
operation have one type; `cast` converts. A Python int combined with an index becomes a run-time argument;
a number of the formula is `lit(2.0, "float32")`, an attribute `arg(alpha, x.arithmetic)`. Both sides of
`select` are evaluated, so a load must be inside its tensor in either case (`clamp` the index, or
`x.load_where`): nothing checks it, and on the CPU one outside may end the process.

    @operator("Swirl", domain="my.game")
    def swirl(k: Builder, x: Value, *, alpha: float = 1.0) -> Value:
        return k.elementwise(lambda v: v * tanh(v * arg(alpha, x.arithmetic)), x)

Names listed here stay; what else `engine.kernels` holds may change.
"""

from __future__ import annotations

from functools import partial

from engine.kernels.expr import (
    FLAT,
    Expr,
    arg,
    cast,
    clamp,
    eq,
    floor_div,
    floor_mod,
    fold,
    lit,
    maximum,
    minimum,
    reduce,
    select,
    unary,
)
from engine.kernels.expr import binary as _binary
from engine.kernels.value import Value
from engine.operators.builder import Builder

absolute = partial(unary, "abs")
ceil = partial(unary, "ceil")
cos = partial(unary, "cos")
erf = partial(unary, "erf")
exp = partial(unary, "exp")
floor = partial(unary, "floor")
isinf = partial(unary, "isinf")
isnan = partial(unary, "isnan")
log = partial(unary, "log")
power = partial(_binary, "pow")
round_even = partial(unary, "round")
sign = partial(unary, "sign")
sin = partial(unary, "sin")
sqrt = partial(unary, "sqrt")
tanh = partial(unary, "tanh")

__all__ = [
    "FLAT",
    "Builder",
    "Expr",
    "Value",
    "absolute",
    "arg",
    "cast",
    "ceil",
    "clamp",
    "cos",
    "eq",
    "erf",
    "exp",
    "floor",
    "floor_div",
    "floor_mod",
    "fold",
    "isinf",
    "isnan",
    "lit",
    "log",
    "maximum",
    "minimum",
    "power",
    "reduce",
    "round_even",
    "select",
    "sign",
    "sin",
    "sqrt",
    "tanh",
]
