"""Views: operators that change a tensor's shape only, at no cost at run time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from engine.kernels.value import Value
from engine.operators import bounds
from engine.operators.builder import Builder
from engine.operators.registry import operator


@operator("Reshape", since=5, host=("shape",))
def reshape(k: Builder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    """One entry may be -1 (what is left); 0 keeps the input's size, unless `allowzero`."""
    wanted = k.ints(shape)
    sizes = list(wanted)
    for axis, size in enumerate(wanted):
        if size == 0 and not allowzero:
            if axis >= x.rank:
                k.error(f"entry {axis} of the shape {wanted} is 0, but {list(x.shape)} has no such axis")
            sizes[axis] = x.shape[axis]
    left = [axis for axis, size in enumerate(wanted) if size == -1]
    is_empty = allowzero and any(size == 0 for size in wanted)
    if len(left) > 1 or any(size < -1 for size in wanted) or (left and is_empty):
        k.error(f"{wanted} is not a shape: at most one entry may be -1, the others 0 or more")
    for axis in left:
        rest = prod(size for at, size in enumerate(sizes) if at != axis)
        if rest == 0 or x.size % rest:
            k.error(f"cannot view {list(x.shape)} as {wanted}", [x.size], [max(rest, 1)])
        sizes[axis] = x.size // rest
    return k.alias(x, sizes)


@operator("Flatten", since=1)
def flatten(k: Builder, x: Value, *, axis: int = 1) -> Value:
    """A matrix: the axes before `axis` as rows, the others as columns."""
    if not -x.rank <= axis <= x.rank:
        k.error(f"axis {axis} is outside a tensor of rank {x.rank}")
    if axis < 0:
        axis += x.rank
    return k.alias(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _squeeze(k: Builder, x: Value, axes: Sequence[int]) -> Value:
    gone = {k.axis(a, x.rank) for a in axes} if axes else {a for a, n in enumerate(x.shape) if n == 1}
    if wrong := [a for a in sorted(gone) if x.shape[a] != 1]:
        k.error(
            f"cannot remove axis {wrong[0]} of {list(x.shape)}: its size is not 1", [x.shape[wrong[0]]], [1]
        )
    return k.alias(x, [n for a, n in enumerate(x.shape) if a not in gone])


@operator("Squeeze", since=1, until=12, bound=bounds.squeezed)
def squeeze_1(k: Builder, x: Value, *, axes: Sequence[int] = ()) -> Value:
    """Without the given axes, or all axes, of size 1."""
    return _squeeze(k, x, axes)


@operator("Squeeze", since=13, host=("axes",), bound=bounds.squeezed)
def squeeze(k: Builder, x: Value, axes: Value | None = None) -> Value:
    """Without the given axes, or all axes, of size 1."""
    if axes is not None and axes.size == 0:
        return k.alias(x, x.shape)
    return _squeeze(k, x, k.ints(axes) if axes is not None else ())


def _unsqueeze(k: Builder, x: Value, axes: Sequence[int]) -> Value:
    rank = x.rank + len(axes)
    new = {k.axis(a, rank) for a in axes}
    if len(new) != len(axes):
        k.error(f"the axes {list(axes)} name one axis twice")
    sizes = iter(x.shape)
    return k.alias(x, [1 if a in new else next(sizes) for a in range(rank)])


@operator("Unsqueeze", since=1, until=12, bound=bounds.unsqueezed)
def unsqueeze_1(k: Builder, x: Value, *, axes: Sequence[int]) -> Value:
    """With axes of size 1 inserted; `axes` count in the result."""
    return _unsqueeze(k, x, axes)


@operator("Unsqueeze", since=13, host=("axes",), bound=bounds.unsqueezed)
def unsqueeze(k: Builder, x: Value, axes: Value) -> Value:
    """With axes of size 1 inserted; `axes` count in the result."""
    return _unsqueeze(k, x, k.ints(axes))
