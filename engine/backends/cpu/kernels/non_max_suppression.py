"""Greedy non-maximum suppression: each box is compared with those kept so far, in blocks."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit_raw, even_blocks
from engine.backends.cpu.codegen.task_partition import CHUNKS_PER_THREAD
from engine.backends.cpu.library import library_text
from engine.base.dtypes import FLOAT32, INT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import whole

AT_ONCE = 16
"""Kept boxes that a box is compared with before the next test whether it is out."""

_NS_PER_BOX = 40.0

_GRID = TaskGrid(row="rows")
_ARGUMENTS = ArgumentBlock("count classes most rows", _GRID.arguments, "most_overlap", reals="most_overlap")


def tune_non_max_suppression(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "non_max_suppression"."""
    (order, corners, *number), attributes = compute.operands, compute.attributes
    rows, count = order.shape
    most = whole(attributes["most"])
    blocks = even_blocks(rows, threads * CHUNKS_PER_THREAD)
    scratch = tuner.temporary(blocks.count * 5 * (most + AT_ONCE), FLOAT32)
    schedule = TaskSchedule(blocks.count, blocks.size * count * _NS_PER_BOX)
    stored = number[0].dtype.name if number else None
    kernel = NativeKernel("non_max_suppression", non_max_suppression_text(stored))
    arguments = _ARGUMENTS.values(
        count=count, classes=int(attributes["classes"]), most=most, rows=rows, **_GRID.values(blocks),
        most_overlap=float(attributes["limit"]),
    )  # fmt: skip
    names = (order.name, corners.name, *(v.name for v in number), scratch)
    return emit_raw(compute, tuner, INT32, kernel, (schedule, arguments), inputs=names)


def non_max_suppression_text(number: str | None) -> str:
    """Source of the kernel; `number` is the type of the box counts."""
    names = ["out", "order", "corners", *(["number"] if number else []), "scratch"]
    sides = ("low_y", "low_x", "high_y", "high_x")
    length = read_text(number, "number", "row") if number else "count"
    zero = "_types.float32(0.0)"
    each_row = [
        "base, found = row * (most + 1), 0",
        f"n = min(max(to_int64({length}), 0), count)",
        "batch = op_div(row, classes)",
        "p = 0",
        "while p < n and found < most:",
        "    box = (batch * count + to_int64(load_i32(order, row * count + p))) * 4",
        *(f"    {side} = load_f32(corners, box + {k})" for k, side in enumerate(sides)),
        f"    area = op_max(high_y - low_y, {zero}) * op_max(high_x - low_x, {zero})",
        "    k, hits = 0, 0",
        "    while k < found and hits == 0:",
        # Behind the last one stand boxes without an area.
        f"        for j in range({AT_ONCE}):",
        *(f"            {side}2 = load_f32(kept, {k} * stride + k + j)" for k, side in enumerate(sides)),
        "            area2 = load_f32(kept, 4 * stride + k + j)",
        "            height = op_max(op_min(high_y, high_y2) - op_max(low_y, low_y2), zero)",
        "            width = op_max(op_min(high_x, high_x2) - op_max(low_x, low_x2), zero)",
        "            shared = height * width",
        "            union = area + area2 - shared",
        "            proper = (shared > zero) & (area > zero) & (area2 > zero) & (union > zero)",
        "            hits += 1 if proper & (shared / union > limit) else 0",
        f"        k += {AT_ONCE}",
        "    if hits == 0:",
        "        store_i32(out, base + found, p)",
        *(f"        store_f32(kept, {k} * stride + found, {side})" for k, side in enumerate(sides)),
        "        store_f32(kept, 4 * stride + found, area)",
        "        found += 1",
        f"        if found % {AT_ONCE} == 0:",
        f"            for j in range({AT_ONCE}):",
        "                store_f32(kept, 4 * stride + found + j, zero)",
        "    p += 1",
        "for q in range(found, most):",
        "    store_i32(out, base + q, 0)",
        "store_i32(out, base + most, found)",
    ]
    lead = [
        *_ARGUMENTS.prologue(*names),
        "limit = _types.float32(most_overlap)",
        f"stride, zero = most + {AT_ONCE}, {zero}",
    ]
    task = [
        "kept = scratch + task * stride * 20",
        *_GRID.locate(),
        "for row in range(row0, row1):",
        f"    for j in range({AT_ONCE}):",
        "        store_f32(kept, 4 * stride + j, zero)",
        *indent(each_row),
    ]
    return kernel_text(library_text(), lead, task)
