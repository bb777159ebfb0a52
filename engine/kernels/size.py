"""`Size`: a symbolic integer of a plan, and the program that computes such integers.

A model is planned with its open dimensions as `Size`s. Arithmetic on them records instructions; whatever
needs their value (a comparison, an index, a hash) records a guard: the plan holds for all sizes under which
every guard has the same answer. `SizeRecorder.program` turns the record into one Python function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from engine.base.errors import EngineError
from engine.kernels.bounds import EVALUATE, Bounds, is_certain, range_of

Number: TypeAlias = "int | float | Size"

_INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
T = TypeVar("T")

LARGEST = 1 << 20
"""Sizes up to which one record serves, so that most questions about large tensors have one answer."""


@dataclass
class Record:
    """Open numbers, and the instructions and guards over them, up to some point.

    guards: what was asked of sizes, in order, with the answer; for reports and tests.
    """

    inputs: list[Size] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    nodes: dict[tuple[Any, ...], Size] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    results: dict[Any, Any] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)
    """All open numbers and what was computed of them, in order."""
    instructions: list[tuple[Any, ...]] = field(default_factory=list)
    """What was done, so that the same calls of another `SizeRecorder` come to the same record."""

    def copy(self) -> Record:
        """A copy of this record that continues separately."""
        return Record(
            [*self.inputs],
            [*self.guards],
            [*self.lines],
            dict(self.nodes),
            set(self.asked),
            dict(self.results),
            [*self.sizes],
            [*self.instructions],
        )


class SizeRecorder:
    """Instructions over the values of a model's open dimensions, and the guards under which they hold.

    All of that goes to `record`. A plan that continues another for computed data has a copy of the other's
    record, with that data as further open numbers: see `at`.
    """

    def __init__(self) -> None:
        self.record = Record()
        self._calls: list[Callable[..., Any]] = []
        self._count = 0

    @property
    def inputs(self) -> list[Size]:
        """The open numbers, in the order in which `program` takes them."""
        return self.record.inputs

    @property
    def guards(self) -> list[str]:
        """What was asked of sizes, see `Record`."""
        return self.record.guards

    @contextmanager
    def at(self, record: Record) -> Iterator[None]:
        """A block in which another record of this recorder continues."""
        before, self.record = self.record, record
        try:
            yield
        finally:
            self.record = before

    def suppose(self, numbers: Sequence[int]) -> None:
        """Give the inputs other values, under which every guard so far holds, for what is asked next."""
        sizes = self.record.sizes
        found = self.program(sizes)(*numbers)
        assert found is not None, "a guard does not hold"
        for size, number in zip(sizes, found, strict=True):
            size.hint = number

    def input(self, hint: int) -> Size:
        """A new open dimension or element; `hint` is its value while the record is made."""
        name = f"s{len(self.inputs)}"
        # Nearly everything asks whether a size is 0, or too large for any computer: once is enough.
        low, high = (1 if hint else 0, max(hint, LARGEST)) if hint >= 0 else (min(hint, -LARGEST), -1)
        size = Size(self, name, hint, low, high)
        self.inputs.append(size)
        self.record.sizes.append(size)
        self.record.instructions.append(("input", hint))
        self.record.lines.append(f"if not {low} <= {name} <= {high}: return None")
        return size

    def node(self, op: str, *args: Number) -> Size:
        """The result of an instruction; equal instructions have one result."""
        names = tuple(map(_name, args))
        key = (op, *names)
        found = self.record.nodes.get(key)
        if found is None:
            hint = EVALUATE[op](*(a.hint if isinstance(a, Size) else a for a in args))
            found = self._new(hint, *range_of(op, [_bounds(x) for x in args]))
            self.record.instructions.append((op, *args))
            if op in _INFIX:
                self.record.lines.append(f"{found.name} = {names[0]} {_INFIX[op]} {names[1]}")
            else:
                self.record.lines.append(f"{found.name} = {op}({', '.join(names)})")
            self.record.nodes[key] = found
        return found

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Record a call that is repeated when sizes change; see `deferred`."""
        given: list[Number] = []
        form = taken_apart(args, given)
        names = tuple(map(_name, given))
        try:
            key = (function, form, names)
            found = self.record.results.get(key)
        except TypeError:  # what cannot be hashed is called for itself
            key, found = None, None
        if found is None:
            self.record.instructions.append(("call", function, *args))
            found = self._called(function, form, given, names)
            if key is not None:
                self.record.results[key] = found
        return found

    def _called(
        self, function: Callable[..., Any], form: Any, given: Sequence[Number], names: tuple[str, ...]
    ) -> Any:
        numbers: list[Any] = []
        result = taken_apart(function(*put_together(form, iter([hint_of(x) for x in given]))), numbers)

        def called(*values: Any) -> Sequence[Any]:
            found: list[Any] = []
            if taken_apart(function(*put_together(form, iter(values))), found) != result:
                raise _RefusedError
            return found

        def called_with_numbers(*values: Any) -> Sequence[Any]:
            # Most functions take numbers and yield some: nothing is to be taken apart.
            found = function(*values)
            if type(found) is not tuple or len(found) != len(numbers):
                raise _RefusedError
            for number in found:
                if type(number) is not int and type(number) is not float:
                    raise _RefusedError
            return found

        whole = f"r{len(self._calls)}"
        self.record.lines.append(f"{whole} = f{len(self._calls)}({', '.join(names)})")
        is_plain = form == _flat(len(given)) and result == _flat(len(numbers))
        self._calls.append(called_with_numbers if is_plain else called)
        items = []
        for position, number in enumerate(numbers):
            items.append(self._new(number, None, None))
            self.record.lines.append(f"{items[-1].name} = {whole}[{position}]")
        return put_together(result, iter(items))

    def answer(self, op: str, a: Number, b: Number) -> bool:
        """Whether a comparison holds, from now on a guard unless it always does."""
        left, right = _name(a), _name(b)
        if left == right:
            return op in ("eq", "le", "ge")
        holds = bool(EVALUATE[op](hint_of(a), hint_of(b)))
        if is_certain(op, _bounds(a), _bounds(b)):
            return holds
        text = f"{left} {_COMPARE[op]} {right}"
        if text not in self.record.asked:
            self.record.asked.add(text)
            self.record.instructions.append((op, a, b))
            self.guards.append(text if holds else f"not {text}")
            self.record.lines.append(f"if {'not ' if holds else ''}({text}): return None")
        return holds

    def program(
        self, results: Sequence[Number], record: Record | None = None
    ) -> Callable[..., list[Any] | None]:
        """Compile a function of the open dimensions that returns the results, or None if a guard fails.

        With a `record`, that one is compiled, whichever one another thread is adding to.
        """
        record = self.record if record is None else record
        lines = "\n    ".join([*record.lines, f"return [{', '.join(map(_name, results))}]"])
        head = ", ".join(size.name for size in record.inputs)
        names: dict[str, Any] = {f"f{n}": function for n, function in enumerate(self._calls)}
        names |= {name: getattr(math, name) for name in ("floor", "ceil", "trunc", "inf", "nan")}
        exec(compile(f"def program({head}):\n    {lines}\n", "<sizes>", "exec"), names)
        made: Callable[..., list[Any] | None] = names["program"]

        def program(*sizes: int) -> list[Any] | None:
            try:
                return made(*sizes)
            except (_RefusedError, ArithmeticError, LookupError, ValueError, EngineError):
                # An error of these sizes, if any, is raised when they are planned for themselves.
                return None

        return program

    def _new(self, hint: Any, low: float | None, high: float | None) -> Size:
        self._count += 1
        size = Size(self, f"v{self._count}", hint, low, high)
        self.record.sizes.append(size)
        return size


