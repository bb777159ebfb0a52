"""Matrix products of float32: packed columns, tiles of sums in registers, the epilogue on finished blocks."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.partition import SCRATCH_FLOATS, partition
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.compiler.plan import Compute, Tuner
from engine.kernels.value import Value

DEPTH = 320
"""Products per sum before the next columns: so many that a tile's columns stay in first-level cache."""

FLOPS_PER_NS = 70.0
BYTES_PER_NS = 30.0

_WORDS = (
    "m_size n_size k_size row_blocks column_blocks block_rows block_columns"
    " a_batch a_row a_column b_batch b_row b_column"
).split()
_FIRST_WORD = 2

_HELPERS = """
copy_run = make_copy_run({vectors}, {lanes})


@helper
def pack_columns(target, source, k, columns, row_step, column_step):
    if column_step == 1:
        for _ in range(k):
            copy_run(target, source)
            target += {width} * 4
            source += row_step * 4
    else:
        for j in range(columns):
            for r in range(k):
                store_f32(target, r * {width} + j, load_f32(source, r * row_step))
            source += column_step * 4
"""


def tune_matmul(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "matmul": float32, and a space of (batch, m, n)."""
    assert compute.hint is not None
    if not is_float32_core(compute) or len(compute.space) != 3:
        return False
    facts = compute.hint.facts
    m, n, k, batch = (int(facts[name]) for name in ("m", "n", "k", "batch"))
    a_strides, b_strides = tuple(facts["a_strides"]), tuple(facts["b_strides"])
    if compute.space != (batch, m, n):
        return False
    a, b = compute.hint.operands
    tile = host_tile()
    rows = tile.row_choices[0]
    packed = b.known is not None
    epilogue = print_epilogue(compute, _FIRST_WORD + len(_WORDS))
    right = _pack(tuner, b, (batch, k, n), b_strides, tile) if packed else b.name
    flops = 2.0 * m * n * k
    moved = 4.0 * k * (n if m < rows else 0)
    total_ns = batch * (max(flops / FLOPS_PER_NS, moved / BYTES_PER_NS) + m * n * 0.3) + 100.0
    cut = partition(m, n, rows, tile, total_ns / batch, threads, columns_first=not packed or m < rows)
    tasks = batch * cut.tasks
    if packed:
        b_strides = (0 if b_strides[0] == 0 else -(-n // tile.width) * k * tile.width, 0, 0)
    sizes = (m, n, k, cut.row_blocks, cut.column_blocks, cut.rows, cut.columns, *a_strides, *b_strides)
    values = (total_ns / tasks, *sizes, *epilogue.values)
    kernel = NativeKernel("matmul", matmul_text(tile, rows, packed, epilogue))
    tuner.emit(kernel, (tasks,), values, (*epilogue.inputs, a.name, right), compute.output.name)
    return True


def _pack(tuner: Tuner, b: Value, sizes: tuple[int, int, int], strides: tuple[int, ...], tile: Tile) -> str:
    """Known right sides lie ready as panels: (batch, panel, k, tile width)."""
    elements = b.known
    assert elements is not None
    batch, k, n = sizes
    # A matrix that the whole batch shares is packed once, whatever the batch.
    count = 1 if strides[0] == 0 else batch

    def make() -> np.ndarray:
        flat = np.ascontiguousarray(elements).reshape(-1)
        matrices = np.lib.stride_tricks.as_strided(flat, (count, k, n), [4 * s for s in strides])
        return pack_panels(matrices, tile.width)

    return tuner.constant(f"{b.name}|columns{tile.width}|{(count, k, n)}|{strides}", make)


def pack_panels(matrices: np.ndarray, width: int) -> np.ndarray:
    """(count, k, n) -> 1-D (count, ceil(n / width), k, width), the last panel filled up with zeros."""
    count, k, n = matrices.shape
    panels = -(-n // width)
    padded = np.zeros((count, k, panels * width), np.float32)
    padded[:, :, :n] = matrices
    return np.ascontiguousarray(padded.reshape(count, k, panels, width).transpose(0, 2, 1, 3)).reshape(-1)


def matmul_text(tile: Tile, rows: int, packed: bool, epilogue: Epilogue) -> str:
    """The kernel's module."""
    width = tile.width
    numbers = {"rows": rows, "vectors": tile.vectors, "lanes": tile.lanes, "width": width}
    tiles = (
        "gemm_tile = make_gemm_tile({rows}, {vectors}, {lanes}, False, 1)\n"
        "row_tile = make_gemm_tile(1, {vectors}, {lanes}, False, 4)\n"
    ).format(**numbers)
    if packed:
        panel = [f"right = b + (batch * b_batch + ((n0 + c) * k_size + k0 * {width})) * 4"]
    else:
        panel = [
            "source = b + (batch * b_batch + k0 * b_row + (n0 + c) * b_column) * 4",
            f"pack_columns(right, source, depth, min({width}, columns - c), b_row, b_column)",
        ]
    position = _FIRST_WORD + len(_WORDS) + epilogue.words
    body = [
        *(f"{name} = arg_i64(args, {_FIRST_WORD + k})" for k, name in enumerate(_WORDS)),
        *epilogue.arguments,
        f"a = arg_i64(args, {position})",
        f"b = arg_i64(args, {position + 1})",
        f"sums = stack_bytes({SCRATCH_FLOATS * 4})",
        *([] if packed else [f"right = stack_bytes({(DEPTH + 1) * width * 4})"]),
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                "i0 = op_div(task, row_blocks * column_blocks)",
                "block = task - i0 * row_blocks * column_blocks",
                "row_block = op_div(block, column_blocks)",
                "batch = i0",
                "m0 = row_block * block_rows",
                "n0 = (block - row_block * column_blocks) * block_columns",
                "m1 = min(m0 + block_rows, m_size)",
                "columns = min(block_columns, n_size - n0)",
                "c_row = block_columns",
                "k0 = 0",
                "while True:",
                f"    depth = min({DEPTH}, k_size - k0)",
                f"    for c in range(0, columns, {width}):",
                *indent(indent(panel)),
                "        m = m0",
                "        while m < m1:",
                "            left = a + (batch * a_batch + m * a_row + k0 * a_column) * 4",
                "            target = sums + ((m - m0) * block_columns + c) * 4",
                "            if m1 - m > 3:",
                f"                valid = min({rows}, m1 - m)",
                "                gemm_tile(left, a_row, a_column, valid, right, depth, target, c_row, k0)",
                f"                m += {rows}",
                "            else:",
                "                row_tile(left, a_row, a_column, 1, right, depth, target, c_row, k0)",
                "                m += 1",
                f"    k0 += {DEPTH}",
                "    if k0 >= k_size:",
                "        break",
                "first_column = n0",
                "for i1 in range(m0, m1):",
                "    tile = sums + (i1 - m0) * block_columns * 4",
                "    start = (i0 * m_size + i1) * n_size + n0",
                *indent(epilogue.store),
            ]
        ),
    ]
    helpers = "" if packed else _HELPERS.format(**numbers)
    return kernel_text(library_text("vectors") + tiles + helpers, body)
