"""Expressions of the kernel language.

A kernel says, for each output index, the value. An `Expr` is one node of that formula: a literal, a
run-time argument, an index variable, a load, an arithmetic step, a reduction, or the result of a
sequential loop. Nodes are immutable and compared by structure, so printers share repeated ones.

Rules that keep one definition usable everywhere:

- Both sides of an operation have the same type; conversions are written with `cast`.
- A Python int next to an index expression becomes a run-time argument, so sizes and strides never end
  up in the kernel's text. A constant of the formula is spelled `lit(2)`.
- Nothing is lazy: both sides of `select` are evaluated. A load that may be outside its tensor uses
  `where=`, which reads element 0 instead and yields `other`.
- Integers wrap. `//` and `%` on indices expect non-negative values; `floor_div` and `floor_mod`
  round towards minus infinity for any sign; `/` on integers truncates, and a division by 0 yields 0.
- `minimum` and `maximum` return NaN when either side is NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from math import copysign, trunc
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.base.dtypes import ArithmeticType
from engine.kernels.size import as_float, has_sizes

if TYPE_CHECKING:
    from engine.kernels.value import Value

Operand: TypeAlias = "Expr | int | float | bool"

UNARY = frozenset(
    "neg abs sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
    " floor ceil round trunc sign erf isnan isinf not bitnot".split()
)
BINARY = frozenset("add sub mul div rem pow min max and or xor shl shr".split())
COMPARE = frozenset("eq ne lt le gt ge".split())
LOOPS = frozenset({"reduce", "fold"})
REDUCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
FLOATS = frozenset({"float32", "float64"})
_OF_FLOATS = frozenset(
    "sqrt exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf"
    " floor ceil round trunc isnan isinf".split()
)
_OF_INTEGERS = frozenset({"shl", "shr", "bitnot"})
_OF_BOOLS = frozenset("not and or xor add mul min max".split())

Operator: TypeAlias = "Callable[[Expr, Operand], Expr]"


def _left(op: str) -> Operator:
    """Python's operator for a step, with the expression on its left side."""
    return lambda self, other: binary(op, self, other)


def _both(op: str) -> tuple[Operator, Operator]:
    """The same, and with the expression on its right side."""
    return _left(op), lambda self, other: binary(op, other, self)


def _comparing(op: str) -> Operator:
    return lambda self, other: compare(op, self, other)


_fresh = itertools.count()
_NOTHING: frozenset[Any] = frozenset()


class Expr:
    """An expression node: operation `op`, operands `args`, and attribute `attr`.

    `free` is the set of variables (index axes, loop variables, `flat`, `acc`) the value depends on; `depth`
    counts the nodes on the longest way to a leaf.
    """

    __slots__ = ("_hash", "args", "attr", "depth", "dtype", "free", "op")

    def __init__(
        self,
        op: str,
        dtype: ArithmeticType,
        args: tuple[Expr, ...] = (),
        attr: Any = None,
        free: frozenset[Any] | None = None,
    ) -> None:
        self.op = op
        self.dtype = dtype
        self.args = args
        self.attr = attr
        depth = 0
        hashes: list[Any] = [op, dtype, attr]
        joined = _NOTHING
        for node in args:
            depth = max(depth, node.depth)
            hashes.append(node._hash)
            if node.free is not joined and node.free:
                joined = joined | node.free if joined else node.free
        self.free: frozenset[Any] = joined if free is None else free
        self.depth: int = depth + 1
        self._hash: int = hash(tuple(hashes))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or self._hash != other._hash:
            return False
        # Parts that several nodes share are compared once: each on its own would double with every level.
        pending, met = [(self, other)], set()
        while pending:
            a, b = pending.pop()
            if a is b or (id(a), id(b)) in met:
                continue
            if a._hash != b._hash or (a.op, a.dtype, a.attr) != (b.op, b.dtype, b.attr):
                return False
            if len(a.args) != len(b.args):
                return False
            met.add((id(a), id(b)))
            pending.extend(zip(a.args, b.args, strict=True))
        return True

    def __repr__(self) -> str:
        inner = ", ".join([*(repr(a) for a in self.args), *([] if self.attr is None else [repr(self.attr)])])
        return f"{self.op}:{self.dtype}({inner})"

    def __bool__(self) -> bool:
        raise TypeError("a kernel expression has no truth value; use select(condition, a, b)")

    __add__, __radd__ = _both("add")
    __sub__, __rsub__ = _both("sub")
    __mul__, __rmul__ = _both("mul")
    __truediv__, __rtruediv__ = _both("div")
    __and__, __or__, __xor__ = _left("and"), _left("or"), _left("xor")
    __lshift__, __rshift__ = _left("shl"), _left("shr")
    __lt__, __le__, __gt__, __ge__ = _comparing("lt"), _comparing("le"), _comparing("gt"), _comparing("ge")

    def __floordiv__(self, other: Operand) -> Expr:
        return binary("div", _index_only(self, "//"), other)

    def __mod__(self, other: Operand) -> Expr:
        return binary("rem", _index_only(self, "%"), other)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __invert__(self) -> Expr:
        return unary("not" if self.dtype == "bool" else "bitnot", self)


