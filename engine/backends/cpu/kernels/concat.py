"""Concat copies the rows of each operand, or interleaves columns; the generic kernel selects per element."""

from __future__ import annotations

from math import prod

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import SHORTEST_BLOCK, tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text, write_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.library import library_text
from engine.base.dtypes import as_dtype
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import smallest

_NS_PER_ELEMENT = 0.3

_MOST_COLUMNS = 16
"""Up to so many columns are interleaved element by element, as stacked tensors are along a new last axis."""

_WORDS = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}
"""Types as which elements of so many bytes are copied."""

_GRID = TaskGrid(column="total")
_ROWS = TaskGrid(row="height")
_ROW_ARGUMENTS = ArgumentBlock("height", _ROWS.arguments)


def _arguments(parts: int) -> ArgumentBlock:
    """The arguments for so many matrices."""
    return ArgumentBlock("total", _GRID.arguments, *(f"width{k}" for k in range(parts)))


def tune_concat(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "concat": matrices of equal height side by side, as (height, columns)."""
    parts = [part for part in compute.operands if part.size]
    if len(compute.space) != 2 or any(part.rank != 2 for part in parts) or not parts:
        return False
    storage = {part.dtype.name for part in parts}
    if len(storage) != 1 or parts[0].arithmetic != compute.body.dtype:
        return False
    height, total = compute.space
    described = _arguments(len(parts))
    nanoseconds = prod(compute.space) * _NS_PER_ELEMENT
    is_plain = compute.epilogue is None and compute.output.dtype == parts[0].dtype
    # Columns, each in one piece of memory, become neighbours.
    if is_plain and len(parts) <= _MOST_COLUMNS and all(part.always_one(1) for part in parts):
        rows = even_blocks(height, tasks_wanted(nanoseconds, threads))
        kernel = NativeKernel(
            f"interleave_{len(parts)}", interleave_text(len(parts), parts[0].dtype.itemsize)
        )
        schedule = TaskSchedule.over((rows,), nanoseconds)
        sizes = _ROW_ARGUMENTS.values(height=height, **_ROWS.values(rows))
        return emit(tuner, kernel, schedule, sizes, [part.name for part in parts], compute.output.name)
    epilogue = print_epilogue(compute, described.end, row_axes=1, core=storage.pop())
    wanted = -(-tasks_wanted(nanoseconds, threads) // height)
    blocks = even_blocks(total, smallest(wanted, total // SHORTEST_BLOCK))
    widths = {f"width{k}": part.shape[1] for k, part in enumerate(parts)}
    arguments = described.values(total=total, **_GRID.values(blocks), **widths)
    schedule, names = TaskSchedule.over((blocks,), nanoseconds, height), [part.name for part in parts]
    text = concat_text(len(parts), parts[0].dtype.name, epilogue, is_plain)
    kernel = NativeKernel(f"concat_{len(parts)}", text)
    return emit(tuner, kernel, schedule, arguments, names, compute.output.name, epilogue)


def interleave_text(parts: int, size: int) -> str:
    """Source of the kernel for columns of elements of `size` bytes."""
    names, word = [f"part{k}" for k in range(parts)], _WORDS[size]
    body = [
        write_text(word, "out", f"number * {parts} + {k}", read_text(word, name, "number"))
        for k, name in enumerate(names)
    ]
    task = [*_ROWS.locate(), "for number in range(row0, row1):", *indent(body)]
    return kernel_text(library_text(), _ROW_ARGUMENTS.prologue("out", *names), task)


def concat_text(parts: int, storage: str, epilogue: Epilogue, plain: bool) -> str:
    """Source of the kernel; `plain`: elements are stored as they are."""
    described = _arguments(parts)
    lead = [*described.prologue(*(f"part{k}" for k in range(parts)), epilogue=epilogue), *epilogue.kernel]
    task, size = [*_GRID.locate("i0"), "offset = 0"], as_dtype(storage).itemsize
    copy = ["if columns > 0:", f"    copy_bytes(out + start * {size}, tile, columns * {size})"]
    for k in range(parts):
        task += [
            "first_column = max(column0, offset)",
            f"columns = min(column1, offset + width{k}) - first_column",
            "start = i0 * total + first_column",
            f"tile = part{k} + (i0 * width{k} + first_column - offset) * {size}",
            *(copy if plain else epilogue.store),
            f"offset += width{k}",
        ]
    return kernel_text(library_text(), lead, task)
