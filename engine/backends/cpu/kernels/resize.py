"""Nearest-neighbour resizing: rows from the same source row are copied."""

from __future__ import annotations

from math import prod

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit_raw, even_blocks
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner

_NS_PER_ELEMENT = 0.15
_NS_PER_TASK = 50.0

_GRID = TaskGrid(row="out_rows")
_ARGUMENTS = ArgumentBlock(_GRID.arguments, "out_rows out_columns rows columns row_places column_places")


def tune_resize_nearest(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "resize_nearest": any type."""
    (x, places), attributes = compute.operands, compute.attributes
    outer, rows, columns = x.shape
    out_rows, out_columns = (attributes[name] for name in ("out_rows", "out_columns"))
    total_ns = prod(compute.space) * _NS_PER_ELEMENT
    blocks = even_blocks(out_rows, -(-tasks_wanted(total_ns, threads) // outer))
    arguments = _ARGUMENTS.values(
        **_GRID.values(blocks), out_rows=out_rows, out_columns=out_columns, rows=rows, columns=columns,
        row_places=attributes["row_places"], column_places=attributes["column_places"],
    )  # fmt: skip
    kernel = NativeKernel("resize_nearest", nearest_text(x.dtype.itemsize))
    schedule = TaskSchedule.over((blocks,), total_ns, outer, _NS_PER_TASK)
    return emit_raw(compute, tuner, x.dtype, kernel, (schedule, arguments), inputs=(x.name, places.name))


def nearest_text(size: int) -> str:
    """Source of the kernel, for elements of `size` bytes."""
    short, lanes = f"u{8 * size}", host_tile().lanes * 4 // size
    lead = [
        *_ARGUMENTS.prologue("out", "x", "places"),
        "column_of = places + column_places * 4",
        # Twice as many columns are what networks ask for most.
        "are_pairs = out_columns == 2 * columns",
        "for k in range(out_columns):",
        "    are_pairs = are_pairs and to_int64(load_i32(column_of, k)) == k >> 1",
    ]
    task = [
        *_GRID.locate("plane"),
        "before = _types.int64(-1)",
        "for row in range(row0, row1):",
        f"    target = out + (plane * out_rows + row) * out_columns * {size}",
        "    place = to_int64(load_i32(places, row_places + row))",
        f"    source = x + (plane * rows + place) * columns * {size}",
        "    if place == before:",
        f"        copy_bytes(target, target - out_columns * {size}, out_columns * {size})",
        "    elif are_pairs:",
        "        k = 0",
        f"        while k + {lanes} <= columns:",
        f"            double_run(target + 2 * k * {size}, source + k * {size})",
        f"            k += {lanes}",
        "        while k < columns:",
        f"            store_{short}(target, 2 * k, load_{short}(source, k))",
        f"            store_{short}(target, 2 * k + 1, load_{short}(source, k))",
        "            k += 1",
        "    else:",
        "        for k in range(out_columns):",
        f"            value = load_{short}(source, to_int64(load_i32(column_of, k)))",
        f"            store_{short}(target, k, value)",
        "    before = place",
    ]
    helpers = f"double_run = make_double_run({lanes}, {size})\n"
    return kernel_text(library_text("vectors") + helpers, lead, task)
