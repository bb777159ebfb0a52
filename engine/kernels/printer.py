"""Prints a kernel's formula as the statements of a loop body, for any target.

`Printer` walks the formula once and puts every node into the outermost place where its variables are
known, so that work that does not change inside a loop stands before it. A target is a subclass: a
table of types, functions and templates, and the few methods whose syntax differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from engine.base.dtypes import ArithmeticType
from engine.kernels.expr import Expr
from engine.kernels.kernel import Kernel

Variables = frozenset[Any]


class LoopScope:
    """The statements of one loop body (or of the whole kernel), and the expressions computed so far."""

    def __init__(self, bound: Variables) -> None:
        self.bound = bound
        self.lines: list[str] = []
        self.names: dict[Expr, str] = {}


class Printer(ABC):
    """Base of the printers. Subclasses fill the tables; `{0}`, `{1}` stand for operands.

    TYPES: arithmetic type -> the target's word. TEMPLATES: (op, kind) or op -> text, where kind is
    "float", "int", "uint" or "bool" (index counts as int). FOLDABLE: leaves printed in place.
    """

    TYPES: ClassVar[Mapping[str, str]]
    TEMPLATES: ClassVar[Mapping[Any, str]]
    INDENT: ClassVar[str] = "    "

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.scopes: list[LoopScope] = []
        self.serial = 0
        self.variables: dict[Any, str] = {}

    # What differs by target

    @abstractmethod
    def literal(self, value: int | float | bool, dtype: ArithmeticType) -> str:
        """A constant, infinities and NaN included."""

    @abstractmethod
    def param(self, slot: int, dtype: ArithmeticType) -> str:
        """A run-time argument."""

    @abstractmethod
    def load(self, slot: int, position: str, dtype: ArithmeticType) -> str:
        """Element `position` of buffer `slot`, converted from its storage type to `dtype`."""

    @abstractmethod
    def convert(self, text: str, source: ArithmeticType, target: ArithmeticType) -> str:
        """`cast`."""

    def declare(self, name: str, dtype: ArithmeticType, text: str) -> str:
        """A statement that introduces a name."""
        return f"{self.TYPES[dtype]} {name} = {text};"

    def assign(self, name: str, text: str) -> str:
        """A statement that gives a name a new value."""
        return f"{name} = {text};"

    def open_loop(self, var: str, extent: str) -> str:
        """The head of a loop over 0..extent-1."""
        return f"for (int {var} = 0; {var} < {extent}; ++{var}) {{"

    close_loop: ClassVar[str | None] = "}"

    def accumulator(self, node: Expr) -> ArithmeticType:
        """The type in which a reduction accumulates."""
        return node.dtype

    # Placing statements

    def open(self, bound: Variables) -> LoopScope:
        """Enter a scope in which these variables are known."""
        self.scopes.append(LoopScope(bound))
        return self.scopes[-1]

    def close(self) -> list[str]:
        """Leave the innermost scope and return its statements."""
        return self.scopes.pop().lines

    def fresh(self, prefix: str) -> str:
        """A new name."""
        self.serial += 1
        return f"{prefix}{self.serial}"

    def scope_of(self, node: Expr) -> LoopScope:
        """The outermost open scope in which everything that `node` depends on is known."""
        missing = node.free
        for scope in self.scopes:
            missing = missing - scope.bound
            if not missing:
                return scope
        raise AssertionError(f"unbound variables {set(missing)} in {node.op}")

    def text(self, node: Expr) -> str:
        """The name or literal of a node, after emitting the statements that compute it."""
        match node.op:
            case "const":
                return self.literal(node.attr, node.dtype)
            case "param":
                return self.param(node.attr, node.dtype)
            case "index" | "loopvar" | "carried" | "flat" | "acc":
                return self.variables[node.attr if node.attr is not None else node.op]
        scope = self.scope_of(node)
        if node not in scope.names:
            if node.op == "fold":
                self.fold(node, scope)
                return ""
            if node.op == "result":
                self.text(node.args[0])
                return self.scope_of(node.args[0]).names[node]
            name = self.fresh("t")
            if node.op == "reduce":
                self.reduce(node, name, scope)
            else:
                statement = self.declare(name, node.dtype, self.operation(node))
                scope.lines.append(statement)
            scope.names[node] = name
        return scope.names[node]

    def operation(self, node: Expr) -> str:
        """The text of one arithmetic operation on named operands."""
        args = [self.text(a) for a in node.args]
        if node.op == "load":
            return self.load(node.attr, args[0], node.dtype)
        if node.op == "cast":
            return self.convert(args[0], node.args[0].dtype, node.dtype)
        if node.op == "bits":
            return self.template("bits", node.args[0].dtype).format(*args)
        return self.template(node.op, node.args[-1].dtype).format(*args, T=self.TYPES[node.args[-1].dtype])

    def template(self, op: str, dtype: ArithmeticType) -> str:
        """The target's text for an operation on operands of `dtype`; the most specific entry wins."""
        for key in ((op, dtype), (op, type_family(dtype)), op):
            if key in self.TEMPLATES:
                return self.TEMPLATES[key]
        raise KeyError(f"{type(self).__name__} has no text for {op} on {dtype}")

    def reduce(self, node: Expr, name: str, scope: LoopScope) -> None:
        """A loop that accumulates."""
        kind, var = node.attr
        extent, body = node.args
        wide = self.accumulator(node)
        count = self.text(extent)
        total = name if wide == node.dtype else self.fresh("a")
        scope_index = self.scopes.index(scope)
        self.variables[var] = loop_name = self.fresh("r")
        inner = self._inside(scope_index, frozenset({var}), lambda: self._accumulate(kind, total, body, wide))
        scope.lines.append(self.declare(total, wide, self.neutral(kind, wide)))
        self._loop(scope, loop_name, count, inner)
        if wide != node.dtype:
            scope.lines.append(self.declare(name, node.dtype, self.convert(total, wide, node.dtype)))

    def _accumulate(self, kind: str, total: str, body: Expr, wide: ArithmeticType) -> list[str]:
        value = self.text(body)
        value = value if wide == body.dtype else self.convert(value, body.dtype, wide)
        op = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}[kind]
        return [self.assign(total, self.template(op, wide).format(total, value, T=self.TYPES[wide]))]

    def fold(self, node: Expr, scope: LoopScope) -> None:
        """A loop with carried values."""
        var, carried = node.attr
        k = len(carried)
        extent = self.text(node.args[0])
        initial = [self.text(x) for x in node.args[1 : k + 1]]
        after = node.args[k + 1 :]
        names = [self.fresh("c") for _ in carried]
        self.variables |= dict(zip(carried, names, strict=True))
        self.variables[var] = loop_name = self.fresh("r")

        def body() -> list[str]:
            # All new values are computed before the first is stored: they may read each other's old ones.
            texts = [self.text(x) for x in after]
            held = [self.fresh("n") for _ in texts]
            lines = [self.declare(h, x.dtype, t) for h, x, t in zip(held, after, texts, strict=True)]
            return lines + [self.assign(n, h) for n, h in zip(names, held, strict=True)]

        inner = self._inside(self.scopes.index(scope), frozenset({var, *carried}), body)
        for name, x, start in zip(names, after, initial, strict=True):
            scope.lines.append(self.declare(name, x.dtype, start))
        self._loop(scope, loop_name, extent, inner)
        scope.names[node] = ""
        for position, (name, x) in enumerate(zip(names, after, strict=True)):
            scope.names[Expr("result", x.dtype, (node,), position)] = name

    def _inside(self, depth: int, bound: Variables, emit: Callable[[], list[str]]) -> list[str]:
        """The statements of a loop body; scopes deeper than the loop's scope are set aside meanwhile."""
        aside = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        self.open(bound)
        tail = emit()
        lines = self.close() + tail
        self.scopes.extend(aside)
        return lines

    def _loop(self, scope: LoopScope, var: str, extent: str, body: list[str]) -> None:
        scope.lines.append(self.open_loop(var, extent))
        scope.lines.extend(self.INDENT + line for line in body)
        if self.close_loop is not None:
            scope.lines.append(self.close_loop)

    def neutral(self, kind: str, dtype: ArithmeticType) -> str:
        """The neutral element of a reduction."""
        if kind in ("sum", "prod"):
            return self.literal(int(kind == "prod"), dtype)
        low, high = LIMITS.get(dtype, (float("-inf"), float("inf")))
        return self.literal(low if kind == "max" else high, dtype)


def type_family(dtype: ArithmeticType) -> str:
    """Which of the families float, int, uint, bool a type belongs to; an index is an int."""
    return "int" if dtype == "index" else dtype.rstrip("0123456789")


LIMITS: dict[str, tuple[int, int]] = {
    "bool": (0, 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "index": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
"""Smallest and largest value of the integer types; GPU printers override int64 and uint64."""
