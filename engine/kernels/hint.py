"""`Hint`: what a formula computes (a product, a convolution...), so that a backend may use a tuned kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.kernels.value import Value

HintKind = Literal[
    "matmul", "conv", "matmul_integer", "conv_integer", "pool", "concat", "reduce", "transpose",
    "resize_nearest", "recurrence", "softmax", "normalize", "sort", "prefix_scan", "argmax", "scatter",
    "stream_compaction", "count_nonzero", "nonzero", "compress", "non_max_suppression", "matmul_nbits",
    "expert_matmul", "expert_matmul_nbits", "squared_distances", "complex_product", "roi_align",
    "interpolate", "resample", "tree_ensemble_leaves", "byte_lookup", "loop", "loop_output",
]  # fmt: skip


@dataclass(frozen=True)
class Hint:
    """What a formula computes, for backends that have a tuned kernel for it.

    matmul: operands (a, b); attributes m, n, k, batch (ints) and a_strides, b_strides (batch, row, column) in
        elements, 0 for a broadcast batch. Output is (batch, m, n), row-major.
    conv: operands (x, w) with x (N, C, *spatial) and w (M, C/group, *kernel); attributes strides, dilations,
        pads (begin, one per spatial axis), group. Output is (N, M, *out). A bias is in the epilogue. With
        channels_last the output is (N, *out, M) and x is (N, *spatial, C), unless x_first; w stays. With
        pooled, which backends set, each result is the largest of so many along each axis, after the epilogue.
    matmul_integer, conv_integer: the same of operands less their zero points, which follow them: `zeros`
        tells which of the two has one. That of row r of the left side (batch * m), or of the columns of the
        right side, is entry r modulo their number; x has one, w one or one for each of its M.
    matmul_nbits: operands (a, words, scales, ...) with a (m, k), and those that b is unpacked from: bytes
        (n, blocks * block * bits / 8), scales (n, blocks), then zero points, if there are any, and the block
        of each of the k numbers where `is_assigned`. Attributes m, n, k, bits, block, is_assigned, and
        weight, the formula of b's element at (column, row). Output is (m, n).
    expert_matmul: operands (chosen, x, w) with int32 chosen (rows, count) and w (experts, n, k); attribute
        shared, whether x is (rows, k) for all that a row has chosen, or else (rows * count, k). Output is
        (rows, count, n), the products with the weights of the chosen experts.
    expert_matmul_nbits: the same with weights that are unpacked from the operands behind x; attributes
        experts, n, k, and weight, the formula of the element at (expert * n + row, column).
    squared_distances: operands, attributes and output as of "matmul", with the sums of squared differences
        instead of products.
    complex_product: operands (x, by) with x (lines, rows, 2, columns), real parts before imaginary ones, and
        by (rows, 2, columns). Output is (lines, rows, 2, columns), the products of the complex numbers.
    pool: operands (x,); attributes kind "max", "average" or "sum", kernel, strides, dilations, pads (begin),
        include_pad, and ends (end pads). Output is (N, C, *out). With channels_last x is (N, *spatial, C) and
        the output (N, *out, C).
    concat: operands are matrices of equal height, side by side in the output (height, columns).
    transpose: operands (x,) with x (batch, rows, columns); attributes batch, rows, columns. Output is (batch,
        columns, rows), or (columns, rows) where the batch is 1.
    resize_nearest: operands (x, places) with x (outer, rows, columns) and an int32 table, which has at
        `row_places` the row that each of `out_rows` comes from, and at `column_places` the column of each of
        `out_columns`, all of them attributes. Output is (outer, out_rows, out_columns).
    reduce: operands (x,), read as (outer, extent, inner); attributes outer, extent, inner, kind ("sum",
        "mean", which is the sum divided by extent, "prod", "max" or "min"), and term, which says what is
        reduced: "element" (the default), "magnitude" (abs), "square", or "deviation", the square of the
        difference to the second operand, (outer, inner). Output is (outer, inner). An operand (outer, extent)
        tells that inner is 1 for every input shape.
    softmax: operands (x,) with x (rows, extent); attributes logarithm (bool) and masked (whether a row of
        nothing but -inf yields zeros). Output is exp(x - top) / sum, or its logarithm, by row.
    normalize: operands (x,) with x (rows, extent); attributes centered (bool) and epsilon. Output is (x -
        mean) / sqrt(variance + epsilon) by row; not centered, x / sqrt(mean of squares + epsilon).
    sort: operands (x,), (x, lengths) or (x, lengths, listed) with x (outer, count, inner) and lengths
        (outer), of which the first elements alone are sorted, or where `inner` is 1 those that are listed
        (outer, count) first; attributes descending and keep. Output is the positions of the first ones along
        the middle axis, (outer, keep, inner), 0 behind them: stable, NaN largest, both zeros equal.
    prefix_scan: operands (x,) or (x, before) with x (outer, count, inner); attributes kind ("sum" or "prod"),
        exclusive, reverse, block. Output is the running sum or product along the middle axis of x, cast to
        the output's type. before is what comes before each `block` places, counted from the end if reversed:
        (outer, blocks, inner).
    argmax: operands (x,) with x (outer, count, inner); attributes largest, last. Output is where the
        extreme element along the middle axis is, (outer, inner): of equals the first, or the last. NaN wins.
    scatter: operands (data, targets, updates); attributes reduction ("none", "add", "mul", "max", "min") and
        whole. data is (outer, places, inner); updates are (rows, count, columns), no more than data has.
        int32 targets are (rows, count, 1) if `whole`, where a row of columns goes to one place, else as
        updates; an update goes nowhere where they are outside. Output is data after all updates in order.
    stream_compaction: operands (mask, through), bool (rows, count) and its inclusive running sum, and where
        rows are longer than a block the sum before each, (rows, blocks, 1); attribute block, elements of one.
        Output is the positions of what is marked in each row, in order, (rows, room); the slots behind them
        hold any position.
    count_nonzero: operands (mask,), bool (rows, count). Output is how many are marked in each row, (rows).
    nonzero: operands as for stream_compaction, of one row, and attribute shape. Output is the indices in
        that shape of what is marked, (rank, count); the slots behind them mean nothing.
    compress: operands (x, mask) with x (outer, length, inner) and mask (1, count). Output is the slices of x
        that are marked, (outer, room, inner); those behind them mean nothing.
    non_max_suppression: operands (order, corners) or (order, corners, number): boxes of each row, best first,
        (rows, count), those of a batch as (batches, count, 4), and how many of a row there are; attributes
        classes (rows of a batch), limit, most, and bound where no formula stands for it. Output is which
        boxes of `order` are kept, and behind them how many, (rows, most + 1); a box is out where a kept one
        shares more than `limit` of both areas' union.
    roi_align: operands (x, places, images) with x (N, C, H, W), places (regions, 2, ratio, bins) of samples
        along y and along x, below 0 where a sample is outside, and images (regions); attributes ratio and
        across, the bins of a row. Samples along y are alike in a row of bins, those along x in a column.
        Output is the mean of each bin's bilinear samples, (regions, C, bins).
    interpolate: operands (planes, elements, weights) with planes (N, C, size), and for each group of places
        the positions in a plane and their weights along each of the attribute `axes`, (N, groups, axes *
        count, places). An element has an entry of each axis: its position is the sum of theirs, and its
        weight the product; where one is below 0, it counts as 0. Output is the sum of weights times elements,
        (N, C, groups, places).
    resample: operands (x, rows, weights) with x (outer, size, inner) and tables that have, for tap t of the
        element i of `out`, the row of x and its weight at first + t * out + i; attributes outer, size, out,
        inner, first, taps, is_innermost, which tells that inner is 1 for every input shape, and
        is_inner_static, that it is the same. Output is the sum of weights times rows, (outer, out, inner).
    tree_ensemble_leaves: operands (x, nodes, splits, roots) with x (rows, features): trees whose nodes are
        known (nodes, 3) int32, a feature and the node, or as -1 - i leaf i, where x is on the true side of
        the split and where it is not; attributes mode, how they are compared ("LEQ", "LT", "GTE", "GT", "EQ"
        or "NEQ"), depth, the nodes on the longest path, and missing: whether nodes are (nodes, 4), with a
        number above 0 where NaN is on the true side. Output is the leaf that each row reaches in each tree,
        (trees, rows).
    byte_lookup: operands (x, table), bytes and a table of 256 bytes. Output is the entry of each byte's bits.
    recurrence: a recurrent layer of known weights with ONNX's default activations, for backends that are
        bound to take it: no formula stands for it. Operands (x, w, r), then those of bias and first states
        that `given` names ("b", "h", "c"); x (T, N, I), the others as ONNX has them, states (D, N, H).
        Attributes kind ("lstm", "gru" with linear_before_reset, or "rnn"), reverses (one bool per direction),
        states. Output is Y (T, D, N, H) and as many of the last states (D, N, H), h and c, as `states` says.
    loop: formulas that run repeatedly, as one step of the plan (`engine.compiler.repeated_steps`).
        Operands are what they read beside each other's results; attribute repeat, a `Repeat`.
    loop_output: what a repeat makes besides, of another element type. Operand is the output of the repeat.
    """

    kind: HintKind
    operands: tuple[Value, ...]
    attributes: Mapping[str, Any]

    @property
    def is_bound(self) -> bool:
        """Whether the formula is a placeholder, so that the backend must implement the hint."""
        return self.kind in ("recurrence", "loop", "loop_output") or bool(self.attributes.get("bound"))
