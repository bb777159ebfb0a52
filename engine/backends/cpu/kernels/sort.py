"""Stable radix sort of rows, and top-k by a running threshold.

Keys become int64 in the order of the elements, and move together with their positions. Elements that come
behind the last of the wanted ones found so far are passed over, a block at a time; the others are collected,
and sorted when their memory is full. A few wanted ones are inserted where they belong instead.
"""

from __future__ import annotations

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text, read_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit_raw, even_blocks
from engine.backends.cpu.codegen.task_partition import CHUNKS_PER_THREAD
from engine.backends.cpu.library import library_text
from engine.base.dtypes import INT32, INT64, arithmetic_type, as_dtype
from engine.compiler.plan import Compute, Tuner
from engine.kernels.size import smallest, whole

BLOCK = 64
"""Elements that are compared with the threshold at once."""

FEW = 16
"""So many wanted elements are inserted one by one, and rows as short are sorted that way."""

ROOM = 192
"""Slots beyond twice the wanted ones, so that few of them are not sorted again and again."""

_NS_PER_ELEMENT = 1.0
_NS_PER_SORTED = 12.0
_NS_PER_ROW = 100.0

_GRID = TaskGrid(row="rows")
_ARGUMENTS = ArgumentBlock("rows count inner keep room", _GRID.arguments)

_KEYS = {
    "uint32": "to_int64(x) - 2147483648",
    "uint64": "to_int64(x) ^ (-9223372036854775807 - 1)",
    **dict.fromkeys(("float32", "float64", "int32", "int64", "bool"), "to_int64(code)"),
}
"""int64 keys in the order of the elements, by arithmetic type, from `order_code`."""


def order_code(arithmetic: str, is_reversed: bool = False) -> list[str]:
    """Statements for `code`, an integer in the order of elements `x`, or in the reverse one.

    Both zeros are one; NaN is the largest in either order.
    """
    inverted = ["code = op_bitnot(code)"] if is_reversed else []
    if arithmetic not in ("float32", "float64"):
        return ["code = x", *inverted]
    bits = 32 if arithmetic == "float32" else 64
    integer, top = f"_types.int{bits}", f"_types.int{bits}({2 ** (bits - 1) - 1})"
    return [
        # A sum with 0 makes both zeros one.
        f"code = op_bits(op_add(x, _types.{arithmetic}(0.0)))",
        f"code = op_select(op_lt(code, {integer}(0)), op_xor(code, {top}), code)",
        *inverted,
        f"code = op_select(op_isnan(x), {top}, code)",
    ]


_HELPERS = '''\
@helper
def insert_pairs(keys, order, n):
    """Sort a few pairs."""
    for k in range(1, n):
        key, position = load_i64(keys, k), load_i32(order, k)
        at = k
        while at > 0 and load_i64(keys, at - 1) > key:
            store_i64(keys, at, load_i64(keys, at - 1))
            store_i32(order, at, load_i32(order, at - 1))
            at -= 1
        store_i64(keys, at, key)
        store_i32(order, at, position)


@helper
def digit_of(key, digit, digits):
    return ((key >> (8 * digit)) & 255) ^ (128 if digit == digits - 1 else 0)


@helper
def sort_pairs(keys, order, spare_keys, spare_order, counts, n, digits):
    """Sort pairs by their keys, signed integers of `digits` bytes; equal ones stay in order."""
    if n <= 24:
        insert_pairs(keys, order, n)
        return
    set_bytes(counts, _types.uint8(0), digits * 2048)
    for k in range(n):
        key = load_i64(keys, k)
        for digit in range(digits):
            place = 256 * digit + digit_of(key, digit, digits)
            store_i64(counts, place, load_i64(counts, place) + 1)
    first, from_keys, from_order, to_keys, to_order = load_i64(keys, 0), keys, order, spare_keys, spare_order
    for digit in range(digits):
        table = counts + 2048 * digit
        if load_i64(table, digit_of(first, digit, digits)) == n:
            continue
        total = 0
        for value in range(256):
            number = load_i64(table, value)
            store_i64(table, value, total)
            total += number
        for k in range(n):
            key = load_i64(from_keys, k)
            value = digit_of(key, digit, digits)
            to = load_i64(table, value)
            store_i64(table, value, to + 1)
            store_i64(to_keys, to, key)
            store_i32(to_order, to, load_i32(from_order, k))
        from_keys, from_order, to_keys, to_order = to_keys, to_order, from_keys, from_order
    if from_keys != keys:
        copy_bytes(keys, from_keys, n * 8)
        copy_bytes(order, from_order, n * 4)
'''


