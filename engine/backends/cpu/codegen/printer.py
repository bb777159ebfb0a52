"""Prints kernels as numba Python.

The printed function is `kernel(args, begin, end)`. `args` is the address of 8-byte words: the sizes of the
index space; where it has more than one dimension, into how many blocks each row (of the last dimension) is
cut, and their length; the run-time arguments (integers, or the bits of a float64); the output's address and
the inputs' addresses. begin..end counts elements of a space of one dimension, else blocks of rows, so that
no division stands in the innermost loop. Indices are counted on from row to row. Rows that are copied are no
loop, and what a formula chooses by bounds along a row, as padding does, divides it into sections.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from engine.backends.cpu.library import library_text
from engine.base.dtypes import CODE_TYPES, ArithmeticType, arithmetic_type, as_dtype
from engine.device.native import NativeSource
from engine.kernels.expr import BINARY, COMPARE, LOOPS, REDUCTIONS, UNARY, Expr, index, lit, nodes, substitute
from engine.kernels.kernel import Kernel
from engine.kernels.printer import LIMITS, Printer

WIDEST_INDEX = (-(2**63), 2**63 - 1)

_MOST_PHASES = 4
"""Neighbouring results that are woven from as many runs of elements."""


class NumbaPrinter(Printer):
    """Prints one kernel; `source` gives the whole module."""

    TYPES: ClassVar[dict[str, str]] = {
        "float32": "float32",
        "float64": "float64",
        "int32": "int32",
        "int64": "int64",
        "uint32": "uint32",
        "uint64": "uint64",
        "bool": "bool",
        "index": "int64",
    }
    TEMPLATES: ClassVar[dict[str, str]] = {
        **{op: f"op_{op}({{0}})" for op in UNARY},
        **{op: f"op_{op}({{0}}, {{1}})" for op in BINARY | COMPARE},
        "select": "op_select({0}, {1}, {2})",
        "bits": "op_bits({0})",
    }
    close_loop: ClassVar[str | None] = None

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        innermost = {kernel.rank - 1, "flat"}
        self.has_inner_loops = any(n.op in LOOPS and n.free & innermost for n in nodes(kernel.body))

    def literal(self, value: int | float | bool, dtype: ArithmeticType) -> str:
        """A constant, with its type spelled out: numba takes every bare integer for an int64."""
        if dtype == "bool":
            return str(bool(value))
        if dtype in ("int64", "index"):
            return f"({int(value)})" if value != LIMITS["int64"][0] else "(-9223372036854775807 - 1)"
        if dtype in ("float32", "float64"):
            value = float(value)
            text = (
                repr(value)
                if np.isfinite(value)
                else "NAN"
                if np.isnan(value)
                else "-INF"
                if value < 0
                else "INF"
            )
            return f"_types.{dtype}({text})"
        return f"_types.{dtype}({int(value)})"

    def param(self, slot: int, dtype: ArithmeticType) -> str:
        """A run-time argument, read where the function starts."""
        return f"p{slot}"

    def load(self, slot: int, position: str, dtype: ArithmeticType) -> str:
        """An element of an input."""
        return read_text(self.kernel.buffers[slot], f"in{slot}", position)

    def convert(self, text: str, source: ArithmeticType, target: ArithmeticType) -> str:
        """`cast`; an index is an int64."""
        return f"to_{self.TYPES[target]}({text})"

    def declare(self, name: str, dtype: ArithmeticType, text: str) -> str:
        """A statement that introduces a name."""
        return f"{name} = {text}"

    def assign(self, name: str, text: str) -> str:
        """A statement that gives a name a new value."""
        return f"{name} = {text}"

    def open_loop(self, var: str, extent: str) -> str:
        """The head of a loop over 0..extent-1."""
        return f"for {var} in range({extent}):"

    def accumulator(self, node: Expr) -> ArithmeticType:
        """Sums of float32 accumulate in float64, as in NumPy evaluation; those of two terms need not."""
        extent = node.args[0]
        is_short = extent.op == "const" and extent.attr <= 2
        is_sum = node.dtype == "float32" and node.attr[0] in ("sum", "prod")
        return "float64" if is_sum and not is_short else node.dtype

    def neutral(self, kind: str, dtype: ArithmeticType) -> str:
        """The neutral element of a reduction; an index has 64 bits here."""
        if dtype == "index" and kind in ("max", "min"):
            return self.literal(WIDEST_INDEX[kind == "min"], dtype)
        return super().neutral(kind, dtype)

    def _accumulate(self, kind: str, total: str, body: Expr, wide: ArithmeticType) -> list[str]:
        value = self.text(body)
        value = value if wide == body.dtype else self.convert(value, body.dtype, wide)
        return [self.assign(total, f"reduce_{REDUCTIONS[kind]}({total}, {value})")]

    def operation(self, node: Expr) -> str:
        """One operation. Constants come first in `min` and `max`, which avoids the test for NaN.

        The C library's power is the faster one where loops inside the innermost keep it from vectorising.
        """
        if node.op == "pow" and self.has_inner_loops:
            return f"call_pow({self.text(node.args[0])}, {self.text(node.args[1])})"
        if node.op == "load":
            return self._strided_load(node) or super().operation(node)
        if node.op == "cast" and node.dtype == "int32" and _is_bounded(node.args[0]):
            return f"bounded_int32({self.text(node.args[0])})"
        if node.op in ("min", "max") and node.args[1].op == "const":
            first, second = (self.text(a) for a in reversed(node.args))
            return self.template(node.op, node.dtype).format(first, second)
        return super().operation(node)

    def _strided_load(self, node: Expr) -> str | None:
        """A strided load: neighbouring results read elements a literal number apart.

        LLVM reads such elements as vectors only if it sees their distance from an address.
        """
        last = self.kernel.rank - 1
        step, start = _steps_along(last, node.args[0]) or (1, node.args[0])
        if step == 1 or not start.free <= frozenset(range(last)):
            return None
        storage = self.kernel.buffers[node.attr]
        address = f"in{node.attr} + {self.text(start)} * {as_dtype(storage).itemsize}"
        return read_text(storage, address, f"{self.variables[last]} * {step}")

    def arguments(self, first_word: int) -> list[str]:
        """Statements that read the kernel's run-time arguments, and its output and inputs, from `args`."""
        lines = [
            f"p{k} = {argument_text(first_word + k, dtype)}" for k, dtype in enumerate(self.kernel.params)
        ]
        word = first_word + len(lines)
        names = ["out", *(f"in{k}" for k in range(len(self.kernel.buffers)))]
        return lines + [f"{name} = arg_i64(args, {word + k})" for k, name in enumerate(names)]

    def store(self, position: str, body: Expr, target: str = "out") -> str:
        """The statement that stores the kernel's value."""
        value = self.text(body)
        stored_as = computed_type(self.kernel.dtype)
        if self.TYPES[body.dtype] != stored_as:
            value = f"to_{stored_as}({value})"
        return write_text(self.kernel.dtype, target, position, value)

    def source(self) -> NativeSource:
        """The kernel as a module that the native store compiles."""
        kernel = self.kernel
        names = [f"d{k}" for k in range(kernel.rank)] + (["blocks", "block_size"] if kernel.rank > 1 else [])
        body = [f"{name} = arg_i64(args, {k})" for k, name in enumerate(names)] + self.arguments(len(names))
        self.open(frozenset())
        loops = self.walk_elements() if kernel.rank == 1 else self.walk_rows()
        body += self.close() + loops
        return NativeSource(f"generic_{kernel.key[:8]}", kernel_text(library_text(), body), "kernel")

    def walk_elements(self) -> list[str]:
        """One loop; the position is the index."""
        self.variables |= {0: "i0", "flat": "i0"}
        if sections := self._sections(0):
            return ["start, first, limit = 0, begin, end", *sections]
        self.open(frozenset({0, "flat"}))
        store = self.store("i0", self.kernel.body)
        return ["for i0 in range(begin, end):", *indent([*self.close(), store])]

    def walk_rows(self) -> list[str]:
        """Print a loop over blocks of rows with precomputed indices, and one over their elements."""
        last = self.kernel.rank - 1
        self.variables |= {axis: f"i{axis}" for axis in range(last + 1)} | {"flat": "flat"}
        self.open(frozenset(range(last)))
        step = _phases_along(last, self.kernel.body)
        if step:
            # Each phase reads neighbouring elements; the results of all phases are interleaved.
            inner = [
                *self._phases(last, step),
                f"first += whole * {step}",
                *self._run(last, self.kernel.body, "first", "limit"),
            ]
        else:
            inner = self._sections(last) or self._run(last, self.kernel.body, "first", "limit")
        row = [
            "first = piece * block_size",
            f"limit = min(first + block_size, d{last})",
            *self.close(),
            *inner,
            "piece += 1",
            "if piece == blocks:",
            *indent(["piece = 0", f"start += d{last}", *next_row(last)]),
        ]
        return [
            "row = begin if blocks == 1 else op_div(begin, blocks)",
            f"piece, start = begin - row * blocks, row * d{last}",
            *split_row("row", last),
            "for block in range(begin, end):",
            *indent(row),
        ]

    def _run(self, last: int, body: Expr, begin: str, end: str) -> list[str]:
        """The statements for neighbouring elements of a row, of a formula."""
        if body.op == "load" and self.kernel.buffers[body.attr] == self.kernel.dtype:
            step, ahead = _steps_along(last, body.args[0]) or (0, body.args[0])
            if step == 1 and ahead.free <= frozenset(range(last)):
                size = as_dtype(self.kernel.dtype).itemsize
                source = f"in{body.attr} + ({self.text(ahead)} + {begin}) * {size}"
                copy = f"copy_bytes(out + (start + {begin}) * {size}, {source}, ({end} - {begin}) * {size})"
                return [f"if {end} > {begin}:", *indent([copy])]
        inner = [f"flat = start + i{last}", *self._element(last, body)]
        return [f"for i{last} in range({begin}, {end}):", *indent(inner)]

    def _sections(self, last: int) -> list[str]:
        """A row as a section inside bounds and two beside it, if the formula chooses by such bounds."""
        bounds = _bounds_along(last, self.kernel.body)
        if bounds is None:
            return []
        inside = [self.text(condition) for condition in bounds.conditions]
        low = [self.text(bound) for bound in bounds.low]
        high = [self.text(bound) for bound in bounds.high]
        return [
            f"low, high = {_nested('max', ['first', *low])}, {_nested('min', ['limit', *high])}",
            f"if low >= high{''.join(f' or not {name}' for name in inside)}:",
            "    low = high = limit",
            *self._run(last, bounds.beside, "first", "low"),
            *self._run(last, bounds.inside, "low", "high"),
            *self._run(last, bounds.beside, "high", "limit"),
        ]

    def _element(self, last: int, body: Expr) -> list[str]:
        """The statements that compute and store one element of a row."""
        self.open(frozenset({last, "flat"}))
        store = self.store("flat", body)
        return [*self.close(), store]

    def _phases(self, last: int, step: int) -> list[str]:
        """A loop over the whole groups of `step` neighbours in a row, if it begins with one."""
        usual, self.variables[last] = self.variables[last], "part"
        lines = [
            f"whole = 0 if op_rem(first, {step}) else op_div(limit - first, {step})",
            f"group = op_div(first, {step})",
            "for part in range(group, group + whole):",
        ]
        for phase in range(step):
            body = _of_phase(last, step, phase, index(last), self.kernel.body)
            lines += indent([f"flat = start + part * {step} + {phase}", *self._element(last, body)])
        self.variables[last] = usual
        return lines


