"""Resizing along the innermost axis: vectors of rows, as positions and weights are the same in all.

A task transposes what it reads of a vector of rows, so that nothing is gathered, and then its sums.
"""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.kernels.interpolation import places_at_once
from engine.backends.cpu.kernels.transpose import band_text
from engine.backends.cpu.library import library_text
from engine.base.dtypes import FLOAT32
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import largest

SPAN = 256
"""Elements of a row that a task has room for."""

_MOST_TAPS = 16

_NS_PER_TAP = 0.12
_NS_PER_RESULT = 0.2
_NS_PER_TASK = 200.0

_GRID = TaskGrid(row="outer", column="made")
_ARGUMENTS = ArgumentBlock(_GRID.arguments, "outer size made first")


def tune_resample(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "resample" along the innermost axis: float32, few taps, more than some rows."""
    (x, places, weights), attributes = compute.operands, compute.attributes
    taps, rank, lanes = attributes["taps"], len(compute.space), host_tile().lanes
    if {x.dtype, weights.dtype} != {FLOAT32} or compute.body.dtype != "float32":
        return False
    if not attributes["is_innermost"] or type(taps) is not int or taps > _MOST_TAPS:
        return False
    outer, size, out = (attributes[name] for name in ("outer", "size", "out"))
    if 2 * outer < lanes:
        return False
    if compute.epilogue is not None and not compute.epilogue.free <= {rank - 1, "acc", "flat"}:
        return False
    epilogue = print_epilogue(compute, _ARGUMENTS.end, rank - 1)
    total_ns = outer * out * (taps * _NS_PER_TAP + _NS_PER_RESULT)
    at_once = places_at_once(taps)
    # A block of results reads its share of a row, and some elements beside that.
    in_columns = even_blocks(out, largest(-(-out // at_once), -(-size // (SPAN - 2 * taps))))
    wanted = tasks_wanted(total_ns, threads)
    in_rows = even_blocks(outer, -(-wanted // largest(1, in_columns.count)), lanes)
    arguments = _ARGUMENTS.values(
        **_GRID.values(in_rows, in_columns), outer=outer, size=size, made=out, first=attributes["first"]
    )
    kernel = NativeKernel("resample", resample_text(taps, at_once, lanes, epilogue))
    schedule = TaskSchedule.over((in_rows, in_columns), total_ns, 1, _NS_PER_TASK)
    inputs = (x.name, places.name, weights.name)
    return emit(tuner, kernel, schedule, arguments, inputs, compute.output.name, epilogue)


def resample_text(taps: int, at_once: int, lanes: int, epilogue: Epilogue) -> str:
    """Source of the kernel, for up to `at_once` results of a row and vectors of `lanes` rows."""
    row_bytes = 4 * lanes
    lead = [
        *_ARGUMENTS.prologue("x", "places", "weights", epilogue=epilogue),
        f"addresses = stack_bytes({taps * at_once * 8})",
        f"shares = stack_bytes({taps * at_once * 4})",
        f"staged = stack_bytes({SPAN * row_bytes})",
        f"sums = stack_bytes({at_once * row_bytes})",
        f"turned = stack_bytes({at_once * row_bytes})",
        *epilogue.kernel,
    ]
    table = [
        "left, right = size, _types.int64(0)",
        f"for t in range({taps}):",
        "    entry = first + t * made + column0",
        "    for p in range(columns):",
        "        element = max(to_int64(load_i32(places, entry + p)), 0)",
        "        left, right = min(left, element), max(right, element)",
        f"        store_i64(addresses, t * {at_once} + p, staged + element * {row_bytes})",
        f"        store_f32(shares, t * {at_once} + p, load_f32(weights, entry + p))",
        f"span, behind = right - left + 1, -left * {row_bytes}",
    ]
    near = [
        f"for k in range(0, span, {lanes}):",
        f"    k = max(min(k, span - {lanes}), 0)",
        "    source = x + (near * size + left + k) * 4",
        f"    wanted = min({lanes}, span - k)",
        f"    transpose_band(source, size * 4, staged + k * {row_bytes}, {row_bytes}, count, wanted)",
        f"set_bytes(sums, 0, columns * {row_bytes})",
        "for p in range(columns):",
        f"    blend_channels(addresses + p * 8, behind, shares + p * 4, sums + p * {row_bytes})",
        f"transpose_band(sums, {row_bytes}, turned, {at_once * 4}, columns, {lanes})",
    ]
    far = [
        "for k in range(count):",
        "    for p in range(columns):",
        "        total = _types.float32(0.0)",
        f"        for t in range({taps}):",
        "            element = max(to_int64(load_i32(places, first + t * made + column0 + p)), 0)",
        "            found = load_f32(x, (near + k) * size + element)",
        f"            total = op_add(total, op_mul(load_f32(shares, t * {at_once} + p), found))",
        f"        store_f32(turned, k * {at_once} + p, total)",
    ]
    task = [
        *_GRID.locate(),
        "columns, first_column = column1 - column0, column0",
        *table,
        f"for row in range(row0, row1, {lanes}):",
        # The last vector covers some rows again.
        f"    near = max(min(row, outer - {lanes}), 0)",
        f"    count = min({lanes}, outer - near)",
        f"    if span <= {SPAN}:",
        *indent(indent(near)),
        "    else:",
        *indent(indent(far)),
        f"    for line in range(row, min(row + {lanes}, row1)):",
        f"        tile, start = turned + (line - near) * {at_once * 4}, line * made + column0",
        *indent(indent(epilogue.store)),
    ]
    made = f"blend_channels = make_blend_channels({taps}, {at_once}, {lanes})\n" + band_text(lanes, 4)
    return kernel_text(library_text("vectors", "interpolation") + made, lead, task)
