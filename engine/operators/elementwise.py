"""Elementwise operators: arithmetic, comparison, logic, activations and selection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from functools import reduce as chain
from math import pi, sqrt

from engine.base.dtypes import BOOL
from engine.kernels.expr import (
    Expr,
    arg,
    binary,
    cast,
    clamp,
    compare,
    eq,
    floor_mod,
    fold,
    lit,
    maximum,
    minimum,
    select,
    unary,
)
from engine.kernels.value import Entry, ListValue, Value
from engine.operators import bounded_sizes
from engine.operators.builder import Builder
from engine.operators.registry import operator


def _zero(x: Expr) -> Expr:
    return lit(0, x.dtype)


def _unary(name: str, formula: Callable[[Expr], Expr], *, to_bool: bool = False) -> None:
    @operator(name, bound=bounded_sizes.broadcast)
    def define(k: Builder, x: Value) -> Value:
        return k.elementwise(formula, x, dtype=BOOL if to_bool else x.dtype)


def _binary(
    name: str, formula: Callable[[Expr, Expr], Expr], *, since: int = 7, to_bool: bool = False
) -> None:
    @operator(name, since=since, bound=bounded_sizes.broadcast)
    def define(k: Builder, a: Value, b: Value) -> Value:
        return k.elementwise(formula, a, b, dtype=BOOL if to_bool else a.dtype)


def _variadic(name: str, formula: Callable[[Expr, Expr], Expr], finish: bool = False) -> None:
    @operator(name, since=6, bound=bounded_sizes.broadcast)
    def define(k: Builder, *xs: Value) -> Value:
        """More tensors than a kernel may read are combined in groups."""
        total = xs[0]
        rest = list(xs[1:])
        while rest:
            group, rest = rest[: k.fan_in - 1], rest[k.fan_in - 1 :]
            total = k.elementwise(lambda *e: chain(formula, e), total, *group)
        if finish:
            return k.elementwise(lambda t: t / arg(len(xs), t.dtype), total)
        return total if len(xs) > 1 else k.alias(total, total.shape)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)); exp overflows to infinity, which gives the right limit 0."""
    return 1.0 / (1.0 + unary("exp", -x))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), written so that large x does not overflow."""
    return maximum(x, 0.0) + unary("log", 1.0 + unary("exp", -unary("abs", x)))


def gelu(x: Expr, approximate: str = "none") -> Expr:
    """Gaussian error linear unit, exact or by tanh (Hendrycks and Gimpel, 2016)."""
    if approximate == "tanh":
        return 0.5 * x * (1.0 + unary("tanh", sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + unary("erf", x * sqrt(0.5)))


for _name in (
    "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh",
    "Acosh", "Atanh", "Erf", "Neg", "Abs", "Sign", "Floor", "Ceil",
):  # fmt: skip
    _unary(_name, partial(unary, _name.lower()))
_unary("Round", lambda x: unary("round", x))
_unary("Reciprocal", lambda x: 1.0 / x)
_unary("Relu", lambda x: maximum(x, _zero(x)))
_unary("Sigmoid", sigmoid)
_unary("Softplus", softplus)
_unary("Softsign", lambda x: x / (1.0 + unary("abs", x)))
_unary("HardSwish", lambda x: x * clamp(x * (1.0 / 6.0) + 0.5, 0.0, 1.0))
_unary("Mish", lambda x: x * unary("tanh", softplus(x)))
_unary("Not", lambda x: unary("not", x), to_bool=True)
_unary("BitwiseNot", lambda x: unary("bitnot", x))
_unary("IsNaN", lambda x: unary("isnan", x), to_bool=True)

_binary("Add", lambda a, b: a + b)
_binary("Sub", lambda a, b: a - b)
_binary("Mul", lambda a, b: a * b)
_binary("Div", lambda a, b: a / b)
_binary("And", lambda a, b: a & b, to_bool=True)
_binary("Or", lambda a, b: a | b, to_bool=True)
_binary("Xor", lambda a, b: a ^ b, to_bool=True)
_binary("BitwiseAnd", lambda a, b: a & b)
_binary("BitwiseOr", lambda a, b: a | b)
_binary("BitwiseXor", lambda a, b: a ^ b)
_binary("Equal", eq, to_bool=True)
_binary("Less", lambda a, b: a < b, to_bool=True)
_binary("Greater", lambda a, b: a > b, to_bool=True)
_binary("LessOrEqual", lambda a, b: a <= b, to_bool=True, since=12)
_binary("GreaterOrEqual", lambda a, b: a >= b, to_bool=True, since=12)
_binary("PRelu", lambda x, slope: select(x < _zero(x), x * slope, x))

_variadic("Sum", lambda a, b: a + b)
_variadic("Max", maximum)
_variadic("Min", minimum)
_variadic("Mean", lambda a, b: a + b, finish=True)


@operator("Pow", since=7, bound=bounded_sizes.broadcast)
def pow_(k: Builder, x: Value, y: Value) -> Value:
    """Base's type decides; integer bases with integer exponents are exact (repeated squaring).

    Squares and cubes by a known exponent are products.
    """
    is_number = y.known is not None and y.size == 1 and y.known.dtype.kind in "iuf"
    exponent = y.known.item() if is_number and y.known is not None else 0
    factors = int(exponent) if exponent in (1, 2, 3) else 0

    def formula(a: Expr, b: Expr) -> Expr:
        if factors:
            return a if factors == 1 else a * a if factors == 2 else a * a * a
        if a.dtype in ("float32", "float64"):
            return binary("pow", a, cast(b, a.dtype))
        if b.dtype in ("float32", "float64"):
            return cast(binary("pow", cast(a, b.dtype), b), a.dtype)
        return int_pow(a, cast(b, a.dtype))

    return k.elementwise(formula, x, y)


def int_pow(a: Expr, b: Expr) -> Expr:
    """a ** b for integers by repeated squaring; a negative exponent truncates towards zero."""
    one, zero = lit(1, a.dtype), _zero(a)

    def step(_: Expr, base: Expr, left: Expr, result: Expr) -> tuple[Expr, Expr, Expr]:
        odd = compare("ne", left & one, zero)
        return base * base, left >> one, select(odd, result * base, result)

    power = fold(lit(32), (a, maximum(b, zero), one), step)[2]
    inverse = select(eq(a, one), one, select(eq(a, -one), select(eq(b & one, zero), one, -one), zero))
    return power if a.dtype.startswith("u") else select(b < zero, inverse, power)


@operator("Mod", since=10, bound=bounded_sizes.broadcast)
def mod(k: Builder, a: Value, b: Value, *, fmod: int = 0) -> Value:
    """Remainder with the sign of the divisor; with `fmod`, of the dividend."""

    def formula(x: Expr, y: Expr) -> Expr:
        if fmod:
            return binary("rem", x, y)
        if x.dtype not in ("float32", "float64"):
            return floor_mod(x, y)
        if k.version < 28:
            k.error("Mod of floats needs fmod=1 before opset 28")
        rest, zero = binary("rem", x, y), _zero(x)
        # A remainder of 0 takes the divisor's sign, too.
        none = select(y < zero, -zero, zero)
        return select(eq(rest, zero), none, select((rest < zero) ^ (y < zero), rest + y, rest))

    return k.elementwise(formula, a, b)


@operator("BitShift", since=11)
def bit_shift(k: Builder, a: Value, b: Value, *, direction: str) -> Value:
    """Logical shift of unsigned integers."""
    return k.elementwise(lambda x, y: x << y if direction == "LEFT" else x >> y, a, b)


@operator("Gelu", since=20)
def gelu_(k: Builder, x: Value, *, approximate: str = "none") -> Value:
    """See `gelu`."""
    return k.elementwise(lambda e: gelu(e, approximate), x)


@operator("Shrink", since=9)
def shrink(k: Builder, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """x moved towards 0 by bias, and 0 within lambd of it."""

    def formula(e: Expr) -> Expr:
        wide = cast(e, "float32") if e.dtype != "float64" else e
        limit, step = arg(lambd, wide.dtype), arg(bias, wide.dtype)
        moved = select(wide < -limit, wide + step, select(wide > limit, wide - step, lit(0, wide.dtype)))
        return cast(moved, e.dtype)

    return k.elementwise(formula, x)


@operator("IsInf", since=10)
def is_inf(k: Builder, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Which elements are infinite, of the requested signs."""

    def formula(e: Expr) -> Expr:
        infinite = unary("isinf", e)
        if not detect_negative:
            infinite = infinite & (e > _zero(e))
        return infinite if detect_positive else infinite & (e < _zero(e))

    return k.elementwise(formula, x, dtype=BOOL)


