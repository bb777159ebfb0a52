"""Tuned scans: one work-item per block of a running sum, or per element of a mask."""

from __future__ import annotations

from engine.backends.gpu.scans import ROW_NAMES, Blocks, MarkedRows, Marks, row_statements
from engine.backends.opencl.codegen.printer import OpenCLPrinter, element
from engine.backends.opencl.codegen.tuned_kernel import (
    Epilogue,
    build,
    divide,
    divisor_names,
    divisor_values,
    indent,
)
from engine.compiler.plan import Compute, Tuner

_GROUP = 64
_NUMBERS = ("threads", "count", "inner", "blocks", "exclusive", "reverse")
_TYPES = ("float32", "int32")


def emit_blocks(blocks: Blocks, compute: Compute, tuner: Tuner) -> bool:
    """Emit the last step of a running sum; False for types other than float32 and 32-bit integers."""
    if compute.body.dtype not in _TYPES or blocks.before.arithmetic != compute.body.dtype:
        return False
    epilogue = Epilogue(compute, {}, {})
    word = OpenCLPrinter.TYPES[compute.body.dtype]
    join = "+" if blocks.kind == "sum" else "*"
    before = element(blocks.before.dtype.name, "B", "t")
    body = f"""\
    const int t = (f0 + (int)get_group_id(0)) * {_GROUP} + (int)get_local_id(0);
    if (t >= threads) return;
    const int line = t / inner, i = t - line * inner, o = line / blocks, block = line - o * blocks;
    const {word} before = {before};
    {word} part = {0 if blocks.kind == "sum" else 1};
    for (int k = block * {blocks.block}; k < min((block + 1) * {blocks.block}, count); ++k) {{
        const int flat = (o * count + (reverse ? count - 1 - k : k)) * inner + i;
        const {word} after = part {join} ({word}){element(blocks.x.dtype.name, "X", "flat")};
        const {word} acc = before {join} (exclusive ? part : after);
        part = after;
{indent([*epilogue.row_lines, *epilogue.lines], 2)}\
    }}
"""
    operands = (f"X:{blocks.x.dtype.name}", f"B:{blocks.before.dtype.name}")
    kernel = build(body, epilogue, operands, _NUMBERS, (_GROUP, 1, 1), area=_GROUP * blocks.block)
    grid = (-(-blocks.threads // _GROUP), 1, 1)
    values = (blocks.threads, *blocks.numbers, *epilogue.values)
    inputs = (*epilogue.inputs, blocks.x.root.name, blocks.before.root.name)
    tuner.emit(kernel, grid, values, inputs, compute.output.name)
    return True


def emit_rows(rows: MarkedRows, compute: Compute, tuner: Tuner, form: str) -> bool:
    """Emit the step that goes through whole rows: a work-item for each on a processor, else a group."""
    group = 1 if form == "cpu" else _GROUP
    marked = element(rows.mask.dtype.name, "mask", "p")
    head = [f"const int t = (f0 + (int)get_group_id(0)) * {group} + (int)get_local_id(0);"]
    if group > 1:
        head.insert(0, f"__local int sums[{group}];")
    lines = row_statements(group, marked, "barrier(CLK_LOCAL_MEM_FENCE);", "y", bool(rows.room))
    kernel = build(
        indent([*head, *lines], 1), None, [f"mask:{rows.mask.dtype.name}"], ROW_NAMES, (group, 1, 1),
        rounds=("count",), area=2, output=compute.output.dtype.name,
    )  # fmt: skip
    grid = (rows.mask.shape[0], 1, 1)
    tuner.emit(kernel, grid, rows.numbers, (rows.mask.root.name,), compute.output.name)
    return True


def emit_marks(marks: Marks, compute: Compute, tuner: Tuner) -> bool:
    """Emit the step that writes positions."""
    body = f"""\
    const int t = (f0 + (int)get_group_id(0)) * {_GROUP} + (int)get_local_id(0);
    if (t >= total) return;
    if (!{element(marks.mask.dtype.name, "mask", "t")}) return;
    const int row = {divide("t", "count")}, slot = row * room + through[t] - 1;
{indent(marks.statements(divide, "y"), 1)}\
"""
    operands = (f"mask:{marks.mask.dtype.name}", "through:int32")
    output = compute.output.dtype.name
    names = (*marks.names, *divisor_names(marks.divisors))
    values = (*marks.numbers, *divisor_values((marks.numbers[1], *marks.sizes)))
    kernel = build(body, None, operands, names, (_GROUP, 1, 1), output=output, area=_GROUP)
    inputs = (marks.mask.root.name, marks.through.root.name)
    tuner.emit(kernel, (-(-marks.mask.size // _GROUP), 1, 1), values, inputs, compute.output.name)
    return True
