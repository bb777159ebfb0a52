"""The common part of low-precision matrix products and convolutions.

A task rounds rows of the left side into memory of its own, a band, and multiplies them with packed columns.
Bfloat16s are rounded one by one. Bytes stand for (byte - zero point) * step, where step and zero point span
the range of the given rows, 0 included; columns have a step each. Sums are float32s or int32s.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from engine.backends.cpu.codegen.printer import indent
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.kernels.matmul.precision import Arithmetic
from engine.backends.cpu.library import library_text

PANEL = 32
"""Columns that lie together in the packed right side."""

GROUP_BYTES = 64
PANEL_GROUP_BYTES = PANEL * GROUP_BYTES

BAND_BYTES = 256 << 10
SLACK_BYTES = 96 << 10
"""Behind a band, which whole blocks of rows may read."""

SUMS = 16384
"""Sums that a task holds (64 KiB)."""

NEAR_BYTES = 640 << 10
"""Packed columns that stay in the second-level cache together with a band."""

ENTRY_BYTES = 16
"""A range: 1 / step and step as float32s, and the zero point."""

FLOPS_PER_NS = 500.0
BYTES_PER_NS = 15.0
NARROWED_PER_NS = 6.0
_STORED_PER_NS = 3.0

_HELPERS = """
@helper
def round_run(target, source, count, factor, zero):
    # Whole groups; what lacks of the last one stands for zeros.
    while count >= {group}:
        round_group(target, source, factor, zero)
        target += 64
        source += {group} * 4
        count -= {group}
    if count > 0:
        round_part(target, source, count, factor, zero)

"""

_BITS = """
@helper
def bf16_bits(value):
    bits = _types.int64(f32_as_i32(value)) & 0xFFFFFFFF
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16

"""

_RANGES = """
@helper
def start_range(state):
    fill_group(state, 0)
    fill_group(state + 64, 0)


@helper
def measure_run(state, source, count):
    while count >= 64:
        widen_range(state, source)
        source += 256
        count -= 64
    if count > 0:
        widen_range_part(state, source, count)


@helper
def end_range(state, entry):
    low, high = _types.float32(0.0), _types.float32(0.0)
    for k in range(16):
        low = min(low, load_f32(state, k))
        high = max(high, load_f32(state, 16 + k))
    step = (high - low) / _types.float32(255.0)
    zero = _types.int64(0)
    if step < _types.float32(1e-30):
        step = _types.float32(1.0)
    elif step < _types.float32(1e30):
        zero = _types.int64(_types.float32(0.5) - low / step)
    store_f32(entry, 0, _types.float32(1.0) / step)
    store_f32(entry, 1, step)
    store_i64(entry, 1, zero)


@helper
def scale_row(tile, columns, step, zero, scales, totals):
    done = 0
    while done < columns:
        scale_sums(tile + done * 4, step, zero, scales + done * 4, totals + done * 4)
        done += 16

"""


def product_ns(rows: int, columns: int, depth: int, narrowed: float) -> float:
    """Estimated time of a product on one thread."""
    blocks = -(-rows // 16) * 16
    multiplied = 2.0 * blocks * columns * depth / FLOPS_PER_NS
    read = 2.0 * columns * depth / BYTES_PER_NS if rows <= 16 else 0.0
    return max(multiplied, read) + narrowed / NARROWED_PER_NS + rows * columns / _STORED_PER_NS


def row_pitch(groups: int) -> int:
    """Bytes between rows of a band; no large power of two, whose rows would share a few lines of cache."""
    return 64 * (groups + 1 if groups >= 8 and groups % 2 == 0 else groups)


def near_columns(n: int, column_bytes: int) -> tuple[int, int]:
    """The columns of a task and of a pass, which stay in cache packed."""
    held = max(PANEL, min(256, NEAR_BYTES // column_bytes // PANEL * PANEL, up(n, PANEL)))
    return up(n, held), held


def quantise_columns(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(..., n) float32 -> int8s of -127..127, and the float32 step of each of the n columns."""
    largest = np.abs(weights.reshape(-1, weights.shape[-1])).max(axis=0, initial=0.0)
    steps = np.where(largest > 0, largest / 127.0, 1.0).astype(np.float32)
    return np.clip(np.rint(weights / steps), -127, 127).astype(np.int8), steps


