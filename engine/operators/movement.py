"""Data movement: Transpose, Expand, Concat, Split, Slice and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from engine.kernels.expr import Expr, arg, cast, lit, maximum, minimum, select
from engine.kernels.hint import Hint
from engine.kernels.size import largest, smallest
from engine.kernels.value import Value
from engine.operators import bounded_sizes
from engine.operators.builder import Builder, axis_groups
from engine.operators.registry import operator


def axis_stride(x: Value, axis: int) -> Expr:
    """The stride along `axis`: a literal 1 if only axes of size 1 follow."""
    innermost = all(x.always_one(a) for a in range(axis + 1, x.rank))
    return lit(1) if innermost else arg(x.stride(axis))


@operator("Transpose", since=1, bound=bounded_sizes.permuted)
def transpose(k: Builder, x: Value, *, perm: Sequence[int] = ()) -> Value:
    """Axes in the order `perm` (reversed by default). Axes that stay neighbours are walked as one."""
    order = [k.axis(a, x.rank) for a in perm] or [*range(x.rank)][::-1]
    if sorted(order) != [*range(x.rank)]:
        k.error(f"perm {list(perm)} does not order the axes of {list(x.shape)}")
    shape = [x.shape[a] for a in order]
    moving = [(to, source) for to, source in enumerate(order) if not x.always_one(source)]
    ordered = sorted(source for _, source in moving)
    if [source for _, source in moving] == ordered:
        return k.alias(x, shape)
    groups: list[tuple[int, ...]] = []
    lasts: list[int] = []
    for to, source in moving:
        if lasts and ordered.index(source) == ordered.index(lasts[-1]) + 1:
            groups[-1] = tuple(range(groups[-1][0], to + 1))
            lasts[-1] = source
        else:
            groups.append((to,))
            lasts.append(source)

    def formula(*at: Expr) -> Expr:
        position: Expr = lit(0)
        for i, source in zip(at, lasts, strict=True):
            position = position + i * axis_stride(x, source)
        return x.at(position)

    # Whether the permutation only swaps the last two merged axes.
    came = [sorted(lasts).index(source) for source in lasts]
    if came not in ([1, 0], [0, 2, 1]):
        return k.compute(shape, x.dtype, formula, groups=tuple(groups))
    columns, rows = (prod(shape[a] for a in group) for group in groups[-2:])
    batch = prod(shape[a] for a in groups[0]) if len(groups) == 3 else 1
    matrices = k.alias(x, (batch, rows, columns))
    attributes = {"batch": batch, "rows": rows, "columns": columns}
    hint = lambda: Hint("transpose", (matrices,), attributes)  # noqa: E731 - made only when a plan is
    return k.compute(shape, x.dtype, formula, groups=tuple(groups), hint=hint)


@operator("Expand", since=8, host=("shape",))
def expand(k: Builder, x: Value, shape: Value) -> Value:
    """Broadcast to the common shape of `x` and `shape`."""
    wanted = k.ints(shape)
    if any(n < 0 for n in wanted):
        k.error(f"cannot expand to {wanted}: a size is negative")
    out = k.broadcast(x.shape, wanted)
    skipped = len(out) - x.rank
    # Whether it moves along an axis; None where only the run knows.
    moves = [not x.always_one(own) and (x.is_static(own) or None) for own in range(x.rank)]
    groups = axis_groups([*[False] * skipped, *moves])

    def formula(*at: Expr) -> Expr:
        position: Expr = lit(0)
        for i, group in zip(at, groups, strict=True):
            own = group[-1] - skipped
            if own < 0 or moves[own] is False:
                continue
            if moves[own]:
                position = position + i * axis_stride(x, own)
            else:
                position = position + i * arg(0 if x.shape[own] == 1 else x.stride(own))
        return x.at(position)

    return k.compute(out, x.dtype, formula, groups=groups)


@operator("Tile", since=6, host=("repeats",))
def tile(k: Builder, x: Value, repeats: Value) -> Value:
    """The whole tensor repeated along each axis."""
    times = k.ints(repeats)
    if len(times) != x.rank or any(n < 0 for n in times):
        k.error(f"takes one repeat (0 or more) for each axis of {list(x.shape)}, not {times}")

    # An axis of repeats before each axis: an index of its own needs no division by a size.
    pairs = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    found = k.compute(pairs, x.dtype, lambda *at: x[at[1::2]])
    return k.alias(found, [n * t for n, t in zip(x.shape, times, strict=True)])


# Joining and cutting


@operator("Concat", since=4, bound=bounded_sizes.joined)
def concat(k: Builder, *xs: Value, axis: int) -> Value:
    """Tensors one after another along `axis`; more than a kernel may read are joined in groups."""
    first = xs[0]
    axis = k.axis(axis, first.rank)
    for x in xs:
        if x.rank != first.rank or any(
            a != axis and n != m for a, (n, m) in enumerate(zip(x.shape, first.shape, strict=True))
        ):
            fit = [m if a == axis else n for a, (n, m) in enumerate(zip(first.shape, x.shape, strict=False))]
            k.error(f"cannot join {list(first.shape)} and {list(x.shape)} along axis {axis}", x.shape, fit)
        if x.dtype != first.dtype:
            k.error(f"cannot join {first.dtype.name} and {x.dtype.name}")
    outer = prod(first.shape[:axis])
    rows = [k.alias(x, (outer, prod(x.shape[axis:]))) for x in xs]
    while len(rows) > 1:
        rows = [concat_columns(k, rows[i : i + k.fan_in]) for i in range(0, len(rows), k.fan_in)]
    return k.alias(rows[0], (*first.shape[:axis], sum(x.shape[axis] for x in xs), *first.shape[axis + 1 :]))


def concat_columns(k: Builder, parts: Sequence[Value]) -> Value:
    """Matrices of equal height side by side."""
    height, dtype = parts[0].shape[0], parts[0].dtype

    def formula(row: Expr, column: Expr) -> Expr:
        found: Expr = lit(0, parts[0].arithmetic)
        start = 0
        for part in parts:
            width = part.shape[1]
            # An empty tensor has no buffer to read.
            if part.size:
                own = column - arg(start)
                here = (own >= lit(0)) & (own < arg(width))
                found = part.load_where(here, (row, own), found)
            start += width
        return found

    hint = lambda: Hint("concat", tuple(parts), {})  # noqa: E731 - made only when a plan is
    return k.compute((height, sum(p.shape[1] for p in parts)), dtype, formula, hint=hint)


def concat_many(k: Builder, parts: Sequence[Value], group: int) -> Value:
    """Matrices of equal height side by side, however many: another number of them needs no other kernels.

    They are joined in groups of `group`, and what is left over in pairs.
    """
    rows = list(parts)
    while len(rows) > 1:
        full = len(rows) - len(rows) % group
        groups = [rows[i : i + group] for i in range(0, full, group)]
        groups += [rows[i : i + 2] for i in range(full, len(rows), 2)]
        rows = [concat_columns(k, some) if len(some) > 1 else some[0] for some in groups]
    return rows[0]


class Chain:
    """Incremental `concat_many`: concatenates matrices as they are added, to save memory."""

    def __init__(self, k: Builder, group: int) -> None:
        self.k, self.group = k, group
        self._levels: list[list[Value]] = []

    def add(self, part: Value) -> None:
        """Append a matrix."""
        for level in self._levels:
            level.append(part)
            if len(level) < self.group:
                return
            part = concat_columns(self.k, level)
            level.clear()
        self._levels.append([part])

    def whole(self) -> Value:
        """Return the concatenation."""
        return concat_many(self.k, [part for level in reversed(self._levels) for part in level], self.group)


def split_at(k: Builder, x: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    """Pieces of the given sizes along an axis, which they must fill."""
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
        k.error(f"cannot split {x.shape[axis]} elements along axis {axis} into {list(sizes)}")
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    rows = k.alias(x, (outer, x.shape[axis] * inner))
    pieces = []
    for size, end in zip(sizes, accumulate(sizes), strict=True):

        def formula(row: Expr, column: Expr, start: int = (end - size) * inner) -> Expr:
            return rows[row, column + start]

        piece = k.compute((outer, size * inner), x.dtype, formula)
        pieces.append(k.alias(piece, (*x.shape[:axis], size, *x.shape[axis + 1 :])))
    return tuple(pieces)


def even_sizes(k: Builder, count: int, pieces: int) -> list[int]:
    """Split `count` into equal sizes; the last may be smaller."""
    if pieces < 1 or (count % pieces and k.version < 18):
        k.error(f"cannot split {count} elements into {pieces} pieces")
    size = -(-count // pieces)
    return [largest(0, smallest(size, count - size * p)) for p in range(pieces)]


@operator("Split", since=13, host=("split",), attributes_before={"split": int})
def split(
    k: Builder, x: Value, split: Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    """Pieces along an axis, of the given sizes or of one size."""
    axis = k.axis(axis, x.rank)
    if split is not None:
        return split_at(k, x, axis, k.ints(split))
    return split_at(k, x, axis, even_sizes(k, x.shape[axis], num_outputs or len(k.layer.outputs)))


TO_THE_END = (2**31 - 1, 2**63 - 1)
"""Ends of a slice that stand for the end in the direction of its step."""


@dataclass(frozen=True)
class SliceRange:
    """What a slice takes along an axis: `size` indices, `step` apart, from `start` on."""

    start: int
    size: int
    step: int

    @property
    def indices(self) -> range:
        """The indices."""
        return range(self.start, self.start + self.size * self.step, self.step)


def cut_of(size: int, start: int, end: int, step: int) -> SliceRange:
    """Resolve a slice along an axis.

    Starts are limited to the axis, as ONNX has it: NumPy's slice takes nothing when one goes backwards from
    before the first element.
    """
    to_the_end = any(end == mark for mark in TO_THE_END)
    if step > 0:
        first = smallest(largest(start + size if start < 0 else start, 0), size)
        last = size if to_the_end else smallest(largest(end + size if end < 0 else end, 0), size)
        return SliceRange(first, largest(-((first - last) // step), 0), step)
    first = smallest(largest(start + size if start < 0 else start, 0), size - 1)
    last = -1 if to_the_end else largest(end + size if end < 0 else end, -1)
    return SliceRange(first, largest(-((last - first) // -step), 0), step)


def slice_by(
    k: Builder,
    x: Value,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Value:
    """Slice along the named axes; the others are merged."""
    axes = [k.axis(a, x.rank) for a in (range(len(starts)) if axes is None else axes)]
    steps = steps or [1] * len(axes)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        k.error(f"has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    if 0 in steps or len(set(axes)) < len(axes):
        k.error(f"cannot slice along axes {axes} with steps {list(steps)}")
    cuts = {
        a: cut_of(x.shape[a], start, end, step)
        for a, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }
    shape = [cuts[a].size if a in cuts else n for a, n in enumerate(x.shape)]
    groups = axis_groups([None if a in cuts else "whole" for a in range(x.rank)])

    def formula(*at: Expr) -> Expr:
        position: Expr = arg(sum(cut.start * x.stride(a) for a, cut in cuts.items()))
        for i, group in zip(at, groups, strict=True):
            last = group[-1]
            # The step is an attribute's kind rather than a size: models fix it, and a literal makes vectors.
            step = lit(cuts[last].step if last in cuts else 1)
            position = position + i * (step * axis_stride(x, last))
        return x.at(position)

    return k.compute(shape, x.dtype, formula, groups=groups)


@operator(
    "Slice", since=10, host=("starts", "ends", "axes", "steps"), bound=bounded_sizes.sliced,
    attributes_before={"starts": int, "ends": int, "axes": int},
)  # fmt: skip
def slice_(
    k: Builder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    """From start to end (exclusive; negative counts from the end) by steps along each named axis."""
    along = None if axes is None else k.ints(axes)
    return slice_by(k, x, k.ints(starts), k.ints(ends), along, None if steps is None else k.ints(steps))


# Blocks and triangles


@operator("DepthToSpace", since=1)
def depth_to_space(k: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """(N, C * b * b, H, W) -> (N, C, H * b, W * b); the block index leads the channel (DCR) or trails it."""
    if x.rank != 4 or blocksize < 1 or x.shape[1] % blocksize**2:
        k.error(f"cannot move blocks of {blocksize}x{blocksize} out of the channels of {list(x.shape)}")
    k.one_of("mode", mode, ("DCR", "CRD"))
    n, depth, h, w = x.shape
    channels = depth // blocksize**2

    def formula(i: Expr, c: Expr, y: Expr, z: Expr) -> Expr:
        # A model fixes its blocks, and a literal step makes vectors.
        b = lit(blocksize)
        block = y % b * b + z % b
        channel = block * arg(channels) + c if mode == "DCR" else c * arg(blocksize**2) + block
        return x[i, channel, y // b, z // b]

    return k.compute((n, channels, h * blocksize, w * blocksize), x.dtype, formula)


@operator("SpaceToDepth", since=1)
def space_to_depth(k: Builder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """(N, C, H * b, W * b) -> (N, C * b * b, H, W); the block index leads the channel (DCR) or trails it."""
    if x.rank != 4 or blocksize < 1 or x.shape[2] % blocksize or x.shape[3] % blocksize:
        k.error(f"cannot cut {list(x.shape)} into blocks of {blocksize}x{blocksize}")
    k.one_of("mode", mode, ("DCR", "CRD"))
    n, channels, h, w = x.shape

    def formula(i: Expr, depth: Expr, y: Expr, z: Expr) -> Expr:
        b = lit(blocksize)
        inner = arg(channels if mode == "DCR" else blocksize**2)
        block, c = (depth // inner, depth % inner) if mode == "DCR" else (depth % inner, depth // inner)
        return x[i, c, y * b + block // b, z * b + block % b]

    return k.compute((n, channels * blocksize**2, h // blocksize, w // blocksize), x.dtype, formula)


@operator("Trilu", since=14, host=("diagonal",))
def trilu(k: Builder, x: Value, diagonal: Value | None = None, *, upper: int = 1) -> Value:
    """Each matrix with zeros below (above, for the lower triangle) the k-th diagonal."""
    if x.rank < 2:
        k.error(f"takes matrices, not {list(x.shape)}")
    offset = k.ints(diagonal)[0] if diagonal is not None and diagonal.size else 0
    rows, columns = x.shape[-2:]
    # Beyond the matrix all diagonals are alike, and the number must fit an index.
    offset = max(-rows - 1, min(columns + 1, offset))
    matrices = k.alias(x, (prod(x.shape[:-2]), rows, columns))

    def formula(b: Expr, i: Expr, j: Expr) -> Expr:
        distance = j - i - arg(offset)
        kept = distance >= lit(0) if upper else distance <= lit(0)
        return select(kept, matrices[b, i, j], lit(0, x.arithmetic))

    return k.alias(k.compute(matrices.shape, x.dtype, formula), x.shape)


@operator("ReverseSequence", since=10)
def reverse_sequence(
    k: Builder, x: Value, sequence_lens: Value, *, batch_axis: int = 1, time_axis: int = 0
) -> Value:
    """Reverse the first `sequence_lens[b]` time steps of each sequence b; the rest is unchanged."""
    if x.rank < 2 or {batch_axis, time_axis} != {0, 1} or sequence_lens.shape != (x.shape[batch_axis],):
        k.error(f"takes axes 0 and 1 of {list(x.shape)} and one length per sequence, not {sequence_lens}")
    planes = k.alias(x, (x.shape[0], x.shape[1], prod(x.shape[2:])))

    def formula(i: Expr, j: Expr, rest: Expr) -> Expr:
        t, b = (i, j) if time_axis == 0 else (j, i)
        length = maximum(minimum(cast(sequence_lens[b], "index"), x.dim(time_axis)), lit(0))
        source = select(t < length, length - lit(1) - t, t)
        return planes[(source, b, rest) if time_axis == 0 else (b, source, rest)]

    return k.alias(k.compute(planes.shape, x.dtype, formula), x.shape)
