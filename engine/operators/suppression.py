"""NonMaxSuppression: greedy choice among overlapping boxes, in as few dependent steps as its order allows.

Whether a box is kept depends on all better ones that are. The boxes of each class are sorted by score and
taken `CHUNK` at a time: one kernel decides about the boxes of a chunk, one invocation per class (the choice
within a chunk is a row of bits that a loop carries), and a second strikes out, in parallel, all later boxes
that overlap one chosen. So a plan has two steps per chunk whatever the scores are; a step per kept box would
be hundreds, and a loop over all boxes would leave a GPU with one busy invocation per class. Loops end where
the scores fall below the threshold or enough boxes are kept, so work follows the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.kernels.expr import (
    Expr,
    arg,
    cast,
    clamp,
    eq,
    fold,
    lit,
    maximum,
    minimum,
    reduce,
    select,
)
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator
from engine.operators.selection import chosen
from engine.operators.sorting import first_beyond, sorted_order

INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)
BOOL = np.dtype(bool)

WORD = 32
"""Bits of an int32."""
WORDS = 4
CHUNK = WORD * WORDS
"""Boxes about which one step decides."""


@dataclass(frozen=True)
class Candidates:
    """The boxes of each row (a class of a batch), best first.

    order: which box, (rows, count); corners: low y, low x, high y, high x, (rows, count, 4); valid: how many
    have a score above the threshold, (rows).
    """

    order: Value
    corners: Value
    valid: Value

    def overlap(self, row: Expr, p: Expr, q: Expr, limit: float) -> Expr:
        """Whether intersection / union of two boxes is above the limit; never with a box without an area."""
        a, b = ([self.corners[row, at, lit(n)] for n in range(4)] for at in (p, q))
        zero = lit(0.0, "float32")

        def area(low_y: Expr, low_x: Expr, high_y: Expr, high_x: Expr) -> Expr:
            return maximum(high_y - low_y, zero) * maximum(high_x - low_x, zero)

        shared = area(maximum(a[0], b[0]), maximum(a[1], b[1]), minimum(a[2], b[2]), minimum(a[3], b[3]))
        area_a, area_b = area(*a), area(*b)
        union = area_a + area_b - shared
        proper = (shared > zero) & (area_a > zero) & (area_b > zero) & (union > zero)
        return proper & (shared / union > arg(limit, "float32"))


def candidates(
    k: Builder, boxes: Value, scores: Value, centered: bool, threshold: float | None
) -> Candidates:
    """Sort each class's boxes by score, and bring their corners into one form."""
    classes, count = scores.shape[1:]
    rows = scores.shape[0] * classes
    keys = k.alias(scores, (rows, count, 1))
    if threshold is not None:
        # NaN is above nothing, yet would come first.
        limit, lowest = arg(threshold, "float32"), lit(float("-inf"), "float32")
        own = keys
        keys = k.compute(keys.shape, FLOAT32, lambda *at: select(own[at] > limit, own[at], lowest))
    order = k.alias(sorted_order(k, keys, descending=True), (rows, count))

    def corner(row: Expr, p: Expr, n: Expr) -> Expr:
        batch, box = row // arg(classes), cast(order[row, p], "index")
        axis, is_high = n % lit(2), n >= lit(2)
        if centered:
            # x and y of the centre, width, height.
            middle, half = boxes[batch, box, lit(1) - axis], boxes[batch, box, lit(3) - axis] / 2.0
            return select(is_high, middle + half, middle - half)
        a, b = boxes[batch, box, axis], boxes[batch, box, axis + lit(2)]
        return select(is_high, maximum(a, b), minimum(a, b))

    def valid(row: Expr) -> Expr:
        if threshold is None:
            return arg(count)

        def before(p: Expr) -> Expr:
            return keys[row, cast(order[row, minimum(p, count - 1)], "index"), lit(0)] > limit

        return first_beyond(lit(0), arg(count), count, before)

    corners = k.compute((rows, count, 4), FLOAT32, corner)
    return Candidates(order, corners, k.compute((rows,), INT32, valid))


def conflicts(k: Builder, boxes: Candidates, limit: float) -> Value:
    """Which better boxes of its chunk each box overlaps: (rows, count, WORDS), a bit each."""

    def word(row: Expr, p: Expr, w: Expr) -> Expr:
        start = p - p % lit(CHUNK) + w * lit(WORD)

        def bit(r: Expr) -> Expr:
            hit = boxes.overlap(row, p, minimum(start + r, p), limit)
            return select(hit, lit(1, "int32") << cast(r, "int32"), lit(0, "int32"))

        size = clamp(p - start, lit(0), lit(WORD))
        return reduce("sum", select(p < cast(boxes.valid[row], "index"), size, lit(0)), bit)

    return k.compute((*boxes.order.shape, WORDS), INT32, word)