@operator("Clip", since=6, until=10, bound=bounded_sizes.broadcast)
def clip_6(
    k: Builder, x: Value, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Value:
    """x limited to min..max, which are attributes."""
    return k.elementwise(lambda e: clamp(e, arg(min, e.dtype), arg(max, e.dtype)), x)


@operator("Clip", since=11, bound=bounded_sizes.broadcast)
def clip(k: Builder, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """x limited to min..max, either of which may be absent."""
    bounded_sizes = [b for b in (min, max) if b is not None]

    def formula(e: Expr, *limits: Expr) -> Expr:
        if min is not None:
            e = maximum(e, limits[0])
        return e if max is None else minimum(e, limits[-1])

    return k.elementwise(formula, x, *bounded_sizes)


@operator("Where", since=9, bound=bounded_sizes.broadcast)
def where(k: Builder, condition: Value, x: Value, y: Value) -> Value:
    """x where the condition holds, else y."""
    return k.elementwise(select, condition, x, y, dtype=x.dtype)


@operator("Identity", since=1, bound=bounded_sizes.broadcast, moves="x")
def identity(k: Builder, x: Entry = None) -> Entry:
    """The same tensor, sequence or optional."""
    if x is None:
        return k.absent()  # type: ignore[func-returns-value]
    return x if isinstance(x, ListValue) else k.alias(x, x.shape)
