"""Reductions over adjacent axes: column-wise, or along contiguous runs; integers column-wise only.

Few elements are added in float32 before their sum joins a float64, so that rounding does not grow with the
extent. Where there are fewer results than threads could share, each part of the extent gives a partial result
first, and a second step joins these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import kernel_text, split_row
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit
from engine.backends.cpu.codegen.task_partition import cut_extent
from engine.backends.cpu.codegen.tiles import host_tile
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import REDUCTIONS, acc
from engine.kernels.size import as_float, deferred, largest, smallest
from engine.kernels.value import Value

BLOCK_COLUMNS = 512
"""Columns that a task reduces side by side."""

BLOCK_ROWS = 64
"""Elements that are reduced in float32 before the result joins a wider one."""

BLOCK_RUN = 4096
"""Neighbours that are reduced in float32, in as many parts as the vectors have elements."""

BLOCK_RESULTS = 256
"""Runs that a task reduces."""

VECTORS = 4
_SLIM_UNROLL = 8

_TASK_ELEMENTS = 1 << 16

_SHORT_RUN = 8
"""Neighbours up to which beginning and ending a run takes longer than the generic kernel takes for all."""

_NS_PER_ELEMENT = 0.08
_NS_PER_RESULT = 1.0
_NS_PER_RUN = 8.0
_NS_PER_TASK = 30.0

_COLUMNS = TaskGrid(row="extent", column="last_size")
_COLUMN_ARGUMENTS = ArgumentBlock("extent last_size", _COLUMNS.arguments, "divisor", reals="divisor")
_RUNS = TaskGrid(result="results")
_RUN_ARGUMENTS = ArgumentBlock(
    "results last_size extent parts part_size", _RUNS.arguments, "divisor", reals="divisor"
)

_INTEGERS = {"int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64"}
"""Types that are added up as they are stored, by the prelude's names."""

KINDS = ("sum", "mean", "prod", "max", "min")
TERMS = ("element", "magnitude", "square", "deviation")


@dataclass(frozen=True)
class _Work:
    """One reduction step: `source` as (outer, extent, inner), in parts of the extent."""

    kind: str
    term: str
    sizes: tuple[int, int, int]
    source: str
    center: str | None = None
    parts: int = 1
    divisor: float = 1.0

    @property
    def inputs(self) -> tuple[str, ...]:
        """The buffers that the step reads."""
        return (self.source,) if self.center is None else (self.source, self.center)


