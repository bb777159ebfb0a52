"""Stable merge sort and TopK: blocks ranked by counting, then merged in pairs in gather form.

Every slot of a merged run finds by binary search how many of the entries before it come from either side
(Odeh et al., Merge Path - Parallel Merging Made Simple, 2012). Equals keep their order, so that the result is
unique; runs are cut to what is requested, so that a few of many cost little more than looking at all.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

from engine.base.dtypes import INT32, INT64
from engine.kernels.expr import (
    Expr,
    arg,
    bits,
    cast,
    clamp,
    eq,
    fold,
    lit,
    maximum,
    minimum,
    reduce,
    select,
    unary,
)
from engine.kernels.hint import Hint
from engine.kernels.size import smallest
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator
from engine.operators.scans import lined_up

BLOCK = 32
"""Elements that are ranked by counting, before the first merge."""

FEW = 16
"""Where this many times as many elements are to be chosen from, most of them are not sorted."""

MANY = 512
"""Elements of a row from which on that saves more than its steps cost."""


MOST_MERGES = 26
"""As many as 2**31 elements need."""


def first_beyond(
    low: Expr, high: Expr, most: int, before: Callable[[Expr], Expr], where: Expr | None = None
) -> Expr:
    """The first index from `low` up to `high` that is not `before`, as all are up to some index.

    `most` bounds high - low. `before` may be asked about `high` itself; the answer is not used. Unless
    `where` holds there is no search, and `low` is the answer.
    """

    def step(_: Expr, start: Expr, end: Expr) -> tuple[Expr, Expr]:
        middle = (start + end) // lit(2)
        right = (start < end) & before(middle)
        return select(right, middle + lit(1), start), select(right, end, middle)

    steps = arg(most.bit_length())
    return fold(steps if where is None else select(where, steps, lit(0)), (low, high), step)[0]


def key_of(x: Expr, descending: bool) -> Expr:
    """The key of an element of any type but float64, see `comparable`."""
    if x.dtype == "float32":
        code, zero = bits(x, "int32"), lit(0, "int32")
        code = select(code < zero, code ^ lit(2**31 - 1, "int32"), code)
        x = select(unary("isnan", x), lit(2**31 - 1, "int32"), select(eq(x, 0.0), zero, code))
    elif x.dtype == "bool":
        x = cast(x, "int32")
    return ~x if descending else x


def keys_are_words(rows: Value) -> bool:
    """Whether the keys are int32."""
    return rows.arithmetic in ("float32", "int32", "bool")


def is_few_of_many(rows: Value, keep: int, has_lengths: bool) -> bool:
    """Whether the blocks that hold the best elements are chosen first, see `_chosen_order`."""
    is_known = rows.is_static(1) and not has_lengths and keys_are_words(rows)
    return is_known and rows.shape[1] >= max(FEW * keep, MANY)


def comparable(k: Builder, rows: Value, descending: bool) -> Value:
    """Keys in the ascending order of the elements (or their descending one), of a type that compares fast.

    A float32 becomes the integer of its bits, with those of the magnitude turned over below 0. NaN is the
    largest number; both zeros are one.
    """
    if rows.arithmetic == "float64" or not (descending or rows.arithmetic in ("float32", "bool")):
        return rows

    is_plain = rows.arithmetic in ("int64", "uint32", "uint64")
    return k.compute(rows.shape, rows.dtype if is_plain else INT32, lambda *at: key_of(rows[at], descending))


def precedes(a: Expr, b: Expr, descending: bool) -> Expr:
    """Whether key `a` precedes `b`; float64 keys are compared directly."""
    if a.dtype != "float64":
        return a < b
    if descending:
        a, b = b, a
    return (a < b) | (unary("isnan", b) & ~unary("isnan", a))


class Runs:
    """Sorted runs of a row: for every `run` elements, the positions of the first `keep`."""

    def __init__(
        self, k: Builder, rows: Value, descending: bool, keep: int, lengths: Value | None = None
    ) -> None:
        self.k = k
        self.rows = rows
        self.keys = comparable(k, rows, descending)
        self.descending = descending
        self.keep = keep
        self.lengths = lengths
        self.outer, self.count, self.inner = rows.shape

    def room(self, run: int) -> int:
        """Slots of a whole run."""
        return smallest(run, self.keep)

    def shape(self, run: int) -> tuple[int, int, int]:
        """All slots; the last run may be shorter."""
        whole, rest = divmod(self.count, run)
        return self.outer, whole * self.room(run) + smallest(rest, self.keep), self.inner

    def hint(self, run: int) -> Callable[[], Hint] | None:
        """The hint for a step's result, if its runs are whole rows."""
        if run < self.count:
            return None
        operands = (self.rows,) if self.lengths is None else (self.rows, self.lengths)
        return lambda: Hint("sort", operands, {"descending": self.descending, "keep": self.keep})

    def length(self, o: Expr) -> Expr:
        """How many elements of a row there are to sort."""
        return arg(self.count) if self.lengths is None else cast(self.lengths[o], "index")

    def less(self, a: Expr, b: Expr) -> Expr:
        """Whether key `a` comes before `b`."""
        return precedes(a, b, self.descending)

    def blocks(self) -> Value:
        """The runs of `BLOCK` elements: slot q holds the element before which q others come."""
        keys, last = self.keys, self.count - 1

        def size(o: Expr, start: Expr) -> Expr:
            return clamp(self.length(o) - start, lit(0), lit(BLOCK))

        def rank(o: Expr, c: Expr, i: Expr) -> Expr:
            start, own = c - c % lit(BLOCK), keys[o, c, i]

            def ahead(r: Expr) -> Expr:
                other = keys[o, minimum(start + r, last), i]
                return self.less(other, own) | (~self.less(own, other) & (start + r < c))

            return cast(reduce("sum", size(o, start), lambda r: cast(ahead(r), "index")), "int32")

        ranks = self.k.compute(keys.shape, INT32, rank)

        def element(o: Expr, slot: Expr, i: Expr) -> Expr:
            block = slot // arg(self.room(BLOCK))
            own, start = cast(slot - block * self.room(BLOCK), "int32"), block * lit(BLOCK)

            def candidate(r: Expr) -> Expr:
                return select(eq(ranks[o, minimum(start + r, last), i], own), start + r, lit(0))

            return maximum(reduce("max", size(o, start), candidate), lit(0))

        return self.k.compute(self.shape(BLOCK), INT32, element, hint=self.hint(BLOCK))

    def keys_of(self, order: Value) -> Value:
        """The keys in the order of the runs: neighbours in a search are adjacent."""
        keys = self.keys
        return self.k.compute(
            order.shape, keys.dtype, lambda o, slot, i: keys[o, cast(order[o, slot, i], "index"), i]
        )

    def merged(self, order: Value, run: int) -> Value:
        """Merge pairs of runs of `run` elements."""
        room, last, keys = self.room(run), order.shape[1] - 1, self.keys_of(order)

        def formula(o: Expr, slot: Expr, i: Expr) -> Expr:
            def key(at: Expr) -> Expr:
                return keys[o, clamp(at, lit(0), arg(last)), i]

            pair = slot // arg(self.room(2 * run))
            q, left = slot - pair * self.room(2 * run), pair * (2 * room)
            right = left + room
            remaining = self.length(o) - pair * (2 * run)
            size_left, size_right = (clamp(n, lit(0), arg(room)) for n in (remaining, remaining - run))

            def left_first(from_left: Expr, from_right: Expr) -> Expr:
                return ~self.less(key(right + from_right), key(left + from_left))

            low, high = maximum(q - size_right, lit(0)), minimum(q, size_left)
            taken = first_beyond(low, high, room, lambda m: left_first(m, q - lit(1) - m), q < remaining)
            rest = q - taken
            is_left = (rest >= size_right) | ((taken < size_left) & left_first(taken, rest))
            return cast(
                order[o, clamp(select(is_left, left + taken, right + rest), lit(0), arg(last)), i], "index"
            )

        return self.k.compute(self.shape(2 * run), INT32, formula, hint=self.hint(2 * run))