class _RefusedError(Exception):
    """A function yields something of another form than when the record was made."""


_NUMBER = object()


def taken_apart(x: Any, numbers: list[Any]) -> Any:
    """The form of tuples and records around numbers, which go into a list."""
    if isinstance(x, Size) or type(x) in (int, float):
        numbers.append(x)
        return _NUMBER
    if isinstance(x, tuple):
        return (type(x), tuple([taken_apart(item, numbers) for item in x]))
    if is_dataclass(x) and not isinstance(x, type):
        return (type(x), tuple([taken_apart(getattr(x, f.name), numbers) for f in fields(x)]))
    return (None, x)


def _flat(count: int) -> Any:
    """The form of a tuple of so many numbers."""
    return (tuple, (_NUMBER,) * count)


def put_together(form: Any, numbers: Iterator[Any]) -> Any:
    """Inverse of `taken_apart`, with other numbers."""
    if form is _NUMBER:
        return next(numbers)
    kind, inner = form
    if kind is None:
        return inner
    items = [put_together(item, numbers) for item in inner]
    return kind(items) if kind is tuple else kind(*items)


def _name(x: Number) -> str:
    return x.name if isinstance(x, Size) else repr(_plain(x))


def hint_of(x: Number) -> Any:
    """A number, or the present value of an open one."""
    return x.hint if isinstance(x, Size) else x


def _bounds(x: Number) -> Bounds:
    return (x.low, x.high) if isinstance(x, Size) else (x, x)


