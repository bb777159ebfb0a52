"""Matrix products of float32 computed in bfloat16: known right sides, sums in float32.

A task rounds rows of the left side into memory of its own, a band, and multiplies them with packed columns
that are half as long as those of float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from engine.backends.cpu.cost import CHUNK_NS, CHUNKS_PER_THREAD
from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.precision import Arithmetic
from engine.backends.cpu.printer import indent, kernel_text
from engine.compiler.plan import Compute, Tuner

GROUP = 32
"""Bfloat16s in a group of 64 bytes: what one instruction takes of a row."""

PANEL = 32
"""Columns that lie together in the packed right side."""

BAND_BYTES = 256 << 10
SLACK_BYTES = 96 << 10
"""Behind a band, which whole blocks of rows may read."""

SUMS = 16384
"""Sums that a task holds (64 KiB)."""

_NEAR_BYTES = 640 << 10
"""Packed columns that stay in second-level cache beside a band."""

FLOPS_PER_NS = 500.0
BYTES_PER_NS = 15.0
NARROWED_PER_NS = 6.0
_STORED_PER_NS = 3.0

_LEAST_FLOPS = 4e5
"""Products smaller than this take less time in float32 than rounding and starting does."""

_WORDS = (
    "m_size n_size k_size groups row_blocks column_blocks block_rows block_columns columns_at_once"
    " rows_at_once groups_at_once pitch a_batch a_row a_column b_batch"
).split()
_FIRST_WORD = 2

_HELPERS = """
@helper
def narrow_run(target, source, count):
    # Whole groups; what lacks of the last one is zeros.
    while count >= 32:
        narrow_group(target, source)
        target += 64
        source += 128
        count -= 32
    if count > 0:
        narrow_part(target, source, count)


@helper
def narrowed(value):
    bits = _types.int64(f32_as_i32(value)) & 0xFFFFFFFF
    if bits & 0x7FFFFFFF > 0x7F800000:
        return (bits >> 16) | 0x40
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16

"""

_NARROW_ROWS = """
@helper
def narrow_rows(band, a, rows, count, row_step, column_step, pitch):
    for r in range(rows):
        target = band + r * pitch
        source = a + r * row_step * 4
        if column_step == 1:
            narrow_run(target, source, count)
        else:
            for k in range(count):
                store_u16(target, k, narrowed(load_f32(source, k * column_step)))
            for k in range(count, (count + 31) & -32):
                store_u16(target, k, 0)

