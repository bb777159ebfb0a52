"""Matrix products of float32 with known right sides computed in bfloat16 or in bytes.

A row of the left side has a range of its own where it is rounded to bytes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import (
    Blocks,
    TaskGrid,
    TaskSchedule,
    TiledAxis,
    emit,
    partition_axes,
)
from engine.backends.cpu.codegen.task_partition import up
from engine.backends.cpu.kernels.matmul.low_precision import (
    BAND_BYTES,
    NEAR_BYTES,
    PANEL,
    PANEL_GROUP_BYTES,
    SUMS,
    column_scales,
    columns_text,
    head_text,
    memory_text,
    near_columns,
    pack_columns,
    product_ns,
    release_text,
    row_pitch,
    scale_text,
)
from engine.backends.cpu.kernels.matmul.packing import matrices_of
from engine.backends.cpu.kernels.matmul.precision import Arithmetic
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferrable, deferred

_LEAST_FLOPS = 4e5
"""Products smaller than this take less time in float32 than rounding and starting does."""

_GRID = TaskGrid(column="n_size", m="m_size")
"""Tasks that follow each other share their columns, which stay in cache."""

_ARGUMENTS = ArgumentBlock(
    "m_size n_size k_size groups",
    _GRID.arguments,
    "columns_at_once rows_at_once groups_at_once pitch a_batch a_row a_column b_batch",
)

_ROUND_ROWS = {
    False: """
@helper
def round_rows(band, a, rows, count, row_step, column_step, pitch):
    for r in range(rows):
        target = band + r * pitch
        source = a + r * row_step * 4
        if column_step == 1:
            round_run(target, source, count, _types.float32(1.0), 0)
        else:
            for k in range(count):
                store_u16(target, k, bf16_bits(load_f32(source, k * column_step)))
            for k in range(count, (count + 31) & -32):
                store_u16(target, k, 0)

""",
    True: """
@helper
def measure_rows(state, ranges, a, rows, count, row_step):
    for r in range(rows):
        start_range(state)
        measure_run(state, a + r * row_step * 4, count)
        end_range(state, ranges + r * 16)


@helper
def round_rows(band, a, rows, count, row_step, ranges, pitch):
    for r in range(rows):
        factor, zero = load_f32(ranges, 4 * r), load_i64(ranges, 2 * r + 1)
        round_run(band + r * pitch, a + r * row_step * 4, count, factor, zero)

""",
}
"""By whether elements are bytes."""


class MatmulPartition(NamedTuple):
    """Division of a product into tasks, and of these into passes."""

    columns: Blocks
    rows: Blocks
    columns_at_once: int
    rows_at_once: int
    groups_at_once: int


def tune_low_precision_matmul(compute: Compute, tuner: Tuner, threads: int, arithmetic: Arithmetic) -> bool:
    """Rule for hints of kind "matmul" with a known right side that is worth it."""
    attributes = compute.attributes
    if not compute.is_float32 or len(compute.space) != 3:
        return False
    m, n, k, batch = (attributes[name] for name in ("m", "n", "k", "batch"))
    a, b = compute.operands
    flops = 2.0 * m * n * k
    if b.known is None or compute.space != (batch, m, n) or flops < _LEAST_FLOPS or min(n, k) < 16:
        return False
    a_strides, b_strides = tuple(attributes["a_strides"]), tuple(attributes["b_strides"])
    elements = b.known
    count = 1 if b_strides[0] == 0 else batch
    if arithmetic.bytewise and (count > 1 or a_strides[2] != 1):
        return False
    groups = -(-k // arithmetic.group)
    total_ns = product_ns(m, n, k, m * k) + 100.0
    partition = deferred(cut_packed, m, n, groups, batch, threads, total_ns)

    at_once, sides = partition.groups_at_once, (count, k, n)
    name = f"{b.name}|{arithmetic.precision}|{sides}|{b_strides}"
    make = partial(pack_matrices, elements, sides, b_strides, at_once, arithmetic)
    constants = [tuner.constant(f"{name}|{at_once}", make)]
    if arithmetic.bytewise:
        scales = partial(scales_of_matrices, elements, sides, b_strides)
        constants.append(tuner.constant(f"{name}|scales", scales))
    b_batch = 0 if b_strides[0] == 0 else -(-n // PANEL) * groups * PANEL_GROUP_BYTES
    sizes = _ARGUMENTS.values(
        m_size=m, n_size=n, k_size=k, groups=groups, **_GRID.values(partition.columns, partition.rows),
        columns_at_once=partition.columns_at_once,
        rows_at_once=partition.rows_at_once, groups_at_once=partition.groups_at_once,
        pitch=row_pitch(min(groups, partition.groups_at_once)), a_batch=a_strides[0], a_row=a_strides[1],
        a_column=a_strides[2], b_batch=b_batch,
    )  # fmt: skip
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    schedule = TaskSchedule.over((partition.columns, partition.rows), batch * total_ns, batch)
    kernel = NativeKernel(f"matmul_{arithmetic.precision}", matmul_text(arithmetic, epilogue))
    return emit(tuner, kernel, schedule, sizes, (a.name, *constants), compute.output.name, epilogue)


@storable
def pack_matrices(
    elements: np.ndarray,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    at_once: int,
    arithmetic: Arithmetic,
) -> np.ndarray:
    """The columns of (count, k, n) matrices, packed matrix by matrix."""
    matrices = matrices_of(elements, sizes, strides)
    return np.concatenate([pack_columns(matrix[None], at_once, arithmetic) for matrix in matrices])


@storable
def scales_of_matrices(elements: np.ndarray, sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The scales of the columns of (count, k, n) matrices."""
    return column_scales(matrices_of(elements, sizes, strides))


