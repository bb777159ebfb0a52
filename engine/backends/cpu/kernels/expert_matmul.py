"""Mixture-of-experts matrix products: rows times the weights of their chosen experts.

A task takes some columns of one expert: it lists the rows that have chosen it, and reads its weights once.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.codegen.argument_block import ArgumentBlock
from engine.backends.cpu.codegen.cost import tasks_wanted
from engine.backends.cpu.codegen.epilogue import Epilogue, print_epilogue
from engine.backends.cpu.codegen.native_kernel import NativeKernel
from engine.backends.cpu.codegen.printer import indent, kernel_text
from engine.backends.cpu.codegen.schedule import TaskGrid, TaskSchedule, emit, even_blocks
from engine.backends.cpu.codegen.tiles import AVX512, NEON, Tile, host_tile
from engine.backends.cpu.kernels.convolution.nhwc_tiles import FLOPS_PER_NS, NS_PER_RESULT
from engine.backends.cpu.kernels.convolution.small_output_conv import pack_sums
from engine.backends.cpu.library import library_text
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import smallest

_OUTPUTS = 4
"""Columns of a tile."""

_ROOM = 256
"""Rows that are listed at a time."""

_LEAST_COLUMNS = 64
_GRID = TaskGrid(m="n_size")
_ARGUMENTS = ArgumentBlock("pairs count row_count n_size k_size", _GRID.arguments, "panel_floats")


def tune_expert_matmul(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "expert_matmul": float32 over (rows, chosen experts, columns), known weights."""
    chosen, x, w = compute.operands
    tile = host_tile()
    floats = {compute.body.dtype, x.dtype.name, w.dtype.name}
    if w.known is None or floats != {"float32"} or chosen.dtype.name != "int32":
        return False
    experts, n, k = w.shape
    if len(compute.space) != 3 or n < _OUTPUTS or k < tile.lanes:
        return False
    rows, count, _ = compute.space
    pairs, vectors, panels = rows * count, -(-k // tile.lanes), -(-n // _OUTPUTS)
    nanoseconds = pairs * n * (2.0 * k / FLOPS_PER_NS + NS_PER_RESULT)
    wanted = -(-tasks_wanted(nanoseconds, threads) // smallest(experts, pairs))
    blocks = even_blocks(panels, smallest(wanted, n // _LEAST_COLUMNS)).times(_OUTPUTS)
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    weights = tuner.constant(
        f"{w.name}|experts{_OUTPUTS}x{tile.lanes}", partial(pack_experts, w.known, tile.lanes)
    )
    sizes = _ARGUMENTS.values(
        pairs=pairs, count=count, row_count=count if compute.attributes["shared"] else 1, n_size=n, k_size=k,
        **_GRID.values(blocks), panel_floats=panels * vectors * tile.lanes * _OUTPUTS,
    )  # fmt: skip
    schedule, inputs = TaskSchedule.over((blocks,), nanoseconds, experts), (chosen.name, x.name, weights)
    kernel = NativeKernel("expert_matmul", expert_matmul_text(tile, epilogue))
    return emit(tuner, kernel, schedule, sizes, inputs, compute.output.name, epilogue)


@storable
def pack_experts(w: np.ndarray, lanes: int) -> np.ndarray:
    """(experts, n, k) as (expert, panel of columns, vector, column, lane), 1-D."""
    k = w.shape[2]
    packed = [pack_sums(one[:, :, None], _OUTPUTS, lanes)[:-k] for one in np.ascontiguousarray(w)]
    return np.concatenate(packed)


def expert_matmul_text(tile: Tile, epilogue: Epilogue) -> str:
    """Source of the kernel."""
    rows = 6 if tile in (AVX512, NEON) else 2
    tiles = [
        # A tile at the end takes some row again.
        f"for t in range(found, found + {rows}):",
        "    store_i64(table, t, load_i64(table, found - 1))",
        f"for m in range(m0, m1, {_OUTPUTS}):",
        f"    first_column = min(m, n_size - {_OUTPUTS})",
        f"    panel = weights + m * vectors * {4 * tile.lanes}",
        f"    for t in range(0, found, {rows}):",
        "        sum_tile(table + t * 8, 8, 1, k_size, panel, sums)",
        f"        for r in range(min({rows}, found - t)):",
        "            pair = load_i64(owners, t + r)",
        "            i0 = op_div(pair, count)",
        "            i1 = pair - i0 * count",
        f"            tile = sums + r * {4 * _OUTPUTS}",
        "            start = pair * n_size + first_column",
        *indent(indent(indent(epilogue.store_columns(str(_OUTPUTS))))),
        "found = _types.int64(0)",
    ]
    lead = [
        *_ARGUMENTS.prologue("chosen", "x", "w", epilogue=epilogue),
        f"table = stack_bytes({(_ROOM + rows) * 8})",
        f"owners = stack_bytes({_ROOM * 8})",
        f"sums = stack_bytes({rows * _OUTPUTS * 4})",
        f"vectors = op_div(k_size + {tile.lanes - 1}, _types.int64({tile.lanes}))",
        *epilogue.kernel,
    ]
    task = [
        *_GRID.locate("expert"),
        "weights = w + expert * panel_floats * 4",
        "found = _types.int64(0)",
        "for asked in range(pairs):",
        "    if read_int32(chosen, asked) == expert:",
        "        store_i64(table, found, x + op_div(asked, row_count) * k_size * 4)",
        "        store_i64(owners, found, asked)",
        "        found += 1",
        f"    if found == {_ROOM} or (found > 0 and asked == pairs - 1):",
        *indent(indent(tiles)),
    ]
    makers = f"sum_tile = make_sum_tile({rows}, {_OUTPUTS}, {tile.lanes})\n"
    return kernel_text(library_text("vectors", "epilogue", "conv_tiles") + makers, lead, task)