def sorted_order(
    k: Builder, rows: Value, *, descending: bool = False, keep: int | None = None,
    lengths: Value | None = None,
) -> Value:  # fmt: skip
    """Positions along the middle axis of (outer, count, inner), int32, sorted stably by the elements there.

    `keep` asks for the first ones only: (outer, keep, inner). `lengths` (outer) tells how many elements of
    each row there are; what stands behind the sorted ones is of no meaning, but within the range.
    """
    fixed = rows.is_static(1)
    # Where the first ones are kept, runs as long as that are merged by other kernels than shorter ones.
    least = 0 if fixed else 1 if keep is None else 2
    keep = rows.shape[1] if keep is None else keep
    if not rows.size or not keep:
        return k.compute((rows.shape[0], keep, rows.shape[2]), INT32, lambda *at: lit(0, "int32"))
    if is_few_of_many(rows, keep, lengths is not None):
        return _chosen_order(k, rows, descending, keep)
    runs = Runs(k, rows, descending, keep, lengths)
    order = runs.blocks()
    run, merges = BLOCK, 0
    # Every kernel occurs where the size is not fixed.
    while run < runs.count or merges < least:
        order = runs.merged(order, run)
        run, merges = 2 * run, merges + 1
    return order if fixed else lined_up(k, order, 2 * merges, 2 * MOST_MERGES)