def tune_reduce(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "reduce": a space of (*outer, inner), or of one or two axes of runs.

    Of other types than float32, columns of integers. The generic kernel walks down each of them.
    """
    attributes, (x, *centers) = compute.attributes, compute.operands
    kind, term = str(attributes["kind"]), str(attributes.get("term", "element"))
    outer, extent, inner = (attributes[name] for name in ("outer", "extent", "inner"))
    if kind not in KINDS or term not in TERMS or extent < 1:
        return False
    # Only what holds for every input shape may choose between kernels.
    are_runs = x.rank == 2 or (x.rank == 3 and x.always_one(2))
    if are_runs and x.is_static(1) and extent <= _SHORT_RUN:
        return False
    space = compute.space
    if prod(space) != outer * inner or (len(space) > 2 if are_runs else space[-1] != inner):
        return False
    if not compute.is_float32:
        is_covered = x.dtype.name in _INTEGERS and compute.body.dtype == x.dtype.name and not are_runs
        if not is_covered or kind == "mean" or term != "element":
            return False
        _emit_columns(compute, tuner, _Work(kind, term, (outer, extent, inner), x.name))
        return True
    emit_step = _emit_runs if are_runs else _emit_columns
    tasks = outer if are_runs else outer * -(-inner // BLOCK_COLUMNS)
    nanoseconds = as_float(outer * extent * inner) * _NS_PER_ELEMENT
    # So that all threads have something to do.
    least = BLOCK_RUN if are_runs else BLOCK_ROWS
    (parts,) = deferred(cut_extent, extent, tasks, least, nanoseconds, threads)
    center = centers[0].name if centers else None
    divisor = as_float(extent) if kind == "mean" else 1.0
    joins = "sum" if kind == "mean" else kind
    work = _Work(joins, term, (outer, extent, inner), x.name, center, 1, divisor)
    fixed = x.signature is not None and all(x.is_static(axis) for axis in range(x.rank))
    # A short extent is never divided, for any other sizes.
    if (x.is_static(1) and extent < 2 * least) or (fixed and parts == 1):
        emit_step(compute, tuner, work)
        return True
    between = tuner.temporary(outer * parts * inner, np.dtype(np.float32))
    shape = (outer * parts, inner)
    partial = Compute(Value(between, shape, np.dtype(np.float32)), shape, acc("float32"), compute.layer, "")
    emit_step(partial, tuner, replace(work, parts=parts, divisor=1.0))
    emit_step(compute, tuner, _Work(joins, "element", (outer, parts, inner), between, None, 1, divisor))
    return True


def _column_arguments(row_axes: int) -> ArgumentBlock:
    """With the sizes of the axes before the last one."""
    return ArgumentBlock(_COLUMN_ARGUMENTS, " ".join(f"d{axis}" for axis in range(row_axes)))


def _emit_columns(compute: Compute, tuner: Tuner, work: _Work) -> None:
    outer, extent, inner = work.sizes
    rows, storage = compute.space[:-1], compute.body.dtype
    block = smallest(BLOCK_COLUMNS, inner)
    blocks = (Blocks(work.parts, -(-extent // work.parts)), Blocks(-(-inner // block), block))
    total_ns = prod(work.sizes) * _NS_PER_ELEMENT + outer * inner * _NS_PER_RESULT
    described = _column_arguments(len(rows))
    epilogue = print_epilogue(compute, described.end, row_axes=len(rows), core=storage)
    sizes = described.values(
        extent=extent, last_size=inner, **_COLUMNS.values(*blocks), divisor=work.divisor,
        **{f"d{axis}": size for axis, size in enumerate(rows)},
    )  # fmt: skip
    name, text = f"reduce_{work.kind}", columns_text(work.kind, work.term, len(rows), epilogue)
    if storage in _INTEGERS:
        name, text = f"{name}_{storage}", integers_text(work.kind, storage, len(rows), epilogue)
    kernel = NativeKernel(name, text)
    schedule = TaskSchedule.over(blocks, total_ns, outer, _NS_PER_TASK)
    emit(tuner, kernel, schedule, sizes, work.inputs, compute.output.name, epilogue)


def _emit_runs(compute: Compute, tuner: Tuner, work: _Work) -> None:
    outer, extent, _ = work.sizes
    results = outer * work.parts
    part = -(-extent // work.parts)
    at_once = largest(1, smallest(BLOCK_RESULTS, _TASK_ELEMENTS // largest(part, 1)))
    blocks = Blocks(-(-results // at_once), at_once)
    epilogue = print_epilogue(compute, _RUN_ARGUMENTS.end, row_axes=0)
    sizes = _RUN_ARGUMENTS.values(
        results=results, last_size=compute.space[-1], extent=extent, parts=work.parts, part_size=part,
        **_RUNS.values(blocks), divisor=work.divisor,
    )  # fmt: skip
    kernel = NativeKernel(f"reduce_{work.kind}", runs_text(work.kind, work.term, epilogue))
    total_ns = outer * extent * _NS_PER_ELEMENT + results * _NS_PER_RUN
    schedule = TaskSchedule.over((blocks,), total_ns, start_ns=_NS_PER_TASK)
    emit(tuner, kernel, schedule, sizes, work.inputs, compute.output.name, epilogue)


_WIDE = {
    "sum": ("f64", "0.0", "{0} + to_float64({1})", "to_float32({0} / divisor)"),
    "prod": ("f64", "1.0", "{0} * to_float64({1})", "to_float32({0} / divisor)"),
    "max": ("f32", "_types.float32(-INF)", "reduce_max({0}, {1})", "{0}"),
    "min": ("f32", "_types.float32(INF)", "reduce_min({0}, {1})", "{0}"),
}
"""What joins the results of blocks: a type, where it starts, a step, and what becomes of it."""


def columns_text(kind: str, term: str, row_axes: int, epilogue: Epilogue) -> str:
    """Source of the column-wise kernel."""
    lanes = host_tile().lanes
    wide = lanes * VECTORS
    storage, start, step, end = _WIDE[kind]
    described = _column_arguments(row_axes)
    center = "center + (i * last_size + first_column + c) * 4" if term == "deviation" else "0"
    joined = step.format(f"load_{storage}(totals, c + k)", "load_f32(block, k)")
    lead = [
        *described.prologue("x", *(["center"] if term == "deviation" else []), epilogue=epilogue),
        f"totals = stack_bytes({(BLOCK_COLUMNS + wide) * 8})",
        f"tile = stack_bytes({(BLOCK_COLUMNS + wide) * 4})",
        f"block = stack_bytes({wide * 4})",
        *epilogue.kernel,
    ]
    task = [
        *_COLUMNS.locate("i"),
        "line, row, first_column, columns = above_column, row0, column0, column1 - column0",
        "for k in range(columns):",
        f"    store_{storage}(totals, k, {start})",
        "while row < row1:",
        f"    rows = min({BLOCK_ROWS}, row1 - row)",
        "    c = 0",
        "    while c < columns:",
        "        source = x + ((i * extent + row) * last_size + first_column + c) * 4",
        f"        if columns - c >= {wide}:",
        f"            wide_tile(source, last_size * 4, rows, {center}, block)",
        f"            for k in range({wide}):",
        f"                store_{storage}(totals, c + k, {joined})",
        f"            c += {wide}",
        "        else:",
        f"            slim_tile(source, last_size * 4, rows, {center}, block)",
        f"            for k in range({lanes}):",
        f"                store_{storage}(totals, c + k, {joined})",
        f"            c += {lanes}",
        f"    row += {BLOCK_ROWS}",
        "for k in range(columns):",
        f"    store_f32(tile, k, {end.format(f'load_{storage}(totals, k)')})",
        "start = line * last_size + first_column",
        *split_row("line", row_axes),
        *epilogue.store,
    ]
    tiles = "".join(
        f"{name}_tile = make_column_tile({kind!r}, {term!r}, {vectors}, {lanes}, {unroll})\n"
        for name, vectors, unroll in (("wide", VECTORS, 2), ("slim", 1, _SLIM_UNROLL))
    )
    return kernel_text(library_text("vectors", "reductions") + tiles, lead, task)


def runs_text(kind: str, term: str, epilogue: Epilogue) -> str:
    """Source of the kernel along contiguous runs."""
    lanes = host_tile().lanes
    _, start, step, end = _WIDE[kind]
    center = "load_f32(center, row)" if term == "deviation" else "_types.float32(0.0)"
    lead = [
        *_RUN_ARGUMENTS.prologue("x", *(["center"] if term == "deviation" else []), epilogue=epilogue),
        f"tile = stack_bytes({BLOCK_RESULTS * 4})",
        *epilogue.kernel,
    ]
    task = [
        *_RUNS.locate(),
        "start, columns = result0, result1 - result0",
        "row = op_div(start, parts)",
        "place = (start - row * parts) * part_size",
        "for k in range(columns):",
        "    place_end = min(place + part_size, extent)",
        f"    total = {start}",
        "    while place < place_end:",
        f"        count = min({BLOCK_RUN}, place_end - place)",
        f"        found = run_tile(x + (row * extent + place) * 4, count, {center})",
        f"        total = {step.format('total', 'found')}",
        "        place += count",
        f"    store_f32(tile, k, {end.format('total')})",
        "    if place >= extent:",
        "        row, place = row + 1, 0",
        "first_column = start",
        *epilogue.store,
    ]
    tile = f"run_tile = make_run_tile({kind!r}, {term!r}, {VECTORS}, {lanes})\n"
    return kernel_text(library_text("vectors", "reductions") + tile, lead, task)


def integers_text(kind: str, storage: str, row_axes: int, epilogue: Epilogue) -> str:
    """Source of the column-wise integer kernel, one row after the other."""
    short, size = _INTEGERS[storage], 8 if storage.endswith("64") else 4
    joined = f"reduce_{REDUCTIONS[kind]}(load_{short}(tile, k), load_{short}(source, k))"
    lead = [
        *_column_arguments(row_axes).prologue("x", epilogue=epilogue),
        f"tile = stack_bytes({BLOCK_COLUMNS * size})",
        *epilogue.kernel,
    ]
    task = [
        *_COLUMNS.locate("i"),
        "line, columns, first_column = above_column, column1 - column0, column0",
        f"source = x + (line * extent * last_size + column0) * {size}",
        f"copy_bytes(tile, source, columns * {size})",
        "for row in range(1, extent):",
        f"    source += last_size * {size}",
        "    for k in range(columns):",
        f"        store_{short}(tile, k, {joined})",
        "start = line * last_size + first_column",
        *split_row("line", row_axes),
        *epilogue.store,
    ]
    return kernel_text(library_text(), lead, task)
