"""Sequences and optionals, resolved at planning time.

How many tensors a sequence has is part of the plan, as shapes are. Positions and split sizes are read on the
host; only cutting a tensor up and joining a sequence move elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.base.dtypes import INT64
from engine.graph.model import Output
from engine.kernels.value import Entry, ListValue, Value
from engine.operators.builder import REPEATED, Builder
from engine.operators.casting import dtype_of
from engine.operators.elementwise import identity
from engine.operators.movement import concat, split_at
from engine.operators.registry import operator


def position_in(k: Builder, position: Value | None, count: int, last: int) -> int:
    """Normalize a position in -count..last to 0..last; the end of the sequence if not given."""
    if position is None:
        return last
    at = k.ints(position)
    if len(at) != 1:
        k.error(f"takes one position, not {len(at)}")
    if not -count <= at[0] <= last:
        k.error(f"position {at[0]} is outside a sequence of {count}; it must be in {-count}..{last}")
    return at[0] + count if at[0] < 0 else at[0]


@operator("SequenceConstruct", since=11)
def sequence_construct(k: Builder, *xs: Value) -> ListValue:
    """A sequence of the given tensors."""
    return k.sequence(xs, xs[0].dtype)


@operator("SequenceEmpty", since=11)
def sequence_empty(k: Builder, *, dtype: int = 1) -> ListValue:
    """An empty sequence; `dtype` (default: float32) is its element type."""
    return k.sequence((), dtype_of(k, dtype))


@operator("SequenceInsert", since=11, host=("position",))
def sequence_insert(
    k: Builder, sequence: ListValue, tensor: Value, position: Value | None = None
) -> ListValue:
    """Insert a tensor before `position` (negative: from the end; default: append)."""
    count = len(sequence.items)
    at = position_in(k, position, count, count)
    return k.sequence((*sequence.items[:at], tensor, *sequence.items[at:]), sequence.dtype)


@operator("SequenceErase", since=11, host=("position",))
def sequence_erase(k: Builder, sequence: ListValue, position: Value | None = None) -> ListValue:
    """Remove the tensor at `position` (default: the last one)."""
    count = len(sequence.items)
    if not count:
        k.error("cannot take a tensor out of an empty sequence")
    at = position_in(k, position, count, count - 1)
    return k.sequence((*sequence.items[:at], *sequence.items[at + 1 :]), sequence.dtype)


@operator("SequenceAt", since=11, host=("position",))
def sequence_at(k: Builder, sequence: ListValue, position: Value) -> Value:
    """The tensor at a position; negative ones count from the end."""
    count = len(sequence.items)
    found = sequence.items[position_in(k, position, count, count - 1)]
    return k.alias(found, found.shape)


@operator("SequenceLength", since=11, precision="exact")
def sequence_length(k: Builder, sequence: ListValue) -> Value:
    """How many tensors there are."""
    return k.constant(np.array(len(sequence.items), INT64))


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(k: Builder, sequence: Entry, *, axis: int, new_axis: int = 0) -> Value:
    """The tensors one after another along an axis, or stacked along a new one.

    Instead of a sequence, `count_loops` gives a tensor that has its tensors along the first axis.
    """
    if isinstance(sequence, Value) and sequence.rank and sequence.shape[0]:
        return joined_rows(k, sequence, axis, bool(new_axis))
    if not isinstance(sequence, ListValue) or not sequence.items:
        k.error("cannot join the tensors of an empty sequence: their shape is not known")
    parts = list(sequence.items)
    if sequence.rows is not None and len(parts) >= REPEATED:
        return joined_rows(k, sequence.rows, axis, bool(new_axis))
    if new_axis:
        axis = k.axis(axis, parts[0].rank + 1)
        parts = [k.alias(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return concat(k, *parts, axis=axis)


def joined_rows(k: Builder, rows: Value, axis: int, has_new_axis: bool) -> Value:
    """The entries of a tensor along axis 0, one after another along an axis, or stacked along a new one."""
    count, *shape = rows.shape
    axis = k.axis(axis, len(shape) + has_new_axis)
    joined = (count, *shape[axis:]) if has_new_axis else (count * shape[axis], *shape[axis + 1 :])
    if axis == 0:
        return k.alias(rows, joined)
    outer, inner = prod(shape[:axis]), prod(shape[axis:])
    planes = k.alias(rows, (count, outer, inner))
    whole = k.compute((outer, count, inner), rows.dtype, lambda o, c, i: planes[c, o, i])
    return k.alias(whole, (*shape[:axis], *joined))


@operator("SplitToSequence", since=11, host=("split",))
def split_to_sequence(
    k: Builder, x: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> ListValue:
    """Pieces along an axis: of the given sizes, of one size (the last may be smaller), or single slices."""
    axis = k.axis(axis, x.rank)
    if x.rank == 0:
        k.error("cannot split a scalar")
    sizes = [1] * x.shape[axis] if split is None else piece_sizes(k, x.shape[axis], split)
    pieces = split_at(k, x, axis, sizes)
    if split is None and not keepdims:
        pieces = tuple(k.alias(p, (*x.shape[:axis], *x.shape[axis + 1 :])) for p in pieces)
    if len(pieces) < REPEATED or any(size != sizes[0] for size in sizes):
        return k.sequence(pieces, x.dtype)
    rows, (outer, inner) = x, (prod(x.shape[:axis]), sizes[0] * prod(x.shape[axis + 1 :]))
    if axis:
        planes = k.alias(x, (outer, len(pieces), inner))
        rows = k.compute((len(pieces), outer, inner), x.dtype, lambda c, o, i: planes[o, c, i])
    return k.sequence(pieces, x.dtype, k.alias(rows, (len(pieces), *pieces[0].shape)))


def piece_sizes(k: Builder, count: int, split: Value) -> Sequence[int]:
    """The sizes given by a tensor of sizes, or by one scalar for all."""
    sizes = k.ints(split)
    if split.rank:
        return sizes
    if sizes[0] < 1:
        k.error(f"cannot split into pieces of {sizes[0]} elements")
    return [min(sizes[0], count - at) for at in range(0, count, sizes[0])]


# Optionals


@operator("Optional", since=15)
def optional(k: Builder, x: Entry = None, *, type: Output | None = None) -> Entry:
    """An optional that holds the input, or nothing if there is none."""
    if x is None and type is None:
        k.error("has neither an input nor a type")
    return identity(k, x)


@operator("OptionalHasElement", since=15, precision="exact")
def optional_has_element(k: Builder, x: Entry = None) -> Value:
    """Whether there is an element; a tensor or a sequence has one."""
    return k.constant(np.array(x is not None))


@operator("OptionalGetElement", since=15)
def optional_get_element(k: Builder, x: Entry = None) -> Entry:
    """The element of an optional; a tensor or sequence is returned unchanged."""
    if x is None:
        k.error("the optional is empty; ask OptionalHasElement first")
    return identity(k, x)