"""


@dataclass(frozen=True)
class Cut:
    """How a product is cut: tasks of `rows` x `columns` results, in which so many are held at a time."""

    rows: int
    columns: int
    columns_at_once: int
    rows_at_once: int
    groups_at_once: int

    def blocks(self, m: int, n: int) -> tuple[int, int]:
        """Tasks along the rows and along the columns."""
        return -(-m // self.rows), -(-n // self.columns)


def tune_reduced_matmul(compute: Compute, tuner: Tuner, threads: int, arithmetic: Arithmetic) -> bool:
    """Rule for hints of kind "matmul" with a known right side that is worth it."""
    assert compute.hint is not None
    facts = compute.hint.facts
    if not is_float32_core(compute) or len(compute.space) != 3:
        return False
    m, n, k, batch = (int(facts[name]) for name in ("m", "n", "k", "batch"))
    a, b = compute.hint.operands
    flops = 2.0 * m * n * k
    if b.known is None or compute.space != (batch, m, n) or flops < _LEAST_FLOPS or min(n, k) < 16:
        return False
    a_strides, b_strides = tuple(facts["a_strides"]), tuple(facts["b_strides"])
    elements = b.known
    count = 1 if b_strides[0] == 0 else batch

    groups = -(-k // GROUP)
    total_ns = product_ns(m, n, k, m * k) + 100.0
    cut = cut_product(m, n, groups, batch, threads, total_ns)

    def make() -> np.ndarray:
        flat = np.ascontiguousarray(elements).reshape(-1)
        matrices = np.lib.stride_tricks.as_strided(flat, (count, k, n), [4 * s for s in b_strides])
        return np.concatenate([pack_panels(x[None], cut.groups_at_once) for x in matrices])

    name = f"{b.name}|bf16|{(count, k, n)}|{b_strides}|{cut.groups_at_once}"
    right = tuner.constant(name, make)
    row_blocks, column_blocks = cut.blocks(m, n)
    tasks = batch * row_blocks * column_blocks
    b_batch = 0 if b_strides[0] == 0 else -(-n // PANEL) * groups * 2048
    sizes = (
        m, n, k, groups, row_blocks, column_blocks, cut.rows, cut.columns, cut.columns_at_once,
        cut.rows_at_once, cut.groups_at_once, row_pitch(min(groups, cut.groups_at_once)), *a_strides, b_batch,
    )  # fmt: skip
    epilogue = print_epilogue(compute, _FIRST_WORD + len(_WORDS))
    values = (batch * total_ns / tasks, *sizes, *epilogue.values)
    kernel = NativeKernel(f"matmul_{arithmetic.precision}", matmul_text(arithmetic, epilogue))
    tuner.emit(kernel, (tasks,), values, (*epilogue.inputs, a.name, right), compute.output.name)
    return True


def product_ns(rows: int, columns: int, depth: int, narrowed: float) -> float:
    """Estimated time of a product on one thread."""
    blocks = -(-rows // 16) * 16
    multiplied = 2.0 * blocks * columns * depth / FLOPS_PER_NS
    read = 2.0 * columns * depth / BYTES_PER_NS if rows <= 16 else 0.0
    return max(multiplied, read) + narrowed / NARROWED_PER_NS + rows * columns / _STORED_PER_NS


def row_pitch(groups: int) -> int:
    """Bytes between rows of a band; no large power of two, whose rows would share a few lines of cache."""
    return 64 * (groups + 1 if groups >= 8 and groups % 2 == 0 else groups)


def cut_product(m: int, n: int, groups: int, batch: int, threads: int, nanoseconds: float) -> Cut:
    """Tasks for all threads; the columns of a task are as few as stay near, its rows fit into the band."""
    wanted = tasks_wanted(nanoseconds * batch, threads)
    fitting = BAND_BYTES // row_pitch(groups)
    if fitting >= min(_up(m, 16), 64):
        rows = min(_up(m, 32), max(16, fitting // 32 * 32))
        at_once = groups
    else:
        rows = min(_up(m, 16), 64)
        at_once = BAND_BYTES // (rows * 64) - 1
    columns, held = near_columns(n, groups * 64)
    if at_once < groups:
        held = columns = min(held, SUMS // _up(rows, 32) // PANEL * PANEL)
    while -(-m // rows) * -(-n // columns) * batch < wanted:
        narrow = columns > 64 and (n * groups * 64 > _NEAR_BYTES or rows <= 64)
        if narrow or (rows <= 32 and columns > 32):
            columns = _up(columns // 2, PANEL)
        elif rows > 32:
            rows = _up(rows // 2, 32)
        else:
            break
    held = min(held, columns)
    return Cut(rows, columns, held, SUMS // held // 32 * 32, at_once)


def tasks_wanted(nanoseconds: float, threads: int) -> int:
    """Tasks that keep all threads busy, if there is so much to do."""
    return 1 if threads == 1 else max(1, min(int(nanoseconds / CHUNK_NS), threads * CHUNKS_PER_THREAD))


def near_columns(n: int, column_bytes: int) -> tuple[int, int]:
    """Columns of a task, and how many of them at a time: so many as stay in cache packed."""
    held = max(PANEL, min(256, _NEAR_BYTES // column_bytes // PANEL * PANEL, _up(n, PANEL)))
    return _up(n, held), held


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def pack_panels(taps: np.ndarray, groups_at_once: int) -> np.ndarray:
    """(taps, k, n) float32 -> bfloat16 as uint16s: panel, part of k, tap, group, tile, pair, column, element.

    k is filled up with zeros to whole groups, n to whole panels; a part of k is `groups_at_once` groups.
    """
    count, k, n = taps.shape
    groups, panels = -(-k // GROUP), -(-n // PANEL)
    padded = np.zeros((count, groups * GROUP, panels * PANEL), np.uint16)
    padded[:, :k, :n] = taps.astype(ml_dtypes.bfloat16).view(np.uint16)
    split = padded.reshape(count, groups, GROUP // 2, 2, panels, 2, 16).transpose(4, 0, 1, 5, 2, 6, 3)
    parts = [
        split[:, :, g : g + groups_at_once].reshape(panels, -1) for g in range(0, groups, groups_at_once)
    ]
    return np.concatenate(parts, axis=1).reshape(-1)


def head_text(arithmetic: Arithmetic) -> str:
    """Library and products that a kernel of this arithmetic starts with."""
    lines = []
    for name, rows in (("block", arithmetic.rows), ("few", arithmetic.few_rows)):
        for columns in (1, 2):
            if arithmetic.unit == "amx":
                made = f"make_matrix_product({rows // 16}, {columns}, 'tdpbf16ps')"
            else:
                made = f"make_vector_product({rows}, {columns})"
            lines.append(f"{name}_{columns} = {made}\n")
    return library_text("vectors", "reduced") + "".join(lines) + _HELPERS


def memory_text(arithmetic: Arithmetic) -> list[str]:
    """Statements before the first task: a task's own memory, and the matrix unit's shapes."""
    lines = [f"sums = stack_bytes({SUMS * 4})", f"band = stack_bytes({BAND_BYTES + SLACK_BYTES})"]
    if arithmetic.unit == "amx":
        # Palette 1; each of the eight tiles has 16 rows of 64 bytes.
        fields = {0: 1, 1: 0, 2: 0x0040004000400040, 3: 0x0040004000400040, 4: 0, 5: 0}
        fields |= {6: 0x1010101010101010, 7: 0}
        lines += ["shapes = stack_bytes(64)"]
        lines += [f"store_i64(shapes, {k}, {word})" for k, word in fields.items()]
        lines += ["configure_tiles(shapes)"]
    return lines


def release_text(arithmetic: Arithmetic) -> list[str]:
    """Statements behind the last task."""
    return ["release_tiles()"] if arithmetic.unit == "amx" else []


def multiply_text(arithmetic: Arithmetic, left: str = "left") -> list[str]:
    """Statements that multiply `count` rows from the address `left` on with `columns` columns, into `sums`.

    They take `right`, where the columns start, `pitch`, `offsets`, `taps`, `depth` (groups), `panel_bytes`
    (from one panel to the next), `columns_at_once` and `g0`, the first group, with which sums start.
    """
    rest = "offsets, taps, depth, panel, target, columns_at_once * 4, g0"
    lines = ["c = 0", "panel = right", "while c < columns:", "    m = 0", "    while m < count:"]
    lines += [
        f"        source = {left} + m * pitch",
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
    return [*lines, f"    c += {PANEL}", "    panel += panel_bytes"]


def matmul_text(arithmetic: Arithmetic, epilogue: Epilogue) -> str:
    """The kernel's module."""
    position = _FIRST_WORD + len(_WORDS) + epilogue.words
    block = [
        "columns = min(columns_at_once, task_columns - c0)",
        "right = b + batch * b_batch + ((n0 + c0) >> 5) * panel_bytes + g0 * 2048",
        "done = 0",
        "while done < rows:",
        "    count = min(rows_at_once, rows - done)",
        "    left = band + done * pitch",
        *indent(multiply_text(arithmetic)),
        "    if g0 + depth >= groups:",
        "        first_column = n0 + c0",
        "        for r in range(count):",
        "            i1 = m0 + done + r",
        "            tile = sums + r * columns_at_once * 4",
        "            start = (i0 * m_size + i1) * n_size + first_column",
        *indent(indent(indent(epilogue.store))),
        "    done += rows_at_once",
        "c0 += columns_at_once",
    ]
    body = [
        *(f"{name} = arg_i64(args, {_FIRST_WORD + k})" for k, name in enumerate(_WORDS)),
        *epilogue.arguments,
        f"a = arg_i64(args, {position})",
        f"b = arg_i64(args, {position + 1})",
        *memory_text(arithmetic),
        "offsets = stack_bytes(64)",
        "store_i64(offsets, 0, 0)",
        "taps = 1",
        "panel_bytes = groups * 2048",
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                "i0 = op_div(task, row_blocks * column_blocks)",
                "block = task - i0 * row_blocks * column_blocks",
                # Tasks that follow each other share their columns, which stay in cache.
                "column_block = op_div(block, row_blocks)",
                "batch = i0",
                "m0 = (block - column_block * row_blocks) * block_rows",
                "n0 = column_block * block_columns",
                "rows = min(block_rows, m_size - m0)",
                "task_columns = min(block_columns, n_size - n0)",
                "g0 = 0",
                "while g0 < groups:",
                "    depth = min(groups_at_once, groups - g0)",
                "    first = a + (batch * a_batch + m0 * a_row + g0 * 32 * a_column) * 4",
                "    wanted = min(depth * 32, k_size - g0 * 32)",
                "    narrow_rows(band, first, rows, wanted, a_row, a_column, pitch)",
                "    c0 = 0",
                "    while c0 < task_columns:",
                *indent(indent(block)),
                "    g0 += groups_at_once",
            ]
        ),
        *release_text(arithmetic),
    ]
    return kernel_text(head_text(arithmetic) + _NARROW_ROWS, body)
