"""Reductions, ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod

import numpy as np

from engine.base.dtypes import FLOAT32, INT32, INT64
from engine.kernels.expr import FLOATS, Expr, arg, cast, eq, fold, lit, minimum, reduce, select, unary
from engine.kernels.hint import Hint
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator

LONG = 1024
"""Elements of a row from which on lanes share the search for its extreme."""

Step = Callable[[Expr], Expr]
Finish = Callable[[Expr, Expr], Expr]
"""The stored value from what a loop has gathered and how many elements it met (of the same type)."""
Definition = Callable[["Reduction"], Value]
"""The reduced tensor, one axis per kept run."""


def reduction_runs(rank: int, axes: frozenset[int]) -> list[tuple[int, ...]]:
    """Group adjacent axes by whether they are reduced."""
    runs: list[tuple[int, ...]] = []
    for axis in range(rank):
        if runs and (runs[-1][-1] in axes) == (axis in axes):
            runs[-1] += (axis,)
        else:
            runs.append((axis,))
    return runs


def wide(dtype: np.dtype) -> np.dtype:
    """The accumulator type for elements of `dtype`."""
    return FLOAT32 if dtype.itemsize < 4 and dtype.kind not in "iub" else dtype


class Reduction:
    """One reduction of a tensor: which runs of axes are looped over, which are walked."""

    def __init__(self, k: Builder, x: Value, axes: frozenset[int]) -> None:
        self.k = k
        self.x = x
        self.axes = axes
        self.runs = reduction_runs(x.rank, axes)
        self.sizes = [prod(x.shape[a] for a in run) for run in self.runs]
        self.merged = k.alias(x, self.sizes)
        self.kept = [run[0] not in axes for run in self.runs]
        self.space = [n for n, kept in zip(self.sizes, self.kept, strict=True) if kept]
        self.count = prod(n for n, kept in zip(self.sizes, self.kept, strict=True) if not kept)
        # One run that is reduced, with what stands before and behind it.
        self.whole: Value | None = None
        if self.kept.count(False) == 1:
            place = self.kept.index(False)
            self.whole = k.alias(x, (prod(self.sizes[:place]), *self.sizes[place:]))

    def element(self, walked: Sequence[Expr], looped: Sequence[Expr]) -> Expr:
        """The element at indices along the kept and along the reduced runs."""
        if self.x.size == 0:
            # No loop reaches this, and an empty tensor has no buffer to bind.
            return lit(0, self.x.arithmetic)
        at_kept, at_reduced = iter(walked), iter(looped)
        return self.merged[tuple(next(at_kept if kept else at_reduced) for kept in self.kept)]

    def loop(self, kind: str, walked: Sequence[Expr], step: Step) -> Expr:
        """`kind` over every element of one output, each passed through `step`."""
        extents = [self.merged.dim(a) for a, kept in enumerate(self.kept) if not kept]

        def nest(found: list[Expr]) -> Expr:
            if len(found) == len(extents):
                return step(self.element(walked, found))
            return reduce(kind, extents[len(found)], lambda r: nest([*found, r]))

        return nest([])

    def compute(
        self, kind: str, step: Step, finish: Finish, dtype: np.dtype, hint: Hint | None = None
    ) -> Value:
        """The reduced tensor, one axis per kept run."""

        def formula(*walked: Expr) -> Expr:
            gathered = self.loop(kind, walked, step)
            return finish(gathered, arg(self.count, gathered.dtype))

        return self.k.compute(self.space, dtype, formula, hint=None if hint is None else lambda: hint)

    def plain(self, kind: str, term: str = "element", dtype: np.dtype | None = None) -> Value:
        """A reduction whose kind and term hints have names for; `dtype` is by default the tensor's."""

        def finish(total: Expr, count: Expr) -> Expr:
            return total / count if kind == "mean" else total

        joins, hint = "sum" if kind == "mean" else kind, self.hint(kind, term)
        return self.compute(joins, TERMS[term], finish, self.x.dtype if dtype is None else dtype, hint)

    def hint(self, kind: str, term: str = "element") -> Hint | None:
        """The hint for the reduction, if one merged axis is reduced."""
        return None if self.whole is None or self.x.size == 0 else reduction_hint(kind, term, self.whole)

    def shaped(self, y: Value, keepdims: int = 1) -> Value:
        """A result over the kept runs in the shape that ONNX requires."""
        shape = enumerate(self.x.shape)
        kept = [1 if a in self.axes else n for a, n in shape if keepdims or a not in self.axes]
        return self.k.alias(y, kept)


