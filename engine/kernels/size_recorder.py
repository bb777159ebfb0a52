"""`SizeRecorder`: records arithmetic and comparisons of symbolic sizes, and compiles a program from them."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

from engine.base.errors import EngineError
from engine.kernels.intervals import EVALUATE, Bounds, intersection, is_certain, range_of
from engine.kernels.polynomials import Terms, combine, of_number, range_of_sum
from engine.kernels.size import (
    Number,
    Size,
    flatten,
    has_sizes,
    hint_of,
    is_record,
    name_of,
    numbers_in,
    parts_of,
    unflatten,
)
from engine.kernels.size_function import SizeFunction
from engine.kernels.size_program import Line, compiled, ordered
from engine.kernels.size_table import SizeTable

_INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**"}
_EXTREME = {"min": "<", "max": ">"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
LARGEST = 1 << 20
"""Sizes up to which one record serves, so that most questions about large tensors have one answer."""


@dataclass
class Record:
    """Symbolic numbers, and the instructions and guards over them, up to some point.

    guards: what was asked of sizes, in order, with the answer; for reports and tests.
    """

    inputs: list[Size] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    nodes: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    results: dict[Any, Any] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)
    """All symbolic numbers and what was computed of them, in order."""
    instructions: list[tuple[Any, ...]] = field(default_factory=list)
    """The calls made, so that repeating them on another `SizeRecorder` yields the same record."""
    programs: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """The functions that were compiled, by the number of lines and the names of the results."""

    def copy(self) -> Record:
        """A copy of this record that continues separately."""
        copied = {item.name: copy(getattr(self, item.name)) for item in fields(self)}
        return Record(**{**copied, "programs": {}})


class SizeRecorder:
    """Instructions over the values of a model's dynamic dimensions, and the guards under which they hold.

    All of that goes to `record`. A plan that continues another for computed data has a copy of the other's
    record, with that data as further symbolic numbers: see `at`.
    """

    def __init__(self) -> None:
        self.record = Record()
        self.lock = threading.Lock()
        """Held while steps are recorded, where several workers may do that."""
        self._calls = self._count = 0
        self._constants: dict[str, Any] = {}
        # Of each symbolic number its bounds, by name.
        self._ranges: dict[str, Bounds] = {}

    @property
    def inputs(self) -> list[Size]:
        """The symbolic inputs, in the order in which `program` takes them."""
        return self.record.inputs

    @property
    def guards(self) -> list[str]:
        """Comparisons of sizes that hold, see `Record`."""
        return self.record.guards

    @contextmanager
    def at(self, record: Record) -> Iterator[None]:
        """Context manager: continues another record of this recorder."""
        before, self.record = self.record, record
        try:
            yield
        finally:
            self.record = before

    def suppose(self, numbers: Sequence[int]) -> None:
        """Set other values of the inputs, which satisfy all guards so far, for later comparisons."""
        sizes = self.record.sizes
        found = self.program(sizes)(*numbers)
        assert found is not None, "a guard does not hold"
        for size, number in zip(sizes, found, strict=True):
            size.hint = number

    def input(self, hint: int) -> Size:
        """A new dynamic dimension or element; `hint` is its value while the record is made."""
        name = f"s{len(self.inputs)}"
        # Nearly everything asks whether a size is 0, or too large for any computer: once is enough.
        low, high = (1 if hint else 0, max(hint, LARGEST)) if hint >= 0 else (min(hint, -LARGEST), -1)
        size = Size(self, name, hint, low, high)
        self.inputs.append(size)
        self._keep(size)
        self.record.instructions.append(("input", hint))
        text = f"if not {low} <= {name} <= {high}: return None"
        self.record.lines.append(Line(text, (name,), args=(name, repr(low), repr(high)), op="within"))
        return size

    def node(self, op: str, *args: Number) -> Any:
        """The result of an instruction: a plain number if no size changes it. Equal ones have one result."""
        names = tuple(map(name_of, args))
        key = (op, *names)
        found = self.record.nodes.get(key)
        if found is None:
            hint = EVALUATE[op](*map(hint_of, args))
            bounds = range_of(op, [_bounds(x) for x in args])
            terms = self._terms(op, *args) if type(hint) is int and len(args) == 2 else None
            if terms is not None and len(terms) > 1:
                bounds = intersection(bounds, range_of_sum(terms, self._ranges))
            found = self._known(op, args, hint, bounds, terms)
            if found is None:
                found = self._new(hint, *bounds, terms)
                self.record.instructions.append((op, *args))
                used = tuple(x.name for x in args if isinstance(x, Size))
                text = f"{found.name} = {_form(op, names)}"
                self.record.lines.append(Line(text, used, (found.name,), args=names, op=op))
            self.record.nodes[key] = found
        return found

    def _known(
        self, op: str, args: Sequence[Number], hint: Any, bounds: Bounds, terms: Terms | None
    ) -> Number | None:
        """The result, if it is a number, an operand, or a sum that was met before; else None."""
        low, high = bounds
        if type(hint) is int and low == high == hint:
            return hint
        if op in ("min", "max") and all(type(hint_of(x)) is int for x in args):
            a, b = args
            if self._is_certain("le" if op == "min" else "ge", a, b):
                return a if hint_of(a) == hint else b
        if terms is None:
            return None
        if not terms or [*terms] == [()]:
            return terms.get((), 0)
        found: Number | None = self.record.nodes.get(_sum_key(terms))
        return found

    def _terms(self, op: str, a: Number, b: Number) -> Terms | None:
        """The sum of products that an operation on integers yields, if it does."""
        if op == "floordiv" and not is_certain("eq", _bounds(b), (0, 0)):
            return None
        if type(hint_of(a)) is not int or type(hint_of(b)) is not int:
            return None
        left, right = [x.terms if isinstance(x, Size) else of_number(int(x)) for x in (a, b)]
        return combine(op, left, right)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Record a call that is repeated when sizes change; see `deferred`."""
        given: list[Number] = []
        form = flatten(args, given)
        names = tuple(map(name_of, given))
        try:
            key = (function, form, names)
            found = self.record.results.get(key)
        except TypeError:  # what cannot be hashed is called for itself
            key, found = None, None
        if found is None:
            self.record.instructions.append(("call", function, *args))
            found = self._called(function, args, form, given)
            if key is not None:
                self.record.results[key] = found
        return found

    def _called(
        self, function: Callable[..., Any], args: tuple[Any, ...], form: Any, given: Sequence[Number]
    ) -> Any:
        found = function(*unflatten(form, iter([hint_of(x) for x in given])))
        self._calls += 1
        made = f"r{self._calls}"
        called = f"{self._constant(function)}({', '.join([self._text(x) for x in args])})"
        used = tuple(x.name for x in given if isinstance(x, Size))
        if isinstance(function, SizeFunction):
            sizes = [self._new(number, None, None) for number in found]
            names = tuple(size.name for size in sizes)
            text = f"{', '.join(names)}, = {called}"
            self.record.lines.append(Line(text, used, names, True, function, tuple(map(name_of, given))))
            return tuple(sizes)
        text = f"{made} = {called}"
        self.record.lines.append(Line(text, used, (made,), is_call=True))
        return self._unpacked(found, made)

    def _text(self, x: Any) -> str:
        """The source of an argument: what holds no symbolic number is a constant."""
        if type(x) in (int, float) or isinstance(x, Size):
            return name_of(x)
        if not has_sizes(numbers_in(x)):
            return self._constant(x)
        items = "".join([f"{self._text(item)}, " for item in parts_of(x)])
        return f"({items})" if type(x) is tuple else f"{self._constant(type(x))}({items})"

    def _unpacked(self, found: Any, name: str) -> Any:
        """What a call yields, its numbers open; sizes are refused for which the result has another form."""
        if type(found) in (int, float):
            self._demand(f"type({name}) in numbers", name)
            size = self._new(found, None, None)
            self.record.lines.append(Line(f"{size.name} = {name}", (name,), (size.name,)))
            return size
        if not isinstance(found, tuple) and not is_record(found):
            self._demand(f"{name} == {self._constant(found)}", name)
            return found
        self._demand(f"type({name}) is {self._constant(type(found))}", name)
        parts = parts_of(found)
        made = [self._new(part, None, None) if type(part) in (int, float) else part for part in parts]
        names = [
            part.name if isinstance(part, Size) else f"{name}_{number}" for number, part in enumerate(made)
        ]
        items = name
        if not isinstance(found, tuple):
            items = "".join([f"{name}.{item.name}, " for item in fields(found)])
        if parts:
            # A tuple of another length cannot be unpacked so, which refuses sizes too.
            self.record.lines.append(Line(f"{', '.join(names)}, = {items}", (name,), tuple(names)))
        else:
            self._demand(f"{name} == {self._constant(found)}", name)
        if numbers := [part.name for part in made if isinstance(part, Size)]:
            self._demand(" and ".join([f"type({number}) in numbers" for number in numbers]), *numbers)
        made = [
            part if isinstance(part, Size) else self._unpacked(part, inner)
            for part, inner in zip(made, names, strict=True)
        ]
        return tuple(made) if type(found) is tuple else type(found)(*made)

    def _demand(self, condition: str, *names: str) -> None:
        self.record.lines.append(Line(f"if not ({condition}): return None", names))

    def _constant(self, x: Any) -> str:
        """The name of an object in programs."""
        name = f"k{len(self._constants)}"
        self._constants[name] = x
        return name

    def answer(self, op: str, a: Number, b: Number) -> bool:
        """Whether a comparison holds, from now on a guard unless it always does."""
        left, right = name_of(a), name_of(b)
        if left == right:
            return op in ("eq", "le", "ge")
        holds = bool(EVALUATE[op](hint_of(a), hint_of(b)))
        if self._is_certain(op, a, b):
            return holds
        text = f"{left} {_COMPARE[op]} {right}"
        if text not in self.record.asked:
            self.record.asked.add(text)
            self.record.instructions.append((op, a, b))
            self.guards.append(text if holds else f"not {text}")
            used = tuple(x.name for x in (a, b) if isinstance(x, Size))
            line = f"if {'not ' if holds else ''}({text}): return None"
            self.record.lines.append(Line(line, used, args=(left, right), op=op, holds=holds))
        return holds

    def _is_certain(self, op: str, a: Number, b: Number) -> bool:
        """Whether a comparison has one answer for all sizes."""
        if is_certain(op, _bounds(a), _bounds(b)):
            return True
        difference = self._terms("sub", a, b)
        return difference is not None and is_certain(op, range_of_sum(difference, self._ranges), (0, 0))

    def program(
        self, results: Sequence[Number], record: Record | None = None
    ) -> Callable[..., list[Any] | None]:
        """Compile a function of the symbolic inputs that returns the results, or None if a guard fails.

        With a `record`, that one is compiled, whichever one another thread is adding to.
        """
        record = self.record if record is None else record
        wanted = [*map(name_of, results)]
        key = (len(record.lines), *wanted)
        found = record.programs.get(key)
        if found is None:
            found = record.programs[key] = self._compiled(record, wanted)
        return found

    def table(self, results: Sequence[Number], record: Record, room: int) -> SizeTable | None:
        """What `program` computes, for native code; None where some of it is Python. See `SizeTable`."""
        lines = ordered(record.lines, [*map(name_of, results)])
        return SizeTable.of([size.name for size in record.inputs], room, lines)

    def _compiled(self, record: Record, wanted: Sequence[str]) -> Callable[..., list[Any] | None]:
        lines = ordered(record.lines, wanted)
        inputs = [size.name for size in record.inputs]
        # What is wrong with sizes, if anything, is reported when they are planned for themselves.
        refusals = (ArithmeticError, LookupError, ValueError, EngineError, struct.error)
        return compiled(inputs, lines, wanted, self._constants, refusals)

    def _new(self, hint: Any, low: float | None, high: float | None, terms: Terms | None = None) -> Size:
        self._count += 1
        size = Size(self, f"v{self._count}", hint, low, high, terms)
        self._keep(size)
        return size

    def _keep(self, size: Size) -> None:
        self._ranges[size.name] = (size.low, size.high)
        self.record.sizes.append(size)
        self.record.nodes[_sum_key(size.terms)] = size


def _form(op: str, names: Sequence[str]) -> str:
    """The source of an instruction."""
    if op in _INFIX:
        return f"{names[0]} {_INFIX[op]} {names[1]}"
    if op in _EXTREME:
        # A third of the time of a call.
        a, b = names
        return f"{b} if {b} {_EXTREME[op]} {a} else {a}"
    return f"{op}({', '.join(names)})"


def _sum_key(terms: Terms) -> tuple[Any, ...]:
    """The key of a sum among nodes."""
    return "sum", *sorted(terms.items())


def _bounds(x: Number) -> Bounds:
    return (x.low, x.high) if isinstance(x, Size) else (x, x)
