"""Tuned prefix sums: one thread per block, or per element of a mask."""

from __future__ import annotations

from engine.backends.gl.compute.epilogue import FIRST_GROUP, Epilogue, grid_fits
from engine.backends.gl.compute.flat_grid import (
    LOCAL_SIZE,
    THREAD,
    divide,
    divisor_names,
    divisor_values,
    flat_grid,
    flat_kernel,
)
from engine.backends.gl.compute.printer import element
from engine.backends.gl.compute.target import Target
from engine.backends.gl.storage import lanes
from engine.backends.gpu.scans import ROW_NAMES, Blocks, MarkedRows, Marks, row_statements
from engine.compiler.plan import Compute, Tuner

_NAMES = ("threads", "count", "inner", "blocks", "exclusive", "reverse", *FIRST_GROUP)
_TYPES = ("float32", "int32")
_NS = 10.0
# Marks of a row that one thread goes through in software before several dispatches take less time.
_LONGEST_ALONE = 1 << 13


def emit_blocks(blocks: Blocks, compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Emit the last step of a running sum; False for other types than float32 and 32-bit integers."""
    kind = compute.body.dtype
    if kind not in _TYPES or blocks.before.arithmetic != kind or lanes(compute.output.dtype.name) > 1:
        return False
    operands = [(v.root.name, 1) for v in (blocks.x, blocks.before)]
    kinds = [v.dtype.name for v in (blocks.x, blocks.before)]
    finish = Epilogue(compute, operands, 0, target, kinds)
    grid = flat_grid(blocks.threads, target)
    if not finish.fits() or not grid_fits(grid, target):
        return False
    join = "+" if blocks.kind == "sum" else "*"
    # Text over floats, which `Epilogue` makes one over integers where those are added up.
    lines = [
        THREAD,
        "if (t >= threads) return;",
        "int line = t / max(inner, 1), i = t - line * inner;",
        "int o = line / max(blocks, 1), block = line - o * blocks;",
        f"float before = {element('b1', 't', kinds[1], target.texels)};",
        f"float part = float({0 if blocks.kind == 'sum' else 1});",
        f"for (int k = block * {blocks.block}; k < min((block + 1) * {blocks.block}, count); ++k) {{",
        "    int at = (o * count + (reverse != 0 ? count - 1 - k : k)) * inner + i;",
        f"    float after = part {join} {element('b0', 'at', kinds[0], target.texels)};",
        f"    finish(at, before {join} (exclusive != 0 ? part : after));",
        "    part = after;",
        "}",
    ]
    own = [blocks.threads, *blocks.numbers, 0, 0, 0]
    round_ns = _NS * blocks.block
    main = finish.main(_NAMES, lines)
    kernel = finish.kernel_for(main, len(own), (LOCAL_SIZE, 1), (), round_ns, is_folded=True)
    finish.emit(tuner, kernel, grid, own)
    return True


def emit_rows(rows: MarkedRows, compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Emit the step that goes through whole rows: a thread for each in software, else a group.

    False for rows that are too long for that, and beyond the device's limits.
    """
    group, count = 1 if target.texels else LOCAL_SIZE, rows.mask.shape[1]
    if group == 1 and count > _LONGEST_ALONE:
        return False
    grid = flat_grid(rows.mask.shape[0] * group, target)
    each = -(-count // group)
    if not grid_fits(grid, target) or 2 * each + rows.room + LOCAL_SIZE > target.limits.max_loop_rounds:
        return False
    kind, output = rows.mask.dtype.name, compute.output.dtype.name
    marked = f"{element('b0', 'p', kind, target.texels)} != 0"
    lines = row_statements(group, marked, "memoryBarrierShared(); barrier();", "o", bool(rows.room))
    head = [f"shared int sums[{group}];"] if group > 1 else []
    kernel = flat_kernel(
        lines, ROW_NAMES, [kind], output, target, head, LOCAL_SIZE / group * _NS, rounds=(1,)
    )  # fmt: skip
    tuner.emit(kernel, grid, (*rows.numbers, 0, 0, 0), (rows.mask.root.name,), compute.output.name)
    return True


def emit_marks(marks: Marks, compute: Compute, tuner: Tuner, target: Target) -> bool:
    """Emit the step that writes positions; False beyond the device's limits."""
    grid = flat_grid(marks.mask.size, target)
    if not grid_fits(grid, target):
        return False
    kind = marks.mask.dtype.name
    lines = [
        "if (t >= total) return;",
        f"if ({element('b0', 't', kind, target.texels)} == 0) return;",
        f"int row = {divide('t', 'count')};",
        f"int slot = row * room + {element('b1', 't', 'int32', target.texels)} - 1;",
        *marks.statements(divide, "o"),
    ]
    names = (*marks.names, *divisor_names(marks.divisors))
    kernel = flat_kernel(lines, names, [kind, "int32"], compute.output.dtype.name, target)
    values = (*marks.numbers, *divisor_values((marks.numbers[1], *marks.sizes)), 0, 0, 0)
    inputs = (marks.mask.root.name, marks.through.root.name)
    tuner.emit(kernel, grid, values, inputs, compute.output.name)
    return True