def reduction_hint(kind: str, term: str, x: Value, *others: Value) -> Hint:
    """The hint for a reduction of (outer, extent) or (outer, extent, inner) along the second axis."""
    attributes = {
        "kind": kind,
        "term": term,
        "outer": x.shape[0],
        "extent": x.shape[1],
        "inner": prod(x.shape[2:]),
    }
    return Hint("reduce", (x, *others), attributes)


def _same(e: Expr) -> Expr:
    return e


def _abs(e: Expr) -> Expr:
    return e if e.dtype.startswith("u") else unary("abs", e)


def _is_float(e: Expr) -> bool:
    return e.dtype in FLOATS


def _through_float(function: str) -> Callable[[Expr], Expr]:
    """A float function; integers pass through float32 and are truncated."""

    def apply(e: Expr) -> Expr:
        return unary(function, e) if _is_float(e) else cast(unary(function, cast(e, "float32")), e.dtype)

    return apply


TERMS: dict[str, Step] = {"element": _same, "magnitude": _abs, "square": lambda e: e * e}
"""What is done to each element before, by the name that a hint has for it."""

SIMPLE: dict[str, tuple[str, str, Step]] = {
    "ReduceSum": ("sum", "element", _same),
    "ReduceMean": ("mean", "element", _same),
    "ReduceProd": ("prod", "element", _same),
    "ReduceL1": ("sum", "magnitude", _same),
    "ReduceL2": ("sum", "square", _through_float("sqrt")),
    "ReduceSumSquare": ("sum", "square", _same),
    "ReduceLogSum": ("sum", "element", _through_float("log")),
}
"""Per operator: how elements are combined, what is done to each before, and to the result after."""


def simple(name: str) -> Definition:
    """The definition of one of `SIMPLE`."""
    kind, term, after = SIMPLE[name]

    def define(reduction: Reduction) -> Value:
        dtype, hint = reduction.x.dtype, reduction.hint(kind, term)
        if after is _same:
            return reduction.plain(kind, term)
        if hint is None or dtype != FLOAT32:
            return reduction.compute(kind, TERMS[term], lambda t, n: after(t), dtype, hint)
        return reduction.k.elementwise(after, reduction.plain(kind, term))

    return define


def extreme(kind: str) -> Definition:
    """ReduceMax or ReduceMin; booleans are compared as 0 and 1."""

    def define(reduction: Reduction) -> Value:
        dtype = reduction.x.dtype
        if dtype == np.dtype(bool):
            # Of nothing, the largest int32 is below 0 and the smallest above: the right bool either way.
            return reduction.compute(
                kind, lambda e: cast(e, "int32"), lambda t, n: t > lit(0, "int32"), dtype
            )
        return reduction.plain(kind)

    return define


def log_sum_exp(reduction: Reduction) -> Value:
    """log(sum(exp(x))), shifted by the maximum so that exp does not overflow."""
    k, x = reduction.k, reduction.x
    if x.dtype.kind in "iub":
        k.error(f"takes floats, not {x.dtype.name}; cast the input")
    dtype = wide(x.dtype)
    top = reduction.plain("max", dtype=dtype)

    def shift(peak: Expr) -> Expr:
        # An infinite peak must not be subtracted from itself.
        return select(unary("isinf", peak), lit(0, peak.dtype), peak)

    def shifted(*at: Expr) -> Expr:
        peak = top[tuple(i for i, kept in zip(at, reduction.kept, strict=True) if kept)]
        return unary("exp", reduction.merged[at] - shift(peak))

    powers = k.compute(reduction.sizes, dtype, shifted)
    sums = Reduction(k, powers, frozenset(a for a, kept in enumerate(reduction.kept) if not kept))
    return k.elementwise(lambda s, p: unary("log", s) + shift(p), sums.plain("sum"), top, dtype=x.dtype)


