"""Convolutions of float32 over one or two axes as matrix products, without an unfolded input in memory.

The weights are the left side: (M, C * taps), packed once. The right side has a column per output position;
a task gathers the columns of one tile at a time into its stack, from runs of the input, and multiplies them
by all its rows while they are in first-level cache.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.backends.cpu.argument_block import ArgumentBlock
from engine.backends.cpu.depthwise import tune_depthwise
from engine.backends.cpu.epilogue import Epilogue, is_float32_core, print_epilogue
from engine.backends.cpu.library import library_text
from engine.backends.cpu.native_kernel import NativeKernel
from engine.backends.cpu.packing import pack_panels
from engine.backends.cpu.partition import GROUP_OF_IMAGE, SCRATCH_FLOATS, block_text, partition
from engine.backends.cpu.planes import TAP_OFFSETS, stage_planes
from engine.backends.cpu.printer import indent, kernel_text
from engine.backends.cpu.tiles import Tile, host_tile
from engine.backends.cpu.windows import MAX_TAPS, Windows, windows_first
from engine.compiler.plan import Compute, Tuner, storable
from engine.kernels.size import deferred

DEPTH = 320
"""Products per sum before the next columns are gathered; whole channels, so up to `MAX_TAPS`."""

MAX_CONV_TAPS = 512

FLOPS_PER_NS = 70.0

_ARGUMENTS = ArgumentBlock(
    "m_size p_size c_size row_blocks column_blocks block_rows block_columns groups plane_size kernel_rows "
    "kernel_columns row_step tap_row_step row_length dilation stride out_width channels_at_once last_size"
)

_HELPERS = """
gemm_tile = make_gemm_tile({rows}, {vectors}, {lanes}, True, {unroll})
copy_run = make_copy_run({vectors}, {lanes})


@helper
def find_runs(first, count, out_width, row_step, runs):
    # Where the columns first..first+count-1 of a tile lie: place in the tile and in the plane, in bytes.
    found = 0
    done = 0
    while done < count:
        i = op_div(first + done, out_width)
        j = first + done - i * out_width
        length = min(out_width - j, count - done)
        store_i64(runs, 2 * found, done * 4)
        store_i64(runs, 2 * found + 1, (i * row_step + j) * 4)
        done += length
        found += 1
    return found


@helper
def gather(target, source, channels, plane_size, taps, offsets, runs, count):
    # Runs are copied as whole vectors; what a run writes too far, the next one or the next tap overwrites.
    if count == 1:
        start = load_i64(runs, 1)
        for _ in range(channels):
            for tap in range(taps):
                origin = source + load_i64(offsets, tap) + start
                copy_run(target, origin)
                # The next columns' elements, which no hardware would guess.
                prefetch(origin + {ahead})
                target += {width} * 4
            source += plane_size * 4
    else:
        for _ in range(channels):
            for tap in range(taps):
                origin = source + load_i64(offsets, tap)
                for r in range(count):
                    copy_run(target + load_i64(runs, 2 * r), origin + load_i64(runs, 2 * r + 1))
                prefetch(origin + load_i64(runs, 2 * count - 1) + {ahead})
                target += {width} * 4
            source += plane_size * 4

