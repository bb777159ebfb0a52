"""Evaluates kernels over symbolic sizes, for the shape subgraphs of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from engine.kernels.evaluate import evaluate
from engine.kernels.expr import Argument, Expr, IterationNumber
from engine.kernels.intervals import EVALUATE
from engine.kernels.kernel import Kernel
from engine.kernels.size import Size, deferred, has_sizes, largest, smallest
from engine.kernels.value import Value

MOST_ELEMENTS = 256
"""Elements of the largest tensor that is worked out one by one."""

FEW_ELEMENTS = 16
"""Elements up to which that takes less time than NumPy's calls, where no size is open."""

_INTEGERS = frozenset({"index", "int64", "int32", "bool"})
_STORED = {np.dtype(name) for name in ("int64", "int32", "bool")}
_NARROW = 1 << 31
"""Integers below it: one operation on them has no result that 32 or 64 bits would wrap unnoticed."""


class _NotExactError(Exception):
    """A formula computes with floats or large integers, whose rounding and wrapping NumPy knows."""


def holds_sizes(value: Value) -> bool:
    """Whether some of the known elements of a tensor of numbers are `Size`s."""
    known = value.known
    return known is not None and known.dtype == object and value.dtype != object


def evaluate_sizes(
    kernel: Kernel,
    space: Sequence[int],
    values: Sequence[Any],
    inputs: Sequence[np.ndarray],
    shape: Sequence[int],
) -> np.ndarray | None:
    """The elements of a tensor, some of them `Size`s; None if there are too many, or loops."""
    count = int(np.prod(shape, dtype=np.int64))
    if count > MOST_ELEMENTS or any(array.size > MOST_ELEMENTS for array in inputs):
        return None
    flat = [list(array.reshape(-1)) for array in inputs]
    try:
        ranges = [range(n) for n in space]
        elements = [
            _Element(values, flat, at, place).value(kernel.body) for place, at in enumerate(product(*ranges))
        ]
    except _NotExactError:
        elements = _by_numpy(kernel, space, values, inputs)
    found = np.array(elements, object if has_sizes(elements) else np.dtype(kernel.dtype))
    return found.reshape(tuple(shape))


def evaluate_few(body: Expr, space: Sequence[int], value: Value) -> np.ndarray | None:
    """Evaluate a small integer tensor without NumPy; None if its formula is not simple enough."""
    if value.size > FEW_ELEMENTS or value.dtype not in _STORED:
        return None
    given = _Given()
    try:
        elements = [
            _Element(given, given, at, place, _NARROW).value(body)
            for place, at in enumerate(product(*[range(n) for n in space]))
        ]
    except (_NotExactError, LookupError):
        return None
    return np.array(elements, object if has_sizes(elements) else value.dtype).reshape(value.shape)


class _Given(dict[Any, Any]):
    """The values of arguments, and the elements of the tensors that are read."""

    def __missing__(self, key: Argument | Value) -> Any:
        if isinstance(key, Argument):
            number = key.value
            if isinstance(number, IterationNumber):
                raise _NotExactError
            found: Any = number
        else:
            if key.known is None or key.size > MOST_ELEMENTS:
                raise _NotExactError
            found = key.known.reshape(-1).tolist()
        self[key] = found
        return found


def _by_numpy(
    kernel: Kernel, space: Sequence[int], values: Sequence[Any], inputs: Sequence[np.ndarray]
) -> list[Any]:
    """The same by NumPy, whenever the sizes change."""
    given = [*values, *(x for array in inputs for x in array.reshape(-1).tolist())]
    types = [array.dtype for array in inputs]
    ends = np.cumsum([len(values), *(array.size for array in inputs)]).tolist()

    def evaluated(*numbers: Any) -> tuple[Any, ...]:
        arrays = []
        for (begin, end), dtype, name in zip(pairwise(ends), types, kernel.buffers, strict=True):
            arrays.append(np.array(numbers[begin:end], name if dtype.kind == "O" else dtype))
        return tuple(evaluate(kernel, space, numbers[: ends[0]], arrays).tolist())

    return list(deferred(evaluated, *given))


class _Element:
    """The formula of one element."""

    def __init__(
        self, values: Any, inputs: Any, at: Sequence[int], place: int, limit: float = math.inf
    ) -> None:
        """Evaluate with `values` of arguments and `inputs` of tensors, by their names in nodes.

        Raises for numbers beyond `limit`.
        """
        self._values = values
        self._inputs = inputs
        self._at = at
        self._place = place
        self._limit = limit

    def value(self, node: Expr) -> Any:
        if node.dtype not in _INTEGERS:
            raise _NotExactError
        op = node.op
        if (operation := _OPERATIONS.get(op)) is not None:
            found = operation(*[self.value(x) for x in node.args])
        elif op == "load":
            found = _number(self._inputs[node.attr][self.value(node.args[0])])
        elif op == "select":
            condition, a, b = node.args
            return self.value(a) if self.value(condition) else self.value(b)
        elif op == "param":
            found = _number(self._values[node.attr])
        elif op == "const":
            found = node.attr
        elif op == "index":
            return self._at[node.attr]
        elif op == "flat":
            return self._place
        elif op == "cast":
            x = self.value(node.args[0])
            return bool(x) if node.dtype == "bool" else int(x) if isinstance(x, bool) else x
        else:
            raise _NotExactError
        if type(found) is int and not -self._limit < found < self._limit:
            raise _NotExactError
        return found


def _number(x: Any) -> Any:
    return x if isinstance(x, Size | bool) else x.item() if isinstance(x, np.generic) else x


def _div(a: Any, b: Any) -> Any:
    if b == 0:
        return 0
    return a // b if (a >= 0) == (b > 0) else -(abs(a) // abs(b))


def _rem(a: Any, b: Any) -> Any:
    return 0 if b == 0 else a - b * _div(a, b)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{op: EVALUATE[op] for op in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")},
    "neg": lambda a: -a,
    "abs": abs,
    "div": _div,
    "rem": _rem,
    "min": smallest,
    "max": largest,
    "and": lambda a, b: a and b if isinstance(a, bool) else int(a) & int(b),
    "or": lambda a, b: a or b if isinstance(a, bool) else int(a) | int(b),
    "not": lambda a: not a,
}
