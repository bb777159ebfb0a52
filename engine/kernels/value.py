"""`Value`: a tensor of a plan, whose elements formulas load by index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from engine.base.dtypes import ArithmeticType, arithmetic_type
from engine.kernels.expr import Expr, Operand, arg, lift, lit, load
from engine.kernels.size import Size, has_sizes, whole

Signature = tuple[tuple[int, ...], ...]
"""Per dimension, its size in each sample of the model's input shapes and now: see `engine.compiler.trace`."""


class HostTable(NamedTuple):
    """A function that the host calls for a tensor's elements, with its arguments."""

    function: Callable[..., np.ndarray]
    args: tuple[Any, ...]


class Value:
    """A tensor while a plan is made: shape (tuple of ints) and dtype are known, elements usually not.

    `known` holds the elements where they are known already (constants, results of shape arithmetic).
    `signature` tells which dimensions are fixed and which go together, for choosing a kernel's
    structure; kernels must not depend on `shape` otherwise than through run-time arguments.
    `table` says how the host computes the elements once sizes are known, of a tensor that no kernel makes.
    `bound` is set where the shape is only the room that the tensor takes at most: see `Bound`.
    """

    __slots__ = (
        "__weakref__",
        "_source",
        "bound",
        "dtype",
        "known",
        "name",
        "shape",
        "signature",
        "size",
        "table",
    )

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: np.dtype,
        signature: Signature | None = None,
        known: np.ndarray | None = None,
        source: Value | None = None,
    ) -> None:
        """`source` is what this is a view of, if anything."""
        self.name = name
        self.shape = tuple(map(whole, shape))
        self.dtype = np.dtype(dtype)
        self.signature = signature
        self.known = known
        self.size = prod(self.shape)
        # Not itself: objects that hold themselves go when Python's collector finds them, in some later frame.
        self._source = None if source is None else source.root
        self.bound: Bound | None = None
        self.table: HostTable | None = None

    @classmethod
    def of_sizes(
        cls, name: str, shape: tuple[int, ...], dtype: np.dtype, known: np.ndarray | None = None
    ) -> Value:
        """A tensor of a plan with sizes filled in; the arguments are stored unchecked."""
        made = cls.__new__(cls)
        made.name, made.shape, made.dtype, made.known = name, shape, dtype, known
        made.size = prod(shape)
        made.signature = made._source = made.bound = made.table = None
        return made

    def view(self, shape: Sequence[int], signature: Signature | None = None) -> Value:
        """The same elements under another shape of the same size."""
        known = None if self.known is None else self.known.reshape(tuple(shape))
        return Value(self.name, shape, self.dtype, signature, known, self)

    def bounded(self, axis: int, count: Value) -> Value:
        """The same tensor, of which only the first `count` entries along `axis` are meant."""
        other = self.view(self.shape, self.signature)
        other.bound = Bound(axis, count)
        return other

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype.name}{list(self.shape)}"

    @property
    def root(self) -> Value:
        """The value that owns the buffer: itself, or the source of the view."""
        return self if self._source is None else self._source

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def arithmetic(self) -> ArithmeticType:
        """The type in which kernels compute with this tensor's elements."""
        return arithmetic_type(self.dtype)

    def dim(self, axis: int) -> Expr:
        """The size along `axis` as a run-time argument."""
        size = self.shape[axis]
        return arg(size, fixed=not has_sizes([size]) and self.is_static(axis))

    def stride(self, axis: int) -> int:
        """Distance in elements between neighbours along `axis` (row-major)."""
        return prod(self.shape[axis % self.rank + 1 :])

    def position(self, indices: Sequence[Operand]) -> Expr:
        """Row-major position of an element; `indices` has one entry per dimension."""
        if len(indices) != self.rank:
            raise TypeError(f"{self} takes {self.rank} indices, not {len(indices)}")
        position: Expr = lit(0)
        for axis, i in enumerate(indices):
            step = lit(1) if axis == self.rank - 1 else arg(self.stride(axis))
            position = position + lift(i, "index") * step
        return position

    def __getitem__(self, indices: Operand | tuple[Operand, ...]) -> Expr:
        """Load one element; every index must be inside the tensor (else use `load_where`)."""
        return load(self, self.position(indices if isinstance(indices, tuple) else (indices,)))

    def load_where(self, where: Expr, indices: Sequence[Operand], other: Operand = 0) -> Expr:
        """Load one element where `where` holds, `other` elsewhere (padding)."""
        return load(self, self.position(indices), where, other)

    def at(self, position: Expr) -> Expr:
        """Load by row-major position."""
        return load(self, position)

    def known_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes that this tensor is known to take: in each sample, and now."""
        if not self.signature:
            return (self.shape,)
        return tuple(zip(*self.signature, strict=False))

    def is_static(self, axis: int) -> bool:
        """Whether a dimension has one size for every input shape that the model can take."""
        return self.signature is not None and is_one_size(self.signature[axis])

    def always_one(self, axis: int) -> bool:
        """Whether a dimension is 1 for every input shape that the model can take."""
        return self.is_static(axis) and self.shape[axis] == 1


def is_one_size(sizes: Sequence[int]) -> bool:
    """Whether a dimension has one size in all samples of a signature."""
    # What samples tell apart, no symbolic size need be compared with.
    found = sorted(sizes, key=lambda size: isinstance(size, Size))
    return all(size == found[0] for size in found[1:])


@dataclass(frozen=True)
class Bound:
    """A data-dependent size: only the first `count` entries along `axis` are valid.

    `count` is an integer tensor of one element, computed like any other, so that nothing waits for it but
    what needs the exact size.
    """

    axis: int
    count: Value


@dataclass(frozen=True)
class ListValue:
    """A sequence while a plan is made: how many tensors it has is part of the plan, as shapes are.

    rows: The tensor whose entries along axis 0 the items are, where there is one.
    """

    items: tuple[Value, ...]
    dtype: np.dtype
    rows: Value | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class EncodedValue(ListValue, ABC):
    """Python objects (text or maps) represented by a numeric tensor, which is the only item.

    They exist where an output is read; on the device there are the numbers alone.
    """

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the objects for a shape of the numbers."""
        return shape

    @abstractmethod
    def objects(self, numbers: np.ndarray) -> np.ndarray:
        """The objects of these numbers, as an array."""