class Argument:
    """A run-time argument of a kernel; equal only to itself, regardless of its value.

    `is_fixed`: the value is the same for every input shape that the model can take.
    """

    __slots__ = ("is_fixed", "value")

    def __init__(self, value: int | float, is_fixed: bool = False) -> None:
        self.value = value
        self.is_fixed = is_fixed

    def __repr__(self) -> str:
        return f"arg({self.value})"


def _index_only(x: Expr, symbol: str) -> Expr:
    if x.dtype != "index":
        raise TypeError(f"{symbol} is for indices, not {x.dtype}; use floor_div, floor_mod, '/' or rem")
    return x


# Leaves


def lit(value: int | float | bool, dtype: ArithmeticType = "index") -> Expr:
    """A constant of the formula, printed into the kernel's text."""
    kind = float if dtype in FLOATS else bool if dtype == "bool" else int
    if dtype in FLOATS and value == 0 and copysign(1.0, value) < 0:
        # Structures are compared with ==, for which -0.0 is 0.0.
        return unary("neg", lit(0.0, dtype))
    return Expr("const", dtype, attr=kind(value))


def arg(value: int | float | bool, dtype: ArithmeticType = "index", *, fixed: bool = False) -> Expr:
    """A run-time argument: sizes, strides, attributes. Its value is not part of the kernel's text.

    `fixed`: it is the same for every input shape that the model can take.
    """
    if has_sizes((value,)):
        return Expr("param", dtype, attr=Argument(as_float(value) if dtype in FLOATS else trunc(value)))
    return Expr("param", dtype, attr=Argument(float(value) if dtype in FLOATS else int(value), fixed))


class IterationNumber(int):
    """The iteration number, as an argument of steps that are repeated (`engine.compiler.repeated_steps`).

    It is 0, until a backend fills in that of each run.
    """


def iteration_number() -> Expr:
    """The iteration number, in the formulas of steps that are repeated."""
    return Expr("param", "index", attr=Argument(IterationNumber()))


def index(axis: int) -> Expr:
    """The output index along `axis` of the kernel's index space."""
    return made_of("index", "index", (), axis)


FLAT = Expr("flat", "index", free=frozenset({"flat"}))
"""The output's position in row-major order."""


def acc(dtype: ArithmeticType) -> Expr:
    """In an epilogue: the value that the kernel has just computed."""
    return made_of("acc", dtype, (), None)


def load(value: Value, position: Expr, where: Expr | None = None, other: Operand = 0) -> Expr:
    """Load element `position` (row-major) of a tensor; `other`, without a read, if `where` is false."""
    dtype = value.arithmetic
    if where is None:
        return Expr("load", dtype, (position,), value.root)
    safe = Expr("load", dtype, (select(where, position, lit(0)),), value.root)
    return select(where, safe, other if isinstance(other, Expr) else lit(other, dtype))


# Arithmetic