class Size:
    """A symbolic integer (or float) of a `SizeRecorder`; `hint` is its present value."""

    __slots__ = ("high", "hint", "low", "name", "recorder")
    __array_ufunc__ = None  # so that NumPy's numbers leave arithmetic to this class

    def __init__(
        self, recorder: SizeRecorder, name: str, hint: Any, low: float | None, high: float | None
    ) -> None:
        """`low` and `high` are numbers that it is never below and never above, None where that is unknown."""
        self.recorder = recorder
        self.name = name
        self.hint = hint
        self.low = low
        self.high = high

    def fixed(self) -> Any:
        """The present value, to which the plan is bound from now on."""
        self.recorder.answer("eq", self, self.hint)
        return self.hint

    # Code that reads the value binds the plan to it.

    def __index__(self) -> int:
        return int(self.fixed())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.fixed())

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __repr__(self) -> str:
        return repr(self.fixed())

    def __format__(self, form: str) -> str:
        return format(self.fixed(), form)

    def __bool__(self) -> bool:
        return self.recorder.answer("ne", self, 0)

    def bit_length(self) -> int:
        """How many bits an integer has."""
        return deferred(_bit_length, self)

    def _compare(self, op: str, other: object) -> bool:
        if isinstance(other, Size | int | float):
            return self.recorder.answer(op, self, other)
        number = _plain(other)
        return NotImplemented if number is None else self.recorder.answer(op, self, number)

    def __eq__(self, other: object) -> bool:
        return self._compare("eq", other)

    def __ne__(self, other: object) -> bool:
        return self._compare("ne", other)

    def __lt__(self, other: Any) -> bool:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> bool:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> bool:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> bool:
        return self._compare("ge", other)

    # Arithmetic is recorded.

    def _with(self, op: str, other: Any, is_left: bool) -> Any:
        if not isinstance(other, Size) and type(other) not in (int, float):
            plain = _plain(other)
            if plain is None:
                return NotImplemented
            other = plain
        a, b = (self, other) if is_left else (other, self)
        if not isinstance(other, Size) and type(other) is int and isinstance(self.hint, int):
            if other == 0 and op in ("add", "sub") and (is_left or op == "add"):
                return self
            if other == 0 and op == "mul":
                return 0
            if other == 1 and (op == "mul" or (op in ("floordiv", "pow") and is_left)):
                return self
            if other == 1 and op == "mod" and is_left:
                return 0
        elif a is b and op == "sub" and isinstance(self.hint, int):
            return 0
        return self.recorder.node(op, a, b)

    def __add__(self, other: Any) -> Any:
        return self._with("add", other, True)

    def __radd__(self, other: Any) -> Any:
        return self._with("add", other, False)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", other, True)

    def __rsub__(self, other: Any) -> Any:
        return self._with("sub", other, False)

    def __mul__(self, other: Any) -> Any:
        return self._with("mul", other, True)

    def __rmul__(self, other: Any) -> Any:
        return self._with("mul", other, False)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("floordiv", other, True)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("floordiv", other, False)

    def __truediv__(self, other: Any) -> Any:
        return self._with("truediv", other, True)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with("truediv", other, False)

    def __mod__(self, other: Any) -> Any:
        return self._with("mod", other, True)

    def __rmod__(self, other: Any) -> Any:
        return self._with("mod", other, False)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any) -> Any:
        return self._with("pow", other, True)

    def __neg__(self) -> Any:
        return self.recorder.node("sub", 0, self)

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floor__(self) -> Any:
        return self if isinstance(self.hint, int) else self.recorder.node("floor", self)

    def __ceil__(self) -> Any:
        return self if isinstance(self.hint, int) else self.recorder.node("ceil", self)

    def __trunc__(self) -> Any:
        return self if isinstance(self.hint, int) else self.recorder.node("trunc", self)


def _bit_length(number: int) -> int:
    return number.bit_length()


def _plain(x: object) -> int | float | None:
    """Convert a NumPy number to a Python one; None for anything else."""
    item = getattr(x, "item", None)
    number = item() if item is not None and getattr(x, "ndim", None) == 0 else x
    return number if isinstance(number, int | float) else None


def largest(*numbers: Number) -> Any:
    """The largest of some numbers; no guard says which that is."""
    return _extreme("max", numbers)


def smallest(*numbers: Number) -> Any:
    """The smallest of some numbers; no guard says which that is."""
    return _extreme("min", numbers)


def _extreme(op: str, numbers: Sequence[Number]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        symbol = next((x for x in (found, number) if isinstance(x, Size)), None)
        if symbol is None:
            found = EVALUATE[op](found, number)
        elif _name(found) != _name(number):
            found = symbol.recorder.node(op, found, number)
    return found


def whole(number: Any) -> int:
    """A number as an `int`; an open one stays as it is."""
    return number if type(number) is Size else int(number)  # type: ignore[return-value]


def as_float(number: Number) -> Any:
    """A number as a float."""
    if not isinstance(number, Size):
        return float(number)
    return number if isinstance(number.hint, float) else number.recorder.node("float", number)


def deferred(function: Callable[..., T], *args: Any) -> T:
    """Record the call `function(*args)`, repeated at other sizes: for choices that need no other plan.

    Arguments and result are numbers, and tuples and records of such; anything else in them stays as it is,
    and a plan holds as long as the result has the same form.
    """
    size = next((x for x in numbers_in(args) if isinstance(x, Size)), None)
    found: T = function(*args) if size is None else size.recorder.call(function, args)
    return found


def numbers_in(x: Any) -> list[Number]:
    """The numbers in tuples and records."""
    numbers: list[Number] = []
    taken_apart(x, numbers)
    return numbers


def has_sizes(numbers: Iterable[object]) -> bool:
    """Whether any of some numbers is a `Size`."""
    return any(isinstance(x, Size) for x in numbers)


def numbers_of(numbers: Sequence[int]) -> np.ndarray:
    """Integers as elements of a tensor: int64, or objects if some of them are `Size`s."""
    return np.array(numbers, object if has_sizes(numbers) else np.int64)
