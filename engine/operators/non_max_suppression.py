"""NonMaxSuppression: greedy selection among overlapping boxes, in few dependent steps.

Whether a box is kept depends on all better ones that are. Each class's boxes above the threshold are sorted
by score and taken `CHUNK` at a time: one kernel compares them, in parallel, with each other and with those
kept before; a second decides in their order, which within a chunk is a loop over bits that it carries. So a
plan has two steps per chunk for any scores: a step per kept box would be hundreds, and a loop over
all boxes would leave a GPU with one busy invocation per class. Loops end where the boxes above the threshold
do, or where enough are kept, so that work follows the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.base.dtypes import BOOL, FLOAT32, INT32, INT64
from engine.kernels.expr import Expr, arg, cast, clamp, eq, fold, lit, maximum, minimum, reduce, select
from engine.kernels.hint import Hint
from engine.kernels.size import smallest
from engine.kernels.value import Value
from engine.operators.builder import Builder
from engine.operators.registry import operator
from engine.operators.selection import true_positions
from engine.operators.sorting import sorted_order

WORD = 32
"""Bits of an int32."""
WORDS = 4
CHUNK = WORD * WORDS
"""Boxes about which one step decides."""


@dataclass(frozen=True)
class Candidates:
    """The boxes of each row (a class of a batch), best first.

    order: which box, (rows, count); number: how many of them are above the threshold, (rows), or None for
    all; corners: low y, low x, high y, high x of the batches' boxes, (batches, count, 4). A class's better
    boxes suppress those that overlap them by more than `limit`; `most` of each class are kept.
    """

    order: Value
    number: Value | None
    corners: Value
    classes: int
    limit: float
    most: int

    @property
    def count(self) -> int:
        """How many boxes a batch has."""
        return self.order.shape[1]

    def hint(self, bound: bool) -> Hint:
        """The hint for which of them are kept."""
        operands = (self.order, self.corners, *([] if self.number is None else [self.number]))
        attributes = {"classes": self.classes, "limit": self.limit, "most": self.most, "bound": bound}
        return Hint("non_max_suppression", operands, attributes)

    def behind(self, row: Expr, start: Expr) -> Expr:
        """How many candidates of a row there are from `start` on, CHUNK at most."""
        number = arg(self.count) if self.number is None else cast(self.number[row], "index")
        return clamp(number - start, lit(0), lit(CHUNK))

    def overlap(self, row: Expr, p: Expr, q: Expr) -> Expr:
        """Whether intersection / union of two is above the limit; without an area, none overlaps."""
        batch = row // arg(self.classes)
        first, second = (cast(self.order[row, at], "index") for at in (p, q))
        a, b = ([self.corners[batch, box, lit(n)] for n in range(4)] for box in (first, second))
        zero = lit(0.0, "float32")

        def area(low_y: Expr, low_x: Expr, high_y: Expr, high_x: Expr) -> Expr:
            return maximum(high_y - low_y, zero) * maximum(high_x - low_x, zero)

        shared = area(maximum(a[0], b[0]), maximum(a[1], b[1]), minimum(a[2], b[2]), minimum(a[3], b[3]))
        area_a, area_b = area(*a), area(*b)
        union = area_a + area_b - shared
        proper = (shared > zero) & (area_a > zero) & (area_b > zero) & (union > zero)
        return proper & (shared / union > arg(self.limit, "float32"))


def sorted_boxes(k: Builder, scores: Value, threshold: float | None) -> tuple[Value, Value | None]:
    """The boxes of each row of (rows, count) above the threshold, best first, and their number."""
    rows, count = scores.shape
    if threshold is None:
        return k.alias(
            sorted_order(k, k.alias(scores, (rows, count, 1)), descending=True), (rows, count)
        ), None

    above_it = k.compute((rows, count), BOOL, lambda row, p: scores[row, p] > arg(threshold, "float32"))
    positions, number, _ = true_positions(k, above_it, count, scores.is_static(1))

    def score(row: Expr, slot: Expr, _: Expr) -> Expr:
        return scores[row, cast(positions[row, slot], "index")]

    above = k.compute((rows, count, 1), FLOAT32, score)
    order = sorted_order(k, above, descending=True, lengths=number)

    def box(row: Expr, slot: Expr) -> Expr:
        return positions[row, cast(order[row, slot, lit(0)], "index")]

    operands = k.alias(scores, (rows, count, 1)), number, positions
    hint = lambda: Hint("sort", operands, {"descending": True, "keep": count})  # noqa: E731
    return k.compute((rows, count), INT32, box, hint=hint), number


def corners_of(k: Builder, boxes: Value, centered: bool) -> Value:
    """Low and high corners from any two corners, or from centres and sizes."""

    def corner(batch: Expr, box: Expr, n: Expr) -> Expr:
        axis, is_high = n % lit(2), n >= lit(2)
        if centered:
            # x and y of the centre, width, height.
            middle, half = boxes[batch, box, lit(1) - axis], boxes[batch, box, lit(3) - axis] / 2.0
            return select(is_high, middle + half, middle - half)
        a, b = boxes[batch, box, axis], boxes[batch, box, axis + lit(2)]
        return select(is_high, maximum(a, b), minimum(a, b))

    return k.compute(boxes.shape, FLOAT32, corner)


def chunk_overlaps(k: Builder, boxes: Candidates, kept: Value, start: int) -> Value:
    """Overlap bits of the boxes in the chunk at `start`: (rows, CHUNK, WORDS + 1)."""

    def formula(row: Expr, r: Expr, w: Expr) -> Expr:
        p, first = minimum(r + start, boxes.count - 1), w * lit(WORD)
        # Once enough boxes are kept, nobody asks about the others.
        is_asked = cast(kept[row, arg(boxes.most)], "index") < arg(boxes.most)
        is_open = is_asked & (r < boxes.behind(row, arg(start)))
        is_word = w < lit(WORDS)

        def bit(n: Expr) -> Expr:
            hit = boxes.overlap(row, p, minimum(first + n + start, p))
            return select(hit, lit(1, "int32") << cast(n, "int32"), lit(0, "int32"))

        def hit(m: Expr) -> Expr:
            return boxes.overlap(row, p, cast(kept[row, minimum(m, boxes.most)], "index"))

        better = select(is_open & is_word, clamp(r - first, lit(0), lit(WORD)), lit(0))
        before = select(is_open & ~is_word, cast(kept[row, arg(boxes.most)], "index"), lit(0))
        is_free = is_open & ~reduce("max", before, hit)
        return select(is_word, reduce("sum", better, bit), cast(is_free, "int32"))

    return k.compute((kept.shape[0], CHUNK, WORDS + 1), INT32, formula)


def decided(k: Builder, boxes: Candidates, overlaps: Value, kept: Value, start: int, is_last: bool) -> Value:
    """`kept` with the selected boxes of the chunk at `start`, followed by their new number."""

    def formula(row: Expr, slot: Expr) -> Expr:
        before = kept[row, arg(boxes.most)]

        def step(r: Expr, number: Expr, found: Expr, *words: Expr) -> tuple[Expr, ...]:
            hits = lit(0, "int32")
            for w, word in enumerate(words):
                hits = hits | (overlaps[row, r, lit(w)] & word)
            is_free = eq(overlaps[row, r, lit(WORDS)], lit(1, "int32")) & eq(hits, lit(0, "int32"))
            joins = is_free & (number < boxes.most)
            is_asked = joins & eq(cast(number, "index"), slot)
            bit = lit(1, "int32") << cast(r % lit(WORD), "int32")
            marked = (
                select(joins & eq(r // lit(WORD), lit(w)), word | bit, word) for w, word in enumerate(words)
            )
            return number + cast(joins, "int32"), select(is_asked, cast(r + start, "int32"), found), *marked

        size = boxes.behind(row, arg(start))
        is_number, place = eq(slot, arg(boxes.most)), slot - cast(before, "index")
        # No box of the chunk can join at any other place.
        possible = (is_number | ((place >= lit(0)) & (place < size))) & (before < boxes.most)
        words = (lit(0, "int32"),) * WORDS
        number, found, *_ = fold(select(possible, size, lit(0)), (before, kept[row, slot], *words), step)
        return select(is_number, number, found)

    hint = (lambda: boxes.hint(bound=False)) if is_last else None
    return k.compute(kept.shape, INT32, formula, hint=hint)


def kept_boxes(k: Builder, boxes: Candidates) -> Value:
    """The kept ones of the sorted boxes of each row, followed by their number: (rows, most + 1)."""
    shape = (boxes.order.shape[0], boxes.most + 1)
    if "non_max_suppression" in k.whole_layers:
        return k.compute(shape, INT32, lambda *at: lit(0, "int32"), hint=lambda: boxes.hint(bound=True))
    kept = k.compute(shape, INT32, lambda *at: lit(0, "int32"))
    start = 0
    while start < boxes.count:  # the number of boxes may be open, that of chunks is not
        overlaps, end = chunk_overlaps(k, boxes, kept, start), start + CHUNK
        kept = decided(k, boxes, overlaps, kept, start, is_last=not end < boxes.count)
        start = end
    return kept


@operator(
    "NonMaxSuppression", since=10, host=("max_output_boxes_per_class", "iou_threshold", "score_threshold")
)
def non_max_suppression(
    k: Builder, boxes: Value, scores: Value, max_output_boxes_per_class: Value | None = None,
    iou_threshold: Value | None = None, score_threshold: Value | None = None, *, center_point_box: int = 0,
) -> Value:  # fmt: skip
    """(batch, class, box) of the best boxes per class whose overlaps stay below a threshold.

    boxes: (batches, boxes, 4), corners or centres and sizes; scores: (batches, classes, boxes).
    """
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        shapes = f"{list(boxes.shape)} and {list(scores.shape)}"
        k.error(f"takes boxes (N, boxes, 4) and scores (N, classes, boxes), not {shapes}")
    batches, classes, count = scores.shape
    rows = batches * classes
    most = smallest(max(int(_number(max_output_boxes_per_class) or 0), 0), count)
    if not rows * most:
        return k.compute((0, 3), INT64, lambda *at: lit(0, "int64"))
    order, number = sorted_boxes(k, k.alias(scores, (rows, count)), _number(score_threshold))
    limit, corners = _number(iou_threshold) or 0.0, corners_of(k, boxes, bool(center_point_box))
    kept = kept_boxes(k, Candidates(order, number, corners, classes, limit, most))
    return selected_indices(k, kept, order, classes, all(scores.is_static(a) for a in range(3)))


def selected_indices(k: Builder, kept: Value, order: Value, classes: int, fixed: bool) -> Value:
    """The kept boxes of all rows as (batch, class, box)."""
    rows, most = kept.shape[0], kept.shape[1] - 1

    def holds(_: Expr, p: Expr) -> Expr:
        row = p // arg(most)
        return p - row * most < cast(kept[row, arg(most)], "index")

    mask = k.compute((1, rows * most), BOOL, holds)
    positions, number, _ = true_positions(k, mask, rows * most, fixed)

    def formula(slot: Expr, column: Expr) -> Expr:
        position = cast(positions[lit(0), slot], "index")
        row, place = position // arg(most), position % arg(most)
        box = cast(order[row, cast(kept[row, place], "index")], "index")
        of_class = select(eq(column, lit(1)), row % arg(classes), box)
        return cast(select(eq(column, lit(0)), row // arg(classes), of_class), "int64")

    found = k.compute((rows * most, 3), INT64, formula)
    if not fixed:
        # The number of chunks differs between the samples, which therefore say nothing about this tensor.
        found.signature = None
    return k.counted(found, 0, number)


def _number(x: Value | None) -> float | None:
    """The element of an input that is read on the host."""
    return None if x is None or x.known is None or not x.size else float(np.asarray(x.known).reshape(-1)[0])