def lift(x: Operand, like: ArithmeticType) -> Expr:
    """Convert a Python number to an expression of type `like`."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, bool) or like == "bool":
        return lit(x, "bool")
    if like in FLOATS:
        if isinstance(x, int):
            raise TypeError(
                f"{x} combined with a {like}: write a float for a constant, arg({x}, {like!r}) for a size"
            )
        return lit(x, like)
    if isinstance(x, float):
        raise TypeError(f"{x} combined with an {like}: cast one of them")
    return arg(x, like)


def _pair(op: str, a: Operand, b: Operand) -> tuple[Expr, Expr]:
    if isinstance(a, Expr):
        b = lift(b, a.dtype)
    elif isinstance(b, Expr):
        a = lift(a, b.dtype)
    else:
        raise TypeError(f"{op} needs at least one expression")
    assert isinstance(a, Expr)
    if a.dtype != b.dtype:
        raise TypeError(f"{op} of {a.dtype} and {b.dtype}: cast one of them")
    return a, b


def _check(op: str, dtype: ArithmeticType) -> None:
    """Raise `TypeError` unless every target has the operation for the type."""
    if op in _OF_FLOATS and dtype not in FLOATS:
        raise TypeError(f"{op} takes floats, not {dtype}")
    if op in _OF_INTEGERS and (dtype in FLOATS or dtype == "bool"):
        raise TypeError(f"{op} takes integers, not {dtype}")
    if dtype == "bool" and op not in _OF_BOOLS:
        raise TypeError(f"{op} takes numbers, not {dtype}")


def unary(op: str, x: Expr) -> Expr:
    """A unary operation; `isnan`, `isinf` and `not` yield bool, others the operand's type.

    Raises `TypeError` for types on which the operation is not defined, as `binary` does.
    """
    assert op in UNARY, op
    _check(op, x.dtype)
    return Expr(op, "bool" if op in ("isnan", "isinf", "not") else x.dtype, (x,))


def binary(op: str, a: Operand, b: Operand) -> Expr:
    """A step with two operands of one type. Sums and products with a literal 0 or 1 are simplified."""
    assert op in BINARY, op
    x, y = _pair(op, a, b)
    _check(op, x.dtype)
    if x.dtype == "index":
        if op == "add" and _is(x, 0) or op == "mul" and (_is(x, 1) or _is(y, 0)):
            return y
        if op in ("add", "sub") and _is(y, 0) or op == "mul" and (_is(y, 1) or _is(x, 0)):
            return x
        if op == "div" and _is(y, 1):
            return x
    return Expr(op, x.dtype, (x, y))


def _is(x: Expr, value: int) -> bool:
    return x.op == "const" and x.attr == value


def compare(op: str, a: Operand, b: Operand) -> Expr:
    """A bool: `eq`, `ne`, `lt`, `le`, `gt` or `ge` of two operands of one type."""
    assert op in COMPARE, op
    return Expr(op, "bool", _pair(op, a, b))


def eq(a: Operand, b: Operand) -> Expr:
    """a == b (the Python operator compares structure, so it cannot mean this)."""
    return compare("eq", a, b)


def select(condition: Expr, a: Operand, b: Operand) -> Expr:
    """`a` where `condition` holds, else `b`; both are evaluated."""
    x, y = _pair("select", a, b)
    return Expr("select", x.dtype, (condition, x, y))


def cast(x: Expr, dtype: ArithmeticType) -> Expr:
    """Convert. Floats become integers by truncation, saturated at the type's ends, NaN as 0."""
    return x if x.dtype == dtype else Expr("cast", dtype, (x,))


def bits(x: Expr, dtype: ArithmeticType) -> Expr:
    """The same 32 (or 64) bits read as another type of that width: floats as integers and back."""
    if x.dtype == dtype:
        return x
    assert {x.dtype, dtype} in ({"float32", "int32"}, {"float64", "int64"}), (x.dtype, dtype)
    return Expr("bits", dtype, (x,))


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller, or NaN if either is NaN."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger, or NaN if either is NaN."""
    return binary("max", a, b)