@deferrable
def cut_packed(m: int, n: int, groups: int, batch: int, threads: int, nanoseconds: float) -> MatmulPartition:
    """Tasks for all threads; the columns of a task are as few as stay near, its rows fit into the band."""
    wanted = tasks_wanted(nanoseconds * batch, threads)
    fitting = BAND_BYTES // row_pitch(groups)
    if fitting >= min(up(m, 16), 64):
        rows = min(up(m, 32), max(16, fitting // 32 * 32))
        at_once = groups
    else:
        rows = min(up(m, 16), 64)
        at_once = BAND_BYTES // (rows * 64) - 1
    columns, held = near_columns(n, groups * 64)
    if at_once < groups:
        held = columns = min(held, SUMS // up(rows, 32) // PANEL * PANEL)

    def narrower(columns: TiledAxis, rows: TiledAxis) -> int | None:
        narrow = columns.block > 64 and (n * groups * 64 > NEAR_BYTES or rows.block <= 64)
        if narrow or not rows.is_divisible:
            return 0 if columns.is_divisible else None
        return 1

    axes = [TiledAxis(n, columns, PANEL, PANEL), TiledAxis(m, rows, 32, 32)]
    of_columns, of_rows = partition_axes(axes, batch, wanted, narrower)
    held = min(held, of_columns.size)
    return MatmulPartition(of_columns, of_rows, held, SUMS // held // 32 * 32, at_once)


def matmul_text(arithmetic: Arithmetic, epilogue: Epilogue) -> str:
    """Source of the kernel."""
    bytewise = arithmetic.bytewise
    entry = "done + r"
    step, zero = f"load_f32(ranges, 4 * ({entry}) + 1)", f"load_i64(ranges, 2 * ({entry}) + 1)"
    size, last = arithmetic.group, "ranges" if bytewise else "a_column"
    measure = ["measure_rows(state, ranges, a + (batch * a_batch + m0 * a_row) * 4, rows, k_size, a_row)"]
    right = "b + batch * b_batch + (first_column >> 5) * panel_bytes + g0 * 2048"
    store = [
        "if g0 + depth >= groups:",
        "    for r in range(count):",
        "        i1 = m0 + done + r",
        "        tile = sums + r * columns_at_once * 4",
        "        start = (i0 * m_size + i1) * n_size + first_column",
        *indent(indent(scale_text(arithmetic, step, zero))),
        *indent(indent(epilogue.store)),
    ]
    lead = [
        *_ARGUMENTS.prologue("a", "b", *(["scales"] if bytewise else []), epilogue=epilogue),
        *memory_text(arithmetic),
        "offsets = stack_bytes(64)",
        "store_i64(offsets, 0, 0)",
        "taps = 1",
        "panel_bytes = groups * 2048",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("i0"),
        "batch, rows, task_columns = i0, m1 - m0, column1 - column0",
        *(measure if bytewise else []),
        "g0 = 0",
        "while g0 < groups:",
        "    depth = min(groups_at_once, groups - g0)",
        f"    first = a + (batch * a_batch + m0 * a_row + g0 * {size} * a_column) * 4",
        f"    wanted = min(depth * {size}, k_size - g0 * {size})",
        f"    round_rows(band, first, rows, wanted, a_row, {last}, pitch)",
        *indent(columns_text(arithmetic, "column0", right, "rows", store)),
        "    g0 += groups_at_once",
    ]
    return kernel_text(head_text(arithmetic) + _ROUND_ROWS[bytewise], lead, task, release_text(arithmetic))
