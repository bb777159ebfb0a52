"""Prefix sums by blocks, and positions of set mask elements.

The sums of blocks are scanned by generic steps (`engine.operators.scans`). A generic last step would add up
its block for each element; here one thread goes through a block.
"""

from __future__ import annotations

from engine.backends.gpu.division import divide
from engine.backends.gpu.kernel_dialect import GROUP, KernelDialect, Store, ThreadStep
from engine.backends.operands import emit
from engine.base.dtypes import INT32, INT64
from engine.compiler.plan import Compute, Tuner
from engine.kernels.expr import lit

_WORDS = {"float32": "float", "int32": "int"}
_NAMES = ("threads", "count", "inner", "blocks", "exclusive", "reverse")
_ROW_NAMES = ("rows", "count", "room")
_NS = 10.0


def tune_prefix_scan(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "prefix_scan" of float32 and int32; False for a row that is one block."""
    operands, attributes = compute.operands, compute.attributes
    if len(operands) == 1:
        return False
    x, before = operands
    word, block = _WORDS.get(compute.body.dtype), attributes["block"]
    if word is None or before.arithmetic != compute.body.dtype:
        return False
    join, neutral = ("+", 0) if attributes["kind"] == "sum" else ("*", 1)
    if word == "int" and _emit_row_scan(compute, tuner, dialect, join, neutral):
        return True

    def lines(store: Store) -> list[str]:
        return [
            "if (t >= threads) return;",
            "int line = t / max(inner, 1), i = t - line * inner;",
            "int o = line / max(blocks, 1), block = line - o * blocks;",
            f"{word} before = {dialect.load(1, 't', before.dtype.name)};",
            f"{word} part = {neutral};",
            f"for (int k = block * {block}; k < min((block + 1) * {block}, count); ++k) {{",
            "    int at = (o * count + (reverse != 0 ? count - 1 - k : k)) * inner + i;",
            f"    {word} after = part {join} {dialect.load(0, 'at', x.dtype.name)};",
            *(f"    {line}" for line in store("at", f"before {join} (exclusive != 0 ? part : after)")),
            "    part = after;",
            "}",
        ]

    _, count, inner = x.shape
    flags = int(attributes["exclusive"]), int(attributes["reverse"])
    step = ThreadStep(
        before.size, (), _NAMES, (before.size, count, inner, before.shape[1], *flags),
        [(v.root.name, v.dtype.name) for v in operands], compute.output.name, area=GROUP * block,
        ns=GROUP * block * _NS,
    )  # fmt: skip
    return dialect.emit_with_epilogue(compute, tuner, step, lines)


def _emit_row_scan(compute: Compute, tuner: Tuner, dialect: KernelDialect, join: str, neutral: int) -> bool:
    """Emit the step that scans whole rows of integers, without the sums of blocks and their levels.

    A group goes through a row, each thread through a part; where threads sort alone, each through whole rows.
    False for long rows. Those of floats keep their blocks, whose sums have smaller rounding errors.
    """
    x, group, attributes = compute.operands[0], 1 if dialect.alone else GROUP, compute.attributes
    outer, count, inner = x.shape
    longest = dialect.longest_row if dialect.alone else GROUP * attributes["block"]
    if not x.is_static(1) or count > longest:
        return False
    if 2 * -(-count // group) + GROUP > dialect.most_rounds:
        return False
    element = dialect.load(0, "at", x.dtype.name)
    place = f"o * count + {'count - 1 - k' if attributes['reverse'] else 'k'}"

    def loop(*statements: str) -> list[str]:
        inside = f"int at = ({place}) * inner + i, after = part {join} {element};"
        return ["for (int k = begin; k < end; ++k) {", *(f"    {x}" for x in (inside, *statements)), "}"]

    def lines(store: Store) -> list[str]:
        parts = [
            *loop("part = after;"),
            "parts[lane] = part;",
            dialect.barrier,
            f"part = {neutral};",
            f"for (int k = 0; k < lane; ++k) part = part {join} parts[k];",
        ]
        return [
            f"int line = t / {group}, lane = t - line * {group}, each = (count + {group - 1}) / {group};",
            "int o = line / max(inner, 1), i = line - o * inner, begin = min(lane * each, count);",
            f"int end = line < lines ? min(begin + each, count) : begin, part = {neutral};",
            *(parts if group > 1 else []),
            *loop(*store("at", "part" if attributes["exclusive"] else "after"), "part = after;"),
        ]

    step = ThreadStep(
        outer * inner * group, (), ("lines", "count", "inner"), (outer * inner, count, inner),
        [(x.root.name, x.dtype.name)], compute.output.name,
        shared=[f"{dialect.shared} int parts[{group}];"] if group > 1 else [], rounds=("count",),
        is_alone=group == 1, area=2, ns=GROUP // group * _NS,
    )  # fmt: skip
    return dialect.emit_with_epilogue(compute, tuner, step, lines)


def _emit_marks(compute: Compute, tuner: Tuner, dialect: KernelDialect, shape: tuple[int, ...]) -> bool:
    """Emit the step in which each thread writes the positions of a block's set elements, in order.

    shape: of a row, as what the indices are meant. The output is (rows, axes, room).
    """
    mask, _, *before = compute.operands
    block = compute.attributes["block"]
    axes = [f"size{axis}" for axis in range(1, len(shape))]
    if before:
        blocks, begin = before[0].shape[1], dialect.element(1, "t")
        first = f"int slot = row * room + {begin};"
        inputs = [(mask.root.name, mask.dtype.name), (before[0].root.name, before[0].dtype.name)]
    else:
        blocks, first, inputs = 1, "int slot = row * room;", [(mask.root.name, mask.dtype.name)]
    rows, count = mask.shape
    lines = [
        "if (t >= total) return;",
        f"int row = {divide('t', 'blocks')}, block = t - row * blocks;",
        first,
        f"for (int k = block * {block}; k < min((block + 1) * {block}, count); ++k) {{",
        "    int p = row * count + k, rest = k;",
        f"    if ({dialect.load(0, 'p', mask.dtype.name)} == 0) continue;",
    ]
    for axis, size in reversed([*enumerate(axes, 1)]):
        lines += [
            f"    int rest{axis} = {divide('rest', size)};",
            f"    {dialect.output}[{axis} * room + slot] = rest - rest{axis} * {size};",
            f"    rest = rest{axis};",
        ]
    lines += [f"    {dialect.output}[slot] = rest;", "    ++slot;", "}"]
    return dialect.emit(tuner, ThreadStep(
        rows * blocks, lines, ("total", "count", "room", "blocks", *axes),
        (rows * blocks, count, compute.space[-1], blocks, *shape[1:]), inputs, compute.output.name,
        compute.output.dtype.name, divisors=("blocks", *axes), area=GROUP * block, ns=GROUP * block * _NS,
    ))  # fmt: skip


def _emit_rows(compute: Compute, tuner: Tuner, dialect: KernelDialect, room: int) -> bool:
    """Emit the step that goes through whole rows of marks: positions of the set ones, or only their number.

    A group goes through a row, each thread through a part; where threads sort alone, each through whole rows.
    False for long rows.
    """
    mask, group = compute.operands[0], 1 if dialect.alone else GROUP
    if compute.epilogue is not None or not mask.is_static(1) or mask.shape[1] > dialect.longest_row:
        return False
    rows, count = mask.shape
    if 2 * -(-count // group) + room + GROUP > dialect.most_rounds:
        return False
    return dialect.emit(tuner, ThreadStep(
        rows * group, _row_statements(dialect, group, mask.dtype.name, bool(room)), _ROW_NAMES,
        (rows, count, room), [(mask.root.name, mask.dtype.name)], compute.output.name,
        compute.output.dtype.name, shared=[f"{dialect.shared} int sums[{group}];"] if group > 1 else [],
        rounds=("count",), is_alone=group == 1, area=2, ns=GROUP // group * _NS,
    ))  # fmt: skip


def _row_statements(dialect: KernelDialect, group: int, kind: str, has_room: bool) -> list[str]:
    """Statements of thread `t`: several of a group share `sums`. has_room: whether positions are stored."""
    is_marked, output = f"{dialect.load(0, 'p', kind)} != 0", dialect.output
    lines = [
        f"int row = t / {group}, lane = t - row * {group}, each = (count + {group - 1}) / {group};",
        "int begin = min(lane * each, count), end = row < rows ? min(begin + each, count) : 0;",
        "int found = 0, slot = 0, total = 0;",
    ]
    counted = f"for (int k = begin; k < end; ++k) {{ int p = row * count + k; if ({is_marked}) ++found; }}"
    if group > 1:
        lines += [
            counted,
            "sums[lane] = found;",
            dialect.barrier,
            f"for (int k = 0; k < {group}; ++k) {{ if (k < lane) slot += sums[k]; total += sums[k]; }}",
        ]
    elif not has_room:
        lines += [counted, "total = found;"]
    if not has_room:
        return [*lines, f"if (lane == 0 && row < rows) {output}[row] = total;"]
    return [
        *lines,
        "for (int k = begin; k < end; ++k) {",
        f"    int p = row * count + k; if ({is_marked}) {output}[row * room + slot++] = k;",
        "}",
        # A thread alone knows how many there are when it has stored them.
        *(["total = slot;"] if group == 1 else []),
        # Slots that stand for nothing are read all the same.
        f"for (int k = total + lane; k < room && row < rows; k += {group}) {output}[row * room + k] = 0;",
    ]


def tune_count_nonzero(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "count_nonzero": False for long rows, whose running sum has the number."""
    return _emit_rows(compute, tuner, dialect, 0)


def tune_stream_compaction(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "stream_compaction".

    A group goes through a short row. In longer ones, each thread goes through a block.
    """
    output = compute.output
    if compute.epilogue is not None or output.dtype != INT32:
        return False
    if _emit_rows(compute, tuner, dialect, compute.space[-1]):
        return True
    # Slots that stand for nothing are read all the same.
    emit(tuner, lit(0, "int32"), (output.size,), INT32, output.name)
    return _emit_marks(compute, tuner, dialect, compute.operands[0].shape[1:])


def tune_nonzero(compute: Compute, tuner: Tuner, dialect: KernelDialect) -> bool:
    """Rule for hints of kind "nonzero": the same with the index along each axis."""
    if compute.epilogue is not None or compute.output.dtype != INT64:
        return False
    return _emit_marks(compute, tuner, dialect, tuple(compute.attributes["shape"]))
