"""A program of sizes as a table of instructions, which a native function evaluates without Python.

It computes what the function of `engine.kernels.size_program` does, to the bit. Where it cannot (an integer
beyond `2**62`, a division by 0), it refuses the sizes, and that function computes the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from engine.kernels.size import Number, name_of

if TYPE_CHECKING:
    from engine.kernels.size_function import SizeFunction, SizeLibrary
    from engine.kernels.size_program import Line

LIMIT = float(1 << 62)
EXACT = float(1 << 53)
"""Integers that floats represent exactly are smaller."""

# The codes of instructions: of integers, and behind them the same of floats.
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_ARITHMETIC = (*_SIGNS, "min", "max")
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_FLOATS = 16
_CODES = {(op, "q"): code for code, op in enumerate([*_ARITHMETIC, *_COMPARE])}
_CODES |= {(op, "d"): _FLOATS + code for (op, _), code in _CODES.items()}
_CODES |= {("floordiv", "q"): 32, ("mod", "q"): 33, ("truediv", "q"): 34, ("truediv", "d"): 35}
_CODES |= {("float", "q"): 36, ("trunc", "d"): 37, ("floor", "d"): 38, ("ceil", "d"): 39}
_CALL = 40

_REAL = re.compile("[.einf]")

WORDS = 4
"""Words of an instruction: its code, where its result goes (of a comparison: what it has to be), and where
its operands are.
"""


def _cases(letter: str) -> list[str]:
    """The statements of the instructions that integers and floats have in common."""
    kind, a, b = ("i64", "m", "n") if letter == "q" else ("f64", "x", "y")
    lines = [f"{a}, {b} = load_{kind}(values, left), load_{kind}(values, right)"]
    for op in _ARITHMETIC:
        sign = _SIGNS.get(op)
        found = f"{a} {sign} {b}" if sign else f"{b} if {b} {'<' if op == 'min' else '>'} {a} else {a}"
        lines += [f"if code == {_CODES[op, letter]}:"]
        if sign and letter == "q":
            # Floats say well enough whether integers exceed 64 bits.
            lines += [f"    if not abs(float(m) {sign} float(n)) < {LIMIT!r}:", "        return k"]
        lines += [f"    store_{kind}(values, out, {found})", "    continue"]
    lines += ["holds = False"]
    for op, sign in _COMPARE.items():
        lines += [f"if code == {_CODES[op, letter]}:", f"    holds = {a} {sign} {b}"]
    return [*lines, "if holds != (out != 0):", "    return k", "continue"]


def _indented(lines: Iterable[str], depth: int) -> str:
    return "".join([f"{'    ' * depth}{line}\n" for line in lines])


EVALUATE = f"""
@helper
def evaluate(values, table, count, call_all, calls):
    for k in range(count):
        code, out = load_i64(table, {WORDS} * k), load_i64(table, {WORDS} * k + 1)
        left, right = load_i64(table, {WORDS} * k + 2), load_i64(table, {WORDS} * k + 3)
        if code < {_FLOATS}:
{_indented(_cases("q"), 3)}\
        if code < {2 * _FLOATS}:
{_indented(_cases("d"), 3)}\
        if code == {_CALL}:
            call_kernel(call_all, values, calls + 16 * left, right)
            continue
        if code == {_CODES["truediv", "d"]}:
            divisor = load_f64(values, right)
            if divisor == 0.0:
                return k
            store_f64(values, out, load_f64(values, left) / divisor)
            continue
        if code < {_CODES["trunc", "d"]}:
            i = load_i64(values, left)
            if code == {_CODES["float", "q"]}:
                store_f64(values, out, float(i))
                continue
            j = load_i64(values, right)
            if j == 0:
                return k
            if code == {_CODES["floordiv", "q"]}:
                store_i64(values, out, i // j)
            elif code == {_CODES["mod", "q"]}:
                store_i64(values, out, i % j)
            else:
                if not (abs(float(i)) < {EXACT!r} and abs(float(j)) < {EXACT!r}):
                    return k
                store_f64(values, out, float(i) / float(j))
            continue
        real = load_f64(values, left)
        if not abs(real) < {LIMIT!r}:
            return k
        whole = int(real)
        if code == {_CODES["floor", "d"]} and float(whole) > real:
            whole -= 1
        if code == {_CODES["ceil", "d"]} and float(whole) < real:
            whole += 1
        store_i64(values, out, whole)
    return count
"""
"""The text of `evaluate(values, table, count, call_all, calls)`, for those that begin with the prelude.

`values` is the address of the words of numbers, `table` that of the instructions, of which there are `count`.
Returns how many were carried out: fewer where one refuses the sizes.
"""


class SizeTable:
    """The instructions of some lines, and the words of the numbers that they compute.

    Args:
        inputs: The names of the symbolic numbers, whose words come first.
        room: How many words follow that are set from outside.

    Attributes:
        words: The words before they are evaluated, constants among them: an int, or a float.
        table: The instructions, `WORDS` for each.
        calls: What the function at `SizeLibrary.address` takes of calls.
        inputs: How many symbolic numbers there are.
    """

    def __init__(self, inputs: Sequence[str], room: int) -> None:
        self.words: list[int | float] = [0] * (len(inputs) + room)
        self.table: list[int] = []
        self.calls: list[int] = []
        self.inputs = len(inputs)
        self._library: SizeLibrary | None = None
        # Of each number the place of its word, and its letter as `struct` has it.
        self._places: dict[str, tuple[int, str]] = {name: (k, "q") for k, name in enumerate(inputs)}

    @classmethod
    def of(cls, inputs: Sequence[str], room: int, lines: Sequence[Line]) -> SizeTable | None:
        """The table of a program; None if it has anything that only Python can do."""
        made = cls(inputs, room)
        return made if all(made._add(line) for line in lines) else None

    @property
    def call_all(self) -> int | None:
        """The address of the function that is called, 0 if none is; None until it is compiled."""
        return 0 if self._library is None else self._library.address()

    def place(self, number: Number) -> int:
        """Where the word of a number is."""
        return self._operand(name_of(number))[0]

    def demand(self, op: str, left: int, right: int) -> None:
        """Refuse sizes unless a comparison of two integers holds, given by their places."""
        self.table += [_CODES[op, "q"], 1, left, right]

    def _add(self, line: Line) -> bool:
        if line.function is not None:
            return self._call(line.function, line)
        if line.op == "within":
            place, low, high = [self._operand(name)[0] for name in line.args]
            self.demand("ge", place, low)
            self.demand("le", place, high)
            return True
        operands = [self._operand(name) for name in line.args]
        letters = {letter for _, letter in operands}
        if len(letters) == 2 and line.op in (*_SIGNS, "truediv"):
            operands, letters = [(self._as_float(name), "d") for name in line.args], {"d"}
        code = _CODES.get((line.op, letters.pop())) if len(letters) == 1 else None
        if code is None:
            return False
        out = self._new(line.made[0], _letter_of(code)) if line.made else int(line.holds)
        self.table += [code, out, operands[0][0], operands[-1][0]]
        return True

    def _call(self, function: SizeFunction[..., Any], line: Line) -> bool:
        if self._library not in (None, function.library):
            return False
        self._library = function.library
        places = []
        for name, wanted in zip(line.args, function.given, strict=True):
            place, letter = self._operand(name)
            if letter != wanted == "q":
                return False
            places.append(place if letter == wanted else self._as_float(name))
        begin = len(self.words)
        for to, (place, name, letter) in enumerate(
            zip(places, line.args, function.given, strict=True), begin
        ):
            self.words.append(self.words[place] if _is_constant(name) else 0)
            if not _is_constant(name):
                self.table += [_CODES["max", letter], to, place, place]
        # Results go behind the arguments.
        for name, letter in zip(line.made, function.made, strict=True):
            self._new(name, letter)
        self.table += [_CALL, 0, len(self.calls) // 2, 1]
        self.calls += [function.number, begin]
        return True

    def _as_float(self, name: str) -> int:
        """Where a number is as a float."""
        place, letter = self._operand(name)
        if letter == "d":
            return place
        if _is_constant(name):
            return self._operand(repr(float(name)))[0]
        found = self._places.get(f"float {name}")
        if found is None:
            found = self._new(f"float {name}", "d"), "d"
            self.table += [_CODES["float", "q"], found[0], place, place]
        return found[0]

    def _new(self, name: str, letter: str) -> int:
        self.words.append(0)
        self._places[name] = len(self.words) - 1, letter
        return len(self.words) - 1

    def _operand(self, name: str) -> tuple[int, str]:
        """The place and the letter of a number."""
        found = self._places.get(name)
        if found is None:
            assert _is_constant(name), name
            number = float(name) if _REAL.search(name) else int(name)
            letter = "d" if isinstance(number, float) else "q"
            found = self._new(name, letter), letter
            self.words[found[0]] = number
        return found


def _is_constant(name: str) -> bool:
    return name[0] not in "svrf"


def _letter_of(code: int) -> str:
    """Of the result of an instruction."""
    is_float = _FLOATS <= code < 2 * _FLOATS or _CODES["truediv", "q"] <= code <= _CODES["float", "q"]
    return "d" if is_float else "q"