def tune_sort(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "sort"; False where the elements to sort are listed."""
    (rows, *lengths), attributes = compute.operands, compute.attributes
    if len(lengths) > 1 or rows.arithmetic not in _KEYS or compute.body.dtype not in ("index", "int32"):
        return False
    outer, count, inner = rows.shape
    keep, total = whole(attributes["keep"]), outer * inner
    room = smallest(count, 2 * keep + ROOM) + BLOCK
    blocks = even_blocks(total, threads * CHUNKS_PER_THREAD)
    scratch = tuner.temporary(blocks.count * 3 * room, INT64)
    sorted_ns = smallest(count, 4 * keep) * _NS_PER_SORTED
    each = blocks.size * (count * _NS_PER_ELEMENT + sorted_ns + _NS_PER_ROW)
    stored = lengths[0].dtype.name if lengths else None
    text = sort_text(rows.dtype.name, bool(attributes["descending"]), stored)
    names = (rows.name, *(v.name for v in lengths), scratch)
    sizes = _ARGUMENTS.values(
        rows=total, count=count, inner=inner, keep=keep, room=room, **_GRID.values(blocks),
    )  # fmt: skip
    step = TaskSchedule(blocks.count, each), sizes
    return emit_raw(compute, tuner, INT32, NativeKernel("sort", text), step, inputs=names)


def sort_text(storage: str, descending: bool, lengths: str | None) -> str:
    """Source of the kernel."""
    names = ["out", "rows_at", *(["lengths"] if lengths else []), "scratch"]
    arithmetic = arithmetic_type(as_dtype(storage))
    digits = 8 if arithmetic in ("float64", "int64", "uint64") else 4
    key = [
        f"x = {read_text(storage, 'source', 'start + (p + j) * inner')}",
        *order_code(arithmetic),
        f"key = {_KEYS[arithmetic]}",
        f"store_i64(block, j, {'~key' if descending else 'key'})",
    ]
    length = read_text(lengths, "lengths", "o") if lengths else "count"
    each_row = [
        "o = op_div(row, inner)",
        "i = row - o * inner",
        f"n = min(max(to_int64({length}), 0), count)",
        "source, start = rows_at, o * count * inner + i",
        "wanted = min(keep, n)",
        "found, p, limit = 0, 0, 9223372036854775807",
        "while p < n:",
        f"    size = min({BLOCK}, n - p)",
        "    if inner == 1:",
        "        for j in range(size):",
        *indent(indent(indent([line.replace(" * inner", "") for line in key]))),
        "    else:",
        "        for j in range(size):",
        *indent(indent(indent(key))),
        "    hits = 0",
        "    for j in range(size):",
        "        hits += 1 if load_i64(block, j) <= limit else 0",
        "    if hits and few:",
        "        for j in range(size):",
        "            key = load_i64(block, j)",
        "            if key <= limit and (found < keep or key < load_i64(keys, keep - 1)):",
        "                at = min(found, keep - 1)",
        "                while at > 0 and load_i64(keys, at - 1) > key:",
        "                    store_i64(keys, at, load_i64(keys, at - 1))",
        "                    store_i32(order, at, load_i32(order, at - 1))",
        "                    at -= 1",
        "                store_i64(keys, at, key)",
        "                store_i32(order, at, p + j)",
        "                found = min(found + 1, keep)",
        "        limit = load_i64(keys, keep - 1) if found == keep else limit",
        "    elif hits:",
        "        for j in range(size):",
        "            key = load_i64(block, j)",
        "            store_i64(keys, found, key)",
        "            store_i32(order, found, p + j)",
        "            found += 1 if key <= limit else 0",
        f"        if found > room - {BLOCK} and p + size < n:",
        f"            sort_pairs(keys, order, spare_keys, spare_order, counts, found, {digits})",
        "            found = wanted",
        "            last = load_i64(keys, wanted - 1)",
        "            if last == -9223372036854775807 - 1:",
        "                break",
        "            limit = last - 1",
        "    p += size",
        "if not few:",
        f"    sort_pairs(keys, order, spare_keys, spare_order, counts, found, {digits})",
        "for q in range(keep):",
        "    store_i32(out, (o * keep + q) * inner + i, load_i32(order, q) if q < wanted else 0)",
    ]
    lead = [
        *_ARGUMENTS.prologue(*names),
        f"counts = stack_bytes({2048 * digits})",
        f"block = stack_bytes({BLOCK * 8})",
        f"few = keep <= {FEW}",
    ]
    task = [
        "keys = scratch + task * room * 24",
        "spare_keys, order, spare_order = keys + room * 8, keys + room * 16, keys + room * 20",
        *_GRID.locate(),
        "for row in range(row0, row1):",
        *indent(each_row),
    ]
    return kernel_text(library_text(helpers=_HELPERS), lead, task)
