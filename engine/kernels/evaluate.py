"""NumPy evaluation of kernels, for constant folding, shape arithmetic and as the printers' reference.

Index variables are ranges that broadcast, so one pass over the formula computes the whole output;
loops run in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.base.dtypes import as_dtype, from_numbers, to_numbers
from engine.kernels.expr import BINARY, COMPARE, UNARY, Expr
from engine.kernels.kernel import Kernel

Array = Any


def numpy_type(name: str) -> np.dtype:
    """The NumPy dtype of an arithmetic type."""
    return np.dtype(np.int64 if name == "index" else name)


LEAST_ITERATION = 1 << 12
"""What one iteration of a loop counts for at least, in elements: NumPy's calls take that long."""


class TooLongError(Exception):
    """The evaluation would take more loop iterations than its caller permits."""


def evaluate(
    kernel: Kernel,
    space: Sequence[int],
    values: Sequence[int | float],
    inputs: Sequence[np.ndarray],
    most: float = math.inf,
) -> np.ndarray:
    """Run `kernel` over the index space; returns its output, 1-D in row-major order, in its storage type.

    Raises `TooLongError` once loops take more than `most` iterations, times the elements of the space.
    """
    flat_inputs = [to_numbers(np.ascontiguousarray(x).reshape(-1)) for x in inputs]
    with np.errstate(all="ignore"):
        result = _Evaluation(kernel, tuple(space), values, flat_inputs, most).value(kernel.body)
        return store(np.broadcast_to(result, tuple(space)).reshape(-1), kernel.dtype)


def store(x: np.ndarray, storage: str) -> np.ndarray:
    """Convert computed values to a storage type: integers wrap, floats round, codes stay as they are."""
    return from_numbers(np.asarray(x), as_dtype(storage))


class _Evaluation:
    def __init__(
        self, kernel: Kernel, space: tuple[int, ...], values: Sequence[int | float], inputs: list, most: float
    ) -> None:
        self.kernel = kernel
        self.inputs = inputs
        self.values = values
        rank = len(space)
        self.axes = [
            np.arange(n, dtype=np.int64).reshape([n if k == axis else 1 for k in range(rank)])
            for axis, n in enumerate(space)
        ]
        self.flat = np.arange(int(np.prod(space)), dtype=np.int64).reshape(space)
        # One memo per open loop: a node is kept in the innermost loop whose variable it depends on.
        self.scopes: list[tuple[frozenset[Any], dict[Expr, Array]]] = [(frozenset(), {})]
        self.bound: dict[str, Array] = {}
        self.left = most
        self.per_iteration = max(self.flat.size, LEAST_ITERATION)

    def iterations(self, extent: Array) -> range:
        """The iterations of a loop, unless they are too many."""
        count = int(np.max(extent, initial=0))
        self.left -= count * self.per_iteration
        if self.left < 0:
            raise TooLongError(f"{count} iterations of a loop over {self.flat.size} elements")
        return range(count)

    def value(self, node: Expr) -> Array:
        memo = self.scopes[0][1]
        if node.free:
            for names, inner in reversed(self.scopes):
                if not names.isdisjoint(node.free):
                    memo = inner
                    break
        found = memo.get(node)
        if found is None:
            found = memo[node] = self.compute(node)
        return found

    def compute(self, node: Expr) -> Array:
        match node.op:
            case "const":
                return numpy_type(node.dtype).type(node.attr)
            case "param":
                return numpy_type(node.dtype).type(self.values[node.attr])
            case "index":
                return self.axes[node.attr]
            case "flat":
                return self.flat
            case "loopvar" | "carried":
                return self.bound[node.attr]
            case "reduce":
                return self.reduce(node)
            case "fold":
                return self.fold(node)
            case "result":
                return self.value(node.args[0])[node.attr]
            case "load":
                buffer = self.inputs[node.attr]
                found = buffer[self.value(node.args[0])]
                # One element of an array of objects is no array.
                return np.asarray(found, buffer.dtype).astype(numpy_type(node.dtype))
            case "select":
                condition, a, b = (self.value(x) for x in node.args)
                return np.where(condition, a, b)
            case "cast":
                return convert(self.value(node.args[0]), node.dtype)
            case "bits":
                return np.asarray(self.value(node.args[0])).view(numpy_type(node.dtype))
        args = [self.value(x) for x in node.args]
        return OPERATIONS[node.op](*args)

    def reduce(self, node: Expr) -> Array:
        extent, body = node.args
        kind, var = node.attr
        combine, neutral = COMBINE[kind]
        dtype = numpy_type(node.dtype)
        # Sums of float32 are accumulated in float64, as the CPU printer does.
        wide = np.dtype(np.float64) if node.dtype == "float32" and kind in ("sum", "prod") else dtype
        total: Array = wide.type(neutral(dtype))
        for r in self.iterations(self.value(extent)):
            inside = r < self.value(extent)
            step = self.inner({var: np.int64(r)}, body)
            total = np.where(inside, combine(total, np.asarray(step).astype(wide)), total)
        return np.asarray(total).astype(dtype)

    def fold(self, node: Expr) -> tuple[Array, ...]:
        var, names = node.attr
        k = len(names)
        extent = self.value(node.args[0])
        state = [self.value(x) for x in node.args[1 : k + 1]]
        for r in self.iterations(extent):
            after = self.inner(
                {var: np.int64(r), **dict(zip(names, state, strict=True))}, *node.args[k + 1 :]
            )
            state = [np.where(r < extent, new, old) for new, old in zip(after, state, strict=True)]
        return tuple(state)

    def inner(self, bound: dict[str, Array], *bodies: Expr) -> Array:
        self.bound |= bound
        self.scopes.append((frozenset(bound), {}))
        results = tuple(self.value(body) for body in bodies)
        self.scopes.pop()
        return results if len(results) > 1 or len(bound) > 1 else results[0]