@dataclass(frozen=True)
class MapsValue(EncodedValue):
    """A sequence of maps, one for each row of a tensor (rows, keys)."""

    keys: tuple[int | str, ...]

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[:1]

    @cached_property
    def _maps(self) -> Callable[[list[list[Any]]], np.ndarray]:
        return maps_of(self.keys)

    def objects(self, numbers: np.ndarray) -> np.ndarray:
        return self._maps(numbers.tolist())


@dataclass(frozen=True, eq=False)
class TextValue(EncodedValue):
    """A tensor of strings, as an integer tensor of indices into `names`."""

    names: np.ndarray

    @property
    def positions(self) -> Value:
        """The tensor of integers."""
        return self.items[0]

    def objects(self, numbers: np.ndarray) -> np.ndarray:
        # Plans are prepared for guesses too, which know nothing of how many names there are. Sizes as
        # elements become numbers here.
        return self.names.take(numbers.astype(np.int64, copy=False), mode="clip")


MOST_WRITTEN = 256
"""The most keys of a map that are written out one by one."""


@lru_cache(64)
def maps_of(keys: tuple[int | str, ...]) -> Callable[[list[list[Any]]], np.ndarray]:
    """A function that returns an array with a dict of these keys for each row of values.

    A dict whose items are written out takes a third of the time of one that is made of pairs.
    """
    names: dict[str, Any] = {"empty": np.empty, "keys": keys}
    row, made = "row", "dict(zip(keys, row))"
    if 0 < len(keys) <= MOST_WRITTEN:
        row = f"({', '.join(f'v{i}' for i in range(len(keys)))},)"
        made = f"{{{', '.join(f'k{i}: v{i}' for i in range(len(keys)))}}}"
        names |= {f"k{i}": key for i, key in enumerate(keys)}
    lines = [
        "def maps(rows):",
        "    found = empty(len(rows), object)",
        f"    for i, {row} in enumerate(rows):",
        f"        found[i] = {made}",
        "    return found",
    ]
    exec("\n".join(lines), names)
    maps: Callable[[list[list[Any]]], np.ndarray] = names["maps"]
    return maps


Entry: TypeAlias = Value | ListValue | None
"""What a name stands for while a plan is made: a tensor, a sequence, or an optional without an element."""


def leaves(*entries: Entry) -> tuple[Value, ...]:
    """All tensors in some entries."""
    found: list[Value] = []
    for entry in entries:
        if isinstance(entry, ListValue):
            found += entry.items
        elif entry is not None:
            found.append(entry)
    return tuple(found)
