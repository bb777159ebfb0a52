"""`Size`: a symbolic integer of a plan, and the program that computes such integers.

A model is planned with its dynamic dimensions as `Size`s. Arithmetic on them records instructions. Uses of
their value (a comparison, an index, a hash) record a guard: the plan holds for all sizes under which every
guard has the same answer. `SizeRecorder.program` turns the record into one Python function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from engine.base.name_registry import NameRegistry

if TYPE_CHECKING:
    from engine.kernels.polynomials import Terms
    from engine.kernels.size_recorder import SizeRecorder

Number: TypeAlias = "int | float | Size"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NUMBER = object()

DEFERRABLE = NameRegistry()
"""The functions that stored plans may call with sizes, and the records that these take, by name."""


def deferrable(made: F) -> F:
    """Decorator: stored plans may defer this function, or create this record for such a function."""
    DEFERRABLE.add(made)
    return made


def is_record(x: Any) -> bool:
    """Whether something is an object of a dataclass."""
    return is_dataclass(x) and not isinstance(x, type)


def parts_of(x: Any) -> list[Any]:
    """The items of a tuple or the fields of a record."""
    return [*x] if isinstance(x, tuple) else [getattr(x, item.name) for item in fields(x)]


def flatten(x: Any, numbers: list[Any]) -> Any:
    """Flatten nested tuples and records: appends their numbers to `numbers`, returns the structure."""
    if isinstance(x, Size) or type(x) in (int, float):
        numbers.append(x)
        return _NUMBER
    if isinstance(x, tuple) or is_record(x):
        return (type(x), tuple([flatten(item, numbers) for item in parts_of(x)]))
    return (None, x)


def unflatten(form: Any, numbers: Iterator[Any]) -> Any:
    """Inverse of `flatten`, with other numbers."""
    if form is _NUMBER:
        return next(numbers)
    kind, inner = form
    if kind is None:
        return inner
    items = [unflatten(item, numbers) for item in inner]
    return kind(items) if kind is tuple else kind(*items)


def name_of(x: Number) -> str:
    """The name of a number in a record."""
    return x.name if isinstance(x, Size) else repr(_plain(x))


def hint_of(x: Number) -> Any:
    """A number, or the current value of a symbolic one."""
    return x.hint if isinstance(x, Size) else x


def _comparing(op: str) -> Callable[[Size, object], bool]:
    """Python's operator for a comparison, which is recorded as a guard."""
    return lambda self, other: self._compare(op, other)


def _both(op: str) -> tuple[Callable[[Size, Any], Any], Callable[[Size, Any], Any]]:
    """Python's operators for an instruction, with the size on its left and on its right side."""
    return lambda self, other: self._with(op, other, True), lambda self, other: self._with(op, other, False)


class Size:
    """A symbolic integer (or float) of a `SizeRecorder`; `hint` is its present value."""

    __slots__ = ("high", "hint", "low", "name", "recorder", "terms")
    __array_ufunc__ = None  # so that NumPy's numbers leave arithmetic to this class

    def __init__(
        self,
        recorder: SizeRecorder,
        name: str,
        hint: Any,
        low: float | None,
        high: float | None,
        terms: Terms | None = None,
    ) -> None:
        """`low` and `high` are what it is never below and never above, None where that is unknown.

        `terms`: the sum that it is of others; by default none.
        """
        self.recorder = recorder
        self.name = name
        self.hint = hint
        self.low = low
        self.high = high
        self.terms: Terms = {(name,): 1} if terms is None else terms

    def fixed(self) -> Any:
        """Specialize the plan to the current value, and return it."""
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

    __eq__, __ne__ = _comparing("eq"), _comparing("ne")
    __lt__, __le__, __gt__, __ge__ = _comparing("lt"), _comparing("le"), _comparing("gt"), _comparing("ge")

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

    __add__, __radd__ = _both("add")
    __sub__, __rsub__ = _both("sub")
    __mul__, __rmul__ = _both("mul")
    __floordiv__, __rfloordiv__ = _both("floordiv")
    __truediv__, __rtruediv__ = _both("truediv")
    __mod__, __rmod__ = _both("mod")
    __pow__ = _both("pow")[0]

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

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


@deferrable
def _bit_length(number: int) -> int:
    return number.bit_length()


def _plain(x: object) -> int | float | None:
    """Convert a NumPy number to a Python one, a truth value to 0 or 1; None for anything else."""
    item = getattr(x, "item", None)
    number = item() if item is not None and getattr(x, "ndim", None) == 0 else x
    if isinstance(number, bool):
        return int(number)
    return number if isinstance(number, int | float) else None


def largest(*numbers: Number) -> Any:
    """The largest of some numbers, without a guard."""
    return _extreme("max", numbers) if has_sizes(numbers) else max(numbers)


def smallest(*numbers: Number) -> Any:
    """The smallest of some numbers, without a guard."""
    return _extreme("min", numbers) if has_sizes(numbers) else min(numbers)


def _extreme(op: str, numbers: Sequence[Number]) -> Any:
    found, *others = {name_of(number): number for number in numbers}.values()
    for number in others:
        symbol = next((x for x in (found, number) if isinstance(x, Size)), None)
        if symbol is None:
            found = max(found, number) if op == "max" else min(found, number)
        elif name_of(found) != name_of(number):
            found = symbol.recorder.node(op, found, number)
    return found


def whole(number: Any) -> int:
    """Convert to `int`; symbolic numbers are returned unchanged."""
    return number if type(number) is Size else int(number)  # type: ignore[return-value]


def as_float(number: Number) -> Any:
    """A number as a float."""
    if not isinstance(number, Size):
        return float(number)
    return number if isinstance(number.hint, float) else number.recorder.node("float", number)


def deferred(function: Callable[..., T], *args: Any) -> T:
    """Record the call `function(*args)`, repeated at other sizes: for choices that need no other plan.

    Arguments and result are numbers, and tuples and records of such; anything else in them stays as it is,
    and a plan holds as long as the result has the same form. Plans can be stored if the function is
    `deferrable`.
    """
    size = next((x for x in numbers_in(args) if isinstance(x, Size)), None)
    found: T = function(*args) if size is None else size.recorder.call(function, args)
    return found


def numbers_in(x: Any) -> list[Number]:
    """The numbers in tuples and records."""
    numbers: list[Number] = []
    flatten(x, numbers)
    return numbers


def has_sizes(numbers: Iterable[object]) -> bool:
    """Whether any of some numbers is a `Size`."""
    return Size in map(type, numbers)


def numbers_of(numbers: Sequence[int]) -> np.ndarray:
    """Integers as elements of a tensor: int64, or objects if some of them are `Size`s."""
    return np.array(numbers, object if has_sizes(numbers) else np.int64)
