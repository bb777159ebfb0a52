"""Scatters: each task copies some rows or columns and applies their updates in order.

So the additions to an element come in the order of the updates, for any number of threads. No task has a
range of places: whether an update falls into it would be a branch that no processor foresees.
"""

from __future__ import annotations

from math import prod

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import Schedule, emit_raw
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner

_NS_PER_BYTE = 0.1
_NS_PER_TARGET = 0.5
_NS_PER_ELEMENT = 0.5

_LEAST_COLUMNS = 16
"""Columns that are worth a task of their own: a line of the cache."""

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
    copying = data.size * data.dtype.itemsize * _NS_PER_BYTE
    writing = updates.size * _NS_PER_ELEMENT
    parts = tasks_wanted(copying + writing, threads)
    by_outer = outer >= parts
    if not by_outer:
        parts = max(1, min(parts, threads, inner // _LEAST_COLUMNS))
    each = (copying + writing) / parts + prod(targets.shape) * _NS_PER_TARGET / (parts if by_outer else 1)
    text = scatter_text(short, data.dtype.itemsize, reduction, whole)
    sizes = _ARGUMENTS.values(
        outer=outer, places=places, inner=inner, rows=rows, count=count, columns=columns,
        by_outer=int(by_outer), parts=parts,
    )  # fmt: skip
    names = (data.name, targets.name, updates.name)
    kernel, step = NativeKernel(f"scatter_{reduction}", text), (Schedule(parts, each), sizes)
    return emit_raw(compute, tuner, data.dtype, kernel, step, inputs=names)


def scatter_text(short: str, size: int, reduction: str, whole: bool) -> str:
    """Source of the kernel. `whole`: a row of an update has one target."""
    names = ("out", "data", "targets", "updates")
    value = f"load_{short}(updates, from_at + i)"
    if reduction != "none":
        step = (_STEPS_OF_BOOL if short == "bool" else _STEPS)[reduction]
        value = f"{step}(load_{short}(out, to_at + i), {value})"
    store = f"store_{short}(out, to_at + i, {value})"
    move = ["for i in range(width):", f"    {store}"]
    if whole:
        if reduction == "none":
            run = f"copy_bytes(out + to_at * {size}, updates + from_at * {size}, width * {size})"
            move = [f"if width >= {256 // size}:", f"    {run}", "else:", *indent(move)]
        each = [
            "place = to_int64(load_i32(targets, o * count + r))",
            "if place >= 0 and place < places:",
            "    to_at, from_at = (o * places + place) * inner + first, (o * count + r) * columns + first",
            *indent(move),
        ]
    else:
        move = [
            "place = to_int64(load_i32(targets, from_at + i))",
            "if place >= 0 and place < places:",
            "    to_at = (o * places + place) * inner + first",
            f"    {store}",
        ]
        each = ["from_at = (o * count + r) * columns + first", "for i in range(width):", *indent(move)]
    walk = ["for r in range(count):", *indent(each)]
    if not whole:
        # A loop over one element would take longer than the element.
        line = ["for r in range(count):", "    from_at, i = o * count + r, _types.int64(0)", *indent(move)]
        walk = ["if inner * columns == 1:", *indent(line), "else:", *indent(walk)]
    lead = [*_ARGUMENTS.prologue(*names)]
    task = [
        "begin_row, end_row, first, last = 0, outer, 0, inner",
        "if by_outer:",
        "    begin_row, end_row = task * outer // parts, (task + 1) * outer // parts",
        "else:",
        "    first, last = task * inner // parts, (task + 1) * inner // parts",
        "if last - first == inner:",
        f"    at = begin_row * places * inner * {size}",
        f"    copy_bytes(out + at, data + at, (end_row - begin_row) * places * inner * {size})",
        "else:",
        "    for place in range(outer * places):",
        f"        at = (place * inner + first) * {size}",
        f"        copy_bytes(out + at, data + at, (last - first) * {size})",
        "width = min(last, columns) - first",
        "for o in range(begin_row, min(end_row, rows)):",
        *indent(walk),
    ]
    return kernel_text(library_text(), lead, task)
