"""Prefix sums and products: one pass per row, or row by row over blocks of columns."""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import computed_type, kernel_text, read_text, write_text
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit_raw
from engine.backends.cpu.library import library_text
from engine.base.dtypes import BOOL
from engine.compiler.plan import Compute, Tuner

BLOCK_COLUMNS = 256
"""Columns whose totals a task holds."""

_NS_PER_ELEMENT = {True: 1.3, False: 0.2}
_NS_PER_ROW = 5.0
_NS_PER_TASK = 30.0

_GRID = TaskGrid(column="inner")
_ARGUMENTS = ArgumentBlock("count inner", _GRID.arguments, "exclusive reverse")


def tune_prefix_scan(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "prefix_scan"."""
    x, attributes = compute.operands[0], compute.attributes
    if x.dtype == BOOL:
        return False
    outer, count, inner = x.shape
    blocks = Blocks(-(-inner // BLOCK_COLUMNS), BLOCK_COLUMNS)
    each = count * inner / blocks.count * _NS_PER_ELEMENT[inner == 1] + count * _NS_PER_ROW * (inner > 1)
    kernel = NativeKernel(f"scan_{attributes['kind']}", scan_text(x.dtype.name, str(attributes["kind"])))
    sizes = _ARGUMENTS.values(
        count=count, inner=inner, **_GRID.values(blocks), exclusive=int(attributes["exclusive"]),
        reverse=int(attributes["reverse"]),
    )  # fmt: skip
    step = TaskSchedule(outer * blocks.count, each + _NS_PER_TASK), sizes
    return emit_raw(compute, tuner, x.dtype, kernel, step, inputs=(x.name,))


def scan_text(storage: str, kind: str) -> str:
    """Source of the kernel. Totals of float32 are float64 to limit rounding errors."""
    own = computed_type(storage)
    wide = "float64" if own == "float32" else own
    short = {"float64": "f64", "int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64"}.get(wide)
    assert short is not None, f"there is no running sum of {storage}"
    join = {"sum": "op_add", "prod": "op_mul"}[kind]
    neutral = f"_types.{wide}({int(kind == 'prod')})"
    element = f"to_{wide}({read_text(storage, 'x', 'at')})"
    lead = [*_ARGUMENTS.prologue("out", "x"), f"totals = stack_bytes({BLOCK_COLUMNS * 8})"]
    task = [
        *_GRID.locate("o"),
        "columns = column1 - column0",
        "step = -inner if reverse else inner",
        "start = (o * count + (count - 1 if reverse else 0)) * inner + column0",
        "if inner == 1:",
        f"    total = {neutral}",
        "    for r in range(count):",
        "        at = start + r * step",
        f"        after = {join}(total, {element})",
        f"        {_stored(storage, 'op_select(exclusive != 0, total, after)')}",
        "        total = after",
        "else:",
        "    for c in range(columns):",
        f"        store_{short}(totals, c, {neutral})",
        "    for r in range(count):",
        "        row = start + r * step",
        "        for c in range(columns):",
        "            at = row + c",
        f"            total = load_{short}(totals, c)",
        f"            after = {join}(total, {element})",
        f"            store_{short}(totals, c, after)",
        f"            {_stored(storage, 'op_select(exclusive != 0, total, after)')}",
    ]
    return kernel_text(library_text(), lead, task)


def _stored(storage: str, value: str) -> str:
    return write_text(storage, "out", "at", f"to_{computed_type(storage)}({value})")