def convert(x: Array, name: str) -> Array:
    """`cast`: truncation with saturation for floats, wrapping for integers."""
    dtype = numpy_type(name)
    x = np.asarray(x)
    if x.dtype.kind == "f" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        high = (
            np.nextafter(float(info.max) + 1.0, 0.0, dtype=np.float64)
            if dtype.itemsize == 8
            else float(info.max)
        )
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        limited = np.clip(wide, float(info.min), high).astype(dtype)
        return np.where(wide > high, info.max, limited).astype(dtype)
    return x.astype(dtype)


def _div(a: Array, b: Array) -> Array:
    if np.asarray(a).dtype.kind == "f":
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b).astype(np.asarray(b).dtype)
    q: Array = np.floor_divide(a, safe)
    q = q + ((q < 0) & (q * safe != a)) if np.asarray(a).dtype.kind == "i" else q
    return np.where(b == 0, 0, q).astype(np.asarray(a).dtype)


def _rem(a: Array, b: Array) -> Array:
    if np.asarray(a).dtype.kind == "f":
        return np.fmod(a, b)
    safe = np.where(b == 0, 1, b).astype(np.asarray(b).dtype)
    return np.where(b == 0, 0, np.fmod(a, safe)).astype(np.asarray(a).dtype)


def _pow(a: Array, b: Array) -> Array:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "i":
        return np.power(a, b)
    # A negative power truncates 1 / a**-b: nothing is left of it but for bases 1 and -1.
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _shift(function: Callable[[Array, Array], Array], fill_sign: bool) -> Callable[[Array, Array], Array]:
    def shift(a: Array, b: Array) -> Array:
        a, b = np.asarray(a), np.asarray(b)
        width = a.dtype.itemsize * 8
        outside = (
            function(a, b.dtype.type(width - 1)) if fill_sign and a.dtype.kind == "i" else np.zeros_like(a)
        )
        shifted = function(a, np.clip(b, 0, width - 1))
        return np.asarray(np.where((b >= width) | (b < 0), outside, shifted), a.dtype)

    return shift


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> np.ndarray:
    """The error function, elementwise, in the dtype of `x`."""
    x = np.asarray(x)
    return np.asarray(_erf(x)).astype(x.dtype)


_SAME_NAME = "abs sqrt exp log sin cos tan sinh cosh tanh floor ceil trunc sign isnan isinf".split()
"""What NumPy calls as the kernel language does."""

OPERATIONS: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in _SAME_NAME},
    "neg": np.negative,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "round": np.rint,
    "erf": erf,
    "not": np.logical_not,
    "bitnot": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": _rem,
    "pow": _pow,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift(np.left_shift, fill_sign=False),
    "shr": _shift(np.right_shift, fill_sign=True),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
assert set(OPERATIONS) == UNARY | BINARY | COMPARE


def _lowest(dtype: np.dtype) -> Any:
    return False if dtype.kind == "b" else -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    return True if dtype.kind == "b" else np.inf if dtype.kind == "f" else np.iinfo(dtype).max


COMBINE: dict[str, tuple[Callable[[Array, Array], Array], Callable[[np.dtype], Any]]] = {
    "sum": (np.add, lambda _: 0),
    "prod": (np.multiply, lambda _: 1),
    "max": (np.maximum, _lowest),
    "min": (np.minimum, _highest),
}
