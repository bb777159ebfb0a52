"""ArgMax and ArgMin: maxima of order-preserving integer keys, vectorised.

A row is searched in blocks, and the position is looked up in the block with the best key. If rows are not
contiguous, adjacent columns each keep their best key and its position.
"""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit_raw
from engine.backends.cpu.kernels.sort import order_code
from engine.backends.cpu.library import library_text
from engine.base.dtypes import INT64, arithmetic_type, as_dtype
from engine.compiler.plan import Compute, Tuner

BLOCK_COLUMNS = 256
BLOCK_RUN = 128
BLOCK_ROWS = 16
"""Rows that a task takes where each is looked through as a whole."""

_NS_PER_ELEMENT = 0.15
_NS_PER_RESULT = 20.0

_ARGUMENTS = ArgumentBlock("outer count inner blocks")

_TYPES = ("float32", "float64", "int32", "int64")


def tune_argmax(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "argmax"."""
    (x,), attributes = compute.operands, compute.attributes
    if x.arithmetic not in _TYPES:
        return False
    outer, count, inner = x.shape
    blocks = -(-inner // BLOCK_COLUMNS)
    tasks = -(-outer // BLOCK_ROWS) if inner == 1 else outer * blocks
    each = (x.size * _NS_PER_ELEMENT + outer * inner * _NS_PER_RESULT) / tasks
    text = position_text(x.dtype.name, bool(attributes["largest"]), bool(attributes["last"]))
    sizes = _ARGUMENTS.values(outer=outer, count=count, inner=inner, blocks=blocks)
    step = TaskSchedule(tasks, each), sizes
    return emit_raw(compute, tuner, INT64, NativeKernel("argmax", text), step, inputs=(x.name,))


def position_text(storage: str, largest: bool, last: bool) -> str:
    """Source of the kernel. A key wins if it is greater or, for the last index, equal."""
    arithmetic = arithmetic_type(as_dtype(storage))
    wide = arithmetic in ("float64", "int64")
    kind, short, top = ("int64", "i64", 2**63 - 1) if wide else ("int32", "i32", 2**31 - 1)
    key = [f"x = {read_text(storage, 'source', 'at')}", *order_code(arithmetic, is_reversed=not largest)]
    better = "op_ge" if last else "op_gt"
    # Any first element is greater than this, or equal if it is as small.
    least = f"_types.{kind}(-{top} - 1)"
    end = f"row_start + min(where + {BLOCK_RUN}, count) - 1, -1"
    run = [
        f"row_start, best, where, p = row * count, {least}, 0, 0",
        "while p < count:",
        f"    size = min({BLOCK_RUN}, count - p)",
        f"    most = {least}",
        "    for j in range(size):",
        "        at = row_start + p + j",
        *indent(indent(key)),
        "        most = op_max(most, code)",
        f"    if {better}(most, best):",
        "        best, where = most, p",
        "    p += size",
        f"at, step = {end if last else 'row_start + where, 1'}",
        "while True:",
        *indent(key),
        "    if code == best:",
        "        break",
        "    at += step",
        "store_i64(out, row, at - row_start)",
    ]
    columns = [
        "o = op_div(task, blocks)",
        f"first = (task - o * blocks) * {BLOCK_COLUMNS}",
        f"columns = min({BLOCK_COLUMNS}, inner - first)",
        "for c in range(columns):",
        f"    store_{short}(keys, c, {least})",
        f"    store_{short}(places, c, 0)",
        "for r in range(count):",
        "    line = (o * count + r) * inner + first",
        f"    place = to_{kind}(r)",
        "    for c in range(columns):",
        "        at = line + c",
        *indent(indent(key)),
        f"        best = to_{kind}(load_{short}(keys, c))",
        f"        is_better = {better}(code, best)",
        f"        store_{short}(keys, c, op_max(best, code))",
        # Positions ascend. A select between old and new would become a masked store, which is slow on AVX2.
        f"        before = to_{kind}(load_{short}(places, c))",
        f"        store_{short}(places, c, op_max(before, op_select(is_better, place, _types.{kind}(0))))",
        "for c in range(columns):",
        f"    store_i64(out, o * inner + first + c, load_{short}(places, c))",
    ]
    size = BLOCK_COLUMNS * (8 if wide else 4)
    lead = [*_ARGUMENTS.prologue("out", "source"), f"keys, places = stack_bytes({size}), stack_bytes({size})"]
    task = [
        "if inner == 1:",
        f"    for row in range(task * {BLOCK_ROWS}, min((task + 1) * {BLOCK_ROWS}, outer)):",
        *indent(indent(run)),
        "else:",
        *indent(columns),
    ]
    return kernel_text(library_text(), lead, task)
