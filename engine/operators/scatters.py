"""Scatters in gather form: each output element applies the updates of its position, in order.

So the result is the same on every backend, and no update races another. Few updates are all looked at; many
are sorted by their targets, stably, so that those of an element are a run of the sorted ones. Targets count
from the end where they are negative; an update whose target is outside is dropped, as no backend can raise
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from engine.base.dtypes import INT32
from engine.kernels.evaluate import evaluate
from engine.kernels.expr import Expr, arg, cast, compare, eq, fold, index, lit, maximum, minimum, select
from engine.kernels.hint import Hint
from engine.kernels.kernel import kernel_call
from engine.kernels.value import Value
from engine.operators.builder import MOST_ON_HOST, Builder, Formula
from engine.operators.indexing import from_end
from engine.operators.registry import operator
from engine.operators.sorting import first_beyond, sorted_order

FEW = 32
"""Updates per row that every element may look at: sorting them takes longer."""

REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old | new if old.dtype == "bool" else old + new,
    "mul": lambda old, new: old & new if old.dtype == "bool" else old * new,
    "max": lambda old, new: old | new if old.dtype == "bool" else maximum(old, new),
    "min": lambda old, new: old & new if old.dtype == "bool" else minimum(old, new),
}
"""What a scatter leaves where a new value falls on an old one."""


def known_or_computed(k: Builder, shape: tuple[int, int, int], formula: Formula, indices: Value) -> Value:
    """The targets that `formula` finds for each position in row-major order.

    Those of known indices, which exporters write often, are known.
    """
    count = prod(shape)
    if indices.known is None or not indices.size:
        return k.alias(k.compute((count,), INT32, formula), shape)
    kernel, values, inputs = kernel_call(formula(index(0)), 1, INT32)
    arrays = [x.known for x in inputs if x.known is not None]
    return k.alias(k.constant(evaluate(kernel, (count,), values, arrays)), shape)


def runs_of_known(targets: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray]:
    """The updates of each row sorted by known targets, and the start of those of each position."""
    outer, _, inner = targets.shape
    counts = np.zeros((outer, places + 1, inner), np.int32)
    np.add.at(counts, (np.arange(outer)[:, None, None], targets + 1, np.arange(inner)), 1)
    order = np.argsort(targets, axis=1, kind="stable")
    return order.astype(np.int32), np.cumsum(counts, axis=1, dtype=np.int32)


class ScatterTargets:
    """Target positions of each row's updates: `targets` (outer, count, inner), int32, -1 for none."""

    def __init__(self, k: Builder, targets: Value, places: int, reduction: str) -> None:
        k.one_of("reduction", reduction, REDUCTIONS)
        self.targets = targets
        self.count = targets.shape[1]
        self.reduction = reduction
        self.is_sorted = not (targets.is_static(1) and self.count <= FEW)
        if self.is_sorted and targets.size:
            outer, _, inner = targets.shape
            if targets.known is not None and outer * (places + 1) * inner <= MOST_ON_HOST:
                self.order, self.starts = map(k.constant, runs_of_known(targets.known, places))
                return
            self.order = sorted_order(k, targets)
            self.starts = k.compute((outer, places + 1, inner), INT32, self._start)

    def _start(self, o: Expr, place: Expr, i: Expr) -> Expr:
        """How many sorted updates aim at places before this one."""

        def before(r: Expr) -> Expr:
            at = cast(self.order[o, minimum(r, self.count - 1), i], "index")
            return cast(self.targets[o, at, i], "index") < place

        return first_beyond(lit(0), arg(self.count), self.count, before)

    def hint(self, data: Value, updates: Value, whole: bool = False) -> Hint:
        """The hint for data (outer, places, inner) after all updates; rows of `whole` ones share a target."""
        attributes = {"whole": whole, "reduction": self.reduction}
        return Hint("scatter", (data, self.targets, updates), attributes)

    def left_by(
        self, o: Expr, place: Expr, i: Expr, old: Expr, update: Callable[[Expr], Expr],
        where: Expr | None = None,
    ) -> Expr:  # fmt: skip
        """The value of an element after a row's updates, in order; `old` unless `where` holds."""
        if not self.targets.size:
            # An empty tensor has no buffer to read.
            return old
        inside = lit(True, "bool") if where is None else where
        combine = REDUCTIONS[self.reduction]
        if not self.is_sorted:

            def attempt(r: Expr, value: Expr) -> tuple[Expr]:
                hit = inside & eq(cast(self.targets[o, r, i], "index"), place)
                return (select(hit, combine(value, update(r)), value),)

            return fold(self.count, (old,), attempt)[0]
        first, end = (cast(self.starts[o, p, i], "index") for p in (place, place + lit(1)))

        def entry(r: Expr) -> Expr:
            return update(cast(self.order[o, minimum(maximum(r, lit(0)), self.count - 1), i], "index"))

        if self.reduction == "none":
            return select(inside & compare("ne", first, end), entry(end - lit(1)), old)
        hits = minimum(select(inside, end - first, lit(0)), self.count)
        return fold(hits, (old,), lambda r, value: (combine(value, entry(first + r)),))[0]


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(
    k: Builder, data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """Scatter each update along the axis at its index; other coordinates are kept."""
    axis = k.axis(axis, data.rank)
    if indices.rank != data.rank or indices.shape != updates.shape or data.rank == 0:
        k.error(f"cannot write {list(updates.shape)} at {list(indices.shape)} into {list(data.shape)}")
    if any(i > n for a, (i, n) in enumerate(zip(indices.shape, data.shape, strict=True)) if a != axis):
        k.error(f"indices {list(indices.shape)} reach beyond {list(data.shape)}")
    places, sizes = data.shape[axis], indices.shape
    shape = prod(sizes[:axis]), sizes[axis], prod(sizes[axis + 1 :])
    slices = k.alias(updates, shape)
    targets = known_or_computed(k, shape, lambda p: _target(indices.at(p), places), indices)
    aims = ScatterTargets(k, targets, places, reduction)

    def formula(*at: Expr) -> Expr:
        covered: Expr = lit(True, "bool")
        o = i = lit(0)
        for a, (position, size) in enumerate(zip(at, sizes, strict=True)):
            inside = minimum(position, size - 1)
            covered = covered & (position < arg(size)) if a != axis else covered
            o = o * size + inside if a < axis else o
            i = i * size + inside if a > axis else i
        return aims.left_by(o, at[axis], i, data[at], lambda r: slices[o, r, i], covered)

    # The axes on either side count as one where no other than the first of them ends before that of data.
    inner_axes = [a for a in range(1, data.rank) if a not in (axis, axis + 1)]
    if indices.signature is None or data.signature is None:
        lined_up = all(indices.shape[a] == data.shape[a] for a in inner_axes)
    else:
        lined_up = all(indices.signature[a] == data.signature[a] for a in inner_axes)
    whole = k.alias(data, (prod(data.shape[:axis]), places, prod(data.shape[axis + 1 :])))
    hint = (lambda: aims.hint(whole, slices)) if lined_up else None
    return k.compute(data.shape, data.dtype, formula, hint=hint)


def _target(position: Expr, places: int) -> Expr:
    """A place, or -1 for one that is outside."""
    i = from_end(position, places)
    return cast(select((i >= lit(0)) & (i < arg(places)), i, lit(-1)), "int32")


@operator("ScatterND", since=11)
def scatter_nd(k: Builder, data: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    """The last axis of `indices` holds positions along the first axes of data; updates are slices there."""
    depth = indices.shape[-1] if indices.rank else 0
    if not 1 <= depth <= data.rank or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        k.error(f"cannot write {list(updates.shape)} at {list(indices.shape)} into {list(data.shape)}")
    places, inner, count = prod(data.shape[:depth]), prod(data.shape[depth:]), prod(indices.shape[:-1])
    tuples = k.alias(indices, (count, depth))
    slices = k.alias(updates, (count, inner))
    rows = k.alias(data, (places, inner))

    def target(u: Expr) -> Expr:
        place: Expr = lit(0)
        valid: Expr = lit(True, "bool")
        for d in range(depth):
            i = from_end(tuples[u, lit(d)], data.shape[d])
            valid = valid & (i >= lit(0)) & (i < data.dim(d))
            place = place * data.dim(d) + i
        return cast(select(valid, place, lit(-1)), "int32")

    aims = ScatterTargets(k, known_or_computed(k, (1, count, 1), target, tuples), places, reduction)

    def formula(place: Expr, i: Expr) -> Expr:
        return aims.left_by(lit(0), place, lit(0), rows[place, i], lambda u: slices[u, i])

    whole, runs = k.alias(data, (1, places, inner)), k.alias(updates, (1, count, inner))
    after = k.compute((places, inner), data.dtype, formula, hint=lambda: aims.hint(whole, runs, whole=True))
    return k.alias(after, data.shape)