def decided(
    k: Builder, boxes: Candidates, overlaps: Value, alive: Value, before: Value, start: int, most: int
) -> Value:
    """The boxes of the chunk at `start` that are kept, and behind them how many the row has kept by now."""
    rows, count = alive.shape

    def formula(row: Expr, slot: Expr) -> Expr:
        kept_before = before[row, lit(CHUNK)]

        def step(r: Expr, kept: Expr, found: Expr, *words: Expr) -> tuple[Expr, ...]:
            p = minimum(start + r, count - 1)
            hits = lit(0, "int32")
            for w, word in enumerate(words):
                hits = hits | (overlaps[row, p, lit(w)] & word)
            fresh = alive[row, p] & eq(hits, lit(0, "int32")) & (kept < most)
            is_asked = fresh & eq(cast(kept - kept_before, "index"), slot)
            bit = lit(1, "int32") << cast(r % lit(WORD), "int32")
            marked = (
                select(fresh & eq(r // lit(WORD), lit(w)), word | bit, word) for w, word in enumerate(words)
            )
            return kept + cast(fresh, "int32"), select(is_asked, cast(p, "int32"), found), *marked

        size = clamp(cast(boxes.valid[row], "index") - start, lit(0), lit(CHUNK))
        is_total = eq(slot, lit(CHUNK))
        # No box can be in a slot that is behind all of them.
        size = select((is_total | (slot < size)) & (kept_before < most), size, lit(0))
        zeros = (lit(0, "int32"),) * (1 + WORDS)
        kept, found, *_ = fold(size, (kept_before, *zeros), step)
        return select(is_total, kept, found)

    return k.compute((rows, CHUNK + 1), INT32, formula)


def struck(
    k: Builder, boxes: Candidates, alive: Value, before: Value, kept: Value, start: int, limit: float
) -> Value:
    """Which boxes are left: of the chunk those that are kept, behind it those that overlap none of them."""

    def formula(row: Expr, p: Expr) -> Expr:
        is_within = p < arg(start + CHUNK)

        def hit(r: Expr) -> Expr:
            q = cast(kept[row, minimum(r, CHUNK)], "index")
            return select(is_within, eq(p, q), boxes.overlap(row, p, q, limit))

        fresh = cast(kept[row, lit(CHUNK)] - before[row, lit(CHUNK)], "index")
        asked = alive[row, p] & (p >= arg(start))
        found = reduce("max", select(asked, fresh, lit(0)), hit)
        return select(p < arg(start), alive[row, p], select(is_within, found, alive[row, p] & ~found))

    return k.compute(alive.shape, BOOL, formula)


def kept_boxes(k: Builder, boxes: Candidates, limit: float, most: int) -> Value:
    """Which of the sorted boxes are kept, (rows, count)."""
    rows, count = boxes.order.shape
    overlaps = conflicts(k, boxes, limit)
    alive = k.compute((rows, count), BOOL, lambda row, p: p < cast(boxes.valid[row], "index"))
    before = k.compute((rows, CHUNK + 1), INT32, lambda *at: lit(0, "int32"))
    for start in range(0, count, CHUNK):
        kept = decided(k, boxes, overlaps, alive, before, start, most)
        alive, before = struck(k, boxes, alive, before, kept, start, limit), kept
    return alive


@operator(
    "NonMaxSuppression",
    since=10,
    host=("max_output_boxes_per_class", "iou_threshold", "score_threshold"),
)
def non_max_suppression(
    k: Builder, boxes: Value, scores: Value, max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None, score_threshold: Value | None = None, *, center_point_box: int = 0,
) -> Value:  # fmt: skip
    """(batch, class, box) of the best boxes of each class of which no two overlap by more than a threshold.

    boxes: (batches, boxes, 4), corners or centres and sizes; scores: (batches, classes, boxes).
    """
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        shapes = f"{list(boxes.shape)} and {list(scores.shape)}"
        k.error(f"takes boxes (N, boxes, 4) and scores (N, classes, boxes), not {shapes}")
    batches, classes, count = scores.shape
    most = min(max(int(_number(max_output_boxes_per_class) or 0), 0), count)
    room = batches * classes * most
    if not room:
        return k.compute((0, 3), INT64, lambda *at: lit(0, "int64"))
    found = candidates(k, boxes, scores, bool(center_point_box), _number(score_threshold))
    alive = kept_boxes(k, found, _number(iou_threshold) or 0.0, most)
    fixed = all(scores.is_static(a) for a in range(3))
    positions, number = chosen(k, alive.size, alive.at, room, fixed)

    def formula(slot: Expr, column: Expr) -> Expr:
        position = cast(positions[slot], "index")
        row, p = position // arg(count), position % arg(count)
        box = cast(found.order[row, p], "index")
        of_class = select(eq(column, lit(1)), row % arg(classes), box)
        return cast(select(eq(column, lit(0)), row // arg(classes), of_class), "int64")

    rows = k.compute((room, 3), INT64, formula)
    if not fixed:
        # The number of chunks differs between the samples, which therefore say nothing about this tensor.
        rows.signature = None
    return k.counted(rows, 0, number)


def _number(x: Value | None) -> float | None:
    """The element of an input that is read on the host."""
    return None if x is None or x.known is None or not x.size else float(np.asarray(x.known).reshape(-1)[0])