"""


def tune_conv(compute: Compute, tuner: Tuner, threads: int) -> bool:
    """Rule for hints of kind "conv": float32, one or two axes, known weights."""
    assert compute.hint is not None
    win = windows_first(compute)
    _, w = compute.hint.operands
    if win is None or w.known is None or not is_float32_core(compute) or win.taps > MAX_CONV_TAPS:
        return False
    group = int(compute.hint.facts["group"])
    if w.shape[1] == 1 and group > 1 and tune_depthwise(compute, tuner, win):
        return True
    return _tune_gemm(compute, tuner, win, group, threads)


def _tune_gemm(compute: Compute, tuner: Tuner, win: Windows, group: int, threads: int) -> bool:
    assert compute.hint is not None
    x, w = compute.hint.operands
    tile = host_tile()
    batch, channels, m = x.shape[0], w.shape[1], w.shape[0] // group
    rows = tile.rows_for(m)
    pixels = win.out[0] * win.out[1]
    planes = stage_planes(tuner, x.name, batch * group * channels, win, 0.0)
    epilogue = print_epilogue(compute, _ARGUMENTS.end)
    weights = _pack(tuner, w.name, w.known, group, rows)
    total_ns = 2.0 * batch * group * m * channels * win.taps * pixels / FLOPS_PER_NS + 500.0
    cut = deferred(partition, m, pixels, rows, tile, total_ns / (batch * group), threads, True)
    tasks = batch * group * cut.tasks
    # Pointwise, the whole plane is one run.
    out_width = pixels if win.is_pointwise else win.out[1]
    sizes = _ARGUMENTS.values(
        m_size=m, p_size=pixels, c_size=channels, row_blocks=cut.row_blocks,
        column_blocks=cut.column_blocks, block_rows=cut.rows, block_columns=cut.columns, groups=group,
        plane_size=planes.plane_size, kernel_rows=win.kernel[0], kernel_columns=win.kernel[1],
        row_step=planes.row_step, tap_row_step=planes.tap_row_step, row_length=planes.row_length,
        dilation=planes.dilation, stride=planes.stride, out_width=out_width,
        channels_at_once=max(1, DEPTH // win.taps), last_size=win.out[1],
    )  # fmt: skip
    values = (total_ns / tasks, *sizes, *epilogue.values)
    kernel = NativeKernel("conv", conv_text(tile, rows, epilogue))
    tuner.emit(kernel, (tasks,), values, (*epilogue.inputs, planes.name, weights), compute.output.name)
    return True


def _pack(tuner: Tuner, name: str, known: np.ndarray | None, group: int, rows: int) -> str:
    assert known is not None
    return tuner.constant(f"{name}|rows{rows}|{group}", partial(pack_rows, known, group, rows))


@storable
def pack_rows(elements: np.ndarray, group: int, rows: int) -> np.ndarray:
    """Weights as tiles of rows: (group, tile, C * taps, rows), the last tile of a group padded with zeros."""
    return pack_panels(elements.reshape(group, elements.shape[0] // group, -1).swapaxes(1, 2), rows)


def conv_text(tile: Tile, rows: int, epilogue: Epilogue) -> str:
    """The kernel's module."""
    width = tile.width
    # Few sums would wait for each other; taller tiles have enough of them.
    unroll = 2 if rows * tile.vectors < 8 else 1
    numbers = {
        "rows": rows,
        "vectors": tile.vectors,
        "lanes": tile.lanes,
        "width": width,
        "unroll": unroll,
        "ahead": width * 4 + 64,
    }
    depth = max(DEPTH, MAX_CONV_TAPS)
    body = [
        *_ARGUMENTS.prologue("x", "w", epilogue=epilogue),
        "taps = kernel_rows * kernel_columns",
        "k_size = c_size * taps",
        f"row_tiles = op_div(m_size + {rows - 1}, _types.int64({rows}))",
        f"sums = stack_bytes({SCRATCH_FLOATS * 4})",
        f"right = stack_bytes({(depth + 1) * width * 4})",
        f"offsets = stack_bytes({MAX_TAPS * 8})",
        f"runs = stack_bytes({width * 16})",
        "tap_offsets(offsets, kernel_rows, kernel_columns, tap_row_step, row_length, dilation, stride)",
        *epilogue.kernel,
        "for task in range(begin, end):",
        *indent(
            [
                *block_text("image", "first_column", GROUP_OF_IMAGE),
                "columns = min(block_columns, p_size - first_column)",
                f"tiles = w + group * row_tiles * k_size * {rows * 4}",
                "c0 = 0",
                "while c0 < c_size:",
                "    channels = min(channels_at_once, c_size - c0)",
                "    source = x + (image * c_size + c0) * plane_size * 4",
                f"    for c in range(0, columns, {width}):",
                f"        wanted = min({width}, columns - c)",
                "        count = find_runs(first_column + c, wanted, out_width, row_step, runs)",
                "        gather(right, source, channels, plane_size, taps, offsets, runs, count)",
                f"        for m in range(m0, m1, {rows}):",
                f"            left = tiles + (m * k_size + c0 * taps * {rows}) * 4",
                "            target = sums + ((m - m0) * block_columns + c) * 4",
                "            gemm_tile(left, 0, 0, 0, right, channels * taps, target, block_columns, c0)",
                "    c0 += channels_at_once",
                "for m in range(m0, m1):",
                "    i1 = group * m_size + m",
                "    tile = sums + (m - m0) * block_columns * 4",
                "    start = (image * m_size + m) * p_size + first_column",
                *indent(epilogue.store),
            ]
        ),
    ]
    return kernel_text(library_text("vectors") + _HELPERS.format(**numbers) + TAP_OFFSETS, body)