def _steps_along(axis: int, position: Expr) -> tuple[int, Expr] | None:
    """A position as a literal number of steps along an axis, and a sum without that axis; None for others."""
    if position.op == "index" and position.attr == axis:
        return 1, lit(0)
    if position.op == "mul" and position.args[1].op == "const" and position.args[0].op == "index":
        return (position.args[1].attr, lit(0)) if position.args[0].attr == axis else None
    if position.op == "sub" and axis not in position.args[1].free:
        found = _steps_along(axis, position.args[0])
        return None if found is None else (found[0], found[1] - position.args[1])
    if position.op == "add":
        for one, other in (position.args, position.args[::-1]):
            found = None if axis in other.free else _steps_along(axis, one)
            if found is not None:
                return found[0], found[1] + other
    return None


class _Bounds(NamedTuple):
    """Where along a row a choice of a formula is made: `low` <= index < `high`, if all `conditions` hold.

    `inside` and `beside` are the formula with the choice made.
    """

    conditions: list[Expr]
    low: list[Expr]
    high: list[Expr]
    inside: Expr
    beside: Expr


def _bounds_along(axis: int, body: Expr) -> _Bounds | None:
    """The bounds by which a formula chooses along an axis; None if it has none, or several."""
    every = [*nodes(body)]
    choices = {n.args[0] for n in every if n.op == "select" and {axis, "flat"} & n.args[0].free}
    if len(choices) != 1 or any(n.op in LOOPS for n in every):
        return None
    (choice,) = choices
    conditions: list[Expr] = []
    low: list[Expr] = []
    high: list[Expr] = []
    pending = [choice]
    while pending:
        node = pending.pop()
        if node.op == "and":
            pending += node.args
        elif not {axis, "flat"} & node.free:
            conditions += [] if node == lit(True, "bool") else [node]
        elif node.op in ("ge", "lt") and node.args[0].dtype == "index" and axis not in node.args[1].free:
            step, ahead = _steps_along(axis, node.args[0]) or (0, lit(0))
            if step != 1:
                return None
            (low if node.op == "ge" else high).append(node.args[1] - ahead)
        else:
            return None

    def chosen(side: int) -> Expr:
        return substitute(body, lambda n: n.args[side] if n.op == "select" and n.args[0] == choice else None)

    inside = chosen(1)
    # What no element of a row changes is read before its bounds are looked at.
    if any(n.op == "load" and not {axis, "flat"} & n.free and n not in every for n in nodes(inside)):
        return None
    return _Bounds(conditions, low, high, inside, chosen(2))