def clamp(x: Expr, low: Operand, high: Operand) -> Expr:
    """`x` limited to low..high."""
    return minimum(maximum(x, low), high)


def floor_mod(a: Expr, b: Operand) -> Expr:
    """Remainder with the sign of the divisor, for integers of any sign (Python's and ONNX's `Mod`)."""
    x, y = _pair("floor_mod", a, b)
    zero = lit(0, x.dtype)
    r = binary("rem", x, y)
    return select(compare("ne", r, zero) & ((r < zero) ^ (y < zero)), r + y, r)


def floor_div(a: Expr, b: Operand) -> Expr:
    """Quotient rounded towards minus infinity, for integers of any sign."""
    x, y = _pair("floor_div", a, b)
    zero, r = lit(0, x.dtype), binary("rem", x, y)
    return binary("div", x, y) - cast(compare("ne", r, zero) & ((r < zero) ^ (y < zero)), x.dtype)


# Loops


def reduce(kind: str, extent: Operand, body: Callable[[Expr], Expr]) -> Expr:
    """sum, prod, max or min of `body(r)` for r in 0..extent-1; the neutral element when extent is 0."""
    assert kind in REDUCTIONS, kind
    var = _loop_variable()
    value = body(var)
    return made_of("reduce", value.dtype, (lift(extent, "index"), value), (kind, var.attr))


def reduce_axes(kind: str, extents: Sequence[Operand], body: Callable[..., Expr]) -> Expr:
    """`reduce` over several axes, the first outermost: of `body` of an index along each."""
    if not extents:
        return body()
    return reduce(kind, extents[0], lambda r: reduce_axes(kind, extents[1:], lambda *rest: body(r, *rest)))


def fold(extent: Operand, initial: Sequence[Expr], step: Callable[..., Sequence[Expr]]) -> tuple[Expr, ...]:
    """A sequential loop: carried values start as `initial` and become `step(r, *carried)` at each r."""
    var = _loop_variable()
    ids = tuple(f"c{next(_fresh)}" for _ in initial)
    carried = [made_of("carried", x.dtype, (), c) for c, x in zip(ids, initial, strict=True)]
    after = tuple(step(var, *carried))
    for before, x in zip(initial, after, strict=True):
        if before.dtype != x.dtype:
            raise TypeError(f"a carried value starts as {before.dtype} and becomes {x.dtype}")
    loop = made_of("fold", "index", (lift(extent, "index"), *initial, *after), (var.attr, ids))
    return tuple(Expr("result", x.dtype, (loop,), k) for k, x in enumerate(initial))


def _loop_variable() -> Expr:
    return made_of("loopvar", "index", (), f"r{next(_fresh)}")


# Walking


def nodes(*formulas: Expr) -> Iterator[Expr]:
    """Every node of the formulas, each once."""
    seen: set[Expr] = set()
    pending = list(formulas)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(node.args)
            yield node


def rebuild(x: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same node over other operands."""
    if all(a is b for a, b in zip(x.args, args, strict=True)):
        return x
    return made_of(x.op, x.dtype, args, x.attr)


def made_of(op: str, dtype: ArithmeticType, args: tuple[Expr, ...], attr: Any) -> Expr:
    """A node from its parts; what variables it depends on follows from them."""
    free: frozenset[Any] | None = None
    if op == "reduce":
        free = (args[1].free - {attr[1]}) | args[0].free
    elif op == "fold":
        k = len(attr[1])
        bound = frozenset({attr[0], *attr[1]})
        free = args[0].free.union(
            *(a.free for a in args[1 : k + 1]), *(a.free - bound for a in args[k + 1 :])
        )
    elif op in ("flat", "acc"):
        free = frozenset({op})
    elif op in ("index", "loopvar", "carried"):
        free = frozenset({attr})
    return Expr(op, dtype, args, attr, free)


def substitute(x: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: each node for which `replace` returns an expression becomes that expression."""
    memo: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        if node not in memo:
            fresh = rebuild(node, tuple(visit(a) for a in node.args)) if node.args else node
            other = replace(fresh)
            memo[node] = fresh if other is None else other
        return memo[node]

    return visit(x)
