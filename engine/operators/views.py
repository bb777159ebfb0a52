"""Views: operators that change a tensor's shape only, at no cost at run time."""

from __future__ import annotations

from math import prod

from engine.kernels.value import Value
from engine.operators import bounded_sizes
from engine.operators.builder import Builder
from engine.operators.registry import operator


@operator("Reshape", since=5, host=("shape",), moves="x")
def reshape(k: Builder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    """Reshape; one entry may be -1 (inferred), and 0 keeps the input's size unless `allowzero`."""
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


@operator("Flatten", since=1, moves="x")
def flatten(k: Builder, x: Value, *, axis: int = 1) -> Value:
    """Flatten to a matrix: axes before `axis` are rows, the others columns."""
    if not -x.rank <= axis <= x.rank:
        k.error(f"axis {axis} is outside a tensor of rank {x.rank}")
    if axis < 0:
        axis += x.rank
    return k.alias(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@operator(
    "Squeeze",
    since=13,
    host=("axes",),
    bound=bounded_sizes.squeezed,
    attributes_before={"axes": int},
    moves="x",
)
def squeeze(k: Builder, x: Value, axes: Value | None = None) -> Value:
    """Remove the given axes of size 1, or all."""
    if axes is None:
        gone = {a for a, n in enumerate(x.shape) if n == 1}
    else:
        gone = {k.axis(a, x.rank) for a in k.ints(axes)}
    if wrong := [a for a in sorted(gone) if x.shape[a] != 1]:
        k.error(
            f"cannot remove axis {wrong[0]} of {list(x.shape)}: its size is not 1", [x.shape[wrong[0]]], [1]
        )
    return k.alias(x, [n for a, n in enumerate(x.shape) if a not in gone])


@operator(
    "Unsqueeze",
    since=13,
    host=("axes",),
    bound=bounded_sizes.unsqueezed,
    attributes_before={"axes": int},
    moves="x",
)
def unsqueeze(k: Builder, x: Value, axes: Value) -> Value:
    """Insert axes of size 1; `axes` refer to the result."""
    given = k.ints(axes)
    rank = x.rank + len(given)
    new = {k.axis(a, rank) for a in given}
    if len(new) != len(given):
        k.error(f"the axes {given} name one axis twice")
    sizes = iter(x.shape)
    return k.alias(x, [1 if a in new else next(sizes) for a in range(rank)])