def _nested(name: str, values: Sequence[str]) -> str:
    """A call with two arguments for any number of values."""
    return functools.reduce(lambda found, value: f"{name}({found}, {value})", values)


def _phases_along(axis: int, body: Expr) -> int:
    """The step by which a formula divides the index of an axis wherever it uses it; 0 where it does not."""
    place, every = index(axis), [*nodes(body)]
    if any(node.op in LOOPS for node in every):
        return 0
    divisors = {
        node.args[1].attr
        for node in every
        if node.op in ("div", "rem") and node.args[0] == place and node.args[1].op == "const"
    }
    step = divisors.pop() if len(divisors) == 1 else 0
    if not 2 <= step <= _MOST_PHASES or {axis, "flat"} & _of_phase(axis, step, 0, lit(0), body).free:
        return 0
    return step


def _of_phase(axis: int, step: int, phase: int, quotient: Expr, body: Expr) -> Expr:
    """A formula where the index of an axis divided by `step` is `quotient`, and `phase` is left over."""
    place, divisor = index(axis), lit(step)
    left = place % divisor
    whole = place // divisor

    def rest(node: Expr) -> Expr | None:
        return left if node == place - whole * divisor else None

    def parted(node: Expr) -> Expr | None:
        return lit(phase) if node == left else quotient if node == whole else None

    return substitute(substitute(body, rest), parted)


