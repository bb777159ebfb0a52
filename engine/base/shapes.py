"""Shapes: `TensorShape` for values whose sizes are known, `DynamicTensorShape` for what a model declares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, SupportsIndex, TypeVar

from engine.base.errors import ShapeError

Dim = int | str | None
"""One declared dimension: a size, a name that stands for a size, or None where nothing is known."""


D = TypeVar("D", bound="Dim")


class _Dimensions(tuple[D, ...]):
    """What shapes have in common."""

    __slots__ = ()

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return len(self)

    def __str__(self) -> str:
        words = ["?" if dim is None else str(dim) for dim in self]
        return f"({words[0]},)" if len(words) == 1 else f"({', '.join(words)})"

    def __getnewargs__(self) -> tuple[tuple[D, ...]]:
        return (tuple(self),)


class TensorShape(_Dimensions[int]):
    """The sizes of a tensor, outermost first: `TensorShape(1, 28, 28)` or `TensorShape((1, 28, 28))`.

    Raises `ShapeError` for a size that is negative or not an integer.
    """

    __slots__ = ()

    def __new__(cls, *dims: SupportsIndex | Iterable[SupportsIndex]) -> Self:
        """The sizes one by one, or as one iterable."""
        values = []
        for dim in _spread(dims):
            # Asking about a protocol takes longer than all the rest.
            if type(dim) is not int and not isinstance(dim, SupportsIndex):
                raise ShapeError(f"a tensor's size must be an integer, got {dim!r}")
            value = dim.__index__()
            if value < 0:
                raise ShapeError(f"a tensor's size must be 0 or more, got {value}")
            values.append(value)
        return super().__new__(cls, values)

    @property
    def size(self) -> int:
        """How many elements there are; 1 for a scalar."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"TensorShape{self}"


class DynamicTensorShape(_Dimensions[Dim]):
    """A declared shape: each dimension is a size, a name, or None (unknown and without a name).

    Equal names stand for equal sizes, within a model. `DynamicTensorShape("batch", 1, 28, 28)` and
    `DynamicTensorShape(("batch", 1, 28, 28))` are the same. Raises `ShapeError` for anything else.
    """

    __slots__ = ()

    def __new__(cls, *dims: Dim | Iterable[Dim]) -> Self:
        """The dimensions one by one, or as one iterable."""
        values: list[Dim] = []
        for dim in _spread(dims):
            if dim is None or isinstance(dim, str):
                if dim == "":
                    raise ShapeError("a dimension's name must not be empty; use None for an unknown size")
                values.append(dim)
            elif type(dim) is int or isinstance(dim, SupportsIndex):
                value = dim.__index__()
                if value < 0:
                    raise ShapeError(f"a declared size must be 0 or more, got {value}")
                values.append(value)
            else:
                raise ShapeError(f"a dimension is a size, a name or None, got {dim!r}")
        return super().__new__(cls, values)

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return all(isinstance(dim, int) for dim in self)

    @property
    def names(self) -> tuple[str, ...]:
        """The named dimensions, each once, in order of appearance."""
        return tuple(dict.fromkeys(dim for dim in self if isinstance(dim, str)))

    def matches(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of `shape` fits: same rank, same known sizes, equal names with equal sizes."""
        if len(shape) != len(self):
            return False
        bound: dict[str, int] = {}
        for dim, size in zip(self, shape, strict=True):
            expected = bound.setdefault(dim, size) if isinstance(dim, str) else dim
            if expected is not None and expected != size:
                return False
        return True

    def with_dims(self, dims: Mapping[str, int]) -> DynamicTensorShape:
        """This shape with the named dimensions in `dims` made static; other names stay."""
        return DynamicTensorShape(dims.get(dim, dim) if isinstance(dim, str) else dim for dim in self)

    def to_static(self) -> TensorShape:
        """This shape as a `TensorShape`; raises `ShapeError` where a size is not known."""
        sizes = [dim for dim in self if isinstance(dim, int)]
        if len(sizes) != len(self):
            raise ShapeError(f"the shape {self} has sizes that are not known yet")
        return TensorShape(sizes)

    def __repr__(self) -> str:
        return f"DynamicTensorShape({', '.join(map(repr, self))})"


def _spread(dims: tuple[object, ...]) -> Iterable[object]:
    """The dimensions given either one by one or as a single iterable."""
    if len(dims) == 1 and isinstance(dims[0], Iterable) and not isinstance(dims[0], str):
        return dims[0]
    return dims