def pack_columns(taps: np.ndarray, groups_at_once: int, arithmetic: Arithmetic) -> np.ndarray:
    """(taps, k, n) float32 -> 1-D: panel, part of k, tap, group, tile, 4 bytes, column, element.

    k is filled up with zeros to whole groups, n to whole panels; a part of k is `groups_at_once` groups.
    Bfloat16s are stored as uint16s, bytes as int8s.
    """
    if arithmetic.bytewise:
        elements = quantise_columns(taps)[0]
    else:
        elements = taps.astype(ml_dtypes.bfloat16).view(np.uint16)
    count, k, n = taps.shape
    size, groups, panels = arithmetic.group, -(-k // arithmetic.group), -(-n // PANEL)
    padded = np.zeros((count, groups * size, panels * PANEL), elements.dtype)
    padded[:, :k, :n] = elements
    split = padded.reshape(count, groups, 16, size // 16, panels, 2, 16).transpose(4, 0, 1, 5, 2, 6, 3)
    parts = [
        split[:, :, g : g + groups_at_once].reshape(panels, -1) for g in range(0, groups, groups_at_once)
    ]
    return np.concatenate(parts, axis=1).reshape(-1)


def column_scales(taps: np.ndarray) -> np.ndarray:
    """(taps, k, n) -> the steps of the columns of bytes, then the sums of their numbers as int32s' bits."""
    numbers, steps = quantise_columns(taps)
    n = up(taps.shape[2], PANEL)
    found = np.zeros((2, n), np.float32)
    found[0, : steps.size] = steps
    found[1].view(np.int32)[: steps.size] = numbers.sum(axis=(0, 1), dtype=np.int32)
    return found.reshape(-1)


def head_text(arithmetic: Arithmetic) -> str:
    """Library and products that a kernel of this arithmetic starts with."""
    bytewise = arithmetic.bytewise
    lines = []
    for name, rows in (("block", arithmetic.rows), ("few", arithmetic.few_rows)):
        for columns in (1, 2):
            if arithmetic.unit == "amx":
                operation = "tdpbusd" if bytewise else "tdpbf16ps"
                made = f"make_matrix_product({rows // 16}, {columns}, {operation!r})"
            else:
                made = f"make_vector_product({rows}, {columns}, {bytewise}, {arithmetic.lanes})"
            lines.append(f"{name}_{columns} = {made}\n")
    lines.append(f"round_group, round_part = make_rounding({bytewise}, {arithmetic.lanes})\n")
    text = (
        library_text("vectors", "matmul_tiles", "low_precision")
        + "".join(lines)
        + _HELPERS.format(group=arithmetic.group)
    )
    return text + (_RANGES if bytewise else _BITS)


def scale_text(arithmetic: Arithmetic, step: str, zero: str) -> list[str]:
    """Statements that make float32s of a row of int32 sums, from `first_column` on; none for bfloat16."""
    if not arithmetic.bytewise:
        return []
    place = "scales + first_column * 4"
    return [f"scale_row(tile, columns, {step}, {zero}, {place}, {place} + ((n_size + 31) & -32) * 4)"]


def memory_text(arithmetic: Arithmetic) -> list[str]:
    """Statements before the first task: a task's own memory, and the matrix unit's shapes."""
    lines = [f"sums = stack_bytes({SUMS * 4})", f"band = stack_bytes({BAND_BYTES + SLACK_BYTES})"]
    if arithmetic.bytewise:
        entries = BAND_BYTES // GROUP_BYTES
        lines += ["state = stack_bytes(128)", f"ranges = stack_bytes({entries * ENTRY_BYTES})"]
    if arithmetic.unit == "amx":
        # Palette 1; each of the eight tiles has 16 rows of 64 bytes.
        fields = {0: 1, 1: 0, 2: 0x0040004000400040, 3: 0x0040004000400040, 4: 0, 5: 0}
        fields |= {6: 0x1010101010101010, 7: 0}
        lines += ["shapes = stack_bytes(64)"]
        lines += [f"store_i64(shapes, {k}, {word})" for k, word in fields.items()]
        lines += ["configure_tiles(shapes)"]
    return lines


def release_text(arithmetic: Arithmetic) -> list[str]:
    """Statements after the last task."""
    return ["release_tiles(shapes)"] if arithmetic.unit == "amx" else []


def columns_text(arithmetic: Arithmetic, first: str, right: str, whole: str, store: list[str]) -> list[str]:
    """Statements that multiply the band with `task_columns` columns, a pass at a time.

    first: the first column of the task; right: where the column `first_column` is. store: statements about
    the results of `count` rows from `done` on and of `columns` columns, in `sums`. They take `pitch`,
    `offsets`, `taps`, `depth` (groups), `panel_bytes` (from one panel to the next), `columns_at_once`,
    `rows_at_once` and `g0`, the first group, with which sums start.
    """
    rest = "offsets, taps, depth, panel, target, columns_at_once * 4, g0"
    lines = ["c = 0", "panel = right", "while c < columns:", "    m = 0", "    while m < count:"]
    lines += [
        "        source = band + (done + m) * pitch",
        "        target = sums + (m * columns_at_once + c) * 4",
    ]
    for k, (name, rows) in enumerate((("few", arithmetic.few_rows), ("block", arithmetic.rows))):
        bound = arithmetic.few_rows if arithmetic.unit == "amx" else arithmetic.rows - 1
        lines.append(f"        if count - m <= {bound}:" if k == 0 else "        else:")
        lines += [
            "            if columns - c > 16:",
            f"                {name}_2(source, pitch, {rest})",
            "            else:",
            f"                {name}_1(source, pitch, {rest})",
            f"            m += {rows}",
        ]
    lines += [f"    c += {PANEL}", "    panel += panel_bytes"]
    return [
        "c0 = 0",
        "while c0 < task_columns:",
        f"    columns, first_column = min(columns_at_once, task_columns - c0), {first} + c0",
        f"    right = {right}",
        "    done = 0",
        f"    while done < {whole}:",
        f"        count = min(rows_at_once, {whole} - done)",
        *indent(indent([*lines, *store])),
        "        done += rows_at_once",
        "    c0 += columns_at_once",
    ]
