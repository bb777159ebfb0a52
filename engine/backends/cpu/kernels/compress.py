"""Compress and NonZero: count the elements of each block, then write each block's positions.

Blocks of the mask without a mark are passed over. The positions of a block are collected next to each other
and become what the hint names: positions, coordinates, or the slices there.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import Blocks, TaskGrid, TaskSchedule, emit, emit_raw, even_blocks
from engine.backends.cpu.library import library_text
from engine.base.dtypes import INT32, INT64
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import smallest
from engine.kernels.value import Value

BLOCK = 64
"""Marks that are looked at together."""

_NS_PER_MARK = 0.8
_NS_PER_COUNTED = 0.03
_NS_PER_TASK = 30.0

_GRID = TaskGrid(place="count")
_CUT = ArgumentBlock("count", _GRID.arguments)


def tune_count_nonzero(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "count_nonzero"."""
    (mask,) = compute.operands
    kernel, step = _counts(mask.shape, Blocks(1, mask.shape[1]))
    return emit_raw(compute, tuner, INT64, kernel, step, inputs=(mask.name,))


def tune_stream_compaction(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "stream_compaction"."""
    mask, room = compute.operands[0], compute.space[-1]
    deliver = [f"store_i32(out, row * room + filled + k, {_POSITION})"]
    # Slots that stand for nothing are read all the same.
    rest = ["set_bytes(out + (row * room + filled) * 4, _types.uint8(0), (room - filled) * 4)"]
    arguments = ArgumentBlock(_CUT, "room")
    text = select_text(arguments, [], ["for k in range(found):", *indent(deliver)], rest)
    return _emit_select(compute, tuner, threads, mask, arguments, text, {"room": room}, (), INT32, 0.0)


def tune_nonzero(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "nonzero"."""
    mask, shape = compute.operands[0], compute.attributes["shape"]
    rank = len(shape)
    sizes = [f"size{axis}" for axis in range(rank)]
    last = f"size{rank - 1}"
    fresh = [f"rest = op_div(position, {last})", f"line = rest * {last}"]
    for axis in range(rank - 2, -1, -1):
        above = f"op_div(rest, size{axis})"
        fresh += [f"i{axis} = rest - {above} * size{axis}", f"rest = {above}"] if axis else ["i0 = rest"]
    each = [
        f"position = {_POSITION}",
        f"if position >= line + {last}:",
        *indent(fresh),
        *(f"store_i64(out, {axis} * total + filled + k, i{axis})" for axis in range(rank - 1)),
        f"store_i64(out, {rank - 1} * total + filled + k, position - line)",
    ]
    start = [f"line = -{last}", *(f"i{axis} = 0" for axis in range(rank - 1))]
    arguments = ArgumentBlock(_CUT, "total", *sizes)
    text = select_text(arguments, start, ["for k in range(found):", *indent(each)], [])
    own = {"total": compute.space[-1], **dict(zip(sizes, shape, strict=True))}
    return _emit_select(compute, tuner, threads, mask, arguments, text, own, (), INT64, 1.0 * rank)


def tune_compress(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "compress"."""
    x, mask = compute.operands
    outer, length, inner = x.shape
    room, size = compute.space[1], x.dtype.itemsize
    if len(compute.space) != 3:
        return False
    deliver = [
        "for o in range(outer):",
        "    for k in range(found):",
        f"        to_at, from_at = (o * room + filled + k) * inner, (o * length + {_POSITION}) * inner",
        f"        if inner >= {64 // size}:",
        f"            copy_bytes(out + to_at * {size}, x + from_at * {size}, inner * {size})",
        "        else:",
        "            for i in range(inner):",
        f"                store_u{8 * size}(out, to_at + i, load_u{8 * size}(x, from_at + i))",
    ]
    arguments = ArgumentBlock(_CUT, "outer length inner room")
    text = select_text(arguments, [], deliver, [], ("x",))
    moving = x.size * (0.5 + 0.1 * size) / max(length, 1)
    own = {"outer": outer, "length": length, "inner": inner, "room": room}
    return _emit_select(compute, tuner, threads, mask, arguments, text, own, (x.name,), x.dtype, moving)


def _emit_select(
    compute: Compute, tuner: Tuner, threads: int, mask: Value, arguments: ArgumentBlock, text: str,
    own: dict[str, int], others: tuple[str, ...], dtype: np.dtype, moving: float,
) -> bool:  # fmt: skip
    """Emit the step that counts each block's elements, and the one that writes the selected ones.

    own: the kernel's arguments after those of the partition; moving: nanoseconds of a chosen position.
    """
    rows, count = mask.shape
    nanoseconds = rows * count * (_NS_PER_MARK + moving / 2)
    wanted = tasks_wanted(nanoseconds, threads)
    blocks = even_blocks(count, smallest(-(-wanted // rows), -(-count // (16 * BLOCK))))
    counts = tuner.temporary(rows * blocks.count, INT64)
    kernel, (schedule, values) = _counts(mask.shape, blocks)
    emit(tuner, kernel, schedule, values, (mask.name,), counts)
    kernel = NativeKernel(compute.hint.kind if compute.hint else "stream_compaction", text)
    step = (
        TaskSchedule.over((blocks,), nanoseconds, rows, _NS_PER_TASK),
        arguments.values(count=count, **_GRID.values(blocks), **own),
    )
    return emit_raw(compute, tuner, dtype, kernel, step, inputs=(mask.name, counts, *others))


def _counts(
    shape: tuple[int, ...], blocks: Blocks
) -> tuple[NativeKernel, tuple[TaskSchedule, tuple[float, ...]]]:
    """The kernel that counts the marks of each block, its tasks and arguments."""
    rows, count = shape
    schedule = TaskSchedule(rows * blocks.count, blocks.size * _NS_PER_COUNTED + _NS_PER_TASK)
    return NativeKernel("count", count_text()), (schedule, _CUT.values(count=count, **_GRID.values(blocks)))


_POSITION = "to_int64(load_i32(local, k))"


def count_text() -> str:
    """Source of the kernel that counts the selected elements of each block."""
    lead = [*_CUT.prologue("out", "mask")]
    task = [
        *_GRID.locate("row"),
        "total, p = 0, place0",
        # Bytes are added up while their sum fits in a byte.
        "while place1 - p >= 128:",
        "    part = _types.uint8(0)",
        "    for j in range(128):",
        "        part = _types.uint8(part + load_u8(mask, row * count + p + j))",
        "    total += to_int64(part)",
        "    p += 128",
        "for q in range(p, place1):",
        "    total += to_int64(load_u8(mask, row * count + q))",
        "store_i64(out, task, total)",
    ]
    return kernel_text(library_text(), lead, task)


def select_text(
    arguments: ArgumentBlock, start: list[str], deliver: list[str], rest: list[str],
    others: tuple[str, ...] = (),
) -> str:  # fmt: skip
    """Source of the kernel that writes the selected positions.

    deliver: statements about the `found` positions in `local`, of which `filled` were found before in the
    row; rest: about the slots behind the last one. start: statements at the beginning of a block.
    """
    buffers = ("out", "mask", "counts", *others)
    lead = [*arguments.prologue(*buffers), f"local = stack_bytes({4 * BLOCK + 64})"]
    task = [
        *_GRID.locate("row"),
        "filled = 0",
        "for before in range(row * place_blocks, task):",
        "    filled += load_i64(counts, before)",
        *start,
        "p = place0",
        "while p < place1:",
        f"    size, marks = min({BLOCK}, place1 - p), mask + row * count + p",
        "    any_mark = _types.uint8(0)",
        "    for j in range(size):",
        "        any_mark = _types.uint8(any_mark | load_u8(marks, j))",
        "    if any_mark:",
        "        found = 0",
        "        for j in range(size):",
        "            store_i32(local, found, p + j)",
        "            found += to_int64(load_u8(marks, j))",
        *indent(indent(deliver)),
        "        filled += found",
        "    p += size",
        *(["if place1 == count:", *indent(rest)] if rest else []),
    ]
    return kernel_text(library_text(), lead, task)