def _register(name: str, axes_input_since: int, define: Definition) -> None:
    """One operator, whose axes are an input since a version."""

    @operator(name, since=axes_input_since, host=("axes",), attributes_before={"axes": int})
    def reduced(
        k: Builder, x: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        """Over `axes`; without any, over all, or none with `noop_with_empty_axes`."""
        chosen = [k.axis(a, x.rank) for a in k.ints(axes)] if axes is not None else []
        everything = not chosen and not noop_with_empty_axes
        reduction = Reduction(k, x, frozenset(range(x.rank) if everything else chosen))
        return reduction.shaped(define(reduction), keepdims)


for _name in SIMPLE:
    _register(_name, 13 if _name == "ReduceSum" else 18, simple(_name))
_register("ReduceMax", 18, extreme("max"))
_register("ReduceMin", 18, extreme("min"))
_register("ReduceLogSumExp", 18, log_sum_exp)


# The position of an extreme element


def position_of_extreme(k: Builder, x: Value, axis: int, keepdims: int, last: int, largest: bool) -> Value:
    """Index along `axis` of the largest (smallest) element; of equals the first, or the last. NaN wins."""
    axis = k.axis(axis, x.rank)
    kept = [1 if a == axis else n for a, n in enumerate(x.shape) if keepdims or a != axis]
    outer, count, inner = prod(x.shape[:axis]), x.shape[axis] if x.rank else 1, prod(x.shape[axis + 1 :])
    if count == 0:
        k.error(f"cannot choose among the 0 elements along axis {axis} of {list(x.shape)}")
    rows = k.alias(x, (outer, count, inner))

    def among(extent: int | Expr, o: Expr, i: Expr, place: Callable[[Expr], Expr], ordered: bool) -> Expr:
        """Where the best of some elements is; `ordered` says that their places ascend."""

        def step(r: Expr, best: Expr, where: Expr) -> tuple[Expr, Expr]:
            at = place(r)
            e = rows[o, at, i]
            better = (e > best) if largest else (e < best)
            wins = lit(bool(last), "bool") if ordered else (at > where if last else at < where)
            if last or not ordered:
                better = better | (eq(e, best) & wins)
            if _is_float(e):
                is_new = ~unary("isnan", best)
                better = better | (unary("isnan", e) & (is_new if ordered and not last else is_new | wins))
            return select(better, e, best), select(better, at, where)

        first = place(lit(0))
        return fold(extent, (rows[o, first, i], first), step)[1]

    attributes = {"largest": largest, "last": bool(last)}
    hint = lambda: Hint("argmax", (rows,), attributes)  # noqa: E731 - made only when a plan is
    if not rows.is_static(1) or count < LONG:
        found = k.compute(
            (outer, inner),
            INT64,
            lambda o, i: cast(among(count, o, i, lambda r: r, ordered=True), "int64"),
            hint=hint,
        )
        return k.alias(found, kept)
    # Lanes that share a row, and then the best of them; neighbours read neighbouring elements.
    lanes = isqrt(count)

    def of_lane(o: Expr, lane: Expr, i: Expr) -> Expr:
        rounds = (arg(count + lanes - 1) - lane) // arg(lanes)
        return cast(
            among(rounds, o, i, lambda r: minimum(r * lanes + lane, count - 1), ordered=True), "int32"
        )

    bests = k.compute((outer, lanes, inner), INT32, of_lane)

    def of_row(o: Expr, i: Expr) -> Expr:
        return cast(among(lanes, o, i, lambda r: cast(bests[o, r, i], "index"), ordered=False), "int64")

    return k.alias(k.compute((outer, inner), INT64, of_row, hint=hint), kept)


def _position(name: str, largest: bool) -> None:
    @operator(name, since=1)
    def define(
        k: Builder, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Value:
        """Where the extreme element along an axis is."""
        return position_of_extreme(k, x, axis, keepdims, select_last_index, largest)


_position("ArgMax", largest=True)
_position("ArgMin", largest=False)
