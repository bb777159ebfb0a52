"""The common base of the GLSL and OpenCL C printers, whose integers have 32 bits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from engine.base.dtypes import ArithmeticType
from engine.kernels.expr import Expr
from engine.kernels.printer import LoopScope, Printer

SUM_BLOCK = 256
"""Terms of a float32 sum that are added up before they join the total: keeps long sums accurate."""

COMMON: Mapping[Any, str] = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "neg": "(-{0})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "bitnot": "(~{0})",
    "not": "(!{0})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "select": "({0} ? {1} : {2})",
    ("div", "float"): "({0} / {1})",
    ("div", "int"): "k_idiv({0}, {1})",
    ("rem", "int"): "k_irem({0}, {1})",
    ("pow", "int"): "k_ipow({0}, {1})",
    ("min", "int"): "min({0}, {1})",
    ("max", "int"): "max({0}, {1})",
    ("div", "uint"): "k_udiv({0}, {1})",
    ("rem", "uint"): "k_urem({0}, {1})",
    ("pow", "uint"): "k_upow({0}, {1})",
    ("min", "uint"): "min({0}, {1})",
    ("max", "uint"): "max({0}, {1})",
    ("abs", "uint"): "{0}",
    ("add", "bool"): "({0} || {1})",
    ("mul", "bool"): "({0} && {1})",
    ("max", "bool"): "({0} || {1})",
    ("min", "bool"): "({0} && {1})",
    ("bitnot", "bool"): "(!{0})",
    # Rounding an integer leaves it as it is.
    **{(op, kind): "{0}" for op in ("floor", "ceil", "trunc", "round") for kind in ("int", "uint")},
}
"""Templates that hold in each of them; each defines the functions `k_...` that they call."""


class CPrinter(Printer):
    """Base of the printers for C-like languages; computed 64-bit integers wrap to 32 bits."""

    TYPES: ClassVar[Mapping[str, str]] = {
        "float32": "float",
        "index": "int",
        "int32": "int",
        "int64": "int",
        "uint32": "uint",
        "uint64": "uint",
        "bool": "bool",
    }

    @abstractmethod
    def float_literal(self, value: float, word: str) -> str:
        """A constant of the type `word`, infinities and NaN included."""

    def literal(self, value: int | float | bool, dtype: ArithmeticType) -> str:
        """A constant; integers beyond 32 bits saturate, as they stand for "no limit"."""
        word = self.TYPES[dtype]
        if word == "bool":
            return "true" if value else "false"
        if word in ("float", "double"):
            return self.float_literal(float(value), word)
        number = saturate(int(value), dtype)
        if word == "uint":
            return f"{number}u"
        return "(-2147483647 - 1)" if number == -(2**31) else f"({number})" if number < 0 else str(number)

    def body(self, formula: Expr, variables: Mapping[Any, str]) -> tuple[list[str], str]:
        """Return the statements that compute `formula` and the text of its value.

        variables: names of what the formula depends on: axis numbers, "flat", "acc".
        """
        self.variables |= variables
        scope = self.open(frozenset(variables))
        value = self.text(formula)
        self.close()
        return scope.lines, value

    def reduce(self, node: Expr, name: str, scope: LoopScope) -> None:
        """A loop that accumulates; sums of float32 go block by block."""
        kind, var = node.attr
        if kind != "sum" or node.dtype != "float32":
            super().reduce(node, name, scope)
            return
        extent, term = node.args
        count = self.text(extent)
        part, loop = self.fresh("a"), self.fresh("r")
        self.variables[var] = loop
        zero = self.literal(0.0, "float32")

        def accumulate() -> list[str]:
            last = f"({loop} & {SUM_BLOCK - 1}) == {SUM_BLOCK - 1}"
            return [f"{part} += {self.text(term)};", f"if ({last}) {{ {name} += {part}; {part} = {zero}; }}"]

        inner = self._inside(self.scopes.index(scope), frozenset({var}), accumulate)
        scope.lines += [self.declare(name, "float32", zero), self.declare(part, "float32", zero)]
        self._loop(scope, loop, count, inner)
        scope.lines.append(f"{name} += {part};")


def saturate(value: int, dtype: str) -> int:
    """An integer limited to what 32 bits hold."""
    low, high = (0, 2**32 - 1) if dtype.startswith("uint") else (-(2**31), 2**31 - 1)
    return min(max(value, low), high)
