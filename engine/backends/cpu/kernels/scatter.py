"""Scatters: each task copies a part of the data and applies the updates of that part in order.

Thus an element's updates are added in order, for any number of threads. If a row of updates has one target, a
task owns a range of target rows and lists its updates first, without branches, as they would be mispredicted.
If each element has its own target, a task owns some columns.
"""

from __future__ import annotations

from math import prod

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskSchedule, emit_raw
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner

_NS_PER_BYTE = 0.03
_NS_PER_TARGET = 0.5
_NS_PER_ELEMENT = 0.2

_LEAST_COLUMNS = 16
"""Columns that are worth a task of their own: a line of the cache."""

_AT_ONCE = 1024
"""Updates that a task looks through at once."""

_ARGUMENTS = ArgumentBlock("outer places inner rows count columns by_outer parts")

SHORT = {
    "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64",
    "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "bool": "bool",
}  # fmt: skip
"""Types whose elements are combined as they are stored, by the prelude's names."""

_STEPS = {"add": "op_add", "mul": "op_mul", "max": "op_max", "min": "op_min"}
_STEPS_OF_BOOL = {**_STEPS, "max": "op_add", "min": "op_mul"}


def tune_scatter(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "scatter"."""
    (data, targets, updates), attributes = compute.operands, compute.attributes
    reduction, storage = str(attributes["reduction"]), data.dtype.name
    if reduction == "none":
        short = f"u{8 * data.dtype.itemsize}"
    elif storage in SHORT:
        short = SHORT[storage]
    else:
        return False
    (outer, places, inner), (rows, count, columns) = data.shape, updates.shape
    whole = bool(attributes["whole"])
    moving = data.size * data.dtype.itemsize * _NS_PER_BYTE + updates.size * _NS_PER_ELEMENT
    finding = prod(targets.shape) * _NS_PER_TARGET
    parts = tasks_wanted(moving + finding, threads)
    by_outer = outer >= parts
    if not by_outer:
        parts = max(1, min(parts, threads, places if whole else inner // _LEAST_COLUMNS))
    # Tasks that share an outermost entry look through the same targets.
    each = moving / parts + finding / (parts if by_outer else 1)
    text = scatter_text(short, data.dtype.itemsize, reduction, whole)
    sizes = _ARGUMENTS.values(
        outer=outer, places=places, inner=inner, rows=rows, count=count, columns=columns,
        by_outer=int(by_outer), parts=parts,
    )  # fmt: skip
    names = (data.name, targets.name, updates.name)
    kernel, step = NativeKernel(f"scatter_{reduction}", text), (TaskSchedule(parts, each), sizes)
    return emit_raw(compute, tuner, data.dtype, kernel, step, inputs=names)


def scatter_text(short: str, size: int, reduction: str, whole: bool) -> str:
    """Source of the kernel. `whole`: a row of an update has one target."""
    value = f"load_{short}(updates, from_at + i)"
    if reduction != "none":
        step = (_STEPS_OF_BOOL if short == "bool" else _STEPS)[reduction]
        value = f"{step}(load_{short}(out, to_at + i), {value})"
    store = f"store_{short}(out, to_at + i, {value})"
    lead = [*_ARGUMENTS.prologue("out", "data", "targets", "updates")]
    if not whole:
        return kernel_text(library_text(), lead, _columns_text(store, size))
    lead.append(f"chosen = stack_bytes({4 * _AT_ONCE})")
    return kernel_text(library_text(), lead, _rows_text(store, size, reduction))


def _rows_text(store: str, size: int, reduction: str) -> list[str]:
    """A task of updates with a target for each row: a range of places, or a part of the outermost axis."""
    move = ["for i in range(columns):", f"    {store}"]
    if reduction == "none":
        run = f"copy_bytes(out + to_at * {size}, updates + from_at * {size}, columns * {size})"
        move = [f"if columns >= {256 // size}:", f"    {run}", "else:", *indent(move)]
    return [
        "row0, row1, begin, end = 0, outer, 0, places",
        "if by_outer:",
        "    row0, row1 = task * outer // parts, (task + 1) * outer // parts",
        "else:",
        "    begin, end = task * places // parts, (task + 1) * places // parts",
        "if end - begin == places:",
        f"    at = row0 * places * inner * {size}",
        f"    copy_bytes(out + at, data + at, (row1 - row0) * places * inner * {size})",
        "else:",
        "    for o in range(outer):",
        f"        at = (o * places + begin) * inner * {size}",
        f"        copy_bytes(out + at, data + at, (end - begin) * inner * {size})",
        "for o in range(row0, min(row1, rows)):",
        f"    for first in range(0, count, {_AT_ONCE}):",
        "        found = 0",
        f"        for r in range(first, min(first + {_AT_ONCE}, count)):",
        "            place = to_int64(load_i32(targets, o * count + r))",
        "            store_i32(chosen, found, r)",
        "            found += to_int64((place >= begin) & (place < end))",
        "        for k in range(found):",
        "            from_row = o * count + to_int64(load_i32(chosen, k))",
        "            to_at = (o * places + to_int64(load_i32(targets, from_row))) * inner",
        "            from_at = from_row * columns",
        *indent(indent(indent(move))),
    ]


def _columns_text(store: str, size: int) -> list[str]:
    """A task of updates with a target for each element: some columns, or a part of the outermost axis."""
    move = [
        "place = to_int64(load_i32(targets, from_at + i))",
        "if place >= 0 and place < places:",
        "    to_at = (o * places + place) * inner + first",
        f"    {store}",
    ]
    each = ["from_at = (o * count + r) * columns + first", "for i in range(width):", *indent(move)]
    # A loop over one element would take longer than the element.
    line = ["for r in range(count):", "    from_at, i = o * count + r, _types.int64(0)", *indent(move)]
    walk = ["for r in range(count):", *indent(each)]
    return [
        "row0, row1, first, last = 0, outer, 0, inner",
        "if by_outer:",
        "    row0, row1 = task * outer // parts, (task + 1) * outer // parts",
        "else:",
        "    first, last = task * inner // parts, (task + 1) * inner // parts",
        "if last - first == inner:",
        f"    at = row0 * places * inner * {size}",
        f"    copy_bytes(out + at, data + at, (row1 - row0) * places * inner * {size})",
        "else:",
        "    for place in range(outer * places):",
        f"        at = (place * inner + first) * {size}",
        f"        copy_bytes(out + at, data + at, (last - first) * {size})",
        "width = min(last, columns) - first",
        "for o in range(row0, min(row1, rows)):",
        *indent(["if inner * columns == 1:", *indent(line), "else:", *indent(walk)]),
    ]