def _is_bounded(x: Expr) -> bool:
    """Whether a float is limited to numbers that an int32 can hold, or NaN."""
    if x.op != "min" or x.dtype not in ("float32", "float64") or x.args[0].op != "max":
        return False
    high, low = x.args[1], x.args[0].args[1]
    return high.op == low.op == "const" and -(2.0**31) <= low.attr <= high.attr <= 2.0**31 - 128


def kernel_text(head: str, lead: Sequence[str], task: Sequence[str] = (), behind: Sequence[str] = ()) -> str:
    """The source of a module: `head`, and `kernel` with statements before, in and after its task loop."""
    start = "INF, NAN = float('inf'), float('nan')\n\n\ndef kernel(args, begin, end):\n"
    body = [*lead, *(["for task in range(begin, end):", *indent(task)] if task else []), *behind]
    # Layers of the same kind have the same text, and every plan holds it.
    return sys.intern(head + start + "\n".join(indent(body)) + "\n")


def next_row(axes: int) -> list[str]:
    """Statements that advance the indices i0.. of the first `axes` dimensions by a row."""
    lines = ["i0 += 1"]
    for axis in range(1, axes):
        lines = [f"i{axis} += 1", f"if i{axis} == d{axis}:", *indent([f"i{axis} = 0", *lines])]
    return lines


def split_row(row: str, axes: int) -> list[str]:
    """Statements that turn a row number into the indices i0.. of the first `axes` dimensions."""
    lines = []
    rest = row
    for axis in range(axes - 1, 0, -1):
        lines += [f"i{axis} = op_rem({rest}, d{axis})", f"q{axis} = op_div({rest}, d{axis})"]
        rest = f"q{axis}"
    return [*lines, f"i0 = {rest}"] if axes else lines


def argument_text(word: int, dtype: ArithmeticType) -> str:
    """How a run-time argument of a type is read from the args block."""
    if dtype in ("float32", "float64"):
        return f"_types.{dtype}(arg_f64(args, {word}))"
    if dtype == "bool":
        return f"arg_i64(args, {word}) != 0"
    return f"to_{NumbaPrinter.TYPES[dtype]}(arg_i64(args, {word}))"


def _in_memory(storage: str) -> str:
    """The type whose loads and stores serve `storage`: a small float is its code in a byte."""
    return "uint8" if storage in CODE_TYPES else storage


def read_text(storage: str, address: str, position: str) -> str:
    """A load from memory that the kernel's output does not overlap."""
    return f"read_{_in_memory(storage)}({address}, {position})"


def write_text(storage: str, address: str, position: str, value: str) -> str:
    """A store to the kernel's output."""
    return f"write_{_in_memory(storage)}({address}, {position}, {value})"


def computed_type(storage: str) -> str:
    """The type in which elements of a storage type are computed, by numba's name."""
    return NumbaPrinter.TYPES[arithmetic_type(as_dtype(storage))]


def indent(lines: Sequence[str]) -> list[str]:
    """One level deeper."""
    return ["    " + line for line in lines]