def _chosen_order(k: Builder, rows: Value, descending: bool, keep: int) -> Value:
    """`sorted_order` of a few of many: only those blocks are sorted that hold the best elements.

    The first `keep` elements are in the first `keep` blocks, sorted by their best: each of these holds an
    element that comes before all of the others.
    """
    outer, count, inner = rows.shape
    length = isqrt(count // keep)
    blocks = -(-count // length)

    def key(o: Expr, at: Expr, i: Expr) -> Expr:
        # Few are read twice: a tensor of all keys would cost more.
        return key_of(rows[o, minimum(at, count - 1), i], descending)

    def best(o: Expr, s: Expr, i: Expr) -> Expr:
        first = s * length
        here = minimum(arg(length), arg(count) - first)
        return reduce("min", here, lambda r: key(o, first + r, i))

    bests = k.compute((outer, blocks, inner), INT32, best)
    chosen = sorted_order(k, bests, keep=keep)
    # In their old order, so that equals keep theirs.
    places = sorted_order(k, chosen)

    def start(o: Expr, s: Expr, i: Expr) -> Expr:
        return chosen[o, cast(places[o, s, i], "index"), i]

    starts = k.compute(chosen.shape, INT32, start)

    def position(o: Expr, c: Expr, i: Expr) -> Expr:
        block = c // arg(length)
        return cast(starts[o, block, i], "index") * length + (c - block * length)

    def candidate(o: Expr, c: Expr, i: Expr) -> Expr:
        # What is beyond the last block's end comes last, behind its equals.
        at = position(o, c, i)
        return select(at < arg(count), key(o, at, i), lit(2**31 - 1, "int32"))

    candidates = k.compute((outer, keep * length, inner), INT32, candidate)
    order = sorted_order(k, candidates, keep=keep)

    def found(o: Expr, slot: Expr, i: Expr) -> Expr:
        return cast(position(o, cast(order[o, slot, i], "index"), i), "int32")

    attributes = {"descending": descending, "keep": keep}
    return k.compute(order.shape, INT32, found, hint=lambda: Hint("sort", (rows,), attributes))


# TopK


def _top_k(k: Builder, x: Value, count: int, axis: int, largest: int) -> tuple[Value, ...]:
    axis = k.axis(axis, x.rank)
    if x.rank == 0 or not 0 <= count <= x.shape[axis]:
        k.error(f"cannot choose {count} elements along axis {axis} of {list(x.shape)}")
    rows = k.alias(x, (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])))
    order = sorted_order(k, rows, descending=bool(largest), keep=count)
    where = k.elementwise(lambda e: cast(e, "int64"), order, dtype=INT64)
    best = k.compute(order.shape, x.dtype, lambda o, c, i: rows[o, cast(where[o, c, i], "index"), i])
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return k.alias(best, shape), k.alias(where, shape)


@operator("TopK", since=1, until=9)
def top_k_1(builder: Builder, x: Value, *, k: int, axis: int = -1) -> tuple[Value, ...]:
    """The k largest elements along an axis, and their indices."""
    return _top_k(builder, x, k, axis, largest=1)


@operator("TopK", since=10, host=("count",))
def top_k(
    k: Builder, x: Value, count: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, ...]:
    """The k largest (smallest) elements along an axis, best first, and their indices."""
    if count.size != 1:
        k.error(f"takes one number of elements, not {count.size}")
    return _top_k(k, x, k.ints(count)[0], axis, largest)
